"""What Python itself writes to stderr."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from dragoman.cli.output import python_messages


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    before = (warnings.showwarning, threading.excepthook, sys.unraisablehook)
    python_messages.install()
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
