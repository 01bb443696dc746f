"""Map HTTP status codes and network errors of a model API to dragoman's errors and outcomes.

Parses Retry-After and distinguishes a rate limit from an exhausted quota. Never retries:
`execution` decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dragoman.client.results import explain
from dragoman.errors import (
    AuthRequired,
    ConnectError,
    ConnectionBroken,
    DragomanError,
    RemoteError,
    Unsupported,
)
from dragoman.events.parts import Failure
from dragoman.events.words import ErrorKind, Outcome
from dragoman.transports.tls import rejected

SHOWN_SIZE: Final = 500
"""Maximum number of characters of a server's error message to keep."""

_KINDS: Final[Mapping[int, ErrorKind]] = {
    402: ErrorKind.QUOTA,
    404: ErrorKind.NOT_FOUND,
    408: ErrorKind.NETWORK,
    413: ErrorKind.CONTEXT_FULL,
    429: ErrorKind.RATE_LIMITED,
    503: ErrorKind.OVERLOADED,
    529: ErrorKind.OVERLOADED,
}

_STATUSES: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 529,
}
"""The HTTP status for an error type that is reported within a response."""

_HARD_QUOTA: Final = ("insufficient_quota", "billing", "credit balance", "spend limit")
"""Words in an error response that mean an exhausted quota, not a short rate limit."""

_TOO_LONG: Final = ("context_length_exceeded", "prompt is too long", "context window")


def from_status(
    status: int, body: Any, headers: Mapping[str, str], *, variable: str
) -> DragomanError:
    """Return the error for a response with an error status. `variable` is the environment variable
    of the API key, which a hint may name."""
    error = _of_status(status, body, headers, variable)
    # A rejected request did not reach the model.
    error.may_have_run = status >= 500
    return error


def from_stream(body: Any, *, variable: str) -> DragomanError:
    """Return the error for an error message inside a response whose own status was 200."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    status = 500
    if isinstance(inner, dict):
        # The code is more specific than the type.
        for word in (inner.get("type"), inner.get("code")):
            if isinstance(word, str):
                status = _STATUSES.get(word, status)
            elif isinstance(word, int) and 400 <= word < 600:
                status = word
    error = _of_status(status, body, {}, variable)
    error.may_have_run = True
    return error


def _of_status(status: int, body: Any, headers: Mapping[str, str], variable: str) -> DragomanError:
    message, word = _said(body)
    text = f"{message} {word}".lower()
    data: dict[str, Any] = {"status": status}
    if (wait := retry_after(headers)) is not None:
        data["retryAfter"] = wait
    if status in (400, 402, 403, 429) and any(words in text for words in _HARD_QUOTA):
        return RemoteError(status, message, {**data, "kind": ErrorKind.QUOTA.value})
    if status in (401, 403):
        return AuthRequired(message, hint=f"check the key in {variable}", data=data)
    kind = _KINDS.get(status, ErrorKind.INTERNAL if status >= 500 else ErrorKind.INVALID_PARAMS)
    if status == 400 and any(words in text for words in _TOO_LONG):
        kind = ErrorKind.CONTEXT_FULL
    error = RemoteError(status, message, {**data, "kind": kind.value})
    error.retryable = kind.retryable
    return error


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in the Retry-After header, or None if it has no such number: it may be
    absent or a date."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def from_network(error: Exception, *, connected: bool, where: str) -> DragomanError:
    """Return the error for a connection that broke during the answer (`connected`), or that could
    not be made. `where` names the server."""
    detail = str(error) or type(error).__name__
    if connected:
        broken = ConnectionBroken(f"the response from {where} was cut off: {detail[:SHOWN_SIZE]}")
        broken.may_have_run = True
        return broken
    return ConnectError(
        f"{where} cannot be reached: {detail[:SHOWN_SIZE]}", passing=not rejected(error)
    )


def missing_library(error: ImportError) -> Unsupported:
    return Unsupported(
        f"{error.name or 'a library'} is not installed; `pip install 'dragoman[local]'` installs it"
    )


def judge(error: DragomanError) -> tuple[Outcome, Failure]:
    """Return the outcome and the failure for an error of the local model."""
    outcome, failure = explain(error)
    match error:
        case RemoteError(data={"kind": str(word)}):
            kind = ErrorKind(word)
            outcome = {
                ErrorKind.QUOTA: Outcome.QUOTA,
                ErrorKind.RATE_LIMITED: Outcome.QUOTA,
                ErrorKind.CONTEXT_FULL: Outcome.TRUNCATED,
            }.get(kind, Outcome.FAILED)
            return outcome, msgspec.structs.replace(failure, kind=kind, retryable=kind.retryable)
        case ConnectError():
            return Outcome.FAILED, msgspec.structs.replace(failure, kind=ErrorKind.NETWORK)
        case ConnectionBroken():
            return Outcome.CRASHED, msgspec.structs.replace(failure, kind=ErrorKind.NETWORK)
        case Unsupported():
            return Outcome.UNSUPPORTED, failure
    return outcome, failure


def _said(body: Any) -> tuple[str, str]:
    """Return the message and error code of an error body, in any of the known shapes."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(inner, dict):
        message = str(inner.get("message") or "the server gave no reason")
        words = [inner.get("code"), inner.get("type")]
        return message[:SHOWN_SIZE], " ".join(word for word in words if isinstance(word, str))
    text = str(inner or "").strip()
    return text[:SHOWN_SIZE] or "the server gave no reason", ""
