"""WebSockets: a stream to another machine or a browser, and its listener.

Handles opening connections, their limits, and who may connect. Frames and closing are in
`websocket_stream`; the protocol itself is in the `websockets` library. The tasks of accepted
connections are owned by `listener`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import (
    InvalidHeader,
    InvalidMessage,
    InvalidProxy,
    InvalidProxyStatus,
    InvalidStatus,
    InvalidURI,
    ProxyError,
    WebSocketException,
)
from websockets.protocol import State

from dragoman.errors import AddressInUse, ConnectError, UsageError
from dragoman.transports.addresses import bracketed, is_this_machine, without_secrets
from dragoman.transports.base import HIGH_WATER_SIZE, LASTING_ERRORS
from dragoman.transports.listener import Listener, OnStream
from dragoman.transports.tls import rejected
from dragoman.transports.websocket_stream import CLOSE_TIMEOUT, FrameTap, WebSocketStream

if TYPE_CHECKING:
    from websockets.http11 import Request, Response
    from websockets.typing import Origin, Subprotocol

MAX_MESSAGE_SIZE = 16 * 1024 * 1024
"""Maximum size of an inbound message, in bytes: the same as of a line on the other transports."""

OPEN_TIMEOUT = 10.0
"""Timeout in seconds for connecting, TLS and the handshake together: several round trips, possibly
over a long distance."""

PING_INTERVAL = 20.0
"""Seconds between two pings: less than the 30 to 60 seconds after which middleboxes drop a silent
connection."""

# The library logs headers, which hold secrets, and failures, which we report as errors. A logger
# with a registered name could be enabled again by any logging configuration.
_SILENT = logging.Logger("dragoman.websocket")  # noqa: LOG001
_SILENT.disabled = True


class _ClientConnection(FrameTap, ClientConnection):  # type: ignore[misc]
    pass


class _ServerConnection(FrameTap, ServerConnection):  # type: ignore[misc]
    listener: WebSocketListener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.listener._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.listener._connections.discard(self)
        super().connection_lost(error)


async def connect_websocket(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    subprotocols: Sequence[str] | None = None,
    max_message_size: int = MAX_MESSAGE_SIZE,
    open_timeout: float = OPEN_TIMEOUT,
    ping_interval: float | None = PING_INTERVAL,
    ssl_context: ssl.SSLContext | None = None,
    unix_path: str | os.PathLike[str] | None = None,
) -> WebSocketStream:
    """Connect to a `ws:` or `wss:` URL, or with `unix_path` to a WebSocket on a Unix socket.

    Raises `ConnectError` if the connection fails; its `status` is the HTTP status of a refusal, if
    there was one. Raises `UsageError` for a URL, header or proxy that cannot be used. A proxy from
    the environment is used, except for this machine. Without `ping_interval` no pings are sent, so
    a connection that was cut is noticed late or never.
    """

    def make(*args: Any, **kwargs: Any) -> _ClientConnection:
        connection = _ClientConnection(*args, **kwargs)
        connection.stream = WebSocketStream(
            connection, max_message_size=max_message_size, ping_interval=ping_interval
        )
        return connection

    options: dict[str, Any] = {
        "additional_headers": headers,
        "subprotocols": subprotocols,
        "create_connection": make,
        "open_timeout": open_timeout,
        **_common(max_message_size),
    }
    if ssl_context is not None:
        options["ssl"] = ssl_context
    try:
        Headers(headers or {})
        if is_this_machine(urlsplit(url).hostname or ""):
            options["proxy"] = None
        shown = without_secrets(url)
    except InvalidHeader as error:
        # Without the value, which may be a token.
        raise UsageError(f"the value of the header {error.name} is not valid in HTTP") from None
    except ValueError as error:
        # Without the URL: one that cannot be parsed cannot be shown without its secrets.
        raise UsageError(f"the address of the WebSocket cannot be parsed: {error}") from error
    try:
        if unix_path is None:
            connection = await connect(url, **options)
        else:
            connection = await unix_connect(os.fspath(unix_path), url, **options)
    except (InvalidStatus, InvalidProxyStatus) as error:
        status = error.response.status_code
        who = shown if isinstance(error, InvalidStatus) else f"the proxy for {shown}"
        raise ConnectError(
            f"{who} refused the connection: HTTP status {status}", status=status
        ) from error
    except TimeoutError as error:
        raise ConnectError(f"{shown} did not answer within {open_timeout:g} s") from error
    except OSError as error:
        raise ConnectError(
            f"cannot connect to {shown}: {error.strerror or error}",
            passing=error.errno not in LASTING_ERRORS and not rejected(error),
        ) from error
    except (InvalidURI, InvalidProxy) as error:
        # Without the library's text: it has the whole address, with its secrets.
        what = "" if isinstance(error, InvalidURI) else "the proxy in the environment is invalid: "
        raise UsageError(f"cannot connect to {shown}: {what}{error.msg}") from None
    except (ValueError, ImportError) as error:
        # After OSError, because a rejected certificate is both.
        raise UsageError(f"cannot connect to {shown}: {error}") from error
    except ProxyError as error:
        raise ConnectError(f"the proxy for {shown} failed: {error}") from error
    except WebSocketException as error:
        # A server that hangs up in the handshake may be about to restart.
        hung_up = isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError)
        raise ConnectError(
            f"the WebSocket handshake with {shown} failed: {error}", passing=hung_up
        ) from error
    stream = cast(_ClientConnection, connection).stream
    stream._opened()
    return stream


async def listen_websocket(
    host: str,
    port: int,
    on_stream: OnStream,
    *,
    path: str | None = None,
    authorize: Callable[[Request], bool] | None = None,
    allowed_origins: Sequence[str] = (),
    subprotocols: Sequence[str] | None = None,
    max_message_size: int = MAX_MESSAGE_SIZE,
    open_timeout: float = OPEN_TIMEOUT,
    ping_interval: float | None = PING_INTERVAL,
    ssl_context: ssl.SSLContext | None = None,
) -> WebSocketListener:
    """Listen for WebSockets; port 0 chooses a free one, which `address` reports.

    A request for a path other than `path` gets status 404, and one for which the callback
    `authorize` returns False gets 401. A web page sends an `Origin`, a program does not: without
    `allowed_origins` no page may connect. Raises `AddressInUse`, or `UsageError` if the address
    cannot be used for another reason.
    """
    listener = WebSocketListener(host, path, on_stream, authorize, secure=ssl_context is not None)

    def make(*args: Any, **kwargs: Any) -> _ServerConnection:
        connection = _ServerConnection(*args, **kwargs)
        connection.stream = WebSocketStream(
            connection, max_message_size=max_message_size, ping_interval=ping_interval
        )
        connection.listener = listener
        return connection

    try:
        listener._server = await serve(
            listener._serve_one,
            host,
            port,
            origins=cast("list[Origin | None]", [None, *allowed_origins]),
            subprotocols=cast("Sequence[Subprotocol] | None", subprotocols),
            process_request=listener._admit,
            start_serving=False,
            server_header=None,
            create_connection=cast("type[ServerConnection]", make),
            open_timeout=open_timeout,
            ssl=ssl_context,
            **_common(max_message_size),
        )
        try:
            listener._port = int(listener._server.sockets[0].getsockname()[1])
            await listener._server.start_serving()
        except BaseException:
            listener._server.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(f"{host}:{port} is already in use") from error
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    except UnicodeError as error:
        # For example a label of the host that is empty or too long.
        raise UsageError(f"cannot listen on {host}:{port}: {error}") from error
    return listener


class WebSocketListener(Listener):
    """Holds the library's server, which accepts connections and does the handshake itself."""

    _server: Server
    _port: int

    def __init__(
        self,
        host: str,
        path: str | None,
        on_stream: OnStream,
        authorize: Callable[[Request], bool] | None,
        *,
        secure: bool,
    ) -> None:
        super().__init__(on_stream)
        self._host = host
        self._path = path
        self._authorize = authorize
        self._scheme = "wss" if secure else "ws"
        self._connections: set[_ServerConnection] = set()

    @property
    def port(self) -> int:
        """The port that the listener uses; the chosen one if 0 was given."""
        return self._port

    @property
    def address(self) -> str:
        return f"{self._scheme}://{bracketed(self._host)}:{self.port}{self._path or '/'}"

    async def aclose(self) -> None:
        await super().aclose()
        # The handlers have ended and closed their streams, so this takes no time.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._server.wait_closed()

    def _stop_accepting(self) -> None:
        self._server.close(close_connections=False)
        for connection in tuple(self._connections):
            if connection.state is State.CONNECTING:
                connection.transport.abort()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if self._path is not None and urlsplit(request.path).path != self._path:
            return connection.respond(404, "Not found.\n")
        if self._authorize is not None:
            try:
                allowed = self._authorize(request)
            except Exception as error:
                # The library answers with status 500 and rejects the connection.
                self._report("the callback that authorizes connections failed", error)
                raise
            if not allowed:
                return connection.respond(401, "Not authorized.\n")
        return None

    async def _serve_one(self, connection: ServerConnection) -> None:
        """Serve one connection. The library runs this in a task of its own, for the lifetime of the
        connection."""
        stream = cast(_ServerConnection, connection).stream
        stream._opened()
        self._accepted(stream)
        await connection.wait_closed()


def _common(max_message_size: int) -> dict[str, Any]:
    return {
        # Deflate costs more time than it saves between processes, and memory per connection.
        "compression": None,
        # Our own pings allow for pauses; the library would mistake a long pause for a dead peer.
        "ping_interval": None,
        "close_timeout": CLOSE_TIMEOUT,
        "max_size": max_message_size,
        "write_limit": (HIGH_WATER_SIZE, HIGH_WATER_SIZE),
        "logger": _SILENT,
    }
