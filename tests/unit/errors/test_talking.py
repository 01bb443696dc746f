"""What errors on the way to the other side and back say."""

from __future__ import annotations

from dragoman.errors import (
    CallError,
    CallTimeout,
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    LineTooLong,
    MessageTooLong,
    ProcessExited,
    ProgramNotFound,
    RemoteError,
    UsageError,
)


def test_the_three_ways_a_stream_can_fail_blame_three_different_sides() -> None:
    assert (ConnectionClosed.blame, ConnectionEnded.blame, ConnectionBroken.blame) == (
        "us",
        "peer",
        "world",
    )
    assert all(
        issubclass(cls, ConnectionLost)
        for cls in (ConnectionClosed, ConnectionEnded, ConnectionBroken, ProcessExited)
    )


def test_a_call_that_reached_the_other_side_may_have_run_and_one_never_sent_has_not() -> None:
    assert CallError("x").may_have_run
    assert CallTimeout("x", 1).may_have_run
    assert not UsageError("x").may_have_run
    assert not MessageTooLong(2, 1).may_have_run
    assert not ProgramNotFound("x").may_have_run


def test_a_line_over_the_limit_is_not_worth_another_try_though_a_lost_connection_is() -> None:
    assert ConnectionLost("x").retryable
    assert not LineTooLong(1).retryable


def test_a_dead_process_tells_how_it_died_and_what_it_last_said() -> None:
    died = ProcessExited(exit_code=3, stderr_tail="starting\nno key\n")
    assert str(died) == "the process exited with code 3; it last said: starting\nno key"
    assert (died.exit_code, died.signal, died.stderr_tail) == (3, None, "starting\nno key\n")
    assert str(ProcessExited(exit_code=None, signal=9)) == "the process was killed by signal 9"
    assert str(ProcessExited(exit_code=None)) == "the process exited"


def test_a_long_last_word_is_cut_in_the_sentence_and_kept_in_the_field() -> None:
    died = ProcessExited(exit_code=1, stderr_tail="a" * 1000)
    assert str(died).count("a") < 500
    assert len(died.stderr_tail) == 1000


def test_an_error_of_the_other_side_tells_what_it_put_beside_its_message() -> None:
    error = RemoteError(-32603, "Internal error", {"details": "401 bad key"})
    assert str(error) == "Internal error (-32603): 401 bad key"
    assert error.message == "Internal error"
    assert len(str(RemoteError(-32603, "x", {"details": "y" * 10_000}))) < 1_000
    assert str(RemoteError(-32603, "x", {"details": ["y"]})) == "x (-32603)"
