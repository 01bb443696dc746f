"""Serve one MCP client on a byte stream of lines, such as stdin and stdout.

Connects `mcp_server.lines` with the message streams of the SDK. Ends on `stop`, or when the input
has ended and every request is answered. `stdio_entry` handles the time before the SDK is loaded.

The SDK has a stdio transport, `mcp.server.stdio` (tried in version 2.3). It is not used because it

- cancels the open requests at the end of the input: with ten calls in it, `printf … | dragoman
  serve mcp` gets some results, some errors "Connection closed", and for some calls nothing;
- reads in a thread that cannot be interrupted: a signal has no effect until the input ends;
- fails with a traceback and exit code 1 when the client no longer reads;
- does not answer a malformed request, and has no limit for the size of a line;
- cannot take over the lines that have arrived while it was being loaded.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from dragoman.errors import ConnectionLost
from dragoman.mcp_server.lines import HIGH_WATER, Lines
from dragoman.mcp_server.tools import MAX_WAIT
from dragoman.rpc.tasks import TaskOwner, finish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from dragoman.mcp_server.tool_handlers import ToolHandlers
    from dragoman.transports.base import Stream

_log = logging.getLogger(__name__)

LAST_ANSWERS_TIMEOUT: Final = MAX_WAIT
"""Seconds for the last responses after the input has ended. The client may still read, and a peer
may work for minutes; a host that wants to stop us sends a signal soon after closing our input."""


async def serve_lines(
    front: ToolHandlers,
    lines: Lines,
    *,
    stop: asyncio.Event,
    answered: Counter[int | str] | None = None,
) -> None:
    """Serve one client until it disconnects or `stop` is set, or until its input has ended and its
    requests are answered; then close its stream and `front`.

    `answered` counts, by request id, the responses that the client already has.
    """
    tasks = TaskOwner("the MCP client on a stream")
    reading, read = anyio.create_memory_object_stream[SessionMessage | Exception](HIGH_WATER)
    write, writing = anyio.create_memory_object_stream[SessionMessage](0)
    pending = PendingAnswers()
    lines.on_gone = pending.changed.set
    stream = lines.stream
    tasks.start(_feed(lines, reading, pending), "read")
    sending = tasks.start(_send(stream, writing, pending, answered or Counter()), "write")
    serving = tasks.start(_serve(front, read, write), "serve")
    stopping = tasks.start(stop.wait(), "wait for the signal to stop")
    try:
        done, _ = await asyncio.wait(
            {serving, stopping, sending}, return_when=asyncio.FIRST_COMPLETED
        )
        if serving in done:
            await serving
    finally:
        await finish(_end(front, tasks, stream))


async def _serve(
    front: ToolHandlers,
    read: MemoryObjectReceiveStream[SessionMessage | Exception],
    write: MemoryObjectSendStream[SessionMessage],
) -> None:
    server = front.server
    try:
        await server.run(read, write, server.create_initialization_options())
    except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
        # The client disconnected while messages were unread: no response can be delivered.
        pass


async def _end(front: ToolHandlers, tasks: TaskOwner, stream: Stream) -> None:
    # The turns are stopped first, so that they end cleanly while the client may still get their
    # results.
    async with AsyncExitStack() as closing:
        # Closed in reverse order, each one even if another fails to close.
        for each in (stream, tasks, front):
            closing.push_async_callback(each.aclose)


async def _feed(
    lines: Lines,
    reading: MemoryObjectSendStream[SessionMessage | Exception],
    pending: PendingAnswers,
) -> None:
    with reading:
        try:
            while (taken := await lines.next()) is not None:
                for line in taken:
                    if not line.strip():
                        continue
                    message = _message(line)
                    if message is None:
                        await _refuse(line, lines.stream)
                    else:
                        pending.received(message)
                        await reading.send(message)
            # The SDK cancels its requests as soon as its input ends.
            async with asyncio.timeout(LAST_ANSWERS_TIMEOUT):
                while pending and not lines.gone:
                    pending.changed.clear()
                    for answer in pending.unanswerable():
                        await reading.send(answer)
                    await pending.changed.wait()
        except TimeoutError:
            _log.warning(
                "the input has ended; dropping %d responses that took too long",
                len(pending),
            )
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return


def _message(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError:
        return None


async def _refuse(line: bytes, stream: Stream) -> None:
    """If a malformed request has an id, answer it with an error; the SDK would drop it silently.
    Log any other line."""
    try:
        # `json` accepts more than other parsers do, such as half a surrogate pair.
        match json.loads(line):
            case {"id": int() | str() as id, "method": str() as method} if not isinstance(id, bool):
                error = {
                    "code": types.INVALID_REQUEST,
                    "message": f"the request {method} is malformed",
                }
                answer = json.dumps({"jsonrpc": "2.0", "id": id, "error": error})
                with suppress(ConnectionLost):
                    stream.write(answer.encode() + b"\n")
                    # Back-pressure: read no further requests from a client that does not read its
                    # responses.
                    await stream.drain()
                return
    except (ValueError, RecursionError):
        pass
    _log.warning("ignoring a line that is not a message: %.100r", line)


async def _send(
    stream: Stream,
    writing: MemoryObjectReceiveStream[SessionMessage],
    pending: PendingAnswers,
    answered: Counter[int | str],
) -> None:
    with writing:
        async for message in writing:
            if not _is_answered(message, answered):
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    stream.write(text.encode() + b"\n")
                    await stream.drain()
                except ConnectionLost:
                    return
            pending.sent(message)


def _is_answered(message: SessionMessage, answered: Counter[int | str]) -> bool:
    """Return whether the client already has this response; if so, subtract it from `answered`."""
    match message.message:
        case types.JSONRPCResponse(id=id) | types.JSONRPCError(id=id) if (
            id is not None and id in answered
        ):
            if isinstance(message.message, types.JSONRPCError):
                _log.warning(
                    "the SDK rejected a request that dragoman had already answered: %s",
                    message.message.error.message,
                )
            answered[id] -= 1
            answered += Counter()
            return True
        case _:
            return False


class PendingAnswers:
    """The open requests of one connection, in both directions.

    A client that has closed our input still gets every response, but our own requests to it fail,
    because it can no longer answer.
    """

    def __init__(self) -> None:
        # Ids as text: a client may cancel request 1 as "1".
        self._by_us: Counter[str] = Counter()
        self._by_them: set[types.RequestId] = set()
        self.changed = asyncio.Event()
        """Set on every change, and when the client has disconnected. To wait for a change, clear
        it, check the state, then wait."""

    def __len__(self) -> int:
        """Return the number of the client's requests that we have not answered."""
        return self._by_us.total()

    def received(self, message: SessionMessage) -> None:
        """Record a message from the client."""
        match message.message:
            case types.JSONRPCRequest(id=id):
                self._by_us[str(id)] += 1
            case types.JSONRPCNotification(method="notifications/cancelled", params=params):
                # A cancelled request gets no response.
                self._by_us.pop(str((params or {}).get("requestId")), None)
            case types.JSONRPCResponse(id=id) | types.JSONRPCError(id=id) if id is not None:
                self._by_them.discard(id)
        self.changed.set()

    def sent(self, message: SessionMessage) -> None:
        """Record a message to the client."""
        match message.message:
            case types.JSONRPCRequest(id=id):
                self._by_them.add(id)
            case types.JSONRPCResponse(id=id) | types.JSONRPCError(id=id):
                self._by_us[str(id)] -= 1
                self._by_us += Counter()
        self.changed.set()

    def unanswerable(self) -> Iterator[SessionMessage]:
        """Remove our own open requests and yield an error response to each. To be used when the
        client has closed our input, so that it can no longer answer them."""
        while self._by_them:
            error = types.ErrorData(
                code=types.CONNECTION_CLOSED,
                message="the client has closed its side of the connection",
            )
            yield SessionMessage(
                types.JSONRPCError(jsonrpc="2.0", id=self._by_them.pop(), error=error)
            )
