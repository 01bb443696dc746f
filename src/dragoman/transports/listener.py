"""Accept connections: the owner of accepted streams, and the Unix socket listener.

A `Listener` owns one task per connection, from accepting the stream until its handler has returned
and the stream is closed, and ends them all when it is closed. `UnixListener` owns the socket file:
its permissions, replacing a stale one, removing ours. On Windows `listen_unix` uses `named_pipes`;
`websocket` has its own listener.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import errno
import os
import socket
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dragoman.errors import AddressInUse, UsageError
from dragoman.transports.base import Stream
from dragoman.transports.file_lock import take_lock
from dragoman.transports.sockets import UnixStream, checked_path, peer_credentials

OnStream = Callable[[Stream], Awaitable[None]]
"""Handler of an accepted stream. The stream is closed when the handler returns."""

ACCEPT_RETRY_INTERVAL = 0.5
"""Delay in seconds after running out of descriptors or memory: accepting again at once would only
spin."""

ACCEPTS_PER_CALLBACK = 32
"""Number of connections to accept before the event loop gets its turn."""

BACKLOG = 128
"""Length of the accept queue."""

LOCK_TIMEOUT = 2.0
"""How long to wait for other processes that open a socket in the same directory. Each holds the
lock for microseconds."""

LOCK_RETRY_INTERVAL = 0.01
"""Seconds between two attempts to take the lock: waiting for it in the kernel would block the event
loop."""

HANDLER_TIMEOUT = 5.0
"""How long `aclose` waits for cancelled handlers. Closing a stream takes about two seconds at most;
a handler that takes more than twice that ignores its cancellation."""


class Listener(abc.ABC):
    """Accepts connections until it is closed. Use it with `async with`."""

    def __init__(self, on_stream: OnStream) -> None:
        self._on_stream = on_stream
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unbegun: set[Stream] = set()
        self._closed = False
        self._accepting = True

    @property
    @abc.abstractmethod
    def address(self) -> str:
        """The address that the listener uses, in the form that the matching connect function
        takes."""

    @abc.abstractmethod
    def _stop_accepting(self) -> None:
        """Release the address at once. Called only once."""

    def stop_accepting(self) -> None:
        """Release the address at once; open connections stay until `aclose`. Idempotent."""
        if self._accepting:
            self._accepting = False
            self._stop_accepting()

    async def aclose(self) -> None:
        """Stop accepting, cancel every handler and wait until their streams are closed, for at most
        `HANDLER_TIMEOUT`.

        Idempotent, and safe to call from several tasks at once. If the caller is cancelled, the
        handlers still end: they were cancelled before the first wait.
        """
        if not self._closed:
            self._closed = True
            try:
                self.stop_accepting()
            finally:
                for task in self._tasks:
                    task.cancel()
        # A handler that closes its own listener must not wait for itself.
        current = asyncio.current_task()
        try:
            async with asyncio.timeout(HANDLER_TIMEOUT):
                while others := {task for task in self._tasks if task is not current}:
                    await asyncio.wait(others)
        except TimeoutError:
            for task in self._tasks:
                self._report(f"a connection handler did not end when cancelled: {task!r}", None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _accepted(self, stream: Stream) -> None:
        """Run the handler for a new stream in a task owned by this listener."""
        self._unbegun.add(stream)
        self._own(self._handle(stream)).add_done_callback(lambda task: self._handled(task, stream))

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # The listener owns the task: it keeps it, cancels it and waits for it. Transports sit below
        # the package with the general task owner (`rpc.tasks`).
        task = asyncio.create_task(work, name=f"dragoman {self.address}")  # noqa: TID251
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _handle(self, stream: Stream) -> None:
        self._unbegun.discard(stream)
        try:
            await self._on_stream(stream)
        finally:
            await stream.aclose()

    def _handled(self, task: asyncio.Task[None], stream: Stream) -> None:
        if stream in self._unbegun:
            # A task cancelled before its first step never runs, not even its `finally`.
            self._unbegun.discard(stream)
            self._own(stream.aclose())
        elif not task.cancelled() and (error := task.exception()) is not None:
            self._report("a connection handler failed", error)

    def _report(self, message: str, error: BaseException | None) -> None:
        context: dict[str, object] = {"message": message}
        if error is not None:
            context["exception"] = error
        self._loop.call_exception_handler(context)


# -- Unix sockets


async def listen_unix(
    path: str | os.PathLike[str],
    on_stream: OnStream,
    *,
    backlog: int = BACKLOG,
    same_user_only: bool = True,
) -> Listener:
    """Listen on a new socket file that only our user may open, or on Windows on the named pipe
    `path`.

    The directory must exist. A stale socket file is replaced. Raises `AddressInUse` if another
    process listens there, and `UsageError` if there is a file at `path` that is not a socket, or
    the path cannot be used. With `same_user_only`, connections of other users are dropped: root can
    connect despite the mode of the file.
    """
    if sys.platform == "win32":
        from dragoman.transports.named_pipes import listen_named_pipe

        return await listen_named_pipe(os.fspath(path), on_stream)
    address = checked_path(path)
    with contextlib.ExitStack() as undo:
        try:
            sock = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            sock.setblocking(False)
            lock = await _lock_folder(Path(address).parent)
            try:
                _bind(sock, address)
                undo.callback(os.unlink, address)
                # Connections are impossible before `listen`, so the mode is set in time.
                os.chmod(address, 0o600)
                sock.listen(backlog)
                listener = UnixListener(sock, address, on_stream, same_user_only=same_user_only)
            finally:
                os.close(lock)
        except OSError as error:
            raise UsageError(f"cannot listen on {address}: {error.strerror}") from error
        undo.pop_all()
        return listener


class UnixListener(Listener):
    """Accepts connections on a listening socket. Owns the socket and its file."""

    def __init__(
        self, sock: socket.socket, address: str, on_stream: OnStream, *, same_user_only: bool
    ) -> None:
        super().__init__(on_stream)
        self._sock = sock
        self._address = address
        self._same_user_only = same_user_only
        self._identity = _identity(address)
        self._retry: asyncio.TimerHandle | None = None
        self.refused = 0
        """Number of connections dropped because they came from another user."""
        self._loop.add_reader(sock, self._acceptable)

    @property
    def address(self) -> str:
        return self._address

    def _stop_accepting(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._sock)
        try:
            # While our socket is open its inode cannot be reused, so compare now: another process
            # may have created a socket of its own at the same path.
            if _identity(self._address) == self._identity:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._address)
        finally:
            self._sock.close()

    def _acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_CALLBACK):
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._loop.remove_reader(self._sock)
                self._retry = self._loop.call_later(ACCEPT_RETRY_INTERVAL, self._accept_again)
                self._report("cannot accept a connection for now", error)
                return
            self._admit(sock)

    def _accept_again(self) -> None:
        self._retry = None
        self._loop.add_reader(self._sock, self._acceptable)

    def _admit(self, sock: socket.socket) -> None:
        peer = peer_credentials(sock)
        if self._same_user_only and peer.uid != os.geteuid():
            self.refused += 1
            sock.close()
            return
        try:
            stream = UnixStream(sock, peer)
        except OSError as error:
            sock.close()
            self._report("cannot accept a connection for now", error)
            return
        self._accepted(stream)


def _bind(sock: socket.socket, address: str) -> None:
    try:
        sock.bind(address)
        return
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
    if not stat.S_ISSOCK(os.lstat(address).st_mode):
        raise UsageError(f"{address} exists and is not a socket")
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            os.unlink(address)
        except BlockingIOError:
            raise AddressInUse(f"{address} is already in use") from None
        else:
            raise AddressInUse(f"{address} is already in use")
    sock.bind(address)


async def _lock_folder(folder: Path) -> int:
    """Lock a directory. Closing the returned descriptor unlocks it. Raises `UsageError` if another
    process holds the lock for too long.

    Without the lock, two processes that find the same stale socket would both remove it, and the
    second would remove the live socket of the first. A lock on the directory itself leaves no file
    behind.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        async with asyncio.timeout(LOCK_TIMEOUT):
            while not take_lock(lock):  # noqa: ASYNC110 - a lock of the system's
                await asyncio.sleep(LOCK_RETRY_INTERVAL)
        return lock
    except TimeoutError:
        os.close(lock)
        raise UsageError(f"another process holds the lock of the directory {folder}") from None
    except BaseException:
        os.close(lock)
        raise


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
