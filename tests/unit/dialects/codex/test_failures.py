"""What went wrong, in the common words."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.dialects.codex.failures import (
    details_of,
    failure_of,
    outcome_of,
    refusal_kind,
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
    for word in ("serverOverloaded", "internalServerError"):
        assert failure_of({"message": "m", "codexErrorInfo": word}).retryable
    assert not failure_of({"message": "m", "codexErrorInfo": "unauthorized"}).retryable


def test_a_key_that_is_not_set_is_a_missing_login() -> None:
    failure = failure_of(
        {"message": "Missing environment variable: `K`.", "codexErrorInfo": "other"}
    )
    assert failure.kind is ErrorKind.AUTH_REQUIRED


@pytest.mark.parametrize("error", ["text", 3, [], {"message": 4}])
def test_an_error_of_any_shape_is_a_failure(error: Any) -> None:
    assert failure_of(error).kind is ErrorKind.PEER


def test_the_body_of_a_response_is_reduced_to_its_message() -> None:
    body = '{"error": {"message": "no such tool", "type": "invalid_request_error", "code": "400"}}'
    assert failure_of({"message": body}).message == "no such tool"
    assert failure_of({"message": "{not JSON"}).message == "{not JSON"


def test_details_are_shown_if_there_are_any() -> None:
    assert details_of({"additionalDetails": "d"}) == "d"
    assert details_of({"additionalDetails": 3}) is None
    assert details_of("text") is None


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Not initialized", ErrorKind.NOT_INITIALIZED),
        ("Already initialized", ErrorKind.ALREADY_INITIALIZED),
        ("x.y requires experimentalApi capability", ErrorKind.EXPERIMENTAL_REQUIRED),
        ("Invalid request: unknown variant `x`", ErrorKind.METHOD_NOT_FOUND),
        ("no rollout found for thread id x", ErrorKind.NOT_FOUND),
        ("invalid session id: x", ErrorKind.NOT_FOUND),
        ("thread not found: x", ErrorKind.NOT_FOUND),
        ("Invalid request: missing field", None),
        ("the file was not found", None),
    ],
)
def test_refusals_are_distinguished_by_their_words(message: str, kind: ErrorKind | None) -> None:
    assert refusal_kind(message) is kind
