"""The streams of a process that was started without some of them, or with a poor encoding."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from dragoman.cli import streams

REPORT = """
import os, sys
for number in {closed}:
    os.close(number)
    setattr(sys, ("stdin", "stdout", "stderr")[number], None)
from dragoman.cli.streams import prepare
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
from dragoman.cli.streams import leave
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
def test_leaving_writes_what_is_held_back_and_waits_for_nobody_else(
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
    streams._escape_messages()
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
