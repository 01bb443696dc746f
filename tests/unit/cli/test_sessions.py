"""`dragoman sessions` without any peer: listing, showing, moving and deleting."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from pathlib import Path

import pytest

from dragoman.cli.output import questions
from dragoman.store import database, root_of
from dragoman.store.open import open_store
from dragoman.transports.process.identity import own_identity
from tests.unit.cli.calling import Shell
from tests.unit.runs.stored import job, said, session


@pytest.fixture
def stored(shell: Shell) -> Shell:
    root = str(root_of(shell.cwd))
    with open_store() as store:
        store.create_session(session(root=root, name="parser"))
        store.append("s-0000000001", 0, [said("an answer")])
        store.create_job(job(next_event=1))
        store.create_session(session("s-2", root=root, closed_at=1.0))
        store.create_session(session("s-3", root="/elsewhere", peer="gemini"))
    return shell


def keys(shell: Shell, *words: str) -> list[str]:
    return shell("sessions", "list", "--format", "quiet", *words).out.split()


def test_a_list_has_the_open_sessions_of_the_project(stored: Shell) -> None:
    assert keys(stored) == ["s-0000000001"]
    assert set(keys(stored, "--closed")) == {"s-0000000001", "s-2"}
    assert set(keys(stored, "--all")) == {"s-0000000001", "s-3"}
    assert keys(stored, "gemini", "--all", "--offline") == ["s-3"]
    assert keys(stored, "--all", "--limit", "1") == ["s-0000000001"]
    (stored.cwd / "sub").mkdir()
    assert "parser" in stored("sessions", "list").out
    assert json.loads(stored("sessions", "list", "--format", "json").out)["name"] == "parser"


def test_an_empty_list_says_how_to_begin(shell: Shell) -> None:
    said_ = shell("sessions", "list")
    assert (said_.code, said_.out) == (0, "")
    assert "`dragoman run PEER PROMPT -s NAME` starts one" in said_.err


def test_what_was_said_is_shown_in_three_ways(stored: Shell) -> None:
    text = stored("sessions", "show", "parser").out
    assert text.startswith("session    s-0000000001\n")
    assert text.endswith("> do it\nan answer\n[ok]\n\n")
    assert stored("sessions", "show", "parser", "--format", "quiet").out == "an answer\n"
    kinds = [
        json.loads(line)["type"]
        for line in stored("sessions", "show", "parser", "--format", "json").out.splitlines()
    ]
    assert kinds == ["Session", "SessionOpened", "TurnStarted", "MessageDelta", "TurnEnded"]


def test_an_unknown_session_is_code_4(stored: Shell) -> None:
    for command in ("show", "close", "delete", "export", "watch"):
        said_ = stored("sessions", command, "nobody")
        assert (said_.code, "there is no session 'nobody'" in said_.err) == (4, True)


@pytest.mark.parametrize(
    "words", [("list", "--offline", "scuot"), ("show", "parser", "--peer", "scuot")]
)
def test_an_unknown_peer_is_an_error_with_the_nearest(
    stored: Shell, words: tuple[str, ...]
) -> None:
    said = stored("sessions", *words)
    assert (said.code, "there is no peer 'scuot'; did you mean scout?" in said.err) == (2, True)


def test_closing_frees_the_name_and_keeps_the_words(stored: Shell) -> None:
    assert stored("sessions", "close", "parser").code == 0
    assert keys(stored) == []
    empty = stored("sessions", "list").err
    assert "There are no open sessions" in empty and "--closed lists the closed ones too" in empty
    assert stored("sessions", "show", "s-0000000001", "--format", "quiet").out == "an answer\n"


def test_deleting_wants_a_yes(stored: Shell) -> None:
    asked = stored("sessions", "delete", "parser")
    assert (asked.code, "add --yes" in asked.err) == (2, True)
    assert stored("sessions", "delete", "parser", "--yes").code == 0
    assert keys(stored) == []


def test_a_session_is_not_deleted_if_a_job_starts_in_it_while_the_question_is_open(
    stored: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agree(question: str, **_: object) -> bool:
        runner = dataclasses.asdict(own_identity())
        with open_store() as store:
            store.create_job(job("j-2", state="running", outcome=None, runner=runner))
        return True

    monkeypatch.setattr(questions, "confirm", agree)
    refused = stored("sessions", "delete", "parser")
    assert (refused.code, "its job j-2 has not ended" in refused.err) == (2, True)
    assert keys(stored) == ["s-0000000001"]


def test_an_exported_session_is_imported_again(stored: Shell) -> None:
    assert stored("sessions", "export", "parser", "-o", "a.jsonl").code == 0
    imported = stored("sessions", "import", "a.jsonl")
    assert imported.out.startswith("s-") and imported.out.strip() != "s-0000000001"
    missing = stored("sessions", "import", "nowhere.jsonl")
    assert (missing.code, "cannot be read" in missing.err) == (2, True)


class SlowPipe(io.BytesIO):
    """Piped input whose writer uses the store before it sends anything."""

    def _wait(self) -> None:
        with open_store() as store:
            store.update_session("s-3", title="written meanwhile")

    def read(self, size: int | None = -1) -> bytes:
        self._wait()
        return super().read(size)

    def readline(self, size: int | None = -1) -> bytes:
        self._wait()
        return super().readline(size)


def test_other_processes_can_write_while_an_import_waits_for_its_input(
    stored: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.0)
    exported = stored("sessions", "export", "parser").out.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(SlowPipe(exported)))
    imported = stored("sessions", "import", "-")
    assert (imported.code, imported.err) == (0, "")
    with open_store(read_only=True) as store:
        other = store.session("s-3")
    assert other is not None and other.title == "written meanwhile"


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a":', ""])
def test_what_is_not_an_exported_session_is_refused_with_the_next_step(
    stored: Shell, tmp_path: Path, text: str
) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    said = stored("sessions", "import", str(tmp_path / "a.jsonl"))
    assert (said.code, "is not a line of an exported session" in said.err) == (2, True)
    assert "what next:   import a file that `dragoman sessions export` wrote" in said.err


def test_a_name_is_needed_to_ensure_a_session(shell: Shell) -> None:
    assert shell("sessions", "ensure", "scout").code == 2


def test_a_session_that_nothing_has_open_is_watched_from_the_store(stored: Shell) -> None:
    said_ = stored("sessions", "watch", "parser", "--from", "0")
    assert (said_.code, said_.out) == (0, "an answer")
    assert "s-0000000001 is not open now" in said_.err
