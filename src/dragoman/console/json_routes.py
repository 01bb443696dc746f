"""JSON responses of the HTTP API: values, and errors with their status codes.

`app` and the `*_routes` modules build their routes with `json_route`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.decoders import convert_typed, decode_typed
from dragoman.errors import (
    Blame,
    DragomanError,
    PatchChanged,
    RemoteError,
    UnknownJob,
    UnknownSession,
    UsageError,
)
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.console.live_state import LiveState
    from dragoman.store.records import SessionRecord

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.console")

HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # Browsers may resolve the host names of links before a click. A link in an agent's text could
    # leak data that way.
    "x-dns-prefetch-control": "off",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}

MAX_ID: Final = 100
"""Maximum number of characters of a requested id that are repeated in a message or stored."""

INTERNAL_PROBLEM: Final = "an internal error of dragoman: see the log of the console"
"""Shown for an unexpected error of background work, instead of the text of that error, which may
contain secrets."""

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode

Handler = Callable[[Request], Awaitable[Any]]


class InvalidRequest(Exception):
    """The body or the query of a request does not have the expected form."""


async def body_of(request: Request, shape: type[T]) -> T:
    """Return the body of a request, decoded as `shape`. Raises `InvalidRequest` if that is not
    possible."""
    try:
        return decode_typed(await request.body(), shape)
    except UNDECODABLE as error:
        raise InvalidRequest(str(error)) from error


def query_of(request: Request, shape: type[T]) -> T:
    """Return the query string of a request, decoded as `shape`. Raises `InvalidRequest` if that is
    not possible."""
    try:
        return convert_typed(dict(request.query_params), shape, strict=False)
    except UNDECODABLE as error:
        raise InvalidRequest(str(error)) from error


def json_route(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a handler: a `DragomanError` or `InvalidRequest` that it raises becomes an error
    response, and its return value becomes a JSON response unless it is a response already."""

    async def respond(request: Request) -> Response:
        try:
            value = await handler(request)
        except InvalidRequest as error:
            return failure(400, "invalid_request", str(error))
        except (UnknownJob, UnknownSession) as error:
            return refusal(404, error)
        except PatchChanged as error:
            return refusal(409, error)
        except (UsageError, RemoteError) as error:
            return refusal(400, error)
        except DragomanError as error:
            log.info("%s %s failed: %s", request.method, request.url.path, error)
            return refusal(502, error)
        if isinstance(value, Response):
            return value
        return answer(200, value)

    return respond


async def session_of(request: Request, state: LiveState) -> SessionRecord:
    """Return the session that the path of a request names. Raises `UnknownSession` if there is
    none."""
    key = request.path_params["key"]
    record = await state.find_session(key)
    if record is None:
        raise UnknownSession(f"there is no session {key[:MAX_ID]!r}")
    return record


def answer(status: int, value: Any) -> Response:
    headers = HEADERS | {"cache-control": "no-store"}
    return Response(_encode(value), status, headers, "application/json")


def failure(status: int, word: str, message: str) -> Response:
    """Return the response to a request that the console refuses without doing anything. `word` is
    the error's name for programs."""
    return _failure(status, word, message, blame="us")


def refusal(status: int, error: DragomanError) -> Response:
    """Return the response for a dragoman error, with its name, message, blame, retryable and
    mayHaveRun."""
    return _failure(
        status,
        error.error_class,
        str(error),
        blame=error.blame,
        retryable=error.retryable,
        may_have_run=error.may_have_run,
    )


def _failure(
    status: int,
    word: str,
    message: str,
    *,
    blame: Blame,
    retryable: bool = False,
    may_have_run: bool = False,
) -> Response:
    told = {"blame": blame, "retryable": retryable, "mayHaveRun": may_have_run}
    return answer(status, {"error": word, "message": message, **told})
