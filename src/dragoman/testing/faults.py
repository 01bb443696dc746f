"""A stream with faults, put around any other stream.

Each fault of a byte stream is one small value: slow, cut off, mixed with garbage, silent, half
closed, split in other places. A fault counts the bytes of its own direction, so a test sets exactly
where it takes effect. No clock and no random numbers are used.

The inner stream is any `dragoman.transports.Stream`; faults of processes are not covered here.

    stream = FaultyStream(inner, [Slow(), Cut(at=120, failure="broken")])

Faults of one direction apply in the order given, each to what the previous one let through.
Outbound faults split lines, so they suit byte carriers, not WebSockets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    UsageError,
)
from dragoman.transports.base import HIGH_WATER_SIZE, Receiver, Stream
from dragoman.transports.memory import MemoryStream

Direction = Literal["inbound", "outbound"]

Item = bytes | ConnectionLost
"""What a fault lets through: bytes, or the failure that ends the stream there."""

Stage = Callable[[bytes], Iterator[Item]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """Pass only a few bytes at a time, with an iteration of the event loop after each."""

    size: int = 1
    direction: Direction = "inbound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The stream ends after `at` bytes. The rest is lost.

    The other side notices at once if the inner stream is in memory, otherwise only when the faulty
    stream is closed.
    """

    at: int
    failure: Literal["ended", "broken", "closed"] = "ended"
    direction: Direction = "inbound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """Insert `data` after the first `at` bytes."""

    at: int
    data: bytes = b"\x00\xff garbage \xfe\n"
    direction: Direction = "inbound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """After `at` bytes everything is accepted and nothing is passed on. Only the real end gets
    through."""

    at: int = 0
    direction: Direction = "inbound"


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfClosed:
    """The other side's direction ends after `at` bytes; our writes are still accepted."""

    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rechunk:
    """Split the bytes with `cut`, which gets each chunk and returns its pieces."""

    cut: Callable[[bytes], Iterable[bytes]]
    direction: Direction = "inbound"


Fault = Slow | Cut | Garbage | Silent | HalfClosed | Rechunk


