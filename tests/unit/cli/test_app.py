"""The frame: what help costs, what an error becomes, what a shell may complete."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import typer

from dragoman.cli import app as frame
from dragoman.cli.commands import new_app
from dragoman.errors import AuthRequired, DragomanError, UsageError
from tests.unit.cli.calling import Shell

DEAR = ("asyncio", "msgspec", "rich", "dragoman.hub", "dragoman.client", "dragoman.rpc")


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
        "from dragoman.cli.app import run\n"
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
    assert complete("dragoman c") == ["chat", "config"]
    assert complete("dragoman run --approve-r") == ["--approve-reads"]
    assert "codex" in complete("dragoman run co")


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Puts a command in the place of `doctor` that raises."""

    def put(error: BaseException) -> None:
        module = ModuleType("dragoman.cli.doctor")
        app = new_app()

        @app.command()
        def doctor() -> None:
            raise error

        module.app = app  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "dragoman.cli.doctor", module)

    return put


Raising = Callable[[BaseException], None]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("not like this"), 2),
        (AuthRequired("log in"), 6),
        (DragomanError("something"), 1),
    ],
)
def test_an_error_becomes_three_lines_and_a_code(
    shell: Shell, raising: Raising, error: DragomanError, code: int
) -> None:
    raising(error)
    said = shell("doctor")
    assert (said.code, said.out) == (code, "")
    happened, fault, what_next = said.err.splitlines()
    assert happened == f"dragoman: {error}"
    assert fault.startswith("  whose fault: ")
    assert what_next.startswith("  what next:   ")


def test_an_interrupt_is_130(shell: Shell, raising: Raising) -> None:
    raising(KeyboardInterrupt())
    assert shell("doctor").code == 130


def test_a_reader_that_went_away_is_no_reason_for_words(shell: Shell, raising: Raising) -> None:
    raising(BrokenPipeError(32, "Broken pipe"))
    said = shell("doctor")
    assert (said.code, said.err) == (1, "")


def test_a_fault_of_ours_says_so_and_keeps_its_traceback(
    raising: Raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        frame.run(["doctor"])
    assert "a fault of dragoman itself" in capsys.readouterr().err


def test_a_folder_that_is_gone_is_no_fault_of_ours(
    shell: Shell, raising: Raising, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(FileNotFoundError(2, "No such file or directory"))
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    said = shell("doctor")
    assert (said.code, "is gone: deleted or moved" in said.err) == (2, True)


def test_an_exit_code_of_a_command_is_the_code_of_the_process(
    shell: Shell, raising: Raising
) -> None:
    raising(typer.Exit(10))
    assert shell("doctor").code == 10


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
