"""`--send` and `--fetch` on a command line, with a fake ssh and a fake remote command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.host_send import FileOptions, are_in, run_with_files, taken
from dragoman.errors import UsageError
from tests.unit.cli.calling import Shell
from tests.unit.cli.test_host_files import repo as repo


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        (["run", "codex", "x", "--send"], FileOptions(send=True), ["run", "codex", "x"]),
        (["run", "--send-ignored", "x"], FileOptions(send=True, ignored=True), ["run", "x"]),
        (["run", "--send", "--fetch"], FileOptions(send=True, fetch=True), ["run"]),
        (["run", "--fetch-branch", "b"], FileOptions(fetch=True, branch="b"), ["run"]),
        (["run", "--fetch-branch=b"], FileOptions(fetch=True, branch="b"), ["run"]),
        (["run", "--", "--send"], FileOptions(), ["run", "--", "--send"]),
    ],
)
def test_the_file_options_are_removed_from_the_command_line(
    words: list[str], options: FileOptions, rest: list[str]
) -> None:
    assert taken(words) == (options, rest)
    assert are_in(words) is (options != FileOptions())


@pytest.mark.parametrize(
    ("host", "words", "said"),
    [
        (None, ["run", "x", "--send"], "add --host"),
        ("box", ["chat", "x", "--send"], "can only be used with run and delegate"),
        ("box", ["run", "x", "--fetch"], "--fetch needs --send"),
        (
            "box",
            ["run", "x", "--send", "--fetch", "--no-wait"],
            "has to wait until the job ends",
        ),
        ("box", ["run", "x", "--send", "--fetch-branch"], "the name of a new branch"),
        ("box", ["run", "x", "--send", "--fetch-branch", "--x"], "the name of a new branch"),
    ],
)
def test_incompatible_options_are_rejected(host: str | None, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run_with_files(host, words, far(0, []))


Call = Callable[[Sequence[str]], Any]


def far(code: int, calls: list[Sequence[str]]) -> Call:
    """A remote command that changes a file and returns an exit code."""

    def call(words: Sequence[str]) -> None:
        calls.append(words)
        there = Path(words[words.index("--cwd") + 1])
        (there / "a.txt").write_text("changed there\n")
        raise SystemExit(code)

    return call


def test_a_run_works_in_the_sent_directory_and_its_changes_are_applied(
    shell: Shell, repo: Path
) -> None:
    calls: list[Sequence[str]] = []
    words = ["run", "codex", "fix it", "--send", "--fetch"]
    assert run_with_files("box", words, far(0, calls)) == 0
    (sent,) = calls
    assert sent[:4] == ["--host", "box", "run", "--cwd"] and sent[5:] == ["codex", "fix it"]
    assert (repo / "a.txt").read_text() == "changed there\n"


def test_after_a_failed_run_nothing_is_fetched_and_the_command_is_named(
    shell: Shell, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "codex", "fix it", "--send", "--fetch", "--cwd", str(repo)]
    assert run_with_files("box", words, far(3, [])) == 3
    assert (repo / "a.txt").read_text() != "changed there\n"
    said = capsys.readouterr().err
    id_ = said.partition("hosts fetch box ")[2].partition("`")[0]
    assert shell("hosts", "fetch", "box", id_).code == 0
    assert (repo / "a.txt").read_text() == "changed there\n"


def test_without_fetch_the_fetch_command_is_named(
    shell: Shell, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with_files("box", ["run", "codex", "x", "--send"], far(0, [])) == 0
    assert "fetch the changes with `" in capsys.readouterr().err
