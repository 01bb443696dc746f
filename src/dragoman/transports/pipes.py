"""Non-blocking reads and writes on a file descriptor.

One class per direction: `ReadPipe` delivers input, `WritePipe` sends output and buffers what the
operating system does not accept yet. Pipes, sockets and terminals are polled; a descriptor that
cannot be polled (a regular file, a pipe on Windows) gets a thread behind the same interface (see
`threaded_pipes`). `open_read_pipe` and `open_write_pipe` choose. What the bytes mean is up to the
caller; child processes are in `process.stream`.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import errno
import os
import select
import stat
import sys
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from dragoman.errors import ConnectionBroken, ConnectionClosed, ConnectionLost
from dragoman.transports.base import HIGH_WATER_SIZE, READ_SIZE

if TYPE_CHECKING:
    from dragoman.transports.threaded_pipes import ThreadedReadPipe, ThreadedWritePipe

if sys.platform == "linux":
    import fcntl

MAX_READ_SIZE = 1024 * 1024
"""Maximum size of one read, reached while reads come back full: a long message then needs few
reads, and short ones never pay for a large buffer."""

READS_PER_CALLBACK = 6
"""Number of reads before the event loop gets its turn, so that one flooding pipe does not starve
the rest. With 4, the streams of 200 sessions took 2 % more CPU time."""

SLOW_TIMEOUT = 0.003
"""If the reads of one callback take longer than this to handle (seconds), the event loop gets its
turn at once."""

GROW_TIMEOUT = 0.0002
"""The read size grows only after a full read that was handled within this time (seconds), as a part
of a long message is. 64 KiB of small messages take twice as long, and everything decoded from one
read is in memory at the same time. With five times this value, a stream of 20,000 updates took 0.7
MiB more memory."""

WRITE_BATCH = 64
"""Number of buffers in one gathered write: well under IOV_MAX (1024), enough to fill a pipe."""

PIPE_SIZE = 256 * 1024
"""Size a Linux pipe is enlarged to once it was found full. Measured with a line of 15 MiB: reading
takes 6 ms instead of 9.5 ms, writing 7 ms instead of 22 ms; 1 MiB gains nothing more. Done late
because an unprivileged user has 64 MiB for all pipes together, and most pipes never fill."""

OnData = Callable[[bytes], None]
OnEnd = Callable[[OSError | None], None]
OnBroken = Callable[[OSError], None]


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Bytes to write whenever nothing was written for `interval` seconds. A thread writes them, so
    that they are sent even while the event loop is blocked."""

    interval: float
    data: bytes


class _Polled:
    """A descriptor that is made non-blocking while the loop polls it. Owns the descriptor and
    closes it."""

    _fd: int
    _was_blocking = False
    _closed = True

    def _unblock(self) -> None:
        self._was_blocking = os.get_blocking(self._fd)
        if self._was_blocking:
            os.set_blocking(self._fd, False)

    def _give_up(self) -> None:
        if self._was_blocking:
            # The mode belongs to the open file, which for our own stdio is shared with others.
            with contextlib.suppress(OSError):
                os.set_blocking(self._fd, True)
        os.close(self._fd)

    def __del__(self) -> None:
        # Still open here only if its loop was closed first: no other code can reach it.
        if not self._closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
            os.close(self._fd)


