"""Unix sockets: a stream to another process of this machine, and the listener for it.

It owns the socket file (who may use it, when an old one is replaced, when ours is removed) and who
is at the other end, as the operating system tells. The stream itself is `duplex`, the tasks of
accepted connections are owned by `listener`. On Windows the same two functions take the name of a
pipe and hand over to `named_pipes`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from dragoman.errors import AddressInUse, ConnectError, UsageError
from dragoman.transports.base import Stream
from dragoman.transports.duplex import DuplexStream
from dragoman.transports.listener import Listener, OnStream

CONNECT_TIMEOUT = 5.0
"""A process on the same machine that does not accept within this is stuck, not busy."""

CONNECT_RETRY_INTERVAL = 0.02
"""Between tries while the queue of the listener is full: Linux has no way to wait for a place."""

ACCEPT_RETRY_INTERVAL = 0.5
"""After running out of descriptors or memory: accepting again at once would only spin."""

ACCEPTS_PER_CALLBACK = 32
"""Connections taken before the event loop gets its turn."""

BACKLOG = 128
"""Connections that may wait to be accepted."""

LOCK_TIMEOUT = 2.0
"""How long to wait for other processes that open a socket in the same folder. Each holds the lock
for microseconds."""

LOCK_RETRY_INTERVAL = 0.01
"""Between tries for that lock: waiting for it in the kernel would block the event loop."""

PATH_LIMIT = 107 if sys.platform == "linux" else 103
"""Bytes that fit into `sun_path` with its closing zero."""

_SO_PEERCRED: int = getattr(socket, "SO_PEERCRED", 17)


@dataclass(frozen=True, slots=True)
class PeerCredentials:
    """Who opened the other end, as the operating system saw it; None is what it cannot tell."""

    uid: int | None = None
    gid: int | None = None
    pid: int | None = None


class UnixStream(DuplexStream):
    """A stream over a connected Unix socket."""

    def __init__(self, sock: socket.socket, peer: PeerCredentials) -> None:
        # Each direction owns a descriptor of its own.
        write_fd = os.dup(sock.fileno())
        super().__init__(sock.detach(), write_fd, threaded_read=False, threaded_write=False)
        self.peer = peer


async def connect_unix(path: str | os.PathLike[str], *, timeout: float = CONNECT_TIMEOUT) -> Stream:
    """Connect to the socket file, or on Windows to the named pipe, at `path`.

    Raises `ConnectError` if nobody listens there or nobody answers in time.
    """
    if sys.platform == "win32":
        from dragoman.transports.named_pipes import connect_named_pipe

        return await connect_named_pipe(os.fspath(path), timeout=timeout)
    address = _checked(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    if _connected(sock, address):
                        return UnixStream(sock, peer_credentials(sock))
                    await asyncio.sleep(CONNECT_RETRY_INTERVAL)
        except TimeoutError:
            raise ConnectError(f"{address} did not accept within {timeout:g} s") from None
        except OSError as error:
            raise ConnectError(f"cannot connect to {address}: {error.strerror}") from error
    finally:
        # Without effect once the stream has taken the descriptor.
        sock.close()


async def listen_unix(
    path: str | os.PathLike[str],
    on_stream: OnStream,
    *,
    backlog: int = BACKLOG,
    same_user_only: bool = True,
) -> Listener:
    """Listen on a new socket file that only our user may open.

    The folder must exist. A socket file that nobody listens on any more is replaced; one that
    somebody does raises `AddressInUse`, and anything else at `path` is left alone and refused.
    With `same_user_only`, connections of other users (which root can always make) are dropped.
    """
    if sys.platform == "win32":
        from dragoman.transports.named_pipes import listen_named_pipe

        return await listen_named_pipe(os.fspath(path), on_stream)
    address = _checked(path)
    with contextlib.ExitStack() as undo:
        try:
            sock = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            sock.setblocking(False)
            lock = await _lock_folder(Path(address).parent)
            try:
                _bind(sock, address)
                undo.callback(os.unlink, address)
                # Nobody can connect before `listen`, so the mode is right before it matters.
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
    """Accepts on a bound and listening socket, which it owns together with its file."""

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
        """Connections dropped because they came from another user."""
        self._loop.add_reader(sock, self._acceptable)

    @property
    def address(self) -> str:
        return self._address

    def _stop_accepting(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._sock)
        try:
            # While our socket is open its inode cannot become another file's, so this is the time
            # to compare: somebody may have put a socket of their own at the same path.
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


def peer_credentials(sock: socket.socket, *, platform: str = sys.platform) -> PeerCredentials:
    """What the operating system knows of the process at the other end of a Unix socket."""
    try:
        if platform == "linux":
            raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERCRED, struct.calcsize("3i"))
            pid, uid, gid = struct.unpack("3i", raw)
            return PeerCredentials(uid=uid, gid=gid, pid=pid)
        if platform == "darwin" or platform.startswith("freebsd"):
            # LOCAL_PEERCRED at level 0 answers with a version, the user, and up to 16 groups.
            raw = sock.getsockopt(0, 1, struct.calcsize("=IIh2x16I"))
            _version, uid, count, *groups = struct.unpack_from("=IIh2x16I", raw)
            return PeerCredentials(uid=uid, gid=groups[0] if count > 0 else None)
    except (OSError, struct.error):
        pass
    return PeerCredentials()


def _checked(path: str | os.PathLike[str]) -> str:
    address = os.fspath(path)
    size = len(os.fsencode(address))
    if not address or "\0" in address:
        raise UsageError(f"{address!r} is no path for a socket")
    if size > PATH_LIMIT:
        raise UsageError(
            f"the socket path has {size} bytes, and this system allows {PATH_LIMIT}: {address}"
        )
    return address


def _connected(sock: socket.socket, address: str) -> bool:
    """Try once. False if the queue of the listener is full at the moment."""
    try:
        sock.connect(address)
    except BlockingIOError:
        # For a Unix socket this means "try again", never "in progress": waiting until it is
        # writable, as one does for TCP, would take an unconnected socket for a connected one.
        return False
    return True


def _bind(sock: socket.socket, address: str) -> None:
    try:
        sock.bind(address)
        return
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
    if not stat.S_ISSOCK(os.lstat(address).st_mode):
        raise UsageError(f"{address} exists and is no socket")
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            os.unlink(address)
        except BlockingIOError:
            raise AddressInUse(f"somebody already listens on {address}") from None
        else:
            raise AddressInUse(f"somebody already listens on {address}")
    sock.bind(address)


async def _lock_folder(folder: Path) -> int:
    """Lock a folder; closing the returned descriptor unlocks it.

    Two processes that find the same dead socket would else both remove it, the second one
    removing the living socket of the first. A lock on the folder itself leaves no file behind.
    """
    import fcntl

    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        async with asyncio.timeout(LOCK_TIMEOUT):
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return lock
                except BlockingIOError:
                    await asyncio.sleep(LOCK_RETRY_INTERVAL)
    except TimeoutError:
        os.close(lock)
        raise UsageError(f"another process keeps the folder {folder} locked") from None
    except BaseException:
        os.close(lock)
        raise


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
