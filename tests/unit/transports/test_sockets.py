"""Unix sockets: the socket file, who may connect, and what goes wrong before there is a stream."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import AddressInUse, ConnectError, ConnectionEnded, ConnectionLost, UsageError
from dragoman.transports import listener as listening
from dragoman.transports.base import Stream
from dragoman.transports.listener import UnixListener, listen_unix
from dragoman.transports.sockets import (
    PATH_LIMIT,
    PeerCredentials,
    UnixStream,
    connect_unix,
    peer_credentials,
)
from tests.aio import aio

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no Unix sockets here")


class Recorder:
    def __init__(self) -> None:
        self.data = b""
        self.ends: list[ConnectionLost] = []
        self.arrived = asyncio.Event()
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.arrived.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ends.append(failure)
        self.ended.set()


async def greet(stream: Stream) -> None:
    stream.write(b"hello\n")


async def wait_forever(stream: Stream) -> None:
    await asyncio.get_running_loop().create_future()


async def heard_from(path: Path) -> Recorder:
    """Connect, listen until the other side ends, close."""
    stream = await connect_unix(path)
    heard = Recorder()
    stream.start(heard)
    async with asyncio.timeout(5):
        await heard.ended.wait()
    await stream.aclose()
    return heard


def leave_stale_socket(path: Path) -> None:
    """What a process that was killed leaves: a socket file that nobody listens on."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = set(os.listdir("/proc/self/fd")) if sys.platform == "linux" else set()
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    if before:
        assert len(os.listdir("/proc/self/fd")) == len(before)


@aio
async def test_a_connection_reaches_the_handler_and_both_sides_know_each_other(
    folder: Path,
) -> None:
    seen: list[PeerCredentials] = []

    async def handler(stream: Stream) -> None:
        assert isinstance(stream, UnixStream)
        seen.append(stream.peer)
        await greet(stream)

    async with await listen_unix(folder / "s", handler) as listener:
        assert listener.address == str(folder / "s")
        heard = await heard_from(folder / "s")
    assert heard.data == b"hello\n"
    assert [type(end) for end in heard.ends] == [ConnectionEnded]
    assert seen == [PeerCredentials(uid=os.geteuid(), gid=os.getegid(), pid=os.getpid())]


@aio
async def test_only_our_user_may_open_the_socket_file(folder: Path) -> None:
    old_mask = os.umask(0)
    try:
        async with await listen_unix(folder / "s", greet):
            assert stat.S_IMODE(os.stat(folder / "s").st_mode) == 0o600
    finally:
        os.umask(old_mask)


@aio
async def test_a_socket_file_without_a_listener_is_replaced(folder: Path) -> None:
    leave_stale_socket(folder / "s")
    async with await listen_unix(folder / "s", greet):
        assert (await heard_from(folder / "s")).data == b"hello\n"


@aio
async def test_a_living_socket_is_left_alone_and_named_in_the_error(folder: Path) -> None:
    async with await listen_unix(folder / "s", greet):
        with pytest.raises(AddressInUse, match="already in use"):
            await listen_unix(folder / "s", greet)
        assert (await heard_from(folder / "s")).data == b"hello\n"


@aio
async def test_a_living_socket_with_a_full_queue_is_not_taken_for_a_dead_one(folder: Path) -> None:
    with full_listener(folder / "s") as (_, _clients):
        with pytest.raises(AddressInUse):
            await listen_unix(folder / "s", greet)
    os.unlink(folder / "s")


@aio
async def test_listeners_that_start_at_once_over_a_dead_socket_leave_exactly_one(
    folder: Path,
) -> None:
    leave_stale_socket(folder / "s")
    results = await asyncio.gather(
        *(listen_unix(folder / "s", greet) for _ in range(8)), return_exceptions=True
    )
    winners = [result for result in results if isinstance(result, UnixListener)]
    assert len(winners) == 1
    assert [type(r) for r in results if r is not winners[0]] == [AddressInUse] * 7
    assert (await heard_from(folder / "s")).data == b"hello\n"
    await winners[0].aclose()


