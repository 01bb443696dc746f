"""From statuses and broken connections to outcomes."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from dragoman.delegation.local_model.failures import (
    from_network,
    from_status,
    from_stream,
    judge,
    missing_library,
    retry_after,
)
from dragoman.errors import AuthRequired, BudgetExceeded, ConnectionBroken, InvalidAnswer
from dragoman.events.words import ErrorKind, Outcome


def judged(status: int, body: Any) -> tuple[Outcome, ErrorKind]:
    outcome, failure = judge(from_status(status, body, {}, variable="KEY"))
    return outcome, failure.kind


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, {"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}}),
        (400, {"error": {"message": "Your credit balance is too low"}}),
        (403, {"error": {"type": "billing_error", "message": "no"}}),
        (402, None),
    ],
)
def test_a_hard_quota_is_distinguished_from_a_passing_limit(status: int, body: Any) -> None:
    assert judged(status, body) == (Outcome.QUOTA, ErrorKind.QUOTA)
    assert judged(429, {"error": {"message": "slow down"}}) == (
        Outcome.QUOTA,
        ErrorKind.RATE_LIMITED,
    )


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "context_length_exceeded", "message": "x"}},
        {"error": {"message": "prompt is too long: 210000 tokens"}},
    ],
)
def test_a_prompt_over_the_window_is_truncated_and_not_merely_failed(body: Any) -> None:
    assert judged(400, body) == (Outcome.TRUNCATED, ErrorKind.CONTEXT_FULL)
    assert judged(400, {"error": {"message": "x"}}) == (Outcome.FAILED, ErrorKind.INVALID_PARAMS)


def test_a_refused_key_says_where_the_key_is() -> None:
    error = from_status(401, {"error": {"message": "bad key"}}, {}, variable="MY_KEY")
    assert isinstance(error, AuthRequired)
    assert "bad key" in str(error) and "MY_KEY" in str(error)
    assert judge(error)[0] is Outcome.AUTH_REQUIRED


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, ErrorKind.OVERLOADED),
        ({"type": "invalid_request_error", "code": "rate_limit_exceeded"}, ErrorKind.RATE_LIMITED),
        ({"code": 429, "message": "slow down"}, ErrorKind.RATE_LIMITED),
        ({"code": 10**30, "message": "x"}, ErrorKind.INTERNAL),
        ({"code": [], "type": {}}, ErrorKind.INTERNAL),
        ("out of memory", ErrorKind.INTERNAL),
    ],
)
def test_an_error_within_a_response_has_the_kind_that_it_names(error: Any, kind: ErrorKind) -> None:
    found = from_stream({"error": error}, variable="KEY")
    assert judge(found)[1].kind is kind
    assert found.may_have_run


def test_a_rejected_request_ran_nothing_and_a_failed_one_may_have() -> None:
    found = {status: from_status(status, {}, {}, variable="") for status in (400, 429, 500, 529)}
    assert [status for status, error in found.items() if error.may_have_run] == [500, 529]


@pytest.mark.parametrize("body", [None, "", [], {}, {"error": {}}, {"error": None}])
def test_a_server_without_a_reason_gets_one(body: Any) -> None:
    assert "gave no reason" in str(from_status(500, body, {}, variable=""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", 3.0), ("0.5", 0.5), ("", None), ("-1", None), ("nan", None), ("inf", None), ("x", None)],
)
def test_only_a_time_in_seconds_is_a_time_to_come_again(text: str, expected: float | None) -> None:
    assert retry_after({"retry-after": text}) == expected
    assert retry_after({}) is None


def test_a_connection_that_never_was_ran_nothing_and_one_that_broke_may_have() -> None:
    never = from_network(OSError("refused"), connected=False, where="there")
    assert (judge(never)[0], never.may_have_run) == (Outcome.FAILED, False)
    assert never.retryable
    untrusted = ssl.SSLCertVerificationError("self-signed certificate")
    assert not from_network(untrusted, connected=False, where="there").retryable
    broke = from_network(OSError(), connected=True, where="there")
    assert isinstance(broke, ConnectionBroken)
    assert broke.may_have_run
    assert str(broke) == "the response from there was cut off: OSError"
    assert judge(broke)[0] is Outcome.CRASHED


def test_what_other_errors_say_stays_as_it_is() -> None:
    assert judge(BudgetExceeded("silence", 1.0))[0] is Outcome.TIMED_OUT
    assert judge(InvalidAnswer("x"))[0] is Outcome.PROTOCOL_ERROR
    assert judge(missing_library(ImportError(name="anthropic")))[0] is Outcome.UNSUPPORTED
