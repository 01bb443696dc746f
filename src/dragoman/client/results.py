"""Results of turns, and what an error means for them.

Defines `Result`, maps errors to outcomes, and attaches the agent's stderr to errors. `conversation`
decides when a turn ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Self

import msgspec

from dragoman.client.permissions import Denial
from dragoman.decoders import convert_typed
from dragoman.errors import (
    AdapterFailed,
    AuthRequired,
    BrokerError,
    BudgetExceeded,
    CallCancelled,
    ConnectionClosed,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    PeerBusy,
    PolicyNotEnforced,
    ProtocolMismatch,
    RemoteError,
    TurnFailed,
    UsageError,
)
from dragoman.errors.connections import own_words
from dragoman.events.parts import Failure, Usage
from dragoman.events.words import ERROR_OUTCOMES, ErrorKind, Outcome
from dragoman.wire import codes


class Result(msgspec.Struct, frozen=True):
    """How a turn ended."""

    outcome: Outcome
    """How the turn really ended, such as `ok`, `denied` or `timed_out`."""
    text: str
    """The agent's answer."""
    stop: str = ""
    """The agent's own stop reason. If it gave none, why the turn ended, such as the class of the
    error."""
    failure: Failure | None = None
    """The error that ended the turn, if any: its message, kind and code."""
    usage: Usage | None = None
    """Tokens and cost of the turn, if the agent reported them."""
    denials: tuple[Denial, ...] = ()
    """The permissions that were refused."""
    error: DragomanError | None = None
    """The exception for this end, if there is one; `require_ok` raises it."""
    truncated: bool = False
    """Whether `text` is cut off because of `Turn.max_text_size`."""
    approvals: int = 0
    """How many permissions were granted, by a person or a policy."""
    ended_by_denial: bool = False
    """Whether the turn ended right after a refusal."""

    def __repr__(self) -> str:
        """Show the outcome, the text, and anything unusual."""
        shown = (
            f"{each.name}={value!r}"
            for each in msgspec.structs.fields(self)
            if (value := getattr(self, each.name)) != each.default
        )
        return f"Result({', '.join(shown)})"

    @property
    def ok(self) -> bool:
        """Whether the outcome is `ok`."""
        return self.outcome.good

    def require_ok(self) -> Self:
        """Return this result if it is `ok`, or else raise its error, or `TurnFailed` if it has
        none."""
        if self.ok:
            return self
        if self.error is not None:
            if (said := stderr_of(self.error)) and not hasattr(self.error, "__notes__"):
                # Python shows a note after the traceback. It is not part of the error's own text.
                self.error.add_note(f"the agent's stderr:\n{said}")
            raise self.error
        failure = self.failure
        raise TurnFailed(
            self.outcome,
            failure.message if failure else self.stop,
            blame="us" if self.outcome in (Outcome.CANCELLED, Outcome.DENIED) else "peer",
            retryable=failure is not None and failure.retryable,
        )


BY_DENIAL: Final = frozenset({Outcome.OK, Outcome.CANCELLED})
"""Outcomes that agents report when a refusal ended the turn."""

_SAID: Final = BY_DENIAL | {
    *(Outcome.EMPTY, Outcome.REFUSED, Outcome.TRUNCATED, Outcome.FAILED, Outcome.UNKNOWN),
}
"""Outcomes that rest only on the agent's report, unlike a crash or a timeout."""


def outcome_with(outcome: Outcome, *, denials: int, approvals: int, cancelled: bool) -> Outcome:
    """Return the outcome of a turn with permission requests.

    If some were denied and none was approved, an outcome that rests only on the agent's report
    becomes `DENIED`, except `CANCELLED` in a turn that we cancelled (`cancelled`). Any other
    outcome is returned unchanged.
    """
    if denials and not approvals and outcome in _SAID:
        return outcome if cancelled and outcome is Outcome.CANCELLED else Outcome.DENIED
    return outcome


