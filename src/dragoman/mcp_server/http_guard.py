"""ASGI middleware of the HTTP server: checks Host, Origin, bearer token, body size and timeout.

Host and Origin are checked because any web page can reach a local port, the token because other
users of the machine can. The file of the token is created once with mode 600, and refused if other
users can read it. Connection limits are in `mcp_server.http`.

The body is read here although the SDK limits its size as well (version 2.3): the SDK waits for it
without a timeout, and closes the connection of a client that still sends, which then gets a reset
instead of the response 413.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from dragoman.client.folders import make_private
from dragoman.config.safe_files import create_file
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dragoman.paths import Paths

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
        inner: ASGIApp,
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
        try:
            self._check(scope)
            body: bytes | None = await self._read(scope, receive)
        except ConnectionError:
            return
        except HTTPException as error:
            # What is left of the request is not read.
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
        """Raise `HTTPException` if the request is refused for its headers or path."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            raise HTTPException(421, "this server is not called that")
        origins = [value.lower() for name, value in headers if name == b"origin"]
        if any(origin.removeprefix(b"http://") not in self.hosts for origin in origins):
            raise HTTPException(403, "pages of other origins are not let in")
        if not self._knows_token(headers):
            challenge = {"www-authenticate": 'Bearer realm="dragoman"'}
            raise HTTPException(401, "the token is missing or wrong", challenge)
        if scope["path"] != PATH:
            raise HTTPException(404, f"there is only {PATH}")
        admit: Callable[[], bool] | None = scope.get("state", {}).get(ADMIT)
        if admit is not None and not admit():
            raise HTTPException(503, "as many connections are at work as may be; try again later")

    def _knows_token(self, headers: list[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        # Constant time: the duration must not reveal how many characters match.
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The body. Raises `HTTPException`, or `ConnectionError` if its sender has gone."""
        too_long = HTTPException(413, f"more than {self._max_body_size} bytes")
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
            raise HTTPException(408, "the request did not arrive in time") from None
        if len(body) <= self._max_body_size:
            return bytes(body)
        if message.get("more_body", False):
            await self._linger(receive)
        raise too_long

    def _fits(self, size: bytes) -> bool:
        # Python refuses to read a number of thousands of digits, and no body is that long.
        return size.isdigit() and len(size) < 20 and int(size) <= self._max_body_size

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


TOKEN_SIZE: Final = 32
"""Random bytes of a token."""

MIN_SIZE: Final = 16
"""Characters below which a token could be guessed."""

MAX_SIZE: Final = 1024
"""Bytes of a file that are read: a token is short."""


def default_path(paths: Paths) -> Path:
    """The default path of the token file."""
    return paths.state / "mcp-token"


def token_in(path: Path) -> str:
    """The token in a file, which is made if there is none. Raises `UsageError`."""
    try:
        with contextlib.suppress(FileExistsError):
            _make(path)
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise UsageError(f"the token cannot be kept in {path}: {error.strerror}") from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"others can read the token in {path}: chmod 600 it, or make a new one")
    try:
        token = text.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not MIN_SIZE <= len(token) <= MAX_SIZE or not token.isprintable() or " " in token:
        raise UsageError(f"{path} holds no token: delete it, and one is made")
    return token


def _make(path: Path) -> None:
    make_private(path.parent)
    if os.path.exists(path):
        raise FileExistsError
    # Whole or not at all: another server may look at the same moment.
    create_file(path, [secrets.token_urlsafe(TOKEN_SIZE).encode() + b"\n"])
