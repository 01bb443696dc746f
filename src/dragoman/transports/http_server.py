"""Listen for HTTP on a TCP port, with connection limits, timeouts and TLS.

Serves any ASGI application. Authenticated connections are counted separately from the others. A
connection that sends no request, or does not read its responses, is closed. `http_guard` checks the
requests themselves.

Only the HTTP protocol of uvicorn is used, not its server (tried in version 0.54), because the
server

- replaces our signal handlers, and ends the process by the signal instead of exit code 143;
- never closes a connection that sends no request, so idle connections of other users take all
  descriptors and keep the owner out; its `limit_concurrency` counts those of the owner as well;
- has no timeout for a client that does not read its response.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from dragoman.errors import AddressInUse
from dragoman.transports.http_guard import ADMIT
from dragoman.transports.tls import TlsFiles

if TYPE_CHECKING:
    import h11
    from starlette.types import ASGIApp

LOOPBACK: Final = "127.0.0.1"
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost")
"""Host names that clients on this machine may use."""

HEAD_TIMEOUT: Final = 10.0
"""Timeout in seconds for the head of a request, from the connection or from the first byte of a
further request; with TLS, also for the handshake before it."""

IDLE_TIMEOUT: Final = 60
"""Seconds that an idle connection stays open between two requests."""

SEND_TIMEOUT: Final = 30.0
"""Seconds in which a client must read at least part of the pending output."""

MAX_CONNECTIONS: Final = 64
"""Maximum number of authenticated connections: more than all clients of one user have."""

MAX_STRANGERS: Final = 256
"""Maximum number of connections that are not authenticated. The oldest is closed to make room, so
that they cannot block new ones. The loop accepts up to 100 connections at a time (the backlog)
before it reads from any, so a connection that sends its request at once is read before 256 others
have arrived."""

CLOSE_TIMEOUT: Final = 2.0
"""Seconds for pending responses to be sent when the server ends."""

MAX_MESSAGE_SIZE: Final = 1024 * 1024
"""Maximum size of one WebSocket message from a client, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionTerms:
    """Limits and timeouts of the connections to one server."""

    head_timeout: float = HEAD_TIMEOUT
    send_timeout: float = SEND_TIMEOUT
    max_connections: int = MAX_CONNECTIONS
    max_strangers: int = MAX_STRANGERS