def explain(error: DragomanError) -> tuple[Outcome, Failure]:
    """Return the outcome and failure for an error that ended a turn."""
    kind = ErrorKind.PEER
    code: int | str | None = error.error_class
    retryable = error.retryable
    data: Any = None
    match error:
        case AuthRequired():
            outcome, kind = Outcome.AUTH_REQUIRED, ErrorKind.AUTH_REQUIRED
        case CallCancelled():
            outcome, kind = Outcome.CANCELLED, ErrorKind.CANCELLED
        case RemoteError() if (end := peer_end(error)) is not None and end.failure is not None:
            return end.outcome, end.failure
        case RemoteError():
            kind = error_kind(error.code, error.message, error.data)
            outcome = ERROR_OUTCOMES.get(kind, Outcome.FAILED)
            code, retryable, data = error.code, kind.retryable, error.data
        case BudgetExceeded():
            outcome = Outcome.TIMED_OUT
        case BrokerError() | PeerBusy():
            # The prompt did not reach the peer.
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
        case AdapterFailed() | PolicyNotEnforced():
            outcome = Outcome.FAILED
        case TurnFailed():
            outcome = Outcome(error.outcome)
        case UsageError() if type(error) is UsageError:
            # The turn ended because of a caller's mistake, such as a permit that raises.
            outcome = Outcome.FAILED
        case _:
            outcome = Outcome.UNKNOWN
    return outcome, Failure(str(error), kind, code, retryable, data)


class PeerEnd(msgspec.Struct, frozen=True, rename="camel"):
    """How a peer ended a turn, as sent in the data of the error with which a gateway answers the
    prompt."""

    outcome: Outcome
    stop: str = ""
    failure: Failure | None = None
    by_error: bool = False
    """Whether the peer answered the prompt with an error instead of reporting a failure."""


def with_end(data: Any, result: Result) -> Any:
    """Return the data of an error response to a prompt, extended by a `PeerEnd` made from `result`.
    Data that is not an object is returned unchanged."""
    if not (data is None or isinstance(data, dict)):
        return data
    end = PeerEnd(result.outcome, result.stop, result.failure, result.error is not None)
    return _with_ours(data, _ENDED, msgspec.to_builtins(end, enc_hook=str))


def peer_end(error: DragomanError) -> PeerEnd | None:
    """Return how the peer ended the turn, from the error of a gateway or broker in front of it.
    None if the error does not say, or claims a successful end."""
    data = error.data if isinstance(error, RemoteError) else None
    ours = data.get(_OURS) if isinstance(data, dict) else None
    told = ours.get(_ENDED) if isinstance(ours, dict) else None
    if told is None:
        return None
    try:
        end = convert_typed(told, PeerEnd)
    except msgspec.ValidationError:
        return None
    # An error is never a successful end, whatever it claims.
    return None if end.outcome.good else end


def own_error(error: DragomanError, end: PeerEnd) -> DragomanError | None:
    """Return the peer's own error, given the `error` for which `peer_end` returned `end`. None if
    the peer reported a failure instead of an error."""
    if not end.by_error or end.outcome is Outcome.AUTH_REQUIRED or end.failure is None:
        return error if end.by_error else None
    assert isinstance(error, RemoteError)
    own = RemoteError(error.code, error.message, end.failure.data)
    own.stderr_tail = error.stderr_tail
    return own


def stderr_size(stream: object) -> int:
    """Return how many bytes the program behind a stream has written to stderr, or 0 if there is no
    program behind the stream."""
    size = getattr(stream, "stderr_size", 0)
    return size if isinstance(size, int) else 0


def stderr_since(stream: object, since: int) -> str:
    """Return the end of the stderr output that follows the first `since` bytes; empty if the stream
    does not lead to a program."""
    tail = getattr(stream, "stderr_tail", None)
    return str(tail(since)) if callable(tail) else ""


MAX_STDERR_SIZE: Final = 16 * 1024
"""Maximum number of characters of an agent's stderr to send and store with its error: the end of a
traceback is what counts."""

_OURS: Final = "dragoman"
_TAIL: Final = "stderrTail"
_ENDED: Final = "ended"


