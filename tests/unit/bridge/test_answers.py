"""How results and errors of the peer are put to a client of ACP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.bridge import answers
from dragoman.client.results import Result
from dragoman.errors import (
    AuthRequired,
    DragomanError,
    InvalidAnswer,
    RemoteError,
    Unsupported,
    UsageError,
)
from dragoman.events import model, parts
from dragoman.events.words import Outcome
from dragoman.wire import codes

BASE = (model.Source("acp", "c1"), 1, "s", "t")


def ended(raw: bytes | None, *, native: str = "session/prompt", **fields: Any) -> model.TurnEnded:
    return model.TurnEnded(*BASE, native, raw, False, Outcome.OK, "end_turn", **fields)


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, **message}).encode()


@pytest.mark.parametrize(
    ("outcome", "stop"),
    [
        (Outcome.OK, "end_turn"),
        (Outcome.EMPTY, "end_turn"),
        (Outcome.DENIED, "end_turn"),
        (Outcome.REFUSED, "refusal"),
        (Outcome.TRUNCATED, "max_tokens"),
        (Outcome.CANCELLED, "cancelled"),
    ],
)
def test_an_outcome_that_acp_has_a_word_for_is_answered_with_it(
    outcome: Outcome, stop: str
) -> None:
    assert answers.response(Result(outcome, "", "its own word"), None).stop_reason == stop


def test_a_peers_word_is_kept_where_it_is_one_of_acp() -> None:
    result = Result(Outcome.TRUNCATED, "", "max_turn_requests")
    assert answers.response(result, None).stop_reason == "max_turn_requests"


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.FAILED,
        Outcome.CRASHED,
        Outcome.TIMED_OUT,
        Outcome.QUOTA,
        Outcome.PROTOCOL_ERROR,
        Outcome.UNSUPPORTED,
        Outcome.UNKNOWN,
    ],
)
def test_a_turn_that_failed_is_never_answered_as_an_end(outcome: Outcome) -> None:
    with pytest.raises(RemoteError) as raised:
        answers.response(Result(outcome, "half", "end_turn"), None)
    assert raised.value.code == codes.INTERNAL_ERROR
    assert raised.value.data == {"outcome": outcome.value}


def test_an_answer_of_a_peer_that_speaks_acp_is_kept_whole() -> None:
    raw = line(result={"stopReason": "end_turn", "usage": {"totalTokens": 3}, "_meta": {"a": 1}})
    response = answers.response(Result(Outcome.EMPTY, "", "end_turn"), ended(raw))
    assert response.stop_reason == "end_turn"
    assert response.meta == {"a": 1}
    assert response.extra == {"usage": {"totalTokens": 3}}


@pytest.mark.parametrize(
    "event",
    [
        None,
        ended(None),
        ended(line(result={"stopReason": "refusal"}), native="turn/completed"),
        ended(line(result={"stopReason": "refusal"}), failure=parts.Failure("no")),
        ended(line(error={"code": 1, "message": "refusal"})),
        ended(line(result={"stopReason": 7})),
        ended(b"no message"),
    ],
)
def test_an_end_that_is_no_answer_in_acp_is_put_into_its_words(
    event: model.TurnEnded | None,
) -> None:
    assert answers.response(Result(Outcome.OK, ""), event).stop_reason == "end_turn"


def test_a_failure_is_told_in_the_peers_words() -> None:
    result = Result(Outcome.QUOTA, "", "failed", failure=parts.Failure("come back tomorrow"))
    error = answers.failure(result)
    assert (error.code, error.message) == (codes.INTERNAL_ERROR, "come back tomorrow")
    assert error.data == {"outcome": "quota"}


def test_a_failure_without_words_names_the_outcome() -> None:
    assert "crashed" in answers.failure(Result(Outcome.CRASHED, "")).message


def test_a_missing_login_has_the_code_that_clients_know() -> None:
    result = Result(Outcome.AUTH_REQUIRED, "", failure=parts.Failure("log in first"))
    error = answers.failure(result)
    assert (error.code, error.message) == (codes.AUTH_REQUIRED, "log in first")


def test_an_error_on_the_way_goes_before_the_words_of_the_end() -> None:
    broken = RemoteError(-32099, "broken", {"why": "x"})
    result = Result(Outcome.FAILED, "", failure=parts.Failure("other"), error=broken)
    error = answers.failure(result)
    assert (error.code, error.message, error.data) == (-32099, "broken", {"why": "x"})


def test_a_good_word_for_the_end_does_not_hide_an_error() -> None:
    result = Result(Outcome.CANCELLED, "", "closed", error=InvalidAnswer("torn"))
    with pytest.raises(RemoteError, match="torn"):
        answers.response(result, None)


@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        (AuthRequired("log in"), codes.AUTH_REQUIRED, None),
        (RemoteError(-32042, "no", [1]), -32042, [1]),
        (Unsupported("cannot"), codes.INVALID_PARAMS, {"errorClass": "unsupported"}),
        (UsageError("wrong"), codes.INVALID_PARAMS, {"errorClass": UsageError.error_class}),
        (InvalidAnswer("torn"), codes.INTERNAL_ERROR, {"errorClass": InvalidAnswer.error_class}),
    ],
)
def test_every_error_has_an_answer_that_says_whose_fault_it_is(
    error: DragomanError, code: int, data: Any
) -> None:
    refusal = answers.refusal(error)
    assert (refusal.code, refusal.data) == (code, data)
    assert refusal.message in str(error)


def test_the_peers_own_error_is_not_changed_by_answering_with_it() -> None:
    theirs = RemoteError(-32042, "no")
    answers.failure(Result(Outcome.FAILED, "", error=theirs))
    assert theirs.data is None