@aio
async def test_a_folder_that_stays_locked_is_an_error_and_not_a_hang(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "LOCK_TIMEOUT", 0.01)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="holds the lock"):
            await listen_unix(folder / "s", greet)
    finally:
        os.close(lock)


@aio
async def test_a_file_that_is_not_a_socket_is_never_replaced(folder: Path) -> None:
    path = folder / "s"
    path.write_text("precious")
    with pytest.raises(UsageError, match="not a socket"):
        await listen_unix(path, greet)
    assert path.read_text() == "precious"
    path.unlink()


@aio
async def test_a_missing_folder_is_a_clear_error(folder: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        await listen_unix(folder / "missing" / "s", greet)


@pytest.mark.parametrize("bad", ["", "a\0b"])
@aio
async def test_what_is_not_a_path_is_refused(bad: str) -> None:
    with pytest.raises(UsageError, match="not a valid socket path"):
        await connect_unix(bad)


@aio
async def test_a_path_that_is_too_long_says_the_limit(folder: Path) -> None:
    path = folder / ("x" * PATH_LIMIT)
    with pytest.raises(UsageError, match=f"limit is {PATH_LIMIT}"):
        await listen_unix(path, greet)
    with pytest.raises(UsageError, match=f"limit is {PATH_LIMIT}"):
        await connect_unix(path)


@aio
async def test_the_longest_path_allowed_works(folder: Path) -> None:
    path = folder / ("x" * (PATH_LIMIT - len(os.fsencode(folder)) - 1))
    async with await listen_unix(path, greet):
        assert (await heard_from(path)).data == b"hello\n"


@aio
async def test_closing_removes_our_socket_file_but_never_another_one_at_its_place(
    folder: Path,
) -> None:
    listener = await listen_unix(folder / "s", greet)
    os.unlink(folder / "s")
    async with await listen_unix(folder / "s", greet):
        await listener.aclose()
        assert (await heard_from(folder / "s")).data == b"hello\n"
    gone = await listen_unix(folder / "s", greet)
    os.unlink(folder / "s")
    await gone.aclose()


@aio
async def test_closing_the_listener_ends_its_connections(folder: Path) -> None:
    listener = await listen_unix(folder / "s", wait_forever)
    stream = await connect_unix(folder / "s")
    heard = Recorder()
    stream.start(heard)
    await asyncio.sleep(0)
    await listener.aclose()
    async with asyncio.timeout(5):
        await heard.ended.wait()
    assert [type(end) for end in heard.ends] == [ConnectionEnded]
    await stream.aclose()


@aio
async def test_connections_of_another_user_are_dropped_before_a_handler_sees_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stranger in (PeerCredentials(uid=os.geteuid() + 1), PeerCredentials()):
        monkeypatch.setattr(listening, "peer_credentials", lambda sock, who=stranger: who)
        async with await listen_unix(folder / "s", greet) as listener:
            heard = await heard_from(folder / "s")
            assert isinstance(listener, UnixListener)
            assert (heard.data, listener.refused) == (b"", 1)
        async with await listen_unix(folder / "s", greet, same_user_only=False):
            assert (await heard_from(folder / "s")).data == b"hello\n"


@aio
async def test_running_out_of_descriptors_delays_connections_and_loses_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "ACCEPT_RETRY_INTERVAL", 0.01)
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))
    async with await listen_unix(folder / "s", greet) as listener:
        assert isinstance(listener, UnixListener)
        listener._sock = Exhausted(listener._sock)  # type: ignore[assignment]
        assert (await heard_from(folder / "s")).data == b"hello\n"
    assert [report["exception"].errno for report in reports] == [errno.EMFILE]


