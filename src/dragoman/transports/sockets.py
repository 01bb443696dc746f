"""Unix sockets: a stream to another process on this machine.

Also reports the credentials of the other end. The stream itself is in `duplex`; `listener` accepts
connections. On Windows `connect_unix` takes the name of a pipe and uses `named_pipes`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from typing import NamedTuple

from dragoman.errors import ConnectError, UsageError
from dragoman.transports.base import LASTING_ERRORS, Stream
from dragoman.transports.duplex import DuplexStream

CONNECT_TIMEOUT = 5.0
"""Timeout in seconds for connecting. A local process that does not accept within this time is
stuck, not busy."""

CONNECT_RETRY_INTERVAL = 0.02
"""Interval between attempts while the listener's queue is full: Linux cannot wait for a free place.
"""

PATH_LIMIT = 107 if sys.platform == "linux" else 103
"""Number of bytes that fit into `sun_path`, without the final NUL."""

_SO_PEERCRED: int = getattr(socket, "SO_PEERCRED", 17)


class PeerCredentials(NamedTuple):
    """Credentials of the process at the other end, as the operating system reports them. A field
    is None if it is unknown."""

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

    Raises `ConnectError` if there is no listener, or it accepts no connection within `timeout`
    seconds, and `UsageError` if the path is invalid.
    """
    if sys.platform == "win32":
        from dragoman.transports.named_pipes import connect_named_pipe

        return await connect_named_pipe(os.fspath(path), timeout=timeout)
    address = checked_path(path)
    try:
        # Closing it has no effect once the stream has taken the descriptor.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            async with asyncio.timeout(timeout):
                while not _connected(sock, address):  # noqa: ASYNC110 - see the interval
                    await asyncio.sleep(CONNECT_RETRY_INTERVAL)
                return UnixStream(sock, peer_credentials(sock))
    except TimeoutError as error:
        raise ConnectError(f"{address} accepted no connection within {timeout:g} s") from error
    except OSError as error:
        raise ConnectError(
            f"cannot connect to {address}: {error.strerror}",
            passing=error.errno not in LASTING_ERRORS,
        ) from error


def peer_credentials(sock: socket.socket, *, platform: str = sys.platform) -> PeerCredentials:
    """Return the credentials of the process at the other end of a Unix socket."""
    try:
        if platform == "linux":
            raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERCRED, struct.calcsize("3i"))
            pid, uid, gid = struct.unpack("3i", raw)
            return PeerCredentials(uid=uid, gid=gid, pid=pid)
        if platform == "darwin" or platform.startswith("freebsd"):
            # LOCAL_PEERCRED at level 0 returns a version, the user, and up to 16 groups.
            raw = sock.getsockopt(0, 1, struct.calcsize("=IIh2x16I"))
            _version, uid, count, *groups = struct.unpack_from("=IIh2x16I", raw)
            return PeerCredentials(uid=uid, gid=groups[0] if count > 0 else None)
    except (OSError, struct.error):
        pass
    return PeerCredentials()


def checked_path(path: str | os.PathLike[str]) -> str:
    """Return the path of a socket as text. Raises `UsageError` if it is empty, contains a null
    character, or is too long."""
    address = os.fspath(path)
    size = len(os.fsencode(address))
    if not address or "\0" in address:
        raise UsageError(f"not a valid socket path (empty, or with a null character): {address!r}")
    if size > PATH_LIMIT:
        raise UsageError(
            f"the socket path is {size} bytes long; the limit is {PATH_LIMIT}: {address}"
        )
    return address


def _connected(sock: socket.socket, address: str) -> bool:
    """Try once to connect. Returns False if the listener's queue is full at the moment."""
    try:
        sock.connect(address)
    except BlockingIOError:
        # For a Unix socket this means "try again", never "in progress": waiting until it is
        # writable, as for TCP, would take an unconnected socket for a connected one.
        return False
    return True
