"""Log records on their way to the terminal."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dragoman.cli.output import terminal_log
from dragoman.cli.output.terminal import held


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    before = logging.lastResort
    terminal_log.install()
    try:
        yield
    finally:
        logging.lastResort = before


def handle(text: str) -> None:
    assert logging.lastResort is not None
    logging.lastResort.handle(logging.LogRecord("x", logging.ERROR, "f", 1, text, None, None))


def test_a_record_is_neutral(capsys: pytest.CaptureFixture[str]) -> None:
    handle("l\x1b")
    assert capsys.readouterr().err == "l␛\n"


def test_the_log_waits_while_a_question_is_open(capsys: pytest.CaptureFixture[str]) -> None:
    with held.hold():
        handle("later")
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "later\n"


def test_the_help_does_not_load_logging() -> None:
    code = (
        "import atexit, sys; from dragoman.cli import main\n"
        "atexit.register(lambda: print('logging' in sys.modules, file=sys.stderr))\n"
        "sys.argv = ['dragoman', '--help']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.stderr.split() == ["False"]
