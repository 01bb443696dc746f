"""How a turn ended, and what an error says about it.

Owns `Result` and the way from errors to outcomes. It does not know when a turn ends:
`conversation` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from dragoman.client.permissions import Denial
from dragoman.errors import (
    AuthRequired,
    BrokerError,
    BudgetExceeded,
    CallCancelled,
    ConnectionClosed,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    ProtocolMismatch,
    RemoteError,
)
from dragoman.events.parts import Failure, Usage
from dragoman.events.words import ERROR_OUTCOMES, ErrorKind, Outcome


@dataclass(frozen=True, slots=True)
class Result:
    """How a turn ended."""

    outcome: Outcome
    text: str
    """What the agent said."""
    stop: str = ""
    """The other side's own word for why it stopped."""
    failure: Failure | None = None
    usage: Usage | None = None
    denials: tuple[Denial, ...] = ()
    """Permissions that were refused on the way."""
    error: DragomanError | None = None
    """What went wrong on our side of the wire, for those who want to raise it."""

    @property
    def ok(self) -> bool:
        return self.outcome.good

    def require_ok(self) -> Self:
        """Raise unless the turn can be taken for done."""
        if self.ok:
            return self
        if self.error is not None:
            raise self.error
        detail = self.failure.message if self.failure else self.stop
        raise DragomanError(f"the turn ended as {self.outcome}" + (f": {detail}" if detail else ""))


def explain(error: DragomanError) -> tuple[Outcome, Failure]:
    """What an error says about how a turn ended."""
    kind = ErrorKind.PEER
    code: int | str | None = error.error_class
    data: Any = None
    match error:
        case AuthRequired():
            outcome, kind = Outcome.AUTH_REQUIRED, ErrorKind.AUTH_REQUIRED
        case CallCancelled():
            outcome, kind = Outcome.CANCELLED, ErrorKind.CANCELLED
        case RemoteError():
            kind = error_kind(error.code, error.message, error.data)
            outcome = ERROR_OUTCOMES.get(kind, Outcome.FAILED)
            code, data = error.code, error.data
        case BudgetExceeded():
            outcome = Outcome.TIMED_OUT
        case BrokerError():
            # The prompt did not get as far as the peer.
            outcome, kind = Outcome.FAILED, ErrorKind.OVERLOADED
        case InvalidAnswer():
            outcome, kind = Outcome.PROTOCOL_ERROR, ErrorKind.PARSE
        case ProtocolMismatch():
            outcome = Outcome.PROTOCOL_ERROR
        case ConnectionClosed():
            outcome, kind = Outcome.CANCELLED, ErrorKind.CANCELLED
        case ConnectionLost():
            outcome = (
                Outcome.PROTOCOL_ERROR if error.error_class == "line_too_long" else Outcome.CRASHED
            )
        case _:
            outcome = Outcome.UNKNOWN
    return outcome, Failure(str(error), kind, code, error.retryable, data)


def stop_of(error: DragomanError) -> str:
    """The word for why a turn stopped that was answered with an error: the agent's own where the
    error carries it, as ours does for a stop reason that says that the turn failed."""
    if isinstance(error, RemoteError) and isinstance(error.data, dict):
        said = error.data.get("stopReason")
        if isinstance(said, str) and said:
            return said
    return error.error_class


_CODES: Final = {
    -32000: ErrorKind.AUTH_REQUIRED,
    -32001: ErrorKind.OVERLOADED,
    -32002: ErrorKind.NOT_FOUND,
    -32022: ErrorKind.UNSUPPORTED_VERSION,
    -32600: ErrorKind.INVALID_PARAMS,
    -32601: ErrorKind.METHOD_NOT_FOUND,
    -32602: ErrorKind.INVALID_PARAMS,
    -32603: ErrorKind.INTERNAL,
    -32700: ErrorKind.PARSE,
    -32800: ErrorKind.CANCELLED,
    401: ErrorKind.AUTH_REQUIRED,
    403: ErrorKind.AUTH_REQUIRED,
    429: ErrorKind.RATE_LIMITED,
}


_REFUSED_LOGINS: Final = ("401 ", "403 ")
"""How the details of an error begin where the model did not accept the key."""

_NOT_FOUND: Final = ("not found", "unknown", "invalid session identifier", "no previous sessions")


def error_kind(code: int, message: str, data: Any) -> ErrorKind:
    """The kind of a JSON-RPC error. Its words only refine the kind, they never cause a resend."""
    kind = _CODES.get(code, ErrorKind.PEER)
    if code in (-32603, -32602, -32600):
        text = message.lower()
        if isinstance(data, dict) and isinstance(data.get("details"), str):
            details = data["details"].lower()
            text += " " + details
            if details.startswith(_REFUSED_LOGINS):
                return ErrorKind.AUTH_REQUIRED
        if "session" in text and any(words in text for words in _NOT_FOUND):
            return ErrorKind.NOT_FOUND
        if "quota" in text or "rate limit" in text or "429" in text:
            return ErrorKind.RATE_LIMITED
        if isinstance(data, list) or (isinstance(data, dict) and "_errors" in data):
            return ErrorKind.INVALID_PARAMS
    return kind
