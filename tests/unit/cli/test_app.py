"""The commands: what help costs, what a shell may complete, what the table says of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer

from dragoman.cli import app as frame
from tests.unit.cli.calling import Shell

DEAR = ("asyncio", "msgspec", "rich", "dragoman.config", "dragoman.client", "dragoman.rpc")


def python(*code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *code],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env={**os.environ, **env},
    )


@pytest.mark.parametrize(
    "argv",
    [["--help"], *([name, "--help"] for name in ("run", "chat", "sessions", "jobs", "broker"))],
)
def test_help_loads_neither_a_loop_nor_a_protocol_nor_rich(argv: list[str]) -> None:
    done = python(
        "-c",
        "import sys\n"
        "from dragoman.cli.entry import run\n"
        f"try: run({argv!r})\n"
        f"except SystemExit: print([n for n in {DEAR!r} if n in sys.modules], file=sys.stderr)",
    )
    assert done.stdout.startswith("Usage: dragoman")
    assert done.stderr == "[]\n"


def complete(words: str) -> list[str]:
    """What bash would be offered for the last word."""
    done = python(
        "-m",
        "dragoman",
        _DRAGOMAN_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split(" ")) - 1),
    )
    return done.stdout.split()


def test_a_shell_completes_commands_options_and_names_of_peers() -> None:
    assert complete("dragoman c") == ["chat", "console", "config"]
    assert complete("dragoman run --approve-r") == ["--approve-reads"]
    assert "codex" in complete("dragoman run co")


def test_a_mistyped_command_is_answered_with_the_nearest(shell: Shell) -> None:
    said = shell("perrs")
    assert said.code == 2
    assert "Did you mean `dragoman peers`?" in said.err
    assert "Did you mean" not in shell("xyzzy").err


def test_every_command_of_the_table_is_there_and_says_of_itself_what_the_table_says() -> None:
    group = typer.main.get_command(frame.app)
    context = group.make_context("dragoman", [], resilient_parsing=True)
    for name, words in frame.COMMANDS.items():
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        first = command.get_help(context).split("\n\n")[1]
        assert " ".join(first.split()) == words
