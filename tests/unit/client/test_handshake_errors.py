"""The sentence about a handshake that failed."""

from __future__ import annotations

import pytest

from dragoman.client import handshake_errors
from dragoman.errors import (
    AuthRequired,
    CallTimeout,
    ConnectionEnded,
    DragomanError,
    HandshakeFailed,
    InvalidAnswer,
    LineTooLong,
    ProcessExited,
    RemoteError,
    SpawnError,
)
from dragoman.transports.memory import MemoryStream
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.peer import Noise, Stray


class Program(MemoryStream):
    """Stands for a process: it has last words."""

    def __init__(self) -> None:
        pass

    def stderr_tail(self) -> str:
        return "no key is set\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ProcessExited(exit_code=41, stderr_tail="usage"), ["code 41", "usage", "incorrectly"]),
        (ProcessExited(exit_code=None, signal=11), ["killed by signal 11", "crashed"]),
        (
            CallTimeout("initialize", 30),
            ["within 30 s", "not started as an agent", "`timeouts.initialize`"],
        ),
        (LineTooLong(70_000), ["more than 70000 bytes", "larger `max_line_size`", "descriptor"]),
        (
            LineTooLong(DEFAULT_MAX_LINE_SIZE),
            ["more than 16777216 bytes", "probably not an agent", "--acp"],
        ),
        (ConnectionEnded(), ["ended the connection", "not an agent"]),
        (RemoteError(-32601, "what?"), ["what? (-32601)", "--dialect NAME"]),
        (InvalidAnswer("x"), ["failed the handshake: x"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failure_says_what_happened_and_what_to_do(
    error: DragomanError, words: list[str]
) -> None:
    explained = handshake_errors.explain(error, "`x acp`", None, [])
    assert isinstance(explained, HandshakeFailed)
    assert str(explained).startswith("`x acp` ")
    for word in words:
        assert word in str(explained)
    assert explained.timed_out is isinstance(error, CallTimeout)


def test_errors_that_are_clear_by_themselves_stay_what_they_are() -> None:
    for error in (AuthRequired(), SpawnError("x")):
        assert handshake_errors.explain(error, "x", None, []) is error


def test_the_output_and_the_stderr_of_a_program_are_shown() -> None:
    explained = handshake_errors.explain(
        CallTimeout("initialize", 1), "x", Program(), ["Welcome!", ">"]
    )
    assert isinstance(explained, HandshakeFailed)
    assert explained.noise == ("Welcome!", ">")
    assert explained.stderr_tail == "no key is set\n"
    assert "not a message: Welcome! / >; the end of its stderr: no key is set." in str(explained)
    assert "probably expects a person at a terminal" in str(explained)


def test_a_stderr_that_ends_with_a_full_stop_gets_no_second_one() -> None:
    ended = ProcessExited(exit_code=1, stderr_tail="No key is set.\n")
    explained = handshake_errors.explain(ended, "x", None, [])
    assert "stderr: No key is set. " in str(explained)


def test_only_the_first_noise_is_kept_and_none_of_it_at_any_length() -> None:
    ears = handshake_errors.HandshakeWatch()
    ears.hear(Stray("late", 1, None, b"x" * 10_000))
    for number in range(100):
        ears.hear(Noise(f"line {number} \xff".encode("latin-1"), "not JSON"))
    assert len(ears.lines) == handshake_errors.KEPT_NOISE
    assert len(ears.lines[0]) == handshake_errors.SHOWN_SIZE
    assert ears.lines[1] == "line 0 \ufffd"


def test_an_internal_error_and_a_dialect_that_was_named_are_not_blamed_on_the_detection() -> None:
    failed = handshake_errors.explain(RemoteError(-32603, "disk on fire"), "x", None, [])
    assert str(failed) == "x answered the handshake with an error: disk on fire (-32603)."
    named = handshake_errors.explain(RemoteError(-32601, "what?"), "x", None, [], named="acp")
    assert "If it does not speak acp" in str(named)
    assert "It probably speaks another dialect" not in str(named)


def test_only_the_handshakes_that_were_answered_are_called_refused() -> None:
    first = HandshakeFailed("x refused the handshake.")
    first.hint = "do this"
    told = handshake_errors.greeted_in_vain(first, ["oneshot"], ["tagged", "keyed"])
    assert isinstance(told, HandshakeFailed) and told.hint == "do this"
    assert str(told).endswith(
        "It also refused the handshakes of oneshot. "
        "It did not answer the handshakes of tagged, keyed."
    )
    silent = handshake_errors.greeted_in_vain(first, [], ["tagged"])
    assert "also refused" not in str(silent)