class Inbound:
    """The common part of pipes that are read: the callbacks, and whether the end was reached."""

    def __init__(self, fd: int, on_data: OnData, on_end: OnEnd) -> None:
        self._fd = fd
        self.on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._started = False
        self._paused = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the end was delivered or `close` was called."""
        return self._closed


class ReadPipe(Inbound, _Polled):
    """Delivers what arrives on a descriptor. Owns the descriptor and closes it.

    The callback `on_data` gets bytes, never empty, and may be replaced at any time; `on_end` is
    called once, after the last data, with None for end of stream or with the read error. Neither is
    called after `close`.
    """

    def __init__(self, fd: int, on_data: OnData, on_end: OnEnd) -> None:
        super().__init__(fd, on_data, on_end)
        self._size = READ_SIZE
        self._enlarged = False
        self._reading = False

    def start(self) -> None:
        """Start delivery, unless paused."""
        self._unblock()
        self._started = True
        self._follow()

    def pause(self) -> None:
        """Pause delivery until `resume`. Idempotent; no effect on a closed pipe."""
        self._paused = True
        self._follow()

    def resume(self) -> None:
        """Undo `pause`. Idempotent; no effect on a closed pipe."""
        self._paused = False
        self._follow()

    def deliver_available(self, limit_size: int) -> None:
        """Deliver at once what the operating system has buffered, up to about `limit_size` bytes.

        Used where nothing may be awaited any more. Stops if the pipe is paused meanwhile.
        """
        left_size = limit_size
        while left_size > 0 and not self._closed and not self._paused:
            taken = self._read_once()
            if taken == 0:
                return
            left_size -= taken

    def close(self) -> None:
        """Release the descriptor. Nothing is delivered afterwards. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._follow()
        self._give_up()

    def _follow(self) -> None:
        """Add or remove the loop's reader to match the current state."""
        wanted = self._started and not self._paused and not self._closed
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._loop.remove_reader(self._fd)

    def _readable(self) -> None:
        # `_read_once`, inlined for the usual case: a read that returns fewer bytes than requested.
        # It has emptied the pipe, so a second read would only waste a system call.
        size = self._size
        if size == READ_SIZE:
            try:
                data = os.read(self._fd, READ_SIZE)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._fail(error)
                return
            if 0 < len(data) < READ_SIZE:
                self.on_data(data)
                return
            began_at = self._loop.time()
            taken = self._deliver(data)
        else:
            began_at = self._loop.time()
            taken = self._read_once()
        for _ in range(READS_PER_CALLBACK - 1):
            # Stop after a short read, and once the reads of this callback have taken long.
            if taken < size or not self._reading or self._loop.time() - began_at > SLOW_TIMEOUT:
                return
            size = self._size
            taken = self._read_once()

    def _read_once(self) -> int:
        """Read and deliver once. Returns the number of bytes; 0 at the end or if there are none."""
        try:
            data = os.read(self._fd, self._size)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._fail(error)
            return 0
        return self._deliver(data)

    def _fail(self, error: OSError) -> None:
        self.close()
        # A terminal whose other side is gone answers EIO where a pipe reports end of file.
        self._on_end(None if error.errno == errno.EIO else error)

    def _deliver(self, data: bytes) -> int:
        """Deliver one read, and choose the size of the next one."""
        size = self._size
        taken = len(data)
        if taken == size:
            if not self._enlarged:
                self._enlarged = True
                _enlarge(self._fd)
            began_at = self._loop.time()
            self.on_data(data)
            if self._loop.time() - began_at > GROW_TIMEOUT:
                self._size = READ_SIZE
            elif size < MAX_READ_SIZE:
                self._size = size * 2
            return taken
        self._size = READ_SIZE
        if taken:
            self.on_data(data)
        else:
            self.close()
            self._on_end(None)
        return taken


