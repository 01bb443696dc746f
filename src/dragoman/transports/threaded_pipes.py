"""Reads and writes on a file descriptor that cannot be polled, with a thread for each direction.

Used for regular files on any system, for pipes on Windows, and to send a `KeepAlive`. The interface
is that of `pipes`, which chooses.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import deque

from dragoman.errors import ConnectionBroken, ConnectionClosed
from dragoman.transports.base import READ_SIZE
from dragoman.transports.pipes import Inbound, KeepAlive, OnBroken, OnData, OnEnd, Outbound

THREAD_CHUNKS = 4
"""Number of chunks a reader thread may be ahead of the event loop: enough that both can work at the
same time, and little to keep in memory."""


class ThreadedReadPipe(Inbound):
    """`ReadPipe` for a descriptor that cannot be polled: a daemon thread does blocking reads.

    The thread closes the descriptor, because closing it during a read could hit an unrelated file
    that got the same number. A read that never returns therefore keeps the thread and the
    descriptor until the process ends; it does not keep the process from ending.
    """

    def __init__(self, fd: int, on_data: OnData, on_end: OnEnd) -> None:
        super().__init__(fd, on_data, on_end)
        self._waiting: deque[bytes | OSError | None] = deque()
        self._room = threading.Semaphore(THREAD_CHUNKS)

    def start(self) -> None:
        """Start delivery, unless paused."""
        self._started = True
        threading.Thread(target=self._read, name="dragoman-read", daemon=True).start()

    def pause(self) -> None:
        """Pause delivery until `resume`. Idempotent; no effect on a closed pipe."""
        self._paused = True

    def resume(self) -> None:
        """Undo `pause`. Idempotent; no effect on a closed pipe."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._deliver)

    def deliver_available(self, limit_size: int) -> None:
        """Deliver at once what the thread has already read. `limit_size` is ignored: the thread
        never reads far ahead. Stops if the pipe is paused meanwhile."""
        self._deliver()

    def close(self) -> None:
        """Stop delivery. The descriptor is closed when a read in progress returns."""
        if self._closed:
            return
        self._closed = True
        self._waiting.clear()
        if self._started:
            self._room.release()
        else:
            os.close(self._fd)

    def _deliver(self) -> None:
        while self._waiting and not self._closed and not self._paused:
            item = self._waiting.popleft()
            self._room.release()
            if isinstance(item, bytes):
                self.on_data(item)
            else:
                self.close()
                self._on_end(item)

    def _take(self, item: bytes | OSError | None) -> None:
        self._waiting.append(item)
        self._deliver()

    def _read(self) -> None:
        item: bytes | OSError | None = b""
        # The loop refuses the call if it was closed in the meantime; then there is no receiver
        # left.
        with contextlib.suppress(RuntimeError):
            while isinstance(item, bytes):
                self._room.acquire()
                if self._closed:
                    break
                try:
                    item = os.read(self._fd, READ_SIZE) or None
                except OSError as error:
                    item = None if error.errno in (errno.EIO, errno.EPIPE) else error
                self._loop.call_soon_threadsafe(self._take, item)
        os.close(self._fd)


class ThreadedWritePipe(Outbound):
    """`WritePipe` for a descriptor that cannot be polled: a daemon thread does blocking writes.

    As with reading, the thread closes the descriptor, and a write that never returns keeps thread
    and descriptor until the process ends. A `KeepAlive` is written from the first `write` on, and
    never within the data of one `write`.
    """

    def __init__(
        self, fd: int, on_broken: OnBroken, *, keep_alive: KeepAlive | None = None
    ) -> None:
        super().__init__()
        self._interval = None if keep_alive is None else keep_alive.interval
        self._idle_data = b"" if keep_alive is None else keep_alive.data
        self._fd = fd
        self._on_broken = on_broken
        self._buffers: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._started = False

    def write(self, data: bytes) -> None:
        """Queue the bytes for the thread, which writes them in order. Raises `ConnectionLost` if
        writing has failed or the pipe is closed."""
        if self._failure is not None:
            raise self._failure.fresh()
        if not self._started:
            self._started = True
            threading.Thread(target=self._send, name="dragoman-write", daemon=True).start()
        self._unsent_size += len(data)
        with self._changed:
            self._buffers.append(data)
            self._changed.notify()

    def close(self) -> None:
        """Drop unsent bytes. The descriptor is closed when a write in progress returns."""
        if self._closed:
            return
        self._closed = True
        if self._failure is None:
            self._failure = ConnectionClosed()
        self._unsent_size = 0
        with self._changed:
            self._buffers.clear()
            self._changed.notify()
        if not self._started:
            os.close(self._fd)
        self._wake()

    def _sent(self, size: int) -> None:
        if not self._closed:
            self._unsent_size -= size
            self._wake()

    def _broke(self, error: OSError) -> None:
        if not self._closed:
            self._failure = ConnectionBroken(f"writing failed: {error.strerror}")
            self._unsent_size = 0
            self._wake()
            self._on_broken(error)

    def _send(self) -> None:
        # The loop refuses the call if it was closed in the meantime; then there is no receiver
        # left.
        with contextlib.suppress(RuntimeError):
            try:
                while True:
                    with self._changed:
                        while not self._buffers and not self._closed:
                            if not self._changed.wait(self._interval):
                                break
                        if self._closed:
                            break
                        data = self._buffers.popleft() if self._buffers else None
                    # Not while the lock is held: a write may block.
                    rest = memoryview(self._idle_data if data is None else data)
                    while rest and not self._closed:
                        rest = rest[os.write(self._fd, rest) :]
                    if data is not None:
                        self._loop.call_soon_threadsafe(self._sent, len(data))
            except OSError as error:
                self._loop.call_soon_threadsafe(self._broke, error)
                with self._changed:
                    while not self._closed:
                        self._changed.wait()
        os.close(self._fd)