class Exhausted:
    """A listening socket whose first accept finds no descriptor free."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._failed = False

    def accept(self) -> tuple[socket.socket, object]:
        if not self._failed:
            self._failed = True
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._sock.accept()

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()


@aio
async def test_connecting_without_a_listener_is_a_connect_error(folder: Path) -> None:
    with pytest.raises(ConnectError, match="No such file") as missing:
        await connect_unix(folder / "s")
    leave_stale_socket(folder / "s")
    with pytest.raises(ConnectError, match="refused") as refused:
        await connect_unix(folder / "s")
    os.unlink(folder / "s")
    # A server may be about to start.
    assert missing.value.retryable and refused.value.retryable


@aio
async def test_a_path_that_cannot_lead_to_a_listener_is_not_retryable(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(ConnectError, match="Not a directory") as no_folder:
        await connect_unix(folder / "file" / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(str(folder / "s"))
        with pytest.raises(ConnectError, match="wrong type") as other_type:
            await connect_unix(folder / "s")
    os.unlink(folder / "s")
    os.unlink(folder / "file")
    assert not no_folder.value.retryable and not other_type.value.retryable


class full_listener:
    """A listener that accepts nothing and whose queue is full."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __enter__(self) -> tuple[socket.socket, list[socket.socket]]:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(self._path)
        self.sock.listen(0)
        self.clients: list[socket.socket] = []
        while True:
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            self.clients.append(client)
            try:
                client.connect(self._path)
            except BlockingIOError:
                return self.sock, self.clients

    def __exit__(self, *_: object) -> None:
        for sock in (self.sock, *self.clients):
            sock.close()


@aio
async def test_connecting_without_free_descriptors_is_a_connect_error_that_may_pass(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socket", none_left)
    with pytest.raises(ConnectError, match="Too many open files") as caught:
        await connect_unix(folder / "s")
    assert caught.value.retryable


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux refuses when the queue is full")
@aio
async def test_connecting_waits_for_a_place_in_a_full_queue_and_then_gives_up(
    folder: Path,
) -> None:
    with full_listener(folder / "s") as (sock, _clients):
        with pytest.raises(ConnectError, match=r"within 0\.01 s"):
            await connect_unix(folder / "s", timeout=0.01)
        async with asyncio.TaskGroup() as group:
            connecting = group.create_task(connect_unix(folder / "s"))
            await asyncio.sleep(0)
            assert not connecting.done()
            accepted = sock.accept()[0]
            async with asyncio.timeout(5):
                stream = await connecting
        await stream.aclose()
        accepted.close()
    os.unlink(folder / "s")


@aio
async def test_cancelling_a_connect_leaves_no_descriptor(folder: Path) -> None:
    with full_listener(folder / "s"):
        before = len(os.listdir("/proc/self/fd"))
        async with asyncio.TaskGroup() as group:
            connecting = group.create_task(connect_unix(folder / "s"))
            await asyncio.sleep(0)
            connecting.cancel()
        assert len(os.listdir("/proc/self/fd")) == before
    os.unlink(folder / "s")


class FakeSocket:
    def __init__(self, answer: bytes | OSError) -> None:
        self._answer = answer

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (0, 1)
        if isinstance(self._answer, OSError):
            raise self._answer
        return self._answer[:size]


def xucred(uid: int, *groups: int) -> bytes:
    padded = [*groups, *[0] * (16 - len(groups))]
    return struct.pack("=IIhxx16I", 0, uid, len(groups), *padded)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (xucred(501, 20, 12), PeerCredentials(uid=501, gid=20)),
        (xucred(501), PeerCredentials(uid=501)),
        (b"short", PeerCredentials()),
        (OSError(errno.ENOTCONN, "not connected"), PeerCredentials()),
    ],
)
def test_the_answer_of_macos_about_the_peer_is_understood(
    answer: bytes | OSError, expected: PeerCredentials
) -> None:
    sock: Any = FakeSocket(answer)
    assert peer_credentials(sock, platform="darwin") == expected


def test_a_system_that_cannot_tell_the_peer_says_so() -> None:
    sock: Any = FakeSocket(b"")
    assert peer_credentials(sock, platform="sunos5") == PeerCredentials()
