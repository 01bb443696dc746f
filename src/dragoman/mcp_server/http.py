"""Serve MCP over HTTP on 127.0.0.1.

`transports.http_server` listens, `http_guard` authorizes requests, and the SDK serves them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from dragoman.mcp_server.http_guard import PATH, HttpGuard
from dragoman.rpc.tasks import TaskOwner, finish
from dragoman.transports.http_guard import MAX_BODY_SIZE
from dragoman.transports.http_server import LOOPBACK, LOOPBACK_NAMES, ConnectionTerms, HttpServer

if TYPE_CHECKING:
    from dragoman.mcp_server.tool_handlers import ToolHandlers

MAX_SESSIONS: Final = 64
"""Maximum number of concurrent MCP sessions. The SDK ends a session that is unused for half an
hour."""


async def serve_http(
    front: ToolHandlers,
    *,
    port: int,
    token: str,
    stop: asyncio.Event,
    on_listening: Callable[[str], None],
    terms: ConnectionTerms | None = None,
    **limits: Any,
) -> None:
    """Serve on a loopback port until `stop` is set, then close `front`. Port 0 selects a free port.

    `on_listening` is called with the URL when requests are accepted. `limits` are those of
    `HttpGuard`. Raises `AddressInUse` if the port is taken.
    """
    manager = StreamableHTTPSessionManager(
        front.server,
        max_request_body_size=limits.get("max_body_size", MAX_BODY_SIZE),
        max_sessions=MAX_SESSIONS,
    )
    guard = HttpGuard(manager.handle_request, token=token, **limits)
    tasks = TaskOwner("the HTTP server")
    server = HttpServer(guard, terms)
    number = await server.bind(LOOPBACK, port)
    try:
        guard.hosts = frozenset(f"{name}:{number}".encode() for name in LOOPBACK_NAMES)
        running = asyncio.Event()
        serving = tasks.start(_run(manager, running, stop), "sessions")
        started = tasks.start(running.wait(), "wait for the sessions")
        await asyncio.wait({started, serving}, return_when=asyncio.FIRST_COMPLETED)
        if running.is_set():
            # Not earlier: a request fails with an internal error while the manager is not running.
            await server.start()
            on_listening(f"http://{LOOPBACK}:{number}{PATH}")
        await serving
    finally:
        await finish(_end(front, tasks, server))


async def _run(
    manager: StreamableHTTPSessionManager, running: asyncio.Event, stop: asyncio.Event
) -> None:
    async with manager.run():
        running.set()
        await stop.wait()


async def _end(front: ToolHandlers, tasks: TaskOwner, server: HttpServer) -> None:
    async with AsyncExitStack() as closing:
        # Closed in reverse order, each one even if another fails to close.
        for each in (server, tasks, front):
            closing.push_async_callback(each.aclose)
        server.stop_listening()