def _with_ours(data: dict[str, Any] | None, name: str, value: Any) -> dict[str, Any]:
    """Return the data of an error with one of dragoman's own fields added."""
    ours = (data or {}).get(_OURS)
    return {**(data or {}), _OURS: {**(ours if isinstance(ours, dict) else {}), name: value}}


def stderr_of(error: DragomanError | None) -> str:
    """Return the end of the agent's stderr in an error, or an empty string if there is none."""
    tail = error.stderr_tail if isinstance(error, RemoteError) else ""
    if len(tail) <= MAX_STDERR_SIZE:
        return tail
    end = tail[-MAX_STDERR_SIZE:]
    # The cut may have split a secret, and the rest of it is not recognisable.
    return end.partition("\n" if "\n" in end else " ")[2]


def with_stderr(data: Any, tail: str) -> Any:
    """Return the data of an agent's error, extended by the end of the agent's stderr (`tail`). Data
    that is not an object is returned unchanged."""
    if not tail or not (data is None or isinstance(data, dict)):
        return data
    return _with_ours(data, _TAIL, tail)


def split_stderr(data: Any) -> tuple[str, Any]:
    """Return the stderr output that `with_stderr` added to an error's data, and the rest of the
    data. The text is empty if none was added."""
    ours = data.get(_OURS) if isinstance(data, dict) else None
    tail = ours.get(_TAIL) if isinstance(ours, dict) else None
    if not isinstance(tail, str) or not isinstance(ours, dict):
        return "", data
    own = {name: value for name, value in data.items() if name != _OURS}
    if others := {name: value for name, value in ours.items() if name != _TAIL}:
        own[_OURS] = others
    return tail, own or None


def add_stderr(error: RemoteError, read: Callable[[], str]) -> RemoteError:
    """Return an internal error with the end of the agent's stderr: what a broker or gateway sent
    with the error, otherwise what `read` returns. Other errors, and an error that already has it,
    are returned unchanged."""
    if error.code != codes.INTERNAL_ERROR or error.stderr_tail:
        return error
    tail, data = split_stderr(error.data)
    if tail:
        error = RemoteError(error.code, error.message, data)
    error.stderr_tail = tail or _REPEATED.sub("", read())
    return error


_REPEATED: Final = re.compile(
    r"^Error handling request \{\n.*?^\} \{\n.*?^\}(?:\n|\Z)", re.MULTILINE | re.DOTALL
)
"""Matches what the TypeScript SDK of ACP prints for each error that it sends: the request and the
error."""


def failure_record(failure: Failure, error: DragomanError | None) -> dict[str, Any]:
    """Return a failure as stored with a job, including the end of the stderr in `error`."""
    told: dict[str, Any] = msgspec.to_builtins(failure, enc_hook=str)
    if tail := stderr_of(error):
        told["stderr_tail"] = tail
    return told


def usage_record(usage: Usage | None) -> dict[str, Any] | None:
    """Return the known values of a turn's usage, as stored with a job; None if there is no
    usage."""
    if usage is None:
        return None
    told: dict[str, Any] = msgspec.to_builtins(usage, enc_hook=str)
    return {name: value for name, value in told.items() if value not in (None, [])}


def complete_usage(usage: Usage | None, told: Usage | None) -> Usage | None:
    """Return `usage`, reported at the end of a turn, with the context usage and cost that it lacks
    taken from `told`, reported before. If only one of the two is given, return that one."""
    if usage is None or told is None:
        return usage or told
    return msgspec.structs.replace(
        usage,
        context_used=told.context_used if usage.context_used is None else usage.context_used,
        context_size=told.context_size if usage.context_size is None else usage.context_size,
        cost=usage.cost or told.cost,
    )


def stop_of(error: DragomanError) -> str:
    """Return the stop reason of a turn that ended with an error: the agent's own, if the data of
    the error has one, or else the class of the error."""
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


_STATUS: Final = (
    r"(?:^|\bstatus\b|\bstatus[ _-]?code\b|\bhttp\b|\bhttp/\d(?:\.\d)?|\berror\b|\bcode\b)"
    r"[\"':=( ]*"
)
"""Matches what precedes the number of an HTTP status in an error message."""