class FaultyStream(Stream):
    """A stream that applies faults to another one, which it owns and closes."""

    def __init__(self, stream: Stream, faults: Iterable[Fault]) -> None:
        self._inner = stream
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._failure: ConnectionLost | None = None
        self._write_failure: ConnectionLost | None = None
        self._ended = False
        self._paused = False
        faults = tuple(faults)
        inbound = [fault for fault in faults if _direction(fault) == "inbound"]
        outbound = [fault for fault in faults if _direction(fault) == "outbound"]
        self._inbound = _Lane(inbound, self._deliver, self._end_inbound, self._take_more)
        self._outbound = _Lane(outbound, self._send, self._end_outbound, self._wake_writers)
        self._half_closed = any(isinstance(fault, HalfClosed) for fault in faults)
        self._waiters: list[asyncio.Future[None]] = []

    def start(self, receiver: Receiver) -> None:
        if self._receiver is not None:
            raise UsageError("the stream has already been started")
        self._receiver = receiver
        if self._failure is not None and not self._ended:
            self._ended = True
            self._loop.call_soon(receiver.stream_ended, self._failure)
            return
        self._inner.start(_Inside(self))
        # Faults at byte 0 take effect without a first byte, but not inside this call.
        self._loop.call_soon(self._inbound.feed, b"")

    def write(self, data: bytes) -> None:
        if self._failure is not None:
            raise self._failure.fresh()
        if data:
            self._outbound.feed(data)
        if self._write_failure is not None:
            raise self._write_failure.fresh()

    @property
    def unsent_size(self) -> int:
        return self._outbound.waiting_size + self._inner.unsent_size

    async def drain(self) -> None:
        while self._failure is None and self._outbound.waiting_size > HIGH_WATER_SIZE:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        if self._failure is not None:
            raise self._failure.fresh()
        await self._inner.drain()

    def pause_reading(self) -> None:
        self._paused = True
        self._inbound.pause()
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self._inbound.resume()
        if self._inbound.waiting_size == 0:
            self._inner.resume_reading()

    async def aclose(self) -> None:
        # Accepted bytes are sent, as a stream promises, but no longer slowly.
        self._outbound.flush()
        self._inbound.stop()
        try:
            await self._inner.aclose()
        finally:
            self._fail(ConnectionClosed())

    def _inner_data(self, data: bytes) -> None:
        self._inbound.feed(data)
        if self._inbound.waiting_size > HIGH_WATER_SIZE:
            self._inner.pause_reading()

    def _inner_ended(self, failure: ConnectionLost) -> None:
        self._inbound.feed_end(failure)

    def _deliver(self, data: bytes) -> None:
        if self._receiver is not None and not self._ended:
            self._receiver.data_received(data)

    def _send(self, data: bytes) -> None:
        # Slow bytes are sent without a caller; the next caller gets the error.
        if self._write_failure is None:
            try:
                self._inner.write(data)
            except ConnectionLost as failure:
                self._write_failure = failure

    def _take_more(self) -> None:
        if not self._paused:
            self._inner.resume_reading()

    def _end_inbound(self, failure: ConnectionLost) -> None:
        if self._half_closed and isinstance(failure, ConnectionEnded):
            self._tell(failure)
        else:
            self._fail(failure)

    def _end_outbound(self, failure: ConnectionLost) -> None:
        self._inbound.stop()
        self._over(failure)
        # This runs inside `write`, where a stream never calls its receiver.
        self._loop.call_soon(self._tell, failure)

    def _fail(self, failure: ConnectionLost) -> None:
        self._tell(self._over(failure))

    def _over(self, failure: ConnectionLost) -> ConnectionLost:
        if self._failure is None:
            self._failure = failure
            self._outbound.stop()
            self._wake_writers()
            if isinstance(self._inner, MemoryStream):
                self._inner.close()
        return self._failure

    def _tell(self, failure: ConnectionLost) -> None:
        if not self._ended and self._receiver is not None:
            self._ended = True
            self._receiver.stream_ended(failure)

    def _wake_writers(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class _Inside:
    """Receives from the inner stream. A separate class, so that users of the faulty stream do not
    see these methods."""

    def __init__(self, stream: FaultyStream) -> None:
        self._stream = stream

    def data_received(self, data: bytes) -> None:
        self._stream._inner_data(data)

    def stream_ended(self, failure: ConnectionLost) -> None:
        self._stream._inner_ended(failure)


class _Lane:
    """One direction: its faults in order, and the bytes that wait because it is slow or paused.

    Without `Slow`, and unless paused, everything passes in the call that delivered it.
    """

    def __init__(
        self,
        faults: Iterable[Fault],
        on_data: Callable[[bytes], None],
        on_end: Callable[[ConnectionLost], None],
        on_empty: Callable[[], None],
    ) -> None:
        self._on_data = on_data
        self._on_end = on_end
        self._on_empty = on_empty
        self._loop = asyncio.get_running_loop()
        faults = tuple(faults)
        self._stages = [_stage(fault) for fault in faults]
        self._slow = any(isinstance(fault, Slow) for fault in faults)
        self._waiting: deque[Item] = deque()
        self._scheduled = False
        self._paused = False
        self._stopped = False
        self.waiting_size = 0

    def feed(self, data: bytes) -> None:
        if not self._stopped:
            self._accept(self._through(data, 0))

    def feed_end(self, failure: ConnectionLost) -> None:
        if not self._stopped:
            self._accept(iter([failure]))

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._schedule()

    def flush(self) -> None:
        while self._waiting:
            self._pass_one()

    def stop(self) -> None:
        self._stopped = True
        self._waiting.clear()
        self.waiting_size = 0

    def _through(self, data: bytes, index: int) -> Iterator[Item]:
        if index == len(self._stages):
            if data:
                yield data
            return
        for item in self._stages[index](data):
            if isinstance(item, bytes):
                yield from self._through(item, index + 1)
            else:
                yield item
                return

    def _accept(self, items: Iterator[Item]) -> None:
        for item in items:
            if self._stopped or (self._waiting and not isinstance(self._waiting[-1], bytes)):
                return
            self._waiting.append(item)
            self.waiting_size += len(item) if isinstance(item, bytes) else 0
            if not self._slow and not self._paused and not self._scheduled:
                self.flush()
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled and not self._paused:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._paused or self._stopped or not self._waiting:
            return
        self._pass_one()
        if self._waiting:
            self._schedule()
        elif not self._stopped:
            self._on_empty()

    def _pass_one(self) -> None:
        item = self._waiting.popleft()
        if isinstance(item, bytes):
            self.waiting_size -= len(item)
            self._on_data(item)
        else:
            self.stop()
            self._on_end(item)


def _direction(fault: Fault) -> Direction:
    return "inbound" if isinstance(fault, HalfClosed) else fault.direction


def _stage(fault: Fault) -> Stage:
    match fault:
        case Slow(size=size):
            return lambda data: (data[i : i + size] for i in range(0, len(data) or 1, size))
        case Rechunk(cut=cut):
            return lambda data: iter(cut(data)) if data else iter([data])
        case Cut(at=at, failure=failure):
            return _struck_at(at, lambda rest: iter([_FAILURES[failure]()]))
        case HalfClosed(at=at):
            return _struck_at(at, lambda rest: iter([ConnectionEnded()]))
        case Garbage(at=at, data=garbage):
            return _struck_at(at, lambda rest: iter([garbage, rest]))
        case Silent(at=at):
            return _struck_at(at, lambda rest: iter(()), always=True)


_FAILURES: dict[str, Callable[[], ConnectionLost]] = {
    "ended": ConnectionEnded,
    "closed": ConnectionClosed,
    "broken": lambda: ConnectionBroken("the stream was cut"),
}


def _struck_at(at: int, strike: Stage, *, always: bool = False) -> Stage:
    """Return a stage that passes the first `at` bytes unchanged, and applies `strike` to the rest
    of the chunk in which they end. Later chunks are passed unchanged or, with `always`, also go
    through `strike`."""
    passed = 0
    struck = False

    def stage(data: bytes) -> Iterator[Item]:
        nonlocal passed, struck
        if struck:
            yield from strike(data) if always else iter([data])
            return
        head, rest = data[: at - passed], data[at - passed :]
        passed += len(head)
        # An empty head is passed on too: a later fault at byte 0 waits for it.
        yield head
        if passed == at:
            struck = True
            yield from strike(rest)

    return stage
