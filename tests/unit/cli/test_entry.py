"""The frame: what an error becomes, and that typer is loaded only where it is needed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
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
def test_an_error_becomes_a_few_lines_and_a_code(
    command: str, shell: Shell, raising: Raising, error: DragomanError, code: int
) -> None:
    raising(error)
    said = shell(command)
    assert (said.code, said.out) == (code, "")
    happened, what_next, *more = said.err.splitlines()
    assert happened == f"dragoman: {error}"
    assert what_next.startswith("  what next:   ")
    again = any(line.startswith("  try again: ") for line in more)
    assert again == (error.retryable or error.may_have_run)


def test_an_interrupt_is_130(command: str, shell: Shell, raising: Raising) -> None:
    raising(KeyboardInterrupt())
    assert shell(command).code == 130


def test_a_closed_output_prints_no_error(command: str, shell: Shell, raising: Raising) -> None:
    raising(BrokenPipeError(32, "Broken pipe"))
    said = shell(command)
    assert (said.code, said.err) == (1, "")


def test_a_fault_of_ours_says_so_and_keeps_its_traceback(
    command: str, raising: Raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        entry.run([command])
    assert "a bug in dragoman" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_one_line(
    command: str, shell: Shell, raising: Raising, number: int
) -> None:
    raising(OSError(number, os.strerror(number), "/somewhere/a_module.py"))
    said = shell(command)
    told = f"dragoman: no file can be opened: {os.strerror(number)}; see `ulimit -n`\n"
    assert (said.code, said.err) == (1, told)


def test_a_directory_that_is_gone_is_not_our_fault(
    command: str, shell: Shell, raising: Raising, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(FileNotFoundError(2, "No such file or directory"))
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    said = shell(command)
    assert (said.code, "no longer exists: it was deleted or moved" in said.err) == (2, True)


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


REPORT = """
import os, sys
for number in {closed}:
    os.close(number)
    setattr(sys, ("stdin", "stdout", "stderr")[number], None)
from dragoman.cli.entry import prepare
prepare()
print(sys.stdin.read())
print("h\u00e4llo")
print("told", file=sys.stderr)
assert os.pipe()[0] > 2
"""


@pytest.mark.parametrize(
    ("closed", "out", "err"),
    [
        ((), "\nh\\xe4llo\n", "told\n"),
        ((0,), "\nh\\xe4llo\n", "told\n"),
        ((1,), "", "told\n"),
        ((2,), "\nh\\xe4llo\n", ""),
        ((0, 1, 2), "", ""),
    ],
)
def test_a_closed_stream_leads_nowhere_and_every_character_can_be_written(
    closed: tuple[int, ...], out: str, err: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(closed=closed)],
        input="",
        capture_output=True,
        text=True,
        timeout=30,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, out, err)


LEAVING = """
import atexit, sys, threading
from dragoman.cli.entry import leave
atexit.register(lambda: print("registered", file=sys.stderr, flush=True))
print("held back", end="")
hold = threading.Event()
if {threads}:
    threading.Thread(target=hold.wait).start()
leave(7)
print(" and went on")
hold.set()
"""


@pytest.mark.parametrize(
    ("threads", "code", "out"), [(False, 7, "held back"), (True, 0, "held back and went on\n")]
)
def test_leaving_writes_held_output_and_waits_for_nothing_else(
    threads: bool, code: int, out: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVING.format(threads=threads)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, out, "registered\n")


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    before = (warnings.showwarning, threading.excepthook, sys.unraisablehook)
    entry._escape_messages()
    try:
        yield
    finally:
        warnings.showwarning, threading.excepthook, sys.unraisablehook = before


def fail() -> None:
    raise ValueError("a\x1b")


class Failing:
    def __del__(self) -> None:
        fail()


def test_all_of_it_is_neutral(capsys: pytest.CaptureFixture[str]) -> None:
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    Failing().__class__  # noqa: B018 - it is finalized here
    warnings.showwarning(UserWarning("w\x1b"), UserWarning, "file", 1)
    shown = capsys.readouterr().err
    assert shown.count("ValueError: a␛") == 2 and "UserWarning: w␛" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "scout", "hi", "--jsn"), "--jsn"),
        (("delegate", "review", "x", "--jsn"), "--jsn"),
        (("run", "scout", "hi", "--format", "text"), "cannot be combined"),
    ],
)
def test_an_invalid_command_line_with_json_strict_is_an_error_line(
    shell: Shell, words: tuple[str, ...], told: str
) -> None:
    said = shell(*words, "--json-strict")
    assert (said.code, said.err) == (2, "")
    line = json.loads(said.out)
    assert (line["type"], line["error"]) == ("Error", "usage") and told in line["message"]
    said = shell(*words[:-1], "--jsn", "--", "--json-strict")
    assert (said.code, said.out) == (2, "") and "--jsn" in said.err
