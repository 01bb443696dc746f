"""`dragoman chat`: lines become turns until somebody leaves."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.cli.chat import LEAVE_HINT, converse
from dragoman.cli.command_loop import Interrupted
from dragoman.cli.output import terminal
from dragoman.cli.run_plan import RunOptions
from dragoman.client.results import Result
from dragoman.errors import ProcessExited
from dragoman.events import model
from dragoman.events.parts import SlashCommand
from dragoman.events.words import Outcome
from dragoman.runs import run
from tests.aio import aio
from tests.unit.cli.acting import SOURCE, ActedAgent, ActedStage, ActedTurn, Remembering, plan
from tests.unit.cli.calling import Shell


class Chat:
    """A chat in which these lines are typed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lines: Any, person: bool = False) -> None:
        monkeypatch.setattr(terminal, "is_interactive", lambda: person)
        monkeypatch.setenv("TERM", "dumb")
        self.agent = ActedAgent()
        self.agent.answers = self.answer
        monkeypatch.setattr(run, "open_peer", self.agent.open_peer)
        self.prompts: list[str] = []
        self.results: list[Result] = []
        self.show = Remembering()
        self.stage = ActedStage(*lines)

    def answer(self, turn: ActedTurn) -> Result:
        self.prompts.append(turn.prompt[0].text)
        return self.results.pop(0) if self.results else Result(Outcome.OK, "fine")

    async def run(self) -> int:
        return await converse(plan(), self.stage, self.show, RunOptions(peer="actor", command=None))


@aio
async def test_every_line_is_a_turn_and_the_end_of_input_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat = Chat(monkeypatch, "one", "", "  ", "two", None)
    assert await chat.run() == 0
    assert chat.prompts == ["one", "two"]
    assert len(chat.agent.opened_with) == 1, "it is one session"
    assert chat.agent.closed == 1


@pytest.mark.parametrize("word", ["/quit", " /exit "])
@aio
async def test_a_word_for_leaving_ends_the_chat(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    chat = Chat(monkeypatch, "one", word, "two")
    assert await chat.run() == 0
    assert chat.prompts == ["one"]


@aio
async def test_help_lists_the_agents_commands_and_prompts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = Chat(monkeypatch, "/help", "/go home", None)
    commands = (SlashCommand("go", "Go \x1b[2J somewhere", "where"),)
    tell = chat.agent.tell_settings

    def also_commands() -> None:
        tell()
        base = (SOURCE, 1, "s1", None, "x", None, False)
        chat.agent.tell(model.CommandsChanged(*base, commands))

    chat.agent.tell_settings = also_commands  # type: ignore[method-assign]
    await chat.run()
    out = capsys.readouterr().out
    assert "  /go where         Go ␛[2J somewhere\n" in out and "/quit" in out
    assert chat.prompts == ["/go home"], "commands of the agent go to the agent"


@aio
async def test_ctrl_c_at_the_prompt_says_how_to_leave_and_twice_it_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pressed = Interrupted()
    chat = Chat(monkeypatch, "one", pressed, "two", pressed, pressed, "three", person=True)
    assert await chat.run() == 0
    assert chat.prompts == ["one", "two"]
    assert [text for text in chat.show.notices if "to leave" in text] == [LEAVE_HINT, LEAVE_HINT]


@aio
async def test_an_unknown_command_is_not_a_prompt_at_a_terminal_but_is_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person = Chat(monkeypatch, "/hlep", "//hlep me", None, person=True)
    assert await person.run() == 0
    assert person.prompts == ["/hlep me"]
    assert any("did you mean /help?" in text for text in person.show.notices)
    pipe = Chat(monkeypatch, "/hlep", None)
    assert await pipe.run() == 0
    assert pipe.prompts == ["/hlep"]


@aio
async def test_without_a_person_the_first_failure_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = [Result(Outcome.QUOTA, ""), Result(Outcome.OK, "fine"), Result(Outcome.EMPTY, "")]
    chat = Chat(monkeypatch, "one", "two", "three", None)
    chat.results = [*failed]
    assert await chat.run() == 8
    assert chat.prompts == ["one", "two", "three"]
    person = Chat(monkeypatch, "one", None, person=True)
    person.results = [*failed]
    assert await person.run() == 0


@aio
async def test_an_agent_that_is_gone_ends_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Chat(monkeypatch, "one", "two", person=True)
    chat.results = [Result(Outcome.CRASHED, "", error=ProcessExited(exit_code=3))]
    assert await chat.run() == 1
    assert chat.prompts == ["one"]


@aio
async def test_a_mention_that_is_refused_costs_no_turn_and_the_chat_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    chat = Chat(monkeypatch, "read @/etc/passwd", "two", None)
    monkeypatch.setattr("tests.unit.cli.acting.Path", lambda _: tmp_path)
    assert await chat.run() == 2
    assert len(chat.show.errors) == 1
    assert chat.prompts == ["two"]


@pytest.mark.parametrize("words", [("chat",), ("chat", "scout", "--", "agent"), ("chat", "scuot")])
def test_what_cannot_be_meant_starts_nothing(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell(*words).code == 2