class Outbound(abc.ABC):
    """Base class of the writers: tracks unsent bytes, and the tasks that wait for them to drain."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unsent_size = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._failure: ConnectionLost | None = None
        self._closed = False

    @property
    def unsent_size(self) -> int:
        """Number of bytes passed to `write` and not yet accepted by the operating system."""
        return self._unsent_size

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @abc.abstractmethod
    def close(self) -> None:
        """Release the descriptor at once; unsent bytes are dropped. Idempotent."""

    def watch(self) -> None:  # noqa: B027 - a thread notices it only by writing
        """Detect a vanished reader even while nothing is written. No effect here; a subclass
        overrides this if it can."""

    async def drain(self) -> None:
        """Wait until `unsent_size` is at most `HIGH_WATER_SIZE`. Raises `ConnectionLost` if writing
        has failed or the pipe is closed."""
        await self._wait_until(HIGH_WATER_SIZE)

    async def aclose(self, flush_timeout: float) -> None:
        """Flush for at most `flush_timeout` seconds, then `close` in any case."""
        try:
            async with asyncio.timeout(flush_timeout):
                await self._wait_until(0)
        except (TimeoutError, ConnectionLost):
            pass
        finally:
            self.close()

    async def _wait_until(self, size: int) -> None:
        # Check again after each wait: other waiters may have written in between.
        while self._failure is None and self._unsent_size > size:
            waiter = (size, self._loop.create_future())
            self._waiters.append(waiter)
            try:
                await waiter[1]
            finally:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
        if self._failure is not None:
            raise self._failure.fresh()

    def _wake(self) -> None:
        still: list[tuple[int, asyncio.Future[None]]] = []
        for size, waiter in self._waiters:
            if self._failure is None and self._unsent_size > size:
                still.append((size, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._waiters = still


class WritePipe(Outbound, _Polled):
    """Sends bytes to a descriptor. Owns the descriptor and closes it.

    The callback `on_broken` is called once, later and never from inside `write`, when the operating
    system refuses more data (the reader is gone). From then on `write` and `drain` raise
    `ConnectionBroken`.
    """

    _closed = True

    def __init__(self, fd: int, on_broken: OnBroken) -> None:
        super().__init__()
        self._fd = fd
        self._on_broken = on_broken
        self._buffers: deque[memoryview] = deque()
        self._enlarged = False
        self._watching = False
        self._unblock()

    def write(self, data: bytes) -> None:
        """Send what can be sent now, and the rest as soon as possible, in order. Raises
        `ConnectionLost` if writing has failed or the pipe is closed."""
        if self._failure is not None:
            raise self._failure.fresh()
        sent = 0
        if not self._buffers:
            try:
                sent = os.write(self._fd, data)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                raise self._break(error).fresh() from error
            if sent == len(data):
                return
            if not self._enlarged:
                self._enlarged = True
                _enlarge(self._fd)
            self._loop.add_writer(self._fd, self._writable)
        self._buffers.append(memoryview(data)[sent:])
        self._unsent_size += len(data) - sent

    def watch(self) -> None:
        if not self._watching and not self._closed and self._failure is None:
            self._watching = True
            self._loop.add_reader(self._fd, self._hung_up)

    def _hung_up(self) -> None:
        # Once only: a half-closed socket stays readable forever.
        self._unwatch()
        poll = select.poll()
        poll.register(self._fd, 0)
        if self._failure is None and poll.poll(0):
            self._break(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Release the descriptor at once; unsent bytes are dropped. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._failure is None:
            self._failure = ConnectionClosed()
        self._forget_unsent()
        self._unwatch()
        self._give_up()

    def _writable(self) -> None:
        buffers = self._buffers
        try:
            if len(buffers) == 1:
                sent = os.write(self._fd, buffers[0])
            else:
                sent = os.writev(self._fd, list(islice(buffers, WRITE_BATCH)))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._break(error)
            return
        self._unsent_size -= sent
        while buffers and sent >= len(buffers[0]):
            sent -= len(buffers.popleft())
        if buffers:
            buffers[0] = buffers[0][sent:]
        else:
            self._loop.remove_writer(self._fd)
        if self._waiters:
            self._wake()

    def _break(self, error: OSError) -> ConnectionBroken:
        self._failure = ConnectionBroken(f"writing failed: {error.strerror}")
        self._forget_unsent()
        self._loop.call_soon(self._tell_broken, error)
        return self._failure

    def _tell_broken(self, error: OSError) -> None:
        if not self._closed:
            self._on_broken(error)

    def _forget_unsent(self) -> None:
        if self._buffers:
            self._loop.remove_writer(self._fd)
            self._buffers.clear()
        self._unsent_size = 0
        self._wake()


AnyReadPipe: TypeAlias = "ReadPipe | ThreadedReadPipe"
AnyWritePipe: TypeAlias = "WritePipe | ThreadedWritePipe"


def open_read_pipe(
    fd: int, on_data: OnData, on_end: OnEnd, *, threaded: bool | None = None
) -> AnyReadPipe:
    """Return a reader for a descriptor. It uses a thread if the descriptor needs one (see
    `needs_thread`); `threaded` forces or forbids that."""
    if needs_thread(fd) if threaded is None else threaded:
        # Not at the top: on most systems hardly any descriptor needs a thread.
        from dragoman.transports.threaded_pipes import ThreadedReadPipe

        return ThreadedReadPipe(fd, on_data, on_end)
    return ReadPipe(fd, on_data, on_end)


def open_write_pipe(
    fd: int,
    on_broken: OnBroken,
    *,
    threaded: bool | None = None,
    keep_alive: KeepAlive | None = None,
) -> AnyWritePipe:
    """Return a writer for a descriptor. It uses a thread if the descriptor needs one (see
    `needs_thread`); `threaded` forces or forbids that. With `keep_alive` it always uses one."""
    if keep_alive is not None or (needs_thread(fd) if threaded is None else threaded):
        from dragoman.transports.threaded_pipes import ThreadedWritePipe

        return ThreadedWritePipe(fd, on_broken, keep_alive=keep_alive)
    return WritePipe(fd, on_broken)


def _enlarge(fd: int) -> None:
    """Ask for a larger pipe; a refusal (not a pipe, the user's quota is used up) is fine."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < PIPE_SIZE:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_SIZE)


def needs_thread(fd: int) -> bool:
    """Return whether a descriptor cannot be polled by the event loop."""
    if sys.platform == "win32":
        return True
    mode = os.fstat(fd).st_mode
    return not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd))
