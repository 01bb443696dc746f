"""What errors on the way to the other side and back say."""

from __future__ import annotations

from typing import Any

import pytest

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
from dragoman.errors.connections import own_words


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
    assert str(died) == "the process exited with code 3; last output: starting\nno key"
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
    assert str(RemoteError(-32603, "x", {"details": 3})) == "x (-32603)"
    assert str(RemoteError(-32603, "x is gone", {"details": "gone"})) == "x is gone (-32603)"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        # As real agents send it.
        ({"details": "400 fake http error"}, "400 fake http error"),
        (
            {"message": "unexpected status 401 Unauthorized: no", "codex_error_info": "other"},
            "unexpected status 401 Unauthorized: no",
        ),
        ("foo/bar", "foo/bar"),
        (
            [
                {"code": "invalid_type", "path": ["cwd"], "message": "expected string"},
                {"code": "invalid_type", "path": ["mcpServers"], "message": "expected array"},
            ],
            "cwd: expected string; mcpServers: expected array",
        ),
        ({"_errors": [], "cwd": {"_errors": ["expected string"]}}, "cwd: expected string"),
        ({"error": {"error": {"message": "no credits", "type": "x"}}}, "no credits"),
        ({"details": '{"error":{"code":429,"message":"slow down"}}'}, "slow down"),
        ({"error": ["one", {"message": "two"}]}, "one; two"),
        # As nobody should.
        (None, ""),
        (3, ""),
        ({}, ""),
        ({"details": {"details": {"a": 1}}}, ""),
        ({"details": "  a\n b "}, "a b"),
        ({"details": "{not json"}, "{not json"),
    ],
)
def test_an_agents_own_words_are_found_in_data_of_any_shape(data: Any, said: str) -> None:
    assert own_words(data) == said


def test_an_agents_own_words_are_bounded_however_deep_and_long_they_are() -> None:
    deep: Any = "hidden"
    for _ in range(2_000):
        deep = {"error": deep}
    assert own_words(deep) == ""
    assert len(own_words({"errors": ["x" * 10_000] * 10_000})) <= 500
    assert own_words('{"a":' * 10_000) != ""


def test_a_message_that_is_json_is_reported_in_the_words_inside() -> None:
    error = RemoteError(401, '{"error":{"code":401,"message":"bad key","status":"X"}}')
    assert str(error) == "bad key (401)"
    assert error.message.startswith("{")
