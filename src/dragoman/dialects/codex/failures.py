"""Map errors of turns and calls to error kinds, and failed turns to outcomes.

`translate` handles all other ends of a turn.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.errors.connections import plain_message
from dragoman.events import parts
from dragoman.events.words import ERROR_OUTCOMES, ErrorKind, Outcome

_ERROR_KINDS: Final[dict[str, ErrorKind]] = {
    "unauthorized": ErrorKind.AUTH_REQUIRED,
    "contextWindowExceeded": ErrorKind.CONTEXT_FULL,
    "sessionBudgetExceeded": ErrorKind.CONTEXT_FULL,
    "usageLimitExceeded": ErrorKind.QUOTA,
    "rateLimitExceeded": ErrorKind.RATE_LIMITED,
    "serverOverloaded": ErrorKind.OVERLOADED,
    # Every 5xx response of the model's server: "currently experiencing high demand".
    "internalServerError": ErrorKind.OVERLOADED,
    "flexUnavailable": ErrorKind.OVERLOADED,
    "policyCapacityUnavailable": ErrorKind.OVERLOADED,
    "modelNotFound": ErrorKind.NOT_FOUND,
    "httpConnectionFailed": ErrorKind.NETWORK,
    "responseStreamConnectionFailed": ErrorKind.NETWORK,
    "responseStreamDisconnected": ErrorKind.NETWORK,
    "responseTooManyFailedAttempts": ErrorKind.NETWORK,
}
_STATUS_KINDS: Final[dict[int, ErrorKind]] = {
    401: ErrorKind.AUTH_REQUIRED,
    403: ErrorKind.AUTH_REQUIRED,
    429: ErrorKind.RATE_LIMITED,
}
_OUTCOMES: Final[dict[str, Outcome]] = {
    "cyberPolicy": Outcome.REFUSED,
    "misalignmentPolicyViolation": Outcome.REFUSED,
    "tooManyDenials": Outcome.DENIED,
}


def failure_of(error: Any) -> parts.Failure:
    """Convert a turn's error, in any form, to a `Failure`. The error's `codexErrorInfo` decides the
    kind: it is a word, or an object whose key is the word."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    # The message may be the whole body of the model provider's response.
    message = plain_message(str(fields.get("message", "")))
    info = fields.get("codexErrorInfo")
    word, detail = _word(info)
    kind = _ERROR_KINDS.get(word, ErrorKind.PEER)
    status = detail.get("httpStatusCode") if isinstance(detail, dict) else None
    if isinstance(status, int):
        # The status of the model provider's response says more than a failed connection.
        kind = _STATUS_KINDS.get(status, kind)
    elif message.startswith("Missing environment variable"):
        # The variable that should hold the provider's key is not set.
        kind = ErrorKind.AUTH_REQUIRED
    return parts.Failure(message, kind, word or None, kind.retryable, info)


def outcome_of(failure: parts.Failure) -> Outcome:
    """Return the outcome of a turn that failed with this error."""
    if isinstance(failure.code, str) and failure.code in _OUTCOMES:
        return _OUTCOMES[failure.code]
    return ERROR_OUTCOMES.get(failure.kind, Outcome.FAILED)


def details_of(error: Any) -> str | None:
    """Return the details that an error has besides its message, or None."""
    details = error.get("additionalDetails") if isinstance(error, dict) else None
    return details if isinstance(details, str) else None


def _word(info: Any) -> tuple[str, Any]:
    if isinstance(info, dict) and info:
        word = next(iter(info))
        return str(word), info[word]
    return (info, None) if isinstance(info, str) else ("", None)


_NO_THREAD: Final = (
    *("no rollout found", "thread not found", "invalid thread id", "invalid session id"),
)


def refusal_kind(message: str) -> ErrorKind | None:
    """Return the kind of a JSON-RPC error -32600 with this message, or None for a request that is
    simply invalid.

    Nearly every refusal has this code, so only the message distinguishes them.
    """
    if message == "Not initialized":
        return ErrorKind.NOT_INITIALIZED
    if message == "Already initialized":
        return ErrorKind.ALREADY_INITIALIZED
    if message.endswith("requires experimentalApi capability"):
        return ErrorKind.EXPERIMENTAL_REQUIRED
    if message.startswith("Invalid request: unknown variant"):
        return ErrorKind.METHOD_NOT_FOUND
    return ErrorKind.NOT_FOUND if message.startswith(_NO_THREAD) else None
