"""Output that waits while a person is asked."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest

from dragoman.cli.output import hold_output as module
from dragoman.cli.output.hold_output import Held


def test_what_is_written_meanwhile_comes_afterwards_in_its_order() -> None:
    held, out, err = Held(), io.StringIO(), io.StringIO()
    held.write(out, "a")
    with held.hold():
        for stream, text in ((out, "b\udcff"), (err, "c"), (out, "d")):
            held.write(stream, text)
        assert (out.getvalue(), err.getvalue()) == ("a", "")
    held.write(err, "e")
    assert (out.getvalue(), err.getvalue()) == ("ab\udcffd", "ce")


def test_an_interrupted_question_lets_it_out_too() -> None:
    held, out = Held(), io.StringIO()
    with pytest.raises(KeyboardInterrupt), held.hold():
        held.write(out, "a")
        raise KeyboardInterrupt
    assert out.getvalue() == "a"


def test_another_thread_is_not_held_up() -> None:
    held, out = Held(), io.StringIO()
    with held.hold():
        thread = threading.Thread(target=held.write, args=(out, "a"))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    assert out.getvalue() == "a"


def test_more_than_fits_into_memory_goes_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMORY_SIZE", 100)
    monkeypatch.setattr(module, "PIECE_SIZE", 7)
    held, out = Held(), io.StringIO()
    text = "äöü" * 500
    with held.hold():
        held.write(out, text)
        assert held._spool is not None and held._spool._rolled  # type: ignore[attr-defined]
    assert out.getvalue() == text


def test_what_finds_no_room_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError("no space")

    monkeypatch.setattr("tempfile.SpooledTemporaryFile", lambda size: Full())
    held, out = Held(), io.StringIO()
    with held.hold():
        held.write(out, "abc")
        held.write(out, "de")
    assert "5 characters were lost" in out.getvalue()


def test_a_stream_that_fails_is_told_to_the_next_who_writes() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    held, out = Held(), io.StringIO()
    with held.hold():
        held.write(Broken(), "a")
    with pytest.raises(BrokenPipeError):
        held.write(out, "b")
    held.write(out, "c")
    assert out.getvalue() == "c"


def test_there_is_one_question_at_a_time() -> None:
    held = Held()
    with held.hold(), pytest.raises(RuntimeError), held.hold():
        pass
