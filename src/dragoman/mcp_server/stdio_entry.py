"""Start the MCP server on stdin and stdout, and answer the host while the SDK is being loaded.

Importing this module does not import the SDK, which takes a second. Until it is loaded
`early_responses` answers; then `mcp_server.stdio` takes over with every line received so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from dragoman.errors import ConnectionLost
from dragoman.mcp_server.early_responses import EarlyResponder
from dragoman.mcp_server.lines import Lines
from dragoman.rpc.tasks import TaskOwner, finish
from dragoman.transports.stdio import open_stdio

if TYPE_CHECKING:
    from dragoman.mcp_server.tool_handlers import ToolHandlers
    from dragoman.transports.base import Stream


async def serve_stdio(make: Callable[[], ToolHandlers], *, stop: asyncio.Event) -> None:
    """Serve the host on our standard input and output until it closes them or `stop` is set.

    `make` is called in another thread, and is where the SDK is loaded.
    """
    await serve_early(make, await open_stdio(), stop=stop)


async def serve_early(
    make: Callable[[], ToolHandlers], stream: Stream, *, stop: asyncio.Event
) -> None:
    """Greet one client on any stream of lines at once, and serve it as soon as possible."""
    tasks = TaskOwner("the entrance of the MCP server")
    greeting = EarlyResponder()

    def greet(line: bytes) -> None:
        answer = greeting.answer(line)
        if answer is not None:
            with suppress(ConnectionLost):
                stream.write(answer)

    try:
        lines = Lines(stream, greet)
        loading = tasks.start(asyncio.to_thread(make), "load the SDK")
        stopping = tasks.start(stop.wait(), "wait for the signal to stop")
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            return
        lines.on_line = None
        from dragoman.mcp_server.stdio import serve_lines

        await serve_lines(loading.result(), lines, stop=stop, answered=greeting.answered)
    finally:
        await finish(_end(tasks, stream))


async def _end(tasks: TaskOwner, stream: Stream) -> None:
    await tasks.aclose()
    await stream.aclose()
