"""Links of every kind: our stream under test, and a remote side that the test controls.

No test may leave anything behind: no task, child process, thread, descriptor or socket file.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import cast

import pytest

from dragoman.errors import ConnectionLost
from dragoman.transports import duplex, websocket_stream
from dragoman.transports.base import Receiver, Stream
from dragoman.transports.duplex import DuplexStream
from dragoman.transports.listener import listen_unix
from dragoman.transports.memory import MemoryStream, memory_pair
from dragoman.transports.pipes import KeepAlive
from dragoman.transports.process import stream as process_stream
from dragoman.transports.process.child import ShutdownTimes
from dragoman.transports.process.stream import ProcessStream, spawn
from dragoman.transports.sockets import connect_unix
from dragoman.transports.stdio import open_stdio
from dragoman.transports.websocket import connect_websocket, listen_websocket
from dragoman.transports.websocket_stream import WebSocketStream
from tests.contract.far import NOTED, FarEnd
from tests.integration.conftest import nothing_is_left_behind

__all__ = ["nothing_is_left_behind"]

PATIENCE = 20.0
"""Seconds to wait for anything; a busy machine may need much of it."""

STUCK = ShutdownTimes(flush_timeout=0.05, exit_timeout=0.05)
"""For a child that does not exit on its own: waiting longer is pointless."""

ROOT = Path(__file__).parents[2]


class Recorder(Receiver):
    """The receiver on our side. It checks that nothing arrives after the end."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.size = 0
        self.ends: list[ConnectionLost] = []
        self._changed = asyncio.Event()

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    def data_received(self, data: bytes) -> None:
        assert data
        assert not self.ends, "data after the end"
        self.chunks.append(data)
        self.size += len(data)
        self._changed.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ends.append(failure)
        self._changed.set()

    async def until(self, size: int) -> bytes:
        """Wait for this number of bytes."""
        async with asyncio.timeout(PATIENCE):
            while self.size < size:
                assert not self.ends, f"the end came after {self.size} bytes: {self.ends}"
                self._changed.clear()
                await self._changed.wait()
        return self.data

    async def end(self) -> ConnectionLost:
        """Wait for the end."""
        async with asyncio.timeout(PATIENCE):
            while not self.ends:
                self._changed.clear()
                await self._changed.wait()
        return self.ends[0]


class Link(abc.ABC):
    """One connection. The remote side echoes every line, except the commands of `far`."""

    ours: Stream

    def __init__(self) -> None:
        self._noted = asyncio.Event()
        self.heard = Recorder()

    def note(self) -> None:
        self._noted.set()

    async def noted(self) -> None:
        """Wait until the remote side has read the line `!note`."""
        async with asyncio.timeout(PATIENCE):
            await self._noted.wait()
        self._noted.clear()

    @abc.abstractmethod
    def hold(self) -> None:
        """Make the remote side stop reading."""

    @abc.abstractmethod
    def release(self) -> None:
        """Make the remote side continue reading."""

    @abc.abstractmethod
    def break_(self) -> None:
        """Break the connection without closing either side."""


class StreamLink(Link):
    """A link whose remote side is a stream in this process."""

    far: FarEnd

    def meet(self, stream: Stream) -> None:
        self.far = FarEnd(stream, self.note)
        stream.start(self.far)

    async def serve(self, stream: Stream) -> None:
        """The handler of a listener."""
        self.meet(stream)
        await self.far.over.wait()

    def hold(self) -> None:
        self.far.stream.pause_reading()

    def release(self) -> None:
        self.far.stream.resume_reading()


class MemoryLink(StreamLink):
    def break_(self) -> None:
        cast(MemoryStream, self.ours).break_link()