class HttpServer:
    """Serves an ASGI application on one port; with `websockets` also WebSockets. Call `bind`, then
    `start`, and always `aclose`."""

    def __init__(
        self,
        app: ASGIApp,
        terms: ConnectionTerms | None = None,
        *,
        websockets: bool = False,
        tls: TlsFiles | None = None,
    ) -> None:
        self._terms = terms or ConnectionTerms()
        self._config = http_config(app, websockets=websockets)
        self._tls = tls
        self._state = ServerState()
        self._listening: asyncio.Server | None = None

    async def bind(self, host: str, port: int) -> int:
        """Bind to an address; port 0 picks a free one. Returns the port. Raises `AddressInUse` if
        the address cannot be used, for whatever reason, and `UsageError` if the TLS files cannot be
        used.

        Connections are refused until `start`, so that the application can prepare itself for a port
        that it has just learned.
        """
        limits = ConnectionLimits(self._terms)

        def connected() -> LimitedConnection:
            return LimitedConnection(self._config, self._state, limits, self._terms)

        context = None if self._tls is None else self._tls.context()
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                connected,
                host,
                port,
                ssl=context,
                # By default a minute, in which a silent connection takes a descriptor. Limits
                # apply only after the handshake.
                ssl_handshake_timeout=None if context is None else self._terms.head_timeout,
                start_serving=False,
            )
        except OSError as error:
            raise _in_use(host, port, error) from error
        number: int = self._listening.sockets[0].getsockname()[1]
        return number

    async def start(self) -> None:
        """Accept connections. Raises `AddressInUse`: another process may have bound the same
        address, and started first."""
        assert self._listening is not None
        host, port = self._listening.sockets[0].getsockname()[:2]
        try:
            await self._listening.start_serving()
        except OSError as error:
            raise _in_use(host, port, error) from error

    def stop_listening(self) -> None:
        """Stop accepting connections; open ones stay."""
        if self._listening is not None:
            self._listening.close()

    async def aclose(self) -> None:
        """Stop listening and close all connections, once their responses are sent or after
        `CLOSE_TIMEOUT`."""
        self.stop_listening()
        state = self._state
        for connection in list(state.connections):
            # The application closes its WebSockets.
            if isinstance(connection, LimitedConnection):
                connection.shutdown()
        if state.tasks:
            await asyncio.wait(list(state.tasks), timeout=CLOSE_TIMEOUT)
        for task in list(state.tasks):
            task.cancel()
        for connection in list(state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        # Let the aborted connections run their callbacks.
        await asyncio.sleep(0)


def http_config(app: ASGIApp, *, websockets: bool = False) -> Config:
    """Return the uvicorn settings for an application."""
    config = Config(
        app,
        lifespan="off",
        ws=LimitedWebSocket if websockets else "none",
        ws_max_size=MAX_MESSAGE_SIZE,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE_TIMEOUT,
    )
    config.load()
    return config


def _in_use(host: str, port: int, error: OSError) -> AddressInUse:
    return AddressInUse(f"port {port} of {host} cannot be used: {error.strerror}")


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that is aborted if the client does not read the remaining output: a normal close
    would wait for the client."""

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._abort_unread()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._abort_unread()

    def _abort_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.loop.call_later(SEND_TIMEOUT, self.transport.abort)


class ConnectionLimits:
    """Limits the number of open connections; authenticated ones are counted separately."""

    def __init__(self, terms: ConnectionTerms) -> None:
        self._max_known = terms.max_connections
        self._max_strangers = terms.max_strangers
        # In order of arrival, or of last use.
        self._known: dict[LimitedConnection, None] = {}
        self._strangers: dict[LimitedConnection, None] = {}

    def arrive(self, connection: LimitedConnection) -> None:
        """Count a new connection. Over the limit, the oldest unauthenticated one is closed."""
        if len(self._strangers) >= self._max_strangers:
            self._send_away(self._strangers, next(iter(self._strangers)))
        self._strangers[connection] = None

    def admit(self, connection: LimitedConnection) -> bool:
        """Count a connection as authenticated. Over the limit, an idle authenticated one is closed;
        returns False if all are busy."""
        if connection not in self._known and len(self._known) >= self._max_known:
            idle = next((each for each in self._known if each.is_between), None)
            if idle is None:
                return False
            self._send_away(self._known, idle)
        self.leave(connection)
        self._known[connection] = None
        return True

    def leave(self, connection: LimitedConnection) -> None:
        self._known.pop(connection, None)
        self._strangers.pop(connection, None)

    def _send_away(
        self, connections: dict[LimitedConnection, None], connection: LimitedConnection
    ) -> None:
        del connections[connection]
        connection.transport.abort()


class LimitedConnection(H11Protocol):
    """A connection with timeouts for the request head and for reading the response.

    After a timeout it is aborted and not closed: closing would wait for a client that does not
    read.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: ConnectionLimits,
        terms: ConnectionTerms,
    ) -> None:
        super().__init__(config, state, {ADMIT: self._admit})
        self._limits = limits
        self._head_timeout = terms.head_timeout
        self._send_timeout = terms.send_timeout
        self._timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limits.arrive(self)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self.is_between:
            self._wait_for_head()
        super().data_received(data)
        if not self.is_between:
            self._stop_waiting()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # Another protocol takes over the transport, and these limits no longer apply. Without this,
        # the connection would be counted as idle when its WebSocket is authenticated, and aborted
        # for the next one over the limit.
        self.app_state = {name: each for name, each in self.app_state.items() if name != ADMIT}
        self._limits.leave(self)
        self._stop_waiting()
        self._stop_watching()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.leave(self)
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _admit(self) -> bool:
        return self._limits.admit(self)

    @property
    def is_between(self) -> bool:
        """Whether no request is being answered and the head of the next one is expected."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _wait_for_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._head_timeout, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.is_between:
            self.transport.abort()

    def _watch(self) -> None:
        self._stop_watching()
        waiting = self.transport.get_write_buffer_size()
        self._send_timer = self.loop.call_later(self._send_timeout, self._look, waiting)

    def _look(self, waiting: int) -> None:
        # Nothing is added while it is paused, so a smaller buffer means that the client has read.
        if self.transport.get_write_buffer_size() < waiting:
            self._watch()
        else:
            self.transport.abort()

    def _stop_watching(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
