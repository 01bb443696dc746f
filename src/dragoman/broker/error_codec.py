"""Encode dragoman errors as JSON-RPC error data in a broker, and rebuild them in the caller.

The caller gets the same class, message and fields that a direct start of the peer would raise.
Tracebacks and causes are not sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dragoman import errors
from dragoman.client.results import stderr_of, with_stderr
from dragoman.errors import (
    AuthRequired,
    Blame,
    BrokerBusy,
    CallError,
    DragomanError,
    RemoteError,
    UsageError,
)
from dragoman.wire import codes

KEY: Final = "dragoman"
"""Key of our part of an error's data; other members are the peer's own."""

BUSY: Final = -32050
"""The code of `BrokerBusy` on the wire."""

_NOTICE: Final = "notice"

MAX_TEXT_SIZE: Final = 16 * 1024
"""Maximum number of characters that are sent of a text field. The end is kept, because the last
output of a peer matters most."""


VERDICT: Final = ("blame", "retryable", "may_have_run")
"""Fields of an error that are always sent: a dragoman of another version may not know its class."""


def describe(error: DragomanError) -> dict[str, Any]:
    """Return the JSON-RPC error data for this error."""
    fields = {name: getattr(error, name) for name in VERDICT} | vars(error)
    details = {name: told for name, value in fields.items() if (told := _plain(value))}
    return {
        KEY: {
            "errorClass": error.error_class,
            "kind": type(error).__name__,
            "message": str(error),
            "details": {name: told[0] for name, told in details.items()},
        }
    }


def revive(data: Any, message: str = "") -> DragomanError | None:
    """Return the error that JSON-RPC error data describes, or None if it contains no error of ours.
    `message` is used if the data has none. An unknown class becomes `CallError`."""
    told = data.get(KEY) if isinstance(data, dict) else None
    if not isinstance(told, dict) or not isinstance(told.get("errorClass"), str):
        return None
    # The kind is more specific than the stable name; a newer dragoman may have unknown kinds.
    kind = _kinds().get(str(told.get("kind")))
    if kind is None or kind.error_class != told["errorClass"]:
        kind = _classes().get(told["errorClass"], CallError)
    # The constructors build a message from their arguments, and here it is already complete.
    error = kind.__new__(kind)
    error.args = (str(told.get("message") or message),)
    details = told.get("details")
    if isinstance(details, dict):
        for name, value in details.items():
            usual = getattr(kind, name, None)
            # A peer may send such data too: it must not replace a method.
            if not name.isidentifier() or name.startswith("_") or callable(usual):
                continue
            if name in VERDICT and (value == usual or type(value) is not type(usual)):
                continue
            error.__dict__[name] = tuple(value) if isinstance(value, list) else value
    return error


def refusal(error: DragomanError) -> RemoteError:
    """Return the JSON-RPC error to send to a caller. An error of ours becomes one with the data
    that `describe` returns. The peer's own keeps its code, and the end of the peer's stderr is
    added to its data. If its `may_have_run` differs from what its code implies, a description like
    that of our own errors is added too."""
    if isinstance(error, RemoteError):
        data = with_stderr(error.data, stderr_of(error))
        told = RemoteError(error.code, error.message, data)
        if told.may_have_run is error.may_have_run or isinstance(error, AuthRequired):
            return told
        # A gateway in front of the peer may already have described the error.
        described = revive(error.data, error.message) or error
        described.may_have_run = error.may_have_run
        own = error.data if isinstance(error.data, dict) else {}
        return RemoteError(error.code, error.message, {**own, **describe(described)})
    if error.error_class == "broker_busy":
        code = BUSY
    elif error.error_class in ("unknown_session", "session_lost", "unknown_job"):
        code = codes.NOT_FOUND
    elif isinstance(error, UsageError):
        code = codes.INVALID_PARAMS
    else:
        code = codes.INTERNAL_ERROR
    return RemoteError(code, str(error), describe(error))


def with_notice(refused: RemoteError, notice: str) -> RemoteError:
    """Return the error with a notice for the caller's user added to its data. Unchanged if the
    notice is empty or the data is not an object."""
    data = {} if refused.data is None else refused.data
    if not notice or not isinstance(data, dict):
        return refused
    ours = data.get(KEY)
    ours = {**(ours if isinstance(ours, dict) else {}), _NOTICE: notice}
    return RemoteError(refused.code, refused.message, {**data, KEY: ours})


def notice_in(error: BaseException | None) -> str | None:
    """Return the notice that a broker sent with an error or with one of its causes, or None if
    there is none."""
    while error is not None:
        data = error.data if isinstance(error, RemoteError) else None
        ours = data.get(KEY) if isinstance(data, dict) else None
        told = ours.get(_NOTICE) if isinstance(ours, dict) else None
        if isinstance(told, str):
            return told
        # An error that was rebuilt from its description has the sent one as its cause.
        error = error.__cause__
    return None


def blame_of(error_class: str | None) -> Blame:
    """Return whose fault an error is, by its stable name. A turn that failed without an error, or
    with an unknown one, is the peer's fault."""
    kind = _classes().get(error_class or "")
    return "peer" if kind is None else kind.blame


def busy(limit: int) -> BrokerBusy:
    """Return the error for a request that arrives while `limit` others already wait."""
    return BrokerBusy(
        f"{limit} requests are already waiting at this broker; try again when some are done"
    )


def _plain(value: Any) -> tuple[Any] | None:
    """Return a value as JSON decodes it, of a long text only the end, wrapped in a tuple because it
    may be None. Returns None if JSON cannot represent the value."""
    if isinstance(value, str):
        return (value[-MAX_TEXT_SIZE:],)
    try:
        return (msgspec.json.decode(msgspec.json.encode(value)),)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _all(root: type[DragomanError]) -> Iterator[type[DragomanError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _all(child)


def _kinds() -> dict[str, type[DragomanError]]:
    return {kind.__name__: kind for kind in _all(DragomanError)}


def _classes() -> dict[str, type[DragomanError]]:
    """Return, for each stable name, the base class of those that share it."""
    found: dict[str, type[DragomanError]] = {}
    for kind in _all(DragomanError):
        found.setdefault(kind.error_class, kind)
    return found