class UnixLink(StreamLink):
    def __init__(self) -> None:
        super().__init__()
        self._deaf = False

    async def serve(self, stream: Stream) -> None:
        await super().serve(stream)
        if self._deaf:
            await asyncio.get_running_loop().create_future()

    def break_(self) -> None:
        # The remote side refuses our bytes but keeps its own direction open.
        self._deaf = True
        fd = os.dup(cast(DuplexStream, self.far.stream)._reader._fd)
        with socket.socket(fileno=fd) as sock:
            sock.shutdown(socket.SHUT_RD)
        write_until_refused(self.ours)


class WebSocketLink(StreamLink):
    def break_(self) -> None:
        cast(WebSocketStream, self.far.stream)._connection.transport.abort()


class OwnStdioLink(StreamLink):
    def break_(self) -> None:
        cast(DuplexStream, self.far.stream)._reader.close()
        write_until_refused(self.ours)


class ProcessLink(Link):
    def heard_on_stderr(self, data: bytes) -> None:
        if NOTED in data:
            self.note()

    def hold(self) -> None:
        self.ours.write(b"!hold\n")

    def release(self) -> None:
        os.kill(cast(ProcessStream, self.ours).pid, signal.SIGUSR1)

    def break_(self) -> None:
        self.ours.write(b"!deaf\n")
        fill = asyncio.get_running_loop().call_soon

        def go_on() -> None:
            with contextlib.suppress(ConnectionLost):
                self.ours.write(b"x\n")
                fill(go_on)

        fill(go_on)


def write_until_refused(stream: Stream) -> None:
    with pytest.raises(ConnectionLost):
        while True:
            stream.write(b"x" * 65536 + b"\n")


@contextlib.asynccontextmanager
async def met(link: StreamLink, theirs: Stream) -> AsyncIterator[Link]:
    """A remote side without a listener: it is closed when it ends, or after the test."""
    link.meet(theirs)

    async def close_after_the_end() -> None:
        await link.far.over.wait()
        await theirs.aclose()

    async with asyncio.TaskGroup() as group:
        group.create_task(close_after_the_end())
        try:
            yield link
        finally:
            await link.ours.aclose()
            link.far.over.set()


@contextlib.asynccontextmanager
async def memory_link(folder: Path) -> AsyncIterator[Link]:
    link = MemoryLink()
    link.ours, theirs = memory_pair()
    async with met(link, theirs):
        yield link


@contextlib.asynccontextmanager
async def closing(link: Link) -> AsyncIterator[Link]:
    try:
        yield link
    finally:
        await link.ours.aclose()


@contextlib.asynccontextmanager
async def unix_link(folder: Path) -> AsyncIterator[Link]:
    link = UnixLink()
    listener = await listen_unix(folder / "link", link.serve)
    async with listener:
        link.ours = await connect_unix(listener.address)
        async with closing(link):
            await reached(link)
            yield link


@contextlib.asynccontextmanager
async def named_pipe_link(folder: Path) -> AsyncIterator[Link]:
    link = UnixLink()
    listener = await listen_unix(f"\\\\.\\pipe\\dragoman-test-{os.getpid()}", link.serve)
    async with listener:
        link.ours = await connect_unix(listener.address)
        async with closing(link):
            await reached(link)
            yield link


@contextlib.asynccontextmanager
async def websocket_link(folder: Path) -> AsyncIterator[Link]:
    link = WebSocketLink()
    listener = await listen_websocket("127.0.0.1", 0, link.serve)
    async with listener:
        link.ours = await connect_websocket(listener.address)
        async with closing(link):
            await reached(link)
            yield link


@contextlib.asynccontextmanager
async def accepted_websocket_link(folder: Path) -> AsyncIterator[Link]:
    """The reverse: our stream is the accepted one."""
    link = WebSocketLink()
    accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def keep(stream: Stream) -> None:
        accepted.set_result(stream)
        await over.wait()

    async with await listen_websocket("127.0.0.1", 0, keep) as listener:
        theirs = await connect_websocket(listener.address)
        link.ours = await accepted
        async with met(link, theirs):
            yield link
        over.set()


