"""Listen for ACP clients on stdio, a Unix socket or a WebSocket, and authenticate them.

A WebSocket requires a bearer token and a local Host header and listens on loopback only. Stdio and
the Unix socket need no token: only the user who started the server can reach them. Limits the
number of clients and the time until the first request. Requests are handled by `acp_server.server`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from dragoman.acp_server.server import AcpServer, ServerContext
from dragoman.config.token_file import has_token, valid_token
from dragoman.errors import UsageError
from dragoman.transports import open_stdio
from dragoman.transports.addresses import is_loopback

if TYPE_CHECKING:
    from dragoman.transports.base import Stream
    from dragoman.transports.listener import Listener

log: Final = logging.getLogger("dragoman.acp_server")

MAX_CLIENTS: Final = 64
"""Maximum number of clients on one address. An editor has one connection; many connections indicate
a fault."""

GREETING_TIMEOUT: Final = 10.0
"""Seconds for a connected client to send its first request. Editors send it at once."""

LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


async def serve_stdio(front: ServerContext) -> None:
    """Serve one client on standard input and output until it disconnects."""
    await AcpServer(front).serve(await open_stdio())


async def serve_unix(front: ServerContext, path: str | PathLike[str]) -> Listener:
    """Start to serve clients on a Unix socket that only its owner may use, and return the
    listener."""
    # Not at the top: most editors use stdio, and their users wait for the start.
    from dragoman.transports import listen_unix

    return await listen_unix(path, OpenConnections(front).serve)


async def serve_websocket(
    front: ServerContext,
    host: str,
    port: int,
    *,
    token: str,
    allowed_origins: Sequence[str] = (),
    greeting_timeout: float = GREETING_TIMEOUT,
    **options: Any,
) -> Listener:
    """Start to serve the clients that have the token, on a WebSocket at `host` and `port`, and
    return the listener.

    Raises `UsageError` for an address that other machines can reach, where the token would be sent
    in the clear, and for a token that is not valid.
    """
    if not is_loopback(host):
        raise UsageError(f"other machines can reach {host}; listen on 127.0.0.1 and use a tunnel")
    token = valid_token(token, "token=", remedy="pass one of config.token_file.new_token()")
    from dragoman.transports import listen_websocket

    options.setdefault("max_message_size", front.max_line_size)
    return await listen_websocket(
        host,
        port,
        OpenConnections(front, greeting_timeout=greeting_timeout).serve,
        authorize=admission(token, host),
        allowed_origins=allowed_origins,
        **options,
    )


class OpenConnections:
    """Serves each accepted client, up to `max_clients` at once. Further clients are
    disconnected."""

    def __init__(
        self,
        front: ServerContext,
        *,
        greeting_timeout: float = GREETING_TIMEOUT,
        max_clients: int = MAX_CLIENTS,
    ) -> None:
        self._front = front
        self._greeting_timeout = greeting_timeout
        self._max_clients = max_clients
        self._clients = 0

    async def serve(self, stream: Stream) -> None:
        if self._clients >= self._max_clients:
            log.warning("refusing a client: %d are connected, the maximum", self._clients)
            # The listener closes the stream.
            return
        self._clients += 1
        try:
            await AcpServer(self._front).serve(stream, greeting_timeout=self._greeting_timeout)
        finally:
            self._clients -= 1


def admission(token: str, host: str) -> Callable[[Any], bool]:
    """Return a function that checks the bearer token and the Host header of a request.

    The Host header protects against DNS rebinding: a web page whose name resolves to this machine
    sends its own name.
    """
    names = LOCAL_NAMES | {host.casefold()}

    def admitted(request: Any) -> bool:
        headers = request.headers
        asked = headers.get_all("Host")
        # Repeated headers are ambiguous: refuse them.
        if len(asked) != 1 or not has_token(headers.get_all("Authorization"), token):
            return False
        return _name_of(asked[0]) in names

    return admitted


def _name_of(host: str) -> str | None:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return None
    return name and name.casefold()
