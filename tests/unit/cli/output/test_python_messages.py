"""What Python itself writes to stderr."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from dragoman.cli.output import python_messages
from dragoman.cli.output.held import held


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    before = (
        logging.lastResort,
        warnings.showwarning,
        threading.excepthook,
        sys.unraisablehook,
    )
    python_messages.install()
    try:
        yield
    finally:
        logging.lastResort, warnings.showwarning, threading.excepthook, sys.unraisablehook = before


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
    assert logging.lastResort is not None
    record = logging.LogRecord("x", logging.ERROR, "file", 1, "l\x1b", None, None)
    logging.lastResort.handle(record)
    shown = capsys.readouterr().err
    assert shown.count("ValueError: a␛") == 2 and "UserWarning: w␛" in shown and "l␛\n" in shown
    assert "\x1b" not in shown


def test_it_waits_while_a_question_is_open(capsys: pytest.CaptureFixture[str]) -> None:
    assert logging.lastResort is not None
    record = logging.LogRecord("x", logging.ERROR, "file", 1, "later", None, None)
    with held.hold():
        logging.lastResort.handle(record)
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "later\n"
