"""What went wrong, in the common words."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.dialects.codex.failures import (
    details_of,
    failure_of,
    outcome_of,
    rpc_error_kind,
)
from dragoman.events.words import ErrorKind, Outcome


@pytest.mark.parametrize(
    ("info", "kind", "outcome"),
    [
        ("unauthorized", ErrorKind.AUTH_REQUIRED, Outcome.AUTH_REQUIRED),
        ("usageLimitExceeded", ErrorKind.QUOTA, Outcome.QUOTA),
        ("contextWindowExceeded", ErrorKind.CONTEXT_FULL, Outcome.TRUNCATED),
        ("serverOverloaded", ErrorKind.OVERLOADED, Outcome.FAILED),
        ("cyberPolicy", ErrorKind.PEER, Outcome.REFUSED),
        ("tooManyDenials", ErrorKind.PEER, Outcome.DENIED),
        ("new in the next version", ErrorKind.PEER, Outcome.FAILED),
        ({"httpConnectionFailed": {"httpStatusCode": None}}, ErrorKind.NETWORK, Outcome.FAILED),
        (
            {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
            ErrorKind.RATE_LIMITED,
            Outcome.QUOTA,
        ),
        (
            {"httpConnectionFailed": {"httpStatusCode": 401}},
            ErrorKind.AUTH_REQUIRED,
            Outcome.AUTH_REQUIRED,
        ),
        ({"httpConnectionFailed": 3}, ErrorKind.NETWORK, Outcome.FAILED),
        ({}, ErrorKind.PEER, Outcome.FAILED),
        (None, ErrorKind.PEER, Outcome.FAILED),
    ],
)
def test_the_info_of_an_error_says_its_kind(info: Any, kind: ErrorKind, outcome: Outcome) -> None:
    failure = failure_of({"message": "m", "codexErrorInfo": info})
    assert (failure.message, failure.kind, failure.data) == ("m", kind, info)
    assert outcome_of(failure) is outcome


def test_only_what_may_pass_by_itself_is_retryable() -> None:
    assert failure_of({"message": "m", "codexErrorInfo": "serverOverloaded"}).retryable
    assert not failure_of({"message": "m", "codexErrorInfo": "unauthorized"}).retryable


def test_a_key_that_is_not_set_is_a_missing_login() -> None:
    failure = failure_of(
        {"message": "Missing environment variable: `K`.", "codexErrorInfo": "other"}
    )
    assert failure.kind is ErrorKind.AUTH_REQUIRED


@pytest.mark.parametrize("error", ["text", 3, [], {"message": 4}])
def test_an_error_of_any_shape_is_a_failure(error: Any) -> None:
    assert failure_of(error).kind is ErrorKind.PEER


def test_details_are_told_where_there_are_some() -> None:
    assert details_of({"additionalDetails": "d"}) == "d"
    assert details_of({"additionalDetails": 3}) is None
    assert details_of("text") is None


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (-32001, "Server overloaded; retry later.", ErrorKind.OVERLOADED),
        (-32603, "x", ErrorKind.INTERNAL),
        (-32600, "Not initialized", ErrorKind.NOT_INITIALIZED),
        (-32600, "Already initialized", ErrorKind.ALREADY_INITIALIZED),
        (-32600, "x.y requires experimentalApi capability", ErrorKind.EXPERIMENTAL_REQUIRED),
        (-32600, "Invalid request: unknown variant `x`", ErrorKind.METHOD_NOT_FOUND),
        (-32600, "no rollout found for thread id x", ErrorKind.NOT_FOUND),
        (-32600, "invalid session id: x", ErrorKind.NOT_FOUND),
        (-32600, "thread not found: x", ErrorKind.NOT_FOUND),
        (-32600, "Invalid request: missing field", ErrorKind.INVALID_PARAMS),
        (7, "x", ErrorKind.PEER),
    ],
)
def test_refusals_are_told_apart_by_their_words(code: int, message: str, kind: ErrorKind) -> None:
    assert rpc_error_kind(code, message) is kind
