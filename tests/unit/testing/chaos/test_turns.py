from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.testing.chaos.turns import Ask, Pause, Turn, TurnFailed, usage
from dragoman.verify.canary_prompts import Canaries, fill
from tests.faults.ladder_table import TRIGGERS

GO = {"result": {"outcome": {"outcome": "selected", "optionId": "go"}}}
NO = {"result": {"outcome": {"outcome": "selected", "optionId": "no"}}}
OFFERS: dict[str, Any] = {"fs": {"writeTextFile": True}, "terminal": True}


class Played:
    """A turn that is played step by step."""

    def __init__(
        self, text: str, cwd: Path, fault: str = "healthy", offers: dict[str, Any] | None = None
    ) -> None:
        self.updates: list[dict[str, Any]] = []
        session = {"id": "s", "cwd": str(cwd)}
        given = OFFERS if offers is None else offers
        self.turn = Turn(fault, session, text, 1, given, self.updates.append, lambda: None)
        self._steps = self.turn.steps()

    def go(self, answer: Any = None) -> Ask | Pause | str:
        try:
            return self._steps.send(answer)
        except StopIteration as ended:
            return str(ended.value)

    @property
    def text(self) -> str:
        return "".join(
            update["content"]["text"]
            for update in self.updates
            if update["sessionUpdate"] == "agent_message_chunk"
        )


def asked(step: Any) -> str:
    assert isinstance(step, Ask), step
    return step.method


def test_a_prompt_without_a_meaning_is_repeated_in_pieces(tmp_path: Path) -> None:
    turn = Played("hello there", tmp_path)
    assert turn.go() == "end_turn"
    assert turn.text == "You said: hello there"
    assert len(turn.updates) == 4
    assert {update["_meta"]["turnId"] for update in turn.updates} == {"turn-1"}


@pytest.mark.parametrize("canaries", [Canaries(), TRIGGERS])
def test_a_file_is_written_through_the_client_after_asking(
    tmp_path: Path, canaries: Canaries
) -> None:
    path = tmp_path / "a.txt"
    turn = Played(fill(canaries.write, path=str(path), text="abc"), tmp_path)
    assert asked(turn.go()) == "session/request_permission"
    write = turn.go(GO)
    assert isinstance(write, Ask)
    assert write.params == {"sessionId": "s", "path": str(path), "content": "abc"}
    assert turn.go({"result": {}}) == "end_turn"
    assert not path.exists()


def test_a_refused_file_is_not_written(tmp_path: Path) -> None:
    turn = Played(f"WRITE:{tmp_path}/a.txt:abc", tmp_path)
    turn.go()
    assert turn.go(NO) == "end_turn"
    assert turn.text == "Then I leave it."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("offers", [{}, {"fs": {}}, {"fs": None}])
def test_an_agent_writes_itself_where_the_client_does_not_offer_to(
    tmp_path: Path, offers: dict[str, Any]
) -> None:
    turn = Played(f"WRITE:{tmp_path}/a.txt:abc", tmp_path, offers=offers)
    turn.go()
    assert turn.go(GO) == "end_turn"
    assert (tmp_path / "a.txt").read_text() == "abc"


def test_an_agent_that_never_asks_begins_with_the_deed(tmp_path: Path) -> None:
    turn = Played(f"WRITE:{tmp_path}/a.txt:abc", tmp_path, "never-asks")
    assert asked(turn.go()) == "fs/write_text_file"


def test_an_agent_that_ignores_a_refusal_goes_on(tmp_path: Path) -> None:
    turn = Played(f"WRITE:{tmp_path}/a.txt:abc", tmp_path, "ignores-refusal")
    turn.go()
    assert asked(turn.go(NO)) == "fs/write_text_file"


def test_a_question_that_is_cancelled_ends_the_turn_as_cancelled(tmp_path: Path) -> None:
    turn = Played(f"WRITE:{tmp_path}/a.txt:abc", tmp_path)
    turn.go()
    assert turn.go({"result": {"outcome": {"outcome": "cancelled"}}}) == "cancelled"


@pytest.mark.parametrize("canaries", [Canaries(), TRIGGERS])
def test_a_command_runs_in_the_clients_terminal(tmp_path: Path, canaries: Canaries) -> None:
    turn = Played(fill(canaries.shell, command="touch x"), tmp_path)
    turn.go()
    create = turn.go(GO)
    assert isinstance(create, Ask)
    assert create.params["args"] == ["-c", "touch x"]
    assert asked(turn.go({"result": {"terminalId": "t"}})) == "terminal/wait_for_exit"
    assert asked(turn.go({"result": {}})) == "terminal/output"
    assert asked(turn.go({"result": {}})) == "terminal/release"
    assert turn.go({"result": {}}) == "end_turn"


def test_without_a_terminal_a_command_runs_in_the_agent(tmp_path: Path) -> None:
    turn = Played("SHELL:echo ran > x", tmp_path, "runs-itself")
    turn.go()
    assert turn.go(GO) == "end_turn"
    assert (tmp_path / "x").read_text() == "ran\n"


@pytest.mark.parametrize("canaries", [Canaries(), TRIGGERS])
def test_a_slow_turn_stops_when_it_is_cancelled(tmp_path: Path, canaries: Canaries) -> None:
    turn = Played(canaries.slow, tmp_path)
    assert isinstance(turn.go(), Pause)
    turn.turn.cancelled = True
    assert turn.go() == "cancelled"
    deaf = Played(canaries.slow, tmp_path, "ignores-cancel")
    deaf.go()
    deaf.turn.cancelled = True
    assert isinstance(deaf.go(), Pause)


def test_a_failed_model_call_is_an_error_or_a_text(tmp_path: Path) -> None:
    with pytest.raises(TurnFailed, match="400"):
        Played("HTTP:400", tmp_path).go()
    told = Played("HTTP:400", tmp_path, "errors-as-text")
    assert told.go() == "end_turn"
    assert told.text.startswith("Error: 400")


def test_an_empty_turn_says_nothing_and_one_piece_is_one(tmp_path: Path) -> None:
    empty = Played("hello", tmp_path, "empty-turn")
    assert empty.go() == "end_turn"
    assert empty.updates == []
    whole = Played("hello", tmp_path, "one-piece")
    whole.go()
    assert len(whole.updates) == 1


def test_the_total_is_the_sum_of_input_and_output_tokens() -> None:
    used = usage("one two")
    assert used["inputTokens"] + used["outputTokens"] == used["totalTokens"]