@contextlib.asynccontextmanager
async def own_stdio_link(folder: Path) -> AsyncIterator[Link]:
    """Our own standard input and output, replaced by pipes during the test."""
    link = OwnStdioLink()
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    saved = [os.dup(0), os.dup(1)]
    os.dup2(in_read, 0)
    os.dup2(out_write, 1)
    try:
        link.ours = await open_stdio()
    finally:
        # From here on only the stream holds our ends of the pipes.
        for fd in (in_read, out_write):
            os.close(fd)
    try:
        async with met(link, DuplexStream(out_read, in_write)):
            yield link
    finally:
        os.dup2(saved[0], 0)
        os.dup2(saved[1], 1)
        for fd in saved:
            os.close(fd)


@contextlib.asynccontextmanager
async def child_link(
    how: str, times: ShutdownTimes, keep_alive: KeepAlive | None = None
) -> AsyncIterator[Link]:
    link = ProcessLink()
    link.ours = await spawn(
        [sys.executable, "-m", "tests.contract.far", how],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "src")},
        on_stderr=link.heard_on_stderr,
        times=times,
        keep_alive=keep_alive,
    )
    async with closing(link):
        await reached(link)
        yield link


async def reached(link: Link) -> None:
    """Wait until the remote side is running and ready for signals."""
    link.ours.write(b"!note\n")
    await link.noted()


def open_link(kind: str, folder: Path, times: ShutdownTimes) -> AbstractAsyncContextManager[Link]:
    match kind:
        case "memory":
            return memory_link(folder)
        case "child process":
            return child_link("plain", times)
        case "child kept alive":
            # Written by a thread. The time of the first extra line never comes.
            return child_link("plain", times, KeepAlive(60.0, b"\n"))
        case "child on stdio":
            return child_link("stdio", times)
        case "own stdio":
            return own_stdio_link(folder)
        case "unix socket":
            return unix_link(folder)
        case "websocket":
            return websocket_link(folder)
        case "accepted websocket":
            return accepted_websocket_link(folder)
        case "named pipe":
            return named_pipe_link(folder)
    raise AssertionError(kind)


UNIX_ONLY = pytest.mark.skipif(sys.platform == "win32", reason="needs signals and Unix descriptors")
WINDOWS_ONLY = pytest.mark.skipif(
    sys.platform != "win32", reason="named pipes exist on Windows only; not run on this system"
)

KINDS = [
    pytest.param("memory"),
    pytest.param("child process", marks=UNIX_ONLY),
    pytest.param("child kept alive", marks=UNIX_ONLY),
    pytest.param("child on stdio", marks=UNIX_ONLY),
    pytest.param("own stdio", marks=UNIX_ONLY),
    pytest.param("unix socket", marks=UNIX_ONLY),
    pytest.param("websocket"),
    pytest.param("accepted websocket"),
    pytest.param("named pipe", marks=WINDOWS_ONLY),
]


class Opener:
    """Opens a link of the kind that the test is parametrized with."""

    def __init__(self, kind: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.kind = kind
        self._folder = folder
        self._patch = patch

    def __call__(self, *, stuck: bool = False) -> AbstractAsyncContextManager[Link]:
        """Open a link. `stuck`: the remote side will not read to the end, so do not wait for it."""
        if stuck:
            self._patch.setattr(duplex, "FLUSH_TIMEOUT", 0.05)
            self._patch.setattr(websocket_stream, "CLOSE_TIMEOUT", 0.05)
        return open_link(self.kind, self._folder, STUCK if stuck else ShutdownTimes())


@pytest.fixture(params=KINDS)
def open_(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    nothing_is_left_behind: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Opener]:
    # Give up earlier on a remote side that refuses our bytes, so that the tests are faster.
    monkeypatch.setattr(duplex, "BROKEN_TIMEOUT", 0.05)
    monkeypatch.setattr(process_stream, "BROKEN_TO_EXIT_TIMEOUT", 0.05)
    yield Opener(request.param, tmp_path, monkeypatch)
    assert list(tmp_path.iterdir()) == [], "a socket file was left"
