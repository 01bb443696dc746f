"""Start the MCP server on stdin and stdout, and answer the host until a request needs the SDK.

Importing this module does not import the SDK, which takes a second and 40 MiB of memory. A host
starts a server for each of its sessions, and most sessions call no tool. So `EarlyResponder`
answers `initialize`, `ping` and the first `tools/list`; the first other request loads the SDK, and
`mcp_server.stdio` takes over with every line received so far.

With the SDK the first response takes 0.6 to 1.1 seconds. Codex (0.166) begins its first turn about
one second after it has started its servers, even with a longer `startup_timeout_sec`, and without
the tools of those that have not answered (`tests/peers/test_mcp_agents.py`). Its setting `required`
makes it wait, but then Codex does not start at all if dragoman cannot. The SDK later gets the same
requests; `mcp_server.stdio` drops its duplicate responses. Tests compare the responses with the
SDK's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from dragoman.errors import ConnectionLost
from dragoman.mcp_server import tools
from dragoman.mcp_server.lines import Lines
from dragoman.rpc.tasks import TaskOwner, finish, in_thread
from dragoman.transports.stdio import open_stdio
from dragoman.version import __version__
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.mcp_server.tool_handlers import ToolHandlers
    from dragoman.transports.base import Stream


async def serve_stdio(make: Callable[[], ToolHandlers], *, stop: asyncio.Event) -> None:
    """Serve the host on our standard input and output until it closes them or `stop` is set.

    `make` returns the handlers. Because it loads the SDK, it is called in another thread, and only
    when a request needs it.
    """
    await serve_early(make, await open_stdio(), stop=stop)


async def serve_early(
    make: Callable[[], ToolHandlers], stream: Stream, *, stop: asyncio.Event
) -> None:
    """Serve one client on any stream of lines: answer its handshake at once, and load the SDK for
    the first request that needs it. At the end the stream is closed."""
    tasks = TaskOwner("the entrance of the MCP server")
    greeting = EarlyResponder()
    needed = asyncio.Event()

    def greet(line: bytes) -> None:
        answer = greeting.answer(line)
        if answer is not None:
            with suppress(ConnectionLost):
                stream.write(answer)
        if greeting.needs_sdk(line, answered=answer is not None):
            needed.set()

    try:
        lines = Lines(stream, greet)
        # `mcp_server.stdio` also handles the end of the input: it knows which requests are open.
        lines.on_over = needed.set
        stopping = tasks.start(stop.wait(), "wait for the signal to stop")
        needing = tasks.start(needed.wait(), "wait for a request")
        await asyncio.wait({needing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not needed.is_set() or (lines.over and greeting.complete):
            return
        loading = tasks.start(in_thread("mcp", lambda _: make()), "load the SDK")
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


VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions whose handshake is answered here. All others are left to the SDK."""


INITIALIZED: Final = "notifications/initialized"
"""The last message of the handshake, which needs no response."""

MAX_ANSWERED: Final = 8
"""Number of responses after which the SDK is loaded in any case: all lines are kept for it, and
reading pauses above `lines.HIGH_WATER` lines."""


class _Implementation(Struct):
    name: str
    version: str


class _Hello(Struct):
    protocolVersion: str
    capabilities: dict[str, dict[str, Any] | None]
    clientInfo: _Implementation


class _Line(Struct):
    jsonrpc: str
    method: str
    id: int | str | None = None
    params: Raw = Raw(b"{}")


_line: Final = msgspec.json.Decoder(_Line)
_hello: Final = msgspec.json.Decoder(_Hello)
_anything: Final = msgspec.json.Decoder(dict[str, Any] | None)


class EarlyResponder:
    """Answers the first requests of one client, without the SDK."""

    def __init__(self) -> None:
        self.answered: Counter[int | str] = Counter()
        """Number of responses sent here, by request id. The SDK's duplicates must not be sent."""
        self.complete = True
        """Whether every line so far was handled here, so that the SDK is not needed for it."""
        self._begun = False
        self._greeted = False

    def needs_sdk(self, line: bytes, *, answered: bool) -> bool:
        """Return whether this line makes it necessary to load the SDK, and update `complete`.
        `answered`: whether `answer` has returned a response to the line."""
        if answered:
            return self.answered.total() >= MAX_ANSWERED
        try:
            said = _line.decode(line)
        except UNDECODABLE:
            said = None
        if said is not None and said.id is None and said.method == INITIALIZED and self._greeted:
            return False
        self.complete = False
        return True

    def answer(self, line: bytes) -> bytes | None:
        """Return the response to a line and count it in `answered`; None if the line needs no
        response or the SDK has to answer."""
        try:
            said = _line.decode(line)
            if said.jsonrpc != "2.0" or said.id is None:
                return None
            result = self._result(said)
        except UNDECODABLE:
            # The SDK reports what is wrong with the line.
            return None
        if result is None:
            return None
        self.answered[said.id] += 1
        return msgspec.json.encode({"jsonrpc": "2.0", "id": said.id, "result": result}) + b"\n"

    def _result(self, said: _Line) -> dict[str, Any] | None:
        first, self._begun = not self._begun, True
        if said.method == "initialize" and first:
            hello = _hello.decode(said.params)
            if hello.protocolVersion in VERSIONS:
                self._greeted = True
                return _who_we_are(hello.protocolVersion)
        elif said.method == "ping" and self._greeted:
            return {}
        elif said.method == "tools/list" and self._greeted:
            # Only the first page of a list; anything else is left to the SDK.
            if not set(_anything.decode(said.params) or ()) - {"_meta"}:
                return {"tools": [tool.described for tool in tools.TOOLS]}
        return None


def _who_we_are(version: str) -> dict[str, Any]:
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "dragoman", "title": "dragoman", "version": __version__},
        "instructions": tools.INSTRUCTIONS,
    }
