"""ASGI middleware for a local HTTP server: checks Host, Origin and body of each request.

Host and Origin are checked because any web page can reach a local port. A subclass authorizes
requests (`authorize`), because other users of the machine can reach the port as well. Connection
limits are in `http_server`. The body is read here, with a size limit and a timeout. An application
that waits for a body without a timeout can be blocked, and one that closes the connection while the
client is still sending causes a reset instead of the response 413.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ADMIT: Final = "dragoman.admit"
"""Key in the state of a request's scope. The value is a callback that counts the connection as
authenticated; it returns False if the limit is reached."""

MAX_BODY_SIZE: Final = 4 * 1024 * 1024
"""Maximum size of the body of one request, in bytes. A prompt is far shorter."""

BODY_TIMEOUT: Final = 10.0
"""Timeout in seconds for the body of a request. Most requests come from this machine."""

LINGER_SIZE: Final = 4 * MAX_BODY_SIZE
LINGER_TIMEOUT: Final = 2.0
"""`LINGER_SIZE` and `LINGER_TIMEOUT`: how many bytes of an oversized body are still read, and for
how many seconds. A client whose connection is closed while it sends does not see the response."""


class AddressGuard:
    """ASGI middleware: refuses a request if its Host or Origin is not allowed, if its body is too
    large or too slow, or if `authorize`, which a subclass implements, refuses it."""

    takes_websockets = False

    def __init__(
        self,
        inner: ASGIApp,
        *,
        max_body_size: int = MAX_BODY_SIZE,
        body_timeout: float = BODY_TIMEOUT,
    ) -> None:
        self._inner = inner
        self._max_body_size = max_body_size
        self._body_timeout = body_timeout
        self.hosts: frozenset[bytes] = frozenset()
        """Allowed Host headers, in lower case: host and port. Every request is refused until this
        is set."""
        self.schemes: tuple[bytes, ...] = (b"http://",)
        """Allowed beginnings of an Origin header; the rest of it must be one of `hosts`."""

    def authorize(self, scope: Scope) -> None:
        """Raise `HTTPException` if the request is not authorized."""
        raise NotImplementedError

    def refused(self, scope: Scope, error: HTTPException) -> None:
        """Called for each refused request, with the reason. A subclass may log it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_request = scope["type"] == "http"
        if not is_request and not (self.takes_websockets and scope["type"] == "websocket"):
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            self._check(scope)
            body: bytes | None = await self._read(scope, receive) if is_request else None
        except ConnectionError:
            return
        except HTTPException as error:
            self.refused(scope, error)
            if not is_request:
                # Before the WebSocket is accepted, this is a response with the status 403.
                await send({"type": "websocket.close", "code": 1008})
                return
            # The rest of the request is not read.
            headers = {"connection": "close", **(error.headers or {})}
            response = PlainTextResponse(f"{error.detail}\n", error.status_code, headers)
            await response(scope, receive, send)
            return

        async def replay() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            whole, body = body, None
            return {"type": "http.request", "body": whole, "more_body": False}

        await self._inner(scope, replay, send)

    def _check(self, scope: Scope) -> None:
        """Raise `HTTPException` if the Host or Origin is not allowed, or if `authorize` raises
        it."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            raise HTTPException(421, "the Host header does not name this server")
        origins = [value.lower() for name, value in headers if name == b"origin"]
        if not all(map(self._is_own, origins)):
            raise HTTPException(403, "requests from other origins are refused")
        self.authorize(scope)

    def _is_own(self, origin: bytes) -> bool:
        return any(
            origin.startswith(scheme) and origin[len(scheme) :] in self.hosts
            for scheme in self.schemes
        )

    def admit(self, scope: Scope) -> None:
        """Count the connection as authenticated. Raises `HTTPException` if the limit is reached."""
        admit: Callable[[], bool] | None = scope.get("state", {}).get(ADMIT)
        if admit is not None and not admit():
            raise HTTPException(503, "too many connections; try again later")

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body. Raises `HTTPException` if it is too large or too slow, and
        `ConnectionError` if the client disconnected."""
        too_long = HTTPException(413, f"the body has more than {self._max_body_size} bytes")
        declared = [value for name, value in scope["headers"] if name == b"content-length"]
        if any(not self._fits(size) for size in declared):
            await self._linger(receive)
            raise too_long
        body = bytearray()
        try:
            async with asyncio.timeout(self._body_timeout):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise ConnectionError
                    body += message.get("body", b"")
                    if len(body) > self._max_body_size or not message.get("more_body", False):
                        break
        except TimeoutError:
            raise HTTPException(408, "the body did not arrive in time") from None
        if len(body) <= self._max_body_size:
            return bytes(body)
        if message.get("more_body", False):
            await self._linger(receive)
        raise too_long

    def _fits(self, size: bytes) -> bool:
        # Python refuses to parse numbers with thousands of digits, and no body is that long.
        return size.isdigit() and len(size) < 20 and int(size) <= self._max_body_size

    async def _linger(self, receive: Receive) -> None:
        """Read and discard more of an oversized body, within `LINGER_SIZE` and `LINGER_TIMEOUT`."""
        size = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._body_timeout, LINGER_TIMEOUT)):
                while size < LINGER_SIZE:
                    message = await receive()
                    size += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return
