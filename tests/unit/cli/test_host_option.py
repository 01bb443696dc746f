"""`--host` before and after a command: where it is moved, and which commands reject it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dragoman.cli import host_command, host_send
from dragoman.cli.host_option import placed, split
from dragoman.errors import UsageError


def unexpected(words: Sequence[str]) -> None:
    raise AssertionError(words)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--host box run codex x", "run --host box codex x"),
        ("run codex x --host=box", "run --host box codex x"),
        ("chat --host box", "chat --host box"),
        ("jobs watch j-1 --host box", "jobs watch --host box j-1"),
        ("--host box jobs fetch j-1", "hosts fetch box j-1"),
        ("jobs fetch j-1 --fetch-branch b --host box", "hosts fetch box j-1 --fetch-branch b"),
        ("jobs fetch --help --host box", "hosts fetch --help"),
        ("hosts fetch box j-1 --fetch-branch b", "hosts fetch box j-1 --fetch-branch b"),
        ("hosts send box --send-ignored", "hosts send box --send-ignored"),
        ("run x -- agent --host box", "run x -- agent --host box"),
        ("hosts add box --host x", "hosts add box --host x"),
        ("sessions --host box --help", "sessions --help"),
    ],
)
def test_the_option_is_moved_behind_a_command_that_parses_it(words: str, wanted: str) -> None:
    assert placed(words.split(), unexpected) == wanted.split()


def test_other_commands_run_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def run_there(host: str, words: list[str]) -> int:
        calls.append((host, words))
        return 3

    monkeypatch.setattr(host_command, "run_there", run_there)
    with pytest.raises(SystemExit) as left:
        placed(["--host", "box", "jobs", "list", "--all"], unexpected)
    assert left.value.code == 3
    assert calls == [("box", ["jobs", "list", "--all"])]


def test_commands_that_cannot_run_on_a_host_are_rejected() -> None:
    with pytest.raises(UsageError, match="--host cannot be used with config"):
        placed(["config", "show", "--host", "box"], unexpected)


@pytest.mark.parametrize("words", [["run", "--host"], ["run", "--host", "-x"]])
def test_a_missing_host_name_is_rejected(words: list[str]) -> None:
    with pytest.raises(UsageError, match="takes the name of a host"):
        split(words)


def test_a_command_that_sends_files_runs_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_send, "run_with_files", lambda host, words, call: 7)
    for words in ("--host box run x --send", "delegate review x --send-ignored --host=box"):
        with pytest.raises(SystemExit) as left:
            placed(words.split(), unexpected)
        assert left.value.code == 7


def test_sending_files_needs_a_host() -> None:
    with pytest.raises(UsageError, match="add --host"):
        placed(["run", "x", "--send"], unexpected)
