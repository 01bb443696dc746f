"""Convert exceptions to error responses and back; no other module does.

Decides what the peer may learn about a failure of ours: a `RemoteError` is sent unchanged, a
message that is too long is reported as such, and everything else becomes an internal error with an
incident id; the id and the traceback are logged. The text of an unexpected exception is never sent:
it may contain paths and secrets.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Final

import msgspec
from msgspec import Raw

from dragoman.errors import CallCancelled, MessageTooLong, RemoteError, UsageError
from dragoman.wire import codes
from dragoman.wire.messages import UNDECODABLE

log: Final = logging.getLogger("dragoman.rpc")


def to_wire(error: BaseException, method: str) -> tuple[int, str, Any]:
    """Return the code, message and data of the response to a request whose handler raised
    `error`."""
    match error:
        case RemoteError():
            return error.code, error.message, error.data
        case MessageTooLong():
            return (
                codes.INTERNAL_ERROR,
                "a message exceeds the maximum line size",
                {
                    "size": error.size,
                    "limit": error.limit,
                },
            )
        case _:
            incident = os.urandom(4).hex()
            log.error("incident %s: the handler of %s failed", incident, method, exc_info=error)
            return codes.INTERNAL_ERROR, "Internal error", {"incident": incident}


def invalid_params(error: Exception) -> RemoteError:
    """Return the error for a request whose params are invalid.

    Only the text of a `ValidationError` or `UsageError` is sent: it is about the peer's own params.
    """
    detail = str(error) if isinstance(error, msgspec.ValidationError | UsageError) else "malformed"
    return RemoteError(codes.INVALID_PARAMS, "Invalid params", {"detail": detail})


def plain_params(params: Raw) -> Any:
    """Decode params that have no declared type. Returns None if the message has no params.

    Raises `RemoteError` if they are not JSON.
    """
    try:
        return msgspec.json.decode(params) if memoryview(params).nbytes else None
    except UNDECODABLE as error:
        raise invalid_params(error) from error


def method_not_found(method: str) -> RemoteError:
    return RemoteError(codes.METHOD_NOT_FOUND, "Method not found", {"method": method})


def from_wire(code: int, message: str, data: Any) -> RemoteError:
    """Return the exception for an error response: `CallCancelled` for the code `REQUEST_CANCELLED`,
    `RemoteError` for any other."""
    if code == codes.REQUEST_CANCELLED:
        return CallCancelled(code, message, data)
    return RemoteError(code, message, data)
