"""The frame: what an error becomes, and that typer is loaded only where it is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import typer

from dragoman.cli import entry, run_prompt
from dragoman.cli.command_module import new_app
from dragoman.errors import AuthRequired, DragomanError, UsageError
from tests.unit.cli.calling import Shell


@pytest.fixture(params=["doctor", "run"])
def command(request: pytest.FixtureRequest) -> str:
    """One command that typer calls, and the one that is called without it."""
    return str(request.param)


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Lets both commands raise."""

    def put(error: BaseException) -> None:
        def run_turn(**given: object) -> int:
            if isinstance(error, typer.Exit):
                return error.exit_code
            raise error

        monkeypatch.setattr(run_prompt, "run", run_turn)
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
    command: str, shell: Shell, raising: Raising, error: DragomanError, code: int
) -> None:
    raising(error)
    said = shell(command)
    assert (said.code, said.out) == (code, "")
    happened, fault, what_next = said.err.splitlines()
    assert happened == f"dragoman: {error}"
    assert fault.startswith("  whose fault: ")
    assert what_next.startswith("  what next:   ")


def test_an_interrupt_is_130(command: str, shell: Shell, raising: Raising) -> None:
    raising(KeyboardInterrupt())
    assert shell(command).code == 130


def test_a_reader_that_went_away_is_no_reason_for_words(
    command: str, shell: Shell, raising: Raising
) -> None:
    raising(BrokenPipeError(32, "Broken pipe"))
    said = shell(command)
    assert (said.code, said.err) == (1, "")


def test_a_fault_of_ours_says_so_and_keeps_its_traceback(
    command: str, raising: Raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        entry.run([command])
    assert "a fault of dragoman itself" in capsys.readouterr().err


def test_a_folder_that_is_gone_is_no_fault_of_ours(
    command: str, shell: Shell, raising: Raising, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(FileNotFoundError(2, "No such file or directory"))
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    said = shell(command)
    assert (said.code, "is gone: deleted or moved" in said.err) == (2, True)


def test_an_exit_code_of_a_command_is_the_code_of_the_process(
    command: str, shell: Shell, raising: Raising
) -> None:
    raising(typer.Exit(10))
    assert shell(command).code == 10


@pytest.mark.parametrize(
    ("argv", "loaded"),
    [(["run", "no-such-peer", "hi"], False), (["run", "no-such-peer", "hi", "--no-such"], True)],
)
def test_a_plain_run_does_without_typer(argv: list[str], loaded: bool) -> None:
    code = (
        "import sys\n"
        "from dragoman.cli.entry import run\n"
        f"try: run({argv!r})\n"
        "except SystemExit as left: print(left.code, 'typer' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == f"2 {loaded}\n"
