"""Serve MCP over HTTP on 127.0.0.1, with connection limits and timeouts.

The SDK serves the requests that `http_guard` has let in. Connections that have sent a valid token
are counted apart from the others. A connection that sends no request, or does not read its
responses, is closed.

Of uvicorn only the HTTP protocol is used, and not its server (tried in version 0.54): that one

- replaces our signal handlers, and ends the process by the signal instead of exit code 143;
- never closes a connection that sends no request, so idle connections of other users take all
  descriptors and keep the owner out; its `limit_concurrency` counts those of the owner as well;
- has no timeout for a client that does not read its response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from dragoman.errors import AddressInUse
from dragoman.mcp_server.http_guard import ADMIT, MAX_BODY_SIZE, PATH, HttpGuard
from dragoman.rpc.tasks import TaskOwner, finish

if TYPE_CHECKING:
    from dragoman.mcp_server.tool_handlers import ToolHandlers

HOST: Final = "127.0.0.1"
NAMES: Final = ("127.0.0.1", "localhost")
"""Host names that clients on this machine may use."""

HEAD_TIMEOUT: Final = 10.0
"""Seconds from a connection, or from the first byte of a next request, to the end of its head."""

IDLE_TIMEOUT: Final = 60
"""Seconds that a connection stays open between two requests."""

SEND_TIMEOUT: Final = 30.0
"""Seconds in which a client has to take something of what waits for it."""

MAX_CONNECTIONS: Final = 64
"""Connections at once that have shown the token: more than all hosts of one user have."""

MAX_STRANGERS: Final = 256
"""Connections at once that have not. The oldest is closed for the next, so that they cannot block
new ones. The loop accepts up to 100 connections at a time (the backlog) before it reads from any,
so a connection that sends its request at once is read before 256 others have come behind it."""

MAX_SESSIONS: Final = 64
"""MCP sessions at once. One that is not used for half an hour ends by itself."""

CLOSE_TIMEOUT: Final = 2.0
"""Seconds for answers on their way to arrive when the server ends."""


async def serve_http(
    front: ToolHandlers,
    *,
    port: int,
    token: str,
    stop: asyncio.Event,
    on_listening: Callable[[str], None],
    head_timeout: float = HEAD_TIMEOUT,
    send_timeout: float = SEND_TIMEOUT,
    max_connections: int = MAX_CONNECTIONS,
    max_strangers: int = MAX_STRANGERS,
    **limits: Any,
) -> None:
    """Listen on a port of this machine until `stop` is set; 0 takes a free one.

    `limits` are those of `HttpGuard`. `AddressInUse` if the port is taken.
    """
    manager = StreamableHTTPSessionManager(
        front.server,
        max_request_body_size=limits.get("max_body_size", MAX_BODY_SIZE),
        max_sessions=MAX_SESSIONS,
    )
    guard = HttpGuard(manager.handle_request, token=token, **limits)
    state = ServerState()
    tasks = TaskOwner("the HTTP server")
    config = _config(guard)
    connection_limits = _ConnectionLimits(max_known=max_connections, max_strangers=max_strangers)

    def connected() -> _LimitedConnection:
        return _LimitedConnection(
            config, state, connection_limits, head_timeout=head_timeout, send_timeout=send_timeout
        )

    listening = await _listen(connected, port)
    try:
        number = listening.sockets[0].getsockname()[1]
        guard.hosts = frozenset(f"{name}:{number}".encode() for name in NAMES)
        running = asyncio.Event()
        serving = tasks.start(_run(manager, running, stop), "sessions")
        await running.wait()
        on_listening(f"http://{HOST}:{number}{PATH}")
        await serving
    finally:
        await finish(_end(front, tasks, listening, state))


async def _run(
    manager: StreamableHTTPSessionManager, running: asyncio.Event, stop: asyncio.Event
) -> None:
    async with manager.run():
        running.set()
        await stop.wait()


def _config(guard: HttpGuard) -> Config:
    config = Config(
        guard,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE_TIMEOUT,
    )
    config.load()
    return config


async def _listen(connected: Callable[[], _LimitedConnection], port: int) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(connected, HOST, port)
    except OSError as error:
        raise AddressInUse(f"port {port} of {HOST} cannot be used: {error.strerror}") from error


async def _end(
    front: ToolHandlers, tasks: TaskOwner, listening: asyncio.Server, state: ServerState
) -> None:
    listening.close()
    await front.aclose()
    await tasks.aclose()
    for connection in list(state.connections):
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


class _ConnectionLimits:
    """Limits open connections; those that have sent the token are counted separately."""

    def __init__(self, *, max_known: int, max_strangers: int) -> None:
        self._max_known = max_known
        self._max_strangers = max_strangers
        # In the order in which they came, or were used last.
        self._known: dict[_LimitedConnection, None] = {}
        self._strangers: dict[_LimitedConnection, None] = {}

    def arrive(self, connection: _LimitedConnection) -> None:
        """Count a new connection. Over the limit, the oldest without a token is closed."""
        if len(self._strangers) >= self._max_strangers:
            self._send_away(self._strangers, next(iter(self._strangers)))
        self._strangers[connection] = None

    def admit(self, connection: _LimitedConnection) -> bool:
        """Count a connection as authenticated. False if the limit is reached by busy ones."""
        if connection not in self._known and len(self._known) >= self._max_known:
            idle = next((each for each in self._known if each.is_between), None)
            if idle is None:
                return False
            self._send_away(self._known, idle)
        self.leave(connection)
        self._known[connection] = None
        return True

    def leave(self, connection: _LimitedConnection) -> None:
        self._known.pop(connection, None)
        self._strangers.pop(connection, None)

    def _send_away(
        self, connections: dict[_LimitedConnection, None], connection: _LimitedConnection
    ) -> None:
        del connections[connection]
        connection.transport.abort()


class _LimitedConnection(H11Protocol):
    """A connection with timeouts for the request head and for reading the response.

    It is aborted and not closed: closing would wait for a client that does not read.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: _ConnectionLimits,
        *,
        head_timeout: float,
        send_timeout: float,
    ) -> None:
        super().__init__(config, state, {ADMIT: self._admit})
        self._limits = limits
        self._head_timeout = head_timeout
        self._send_timeout = send_timeout
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
        """Whether no request is being answered: then the head of one has to come."""
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
        # Nothing is added while it is paused: what is less now, the client has taken.
        if self.transport.get_write_buffer_size() < waiting:
            self._watch()
        else:
            self.transport.abort()

    def _stop_watching(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
