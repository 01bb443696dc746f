"""ASGI middleware of the HTTP server: checks Host, Origin, bearer token, body size and timeout.

Host and Origin are checked because any web page can reach a local port, the token because other
users of the machine can. Connection limits are in `mcp_server.http`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH: Final = "/mcp"

ADMIT: Final = "dragoman.admit"
"""Key in the state of a request's scope. The value is a callback that counts the connection as
authenticated; it returns False if the limit is reached."""

MAX_BODY_SIZE: Final = 4 * 1024 * 1024
"""Bytes of one request. A prompt is far shorter."""

BODY_TIMEOUT: Final = 10.0
"""Seconds for the body of a request to arrive, from this very machine."""

LINGER_SIZE: Final = 4 * MAX_BODY_SIZE
LINGER_TIMEOUT: Final = 2.0
"""How much of a body that is too long is read all the same, and for how many seconds: a client
whose connection is closed while it sends does not see why."""


class HttpGuard:
    """ASGI middleware: checks Host, Origin, the bearer token and the size of a request."""

    def __init__(
        self,
        inner: Application,
        *,
        token: str,
        max_body_size: int = MAX_BODY_SIZE,
        body_timeout: float = BODY_TIMEOUT,
    ) -> None:
        self._inner = inner
        self._token = token.encode()
        self._max_body_size = max_body_size
        self._body_timeout = body_timeout
        self.hosts: frozenset[bytes] = frozenset()
        """Allowed Host headers: host and port. Every request is refused until it is set."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # There is nothing here that speaks WebSocket.
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            if refusal[0] == 413:
                await self._linger(receive)
            await _refuse(send, *refusal)
            return
        admit: Callable[[], bool] | None = scope.get("state", {}).get(ADMIT)
        if admit is not None and not admit():
            await _refuse(send, 503, "as many connections are at work as may be; try again later")
            return
        try:
            body = await self._read(receive)
        except TimeoutError:
            await _refuse(send, 408, "the request did not arrive in time")
            return
        except ConnectionError:
            return
        if body is None:
            await _refuse(send, 413, f"more than {self._max_body_size} bytes")
            return
        await self._inner(scope, _Replay(body, receive), send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and message for a refused request; None if it is allowed."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return 421, "this server is not called that"
        origins = [value.lower() for name, value in headers if name == b"origin"]
        if any(origin.removeprefix(b"http://") not in self.hosts for origin in origins):
            return 403, "pages of other origins are not let in"
        if not self._knows_token(headers):
            return 401, "the token is missing or wrong"
        if scope["path"] != PATH:
            return 404, f"there is only {PATH}"
        sizes = [value for name, value in headers if name == b"content-length"]
        if any(not size.isdigit() or _number(size) > self._max_body_size for size in sizes):
            return 413, f"more than {self._max_body_size} bytes"
        return None

    def _knows_token(self, headers: list[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        # Constant time: the duration must not reveal how many characters match.
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body; None if it is too long. `ConnectionError` if its sender has gone."""
        parts: list[bytes] = []
        size = 0
        give_up_at = asyncio.get_running_loop().time() + self._body_timeout
        while True:
            async with asyncio.timeout_at(give_up_at):
                message = await receive()
            if message["type"] != "http.request":
                raise ConnectionError
            part = message.get("body", b"")
            size += len(part)
            if size > self._max_body_size:
                if message.get("more_body", False):
                    await self._linger(receive)
                return None
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _linger(self, receive: Receive) -> None:
        """Read and discard some more of a body that is too long."""
        size = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._body_timeout, LINGER_TIMEOUT)):
                while size < LINGER_SIZE:
                    message = await receive()
                    size += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return


class _Replay:
    """ASGI receive callable: first the body that was read, then the original messages."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _number(text: bytes) -> int:
    # Python refuses to read a number of thousands of digits, and no body is that long.
    return int(text) if len(text) < 20 else 1 << 62


async def _refuse(send: Send, status: int, why: str) -> None:
    body = f"{why}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        # What is left of the request is not read.
        (b"connection", b"close"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="dragoman"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