_LOGIN: Final = re.compile(
    _STATUS + r"(?:401|403)\b|\bunauthori[sz]ed\b|authentication[ _](?:failed|error|required)"
    r"|(?:invalid|incorrect|missing|expired)[ _](?:x-)?api[ _-]?key|api[ _-]key not valid"
    r"|invalid authentication|token (?:has |is )?(?:expired|invalid)|not logged in",
)
"""Matches messages about a missing, invalid or expired key or login."""

_QUOTA: Final = re.compile(
    _STATUS + r"429\b|\b429\b(?! (?!errors|responses)[a-z]+s\b)|(?<!disk )quota|rate[ _-]?limit"
    r"|too many requests|usage limit|resource[ _]exhausted|out of credits?|credit balance"
)
"""Matches messages about an exceeded limit, but not about a disk quota, and not a count such as
"429 files"."""

_STATUS_FIELDS: Final = (
    *("status", "statusCode", "status_code", "httpStatus", "http_status", "httpStatusCode"),
    *("http_status_code", "code"),
)
_NAME_FIELDS: Final = ("status", "code", "type")
"""Fields in which providers put the name of an error, such as ``insufficient_quota``."""

_STATUS_DEPTH: Final = 6
_STATUS_ENTRIES: Final = 32
"""Maximum depth and width to which an error's data is searched for a status."""

_NOT_FOUND: Final = ("not found", "unknown", "invalid session identifier", "no previous sessions")


def error_kind(code: int, message: str, data: Any) -> ErrorKind:
    """Return the kind of a JSON-RPC error.

    The message only refines the kind; it never causes a resend.
    """
    kind = _CODES.get(code, ErrorKind.PEER)
    if kind is not ErrorKind.PEER and code not in (-32603, -32602, -32600):
        return kind
    if code == -32600:
        # Not at the top: only a refusal needs it.
        from dragoman.dialects.codex.failures import refusal_kind

        if (refusal := refusal_kind(message)) is not None:
            return refusal
    details = own_words(data).lower()
    text = f"{message.lower()} {details}"
    if _is_validation(data):
        return ErrorKind.INVALID_PARAMS
    if code in _CODES and "session" in text and any(words in text for words in _NOT_FOUND):
        return ErrorKind.NOT_FOUND
    status = _status_in(data, _STATUS_DEPTH)
    if status is not None:
        return status
    # Search both texts separately: a match must not span the end of one and the start of the other.
    for said in (details, message.lower()):
        if _QUOTA.search(said):
            return ErrorKind.RATE_LIMITED
        if _LOGIN.search(said):
            return ErrorKind.AUTH_REQUIRED
    return kind


def _is_validation(data: Any) -> bool:
    """Return whether the data lists validation errors of a request."""
    return isinstance(data, list) or (isinstance(data, dict) and "_errors" in data)


def _status_in(data: Any, depth: int) -> ErrorKind | None:
    """Return the error kind that an HTTP status or an error name in the data means: a refused login
    or an exceeded limit. None if the data contains neither."""
    if depth == 0:
        return None
    if isinstance(data, list):
        values = data
    elif isinstance(data, dict):
        kind = _status_of(data)
        if kind is not None:
            return kind
        values = list(data.values())
    else:
        return None
    inner = (_status_in(value, depth - 1) for value in values[:_STATUS_ENTRIES])
    return next(filter(None, inner), None)


def _status_of(data: dict[str, Any]) -> ErrorKind | None:
    for name in _STATUS_FIELDS:
        # Some write the number as a string.
        if str(data.get(name)) in ("401", "403", "429"):
            return _CODES[int(data[name])]
    for name in _NAME_FIELDS:
        named = data.get(name)
        if isinstance(named, str) and _QUOTA.search(named.lower()):
            return ErrorKind.RATE_LIMITED
        if isinstance(named, str) and _LOGIN.search(named.lower()):
            return ErrorKind.AUTH_REQUIRED
    return None
