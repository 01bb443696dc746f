"""The shape of every byte stream, and what it promises.

It owns the interface between whatever carries bytes and whoever understands them. It does not
know what a message is: only that what is written is whole lines, each ended by a newline, because
one carrier (WebSocket) has to turn lines into frames. The understanding is in `dragoman.rpc`.

A stream fails in exactly three ways, and says so once, after the last byte it delivered:
closed by us (`ConnectionClosed`), ended by them (`ConnectionEnded`, or `ProcessExited` where it is
known to be a death), broken by the world (`ConnectionBroken`).
"""

from __future__ import annotations

import abc
import asyncio
from typing import Protocol

from dragoman.errors import ConnectionClosed, ConnectionLost, UsageError

READ_SIZE = 64 * 1024
"""How much is read at once. Above malloc's mmap threshold (128 KiB) every small read maps and
unmaps its buffer, which doubles the latency of sequential calls."""

HIGH_WATER_SIZE = 256 * 1024
"""Bytes accepted but not yet taken by the operating system above which `drain` waits."""

FLUSH_TIMEOUT = 2.0
"""How long a close may take to send what was written. A reader that is alive takes a full buffer
in milliseconds; one that is stuck must not hold up our exit."""


class Receiver(Protocol):
    """Who is told about a stream. Both methods are called by the event loop and must not block."""

    def data_received(self, data: bytes) -> None:
        """Some bytes arrived, in any cut; never empty."""

    def stream_ended(self, failure: ConnectionLost) -> None:
        """Nothing will arrive any more. Called exactly once, after the last `data_received`."""


class Stream(abc.ABC):
    """One open byte stream in both directions.

    It is made open and silent: nothing is delivered before `start`. All methods are to be called
    from the thread of the event loop.
    """

    @property
    def carrier(self) -> Stream:
        """The stream that carries the bytes; another one if this only changes them on the way."""
        return self

    @abc.abstractmethod
    def start(self, receiver: Receiver) -> None:
        """Begin delivery. Once only."""

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Take whole lines for sending. Never blocks and never sends in part only to forget.

        Raises the stream's failure (a `ConnectionLost`) if the stream is over.
        """

    @property
    @abc.abstractmethod
    def unsent_size(self) -> int:
        """Bytes taken by `write` that the operating system has not taken yet."""

    @abc.abstractmethod
    async def drain(self) -> None:
        """Wait until `unsent_size` is at most `HIGH_WATER_SIZE`. Raises the stream's failure.

        It is so when this returns, also for each of many that waited: what the first of them
        writes then makes the next one wait again.
        """

    @abc.abstractmethod
    def pause_reading(self) -> None:
        """Stop delivery (back-pressure). What was already read may still arrive once. Idempotent;
        without effect on an ended stream."""

    @abc.abstractmethod
    def resume_reading(self) -> None:
        """Undo `pause_reading`. Idempotent; without effect on an ended stream."""

    @abc.abstractmethod
    async def aclose(self) -> None:
        """Give up everything the stream holds, in bounded time, even if cancelled meanwhile.

        Idempotent, and safe to call at once from several tasks. What was taken by `write` is sent
        as far as that is possible within the bound. Afterwards `stream_ended` has been called.
        """


class OwnStream(Stream):
    """What the streams here share: one receiver, and one failure that it is told."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._failure: ConnectionLost | None = None

    def _take(self, receiver: Receiver) -> bool:
        """Take the receiver, once. False if the stream is over; the receiver is told soon."""
        if self._receiver is not None:
            raise UsageError("the stream was started already")
        self._receiver = receiver
        if self._failure is not None:
            self._loop.call_soon(receiver.stream_ended, self._failure)
        return self._failure is None


class EventedStream(OwnStream):
    """A stream over something that tells when there is room to write, and when it is over."""

    def __init__(self) -> None:
        super().__init__()
        self._end: ConnectionLost | None = None
        """Why nothing arrives any more; the failure once the receiver has everything before it."""
        self._closing = False
        self._room = asyncio.Event()
        self._room.set()

    def _refuse(self) -> None:
        failure = self._failure or self._end
        if failure is not None:
            raise failure.fresh()
        if self._closing:
            raise ConnectionClosed

    async def drain(self) -> None:
        self._refuse()
        # Again after each wait: others that waited may have written meanwhile.
        while not self._room.is_set():
            await self._room.wait()
            self._refuse()
