"""The other side of a connection under test, written with plain `json`.

It shares no code with `dragoman.wire`, so that it is a witness of its own. `talk` opens a
connection over a pair of streams in memory and gives both ends to a test.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from dragoman.errors import ConnectionClosed, ConnectionLost
from dragoman.rpc import Connection, ConnectionSettings, End, Handlers
from dragoman.rpc.trace import Trace
from dragoman.transports.base import HIGH_WATER_SIZE, Receiver, Stream
from dragoman.transports.memory import MemoryStream, memory_pair
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

T = TypeVar("T")

WAIT_TIMEOUT = 10.0
"""For what must happen at once; long, because a busy machine is no failure."""


async def soon(work: Awaitable[T]) -> T:
    async with asyncio.timeout(WAIT_TIMEOUT):
        return await work


async def turns(count: int = 5) -> None:
    """Let the event loop go round: everything that is due happens."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT):
        while not condition():  # noqa: ASYNC110 - one turn at a time, not a wait for the clock
            await asyncio.sleep(0)


class OtherSide:
    """Reads lines, says what it is told to, and answers nothing by itself."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.ended: ConnectionLost | None = None
        self.heard: list[Any] = []
        """Everything that ever came, in order."""
        self._unread: deque[Any] = deque()
        self._buffer = b""
        self._news = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.heard.append(message)
            self._unread.append(message)
        self._news.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ended = failure
        self._news.set()

    async def next(self) -> Any:
        """The next message that was not asked for yet."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not self._unread:
                self._news.clear()
                await self._news.wait()
        return self._unread.popleft()

    def say(self, *messages: Any) -> None:
        """Send messages together, so that they arrive in one piece."""
        self.raw(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def raw(self, data: bytes) -> None:
        self.stream.write(data)

    def answer(self, request: Any, result: Any = None) -> None:
        self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})


@asynccontextmanager
async def talk(
    handlers: Handlers | None = None,
    *,
    end: End = End.CLIENT,
    settings: ConnectionSettings | None = None,
    trace: Trace | None = None,
    wrap: Callable[[MemoryStream], Stream] = lambda stream: stream,
) -> AsyncIterator[tuple[Connection, OtherSide]]:
    ours, theirs = memory_pair()
    other = OtherSide(theirs)
    theirs.start(other)
    try:
        async with Connection(
            wrap(ours), end, handlers, settings=settings, trace=trace
        ) as connection:
            yield connection, other
    finally:
        await theirs.aclose()


class Witness:
    """Handlers that note everything, and answer requests with what `reply` returns."""

    def __init__(self, reply: Callable[[Request], Any] = lambda request: None) -> None:
        self.reply = reply
        self.told: list[str] = []
        self.noises: list[Noise | Stray] = []

    def attach(self, connection: Connection) -> None:
        self.connection = connection

    def request(self, request: Request) -> Any:
        return self.reply(request)

    def notification(self, notification: Notification) -> None:
        self.told.append(notification.method)

    def noise(self, noise: Noise | Stray) -> None:
        self.noises.append(noise)


class RecordingStream(Stream):
    """Takes what is written, as slowly as it is told to."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.unsent = 0
        self.stuck = False
        """Whether nothing is taken: then all that is written stays unsent."""
        self.refusal: ConnectionLost | None = None
        self.reading = True
        self.pauses = 0
        self.closed = False
        self.receiver: Receiver | None = None
        self._moved = asyncio.Event()

    def start(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def write(self, data: bytes) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.writes.append(data)
        if self.stuck:
            self.unsent += len(data)

    @property
    def unsent_size(self) -> int:
        return self.unsent

    def take(self, size: int) -> None:
        """The other side reads."""
        self.unsent -= size
        self._moved.set()

    async def drain(self) -> None:
        while self.refusal is None and self.unsent > HIGH_WATER_SIZE:
            self._moved.clear()
            await self._moved.wait()
        if self.refusal is not None:
            raise self.refusal

    def pause_reading(self) -> None:
        self.reading = False
        self.pauses += 1

    def resume_reading(self) -> None:
        self.reading = True

    async def aclose(self) -> None:
        self.closed = True
        if self.refusal is None:
            self.refusal = ConnectionClosed()
            self._moved.set()
            if self.receiver is not None:
                self.receiver.stream_ended(self.refusal)
