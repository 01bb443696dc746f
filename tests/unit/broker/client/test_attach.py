"""Stdio on a broker: which one, what it is told first, and that bytes go both ways."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.broker.client import attach, hello
from dragoman.broker.client.attach import join
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.options import ConnectOptions
from dragoman.errors import BrokerError, ConnectionLost
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.memory import memory_pair
from tests.aio import aio

ENDPOINT = SimpleNamespace(name="scout-1", address="/nowhere/scout-1.sock")
SCOUT = LaunchSpec(command=("/usr/bin/scout",))
TIMEOUT = 10.0


async def closed_at_once() -> None:
    """The connection of the greeting is closed when the stream is open."""


async def closed_already() -> None:
    """`join` has closed the stream, and it may be closed again."""


FOUND = SimpleNamespace(connection=SimpleNamespace(aclose=closed_at_once), endpoint=ENDPOINT)


def listening(monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    """What connects to the endpoint gets this stream."""

    async def open_stream(address: str) -> Any:
        assert address == ENDPOINT.address
        return stream

    monkeypatch.setattr(attach, "open_stream", open_stream)


@aio
async def test_the_broker_of_the_plan_is_joined_with_stdin_and_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    said: list[bytes] = []
    stream = SimpleNamespace(write=said.append, aclose=closed_already)

    async def ensure(spec: Any, *, prepare: Any, ttl: Any) -> Any:
        asked.append((spec.peer, spec.workspace, ttl, (await prepare(spec)).parallel))
        return FOUND

    async def open_stdio() -> str:
        return "stdio"

    async def join(near: Any, far: Any, **options: Any) -> None:
        asked.append((near, far))

    listening(monkeypatch, stream)
    monkeypatch.setattr(attach, "ensure", ensure)
    monkeypatch.setattr(attach, "open_stdio", open_stdio)
    monkeypatch.setattr(attach, "join", join)
    await attach.attach(
        SCOUT, ConnectOptions(), workspace=tmp_path, policy="approve-all", ttl=120.0
    )
    assert asked == [("scout", str(tmp_path), 120.0, None), ("stdio", stream)]
    assert [json.loads(line)["params"] for line in said] == [{"policy": "approve-all"}]


@aio
async def test_the_broker_receives_the_policy_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []

    async def ensure(spec: Any, *, prepare: Any, ttl: Any) -> Any:
        return FOUND

    async def open_stdio() -> str:
        return "stdio"

    async def join(near: Any, far: Any, **options: Any) -> None:
        said.append("the other program")

    listening(monkeypatch, SimpleNamespace(write=said.append, aclose=closed_already))
    monkeypatch.setattr(attach, "ensure", ensure)
    monkeypatch.setattr(attach, "open_stdio", open_stdio)
    monkeypatch.setattr(attach, "join", join)
    await attach.attach(SCOUT, ConnectOptions(), workspace=tmp_path, policy="deny-all")
    terms, rest = said
    assert json.loads(terms)["params"] == {"policy": "deny-all"}
    assert terms.endswith(b"\n")
    assert rest == "the other program"


@aio
async def test_a_broker_that_hangs_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = asyncio.Event()

    async def aclose() -> None:
        closed.set()

    async def ensure(spec: Any, *, prepare: Any, ttl: Any) -> Any:
        return FOUND

    async def open_stdio() -> str:
        return "stdio"

    async def join(near: Any, far: Any, **options: Any) -> None:
        await closed.wait()

    async def is_hung(address: str) -> bool:
        return True

    listening(monkeypatch, SimpleNamespace(write=lambda data: None, aclose=aclose))
    monkeypatch.setattr(attach, "ensure", ensure)
    monkeypatch.setattr(attach, "open_stdio", open_stdio)
    monkeypatch.setattr(attach, "join", join)
    monkeypatch.setattr(hello, "is_hung", is_hung)
    with pytest.raises(BrokerError, match="the broker scout-1 does not answer"):
        await attach.attach(SCOUT, ConnectOptions(), workspace=tmp_path, policy="deny-all")


@aio
@pytest.mark.parametrize("failing", ["open_stream", "open_stdio"])
async def test_nothing_stays_open_when_attaching_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    closed: list[str] = []

    async def close_greeting() -> None:
        closed.append("greeting")

    async def close_stream() -> None:
        closed.append("stream")

    async def ensure(spec: Any, *, prepare: Any, ttl: Any) -> Any:
        return SimpleNamespace(connection=SimpleNamespace(aclose=close_greeting), endpoint=ENDPOINT)

    async def fail(*_: Any) -> Any:
        raise BrokerError("a failure")

    listening(monkeypatch, SimpleNamespace(write=lambda data: None, aclose=close_stream))
    monkeypatch.setattr(attach, "ensure", ensure)
    monkeypatch.setattr(attach, failing, fail)
    with pytest.raises(BrokerError, match="a failure"):
        await attach.attach(SCOUT, ConnectOptions(), workspace=tmp_path, policy="deny-all")
    assert closed == ["greeting", *(["stream"] if failing == "open_stdio" else [])]


class Ear:
    """Hears what arrives at one end."""

    def __init__(self) -> None:
        self.heard = b""
        self.over = asyncio.Event()
        self.news = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.news.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.over.set()
        self.news.set()

    async def until(self, size: int) -> bytes:
        async with asyncio.timeout(TIMEOUT):
            while len(self.heard) < size and not self.over.is_set():
                self.news.clear()
                await self.news.wait()
        return self.heard


@aio
async def test_what_is_said_on_one_end_is_heard_on_the_other_and_one_end_ends_both() -> None:
    editor, near = memory_pair()
    far, broker = memory_pair()
    left, right = Ear(), Ear()
    editor.start(left)
    broker.start(right)
    async with asyncio.TaskGroup() as group:
        group.create_task(join(near, far))
        editor.write(b"question\n")
        assert await right.until(9) == b"question\n"
        broker.write(b"answer\n")
        assert await left.until(7) == b"answer\n"
        await editor.aclose()
        async with asyncio.timeout(TIMEOUT):
            await right.over.wait()
    await broker.aclose()


@aio
async def test_a_side_that_does_not_read_holds_the_other_back_and_loses_nothing() -> None:
    editor, near = memory_pair()
    far, broker = memory_pair()
    left, right = Ear(), Ear()
    editor.start(left)
    broker.start(right)
    broker.pause_reading()
    data = (b"x" * 1023 + b"\n") * (8 * HIGH_WATER_SIZE // 1024)
    async with asyncio.TaskGroup() as group:
        joined = group.create_task(join(near, far))
        editor.write(data)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not joined.done()
        broker.resume_reading()
        assert await right.until(len(data)) == data
        await editor.aclose()
    await broker.aclose()


@aio
async def test_an_end_that_is_silent_for_too_long_counts_as_dead() -> None:
    (_near, stdin), (_far, broker) = memory_pair(), memory_pair()
    async with asyncio.timeout(TIMEOUT):
        await join(stdin, broker, silence=0.01)


@pytest.mark.parametrize(("text", "seconds"), [("180", 180.0), ("", None), ("soon", None)])
def test_the_other_side_says_how_long_it_may_be_silent(
    monkeypatch: pytest.MonkeyPatch, text: str, seconds: float | None
) -> None:
    monkeypatch.setenv("DRAGOMAN_HOST_SILENCE", text)
    assert attach._silence() == seconds


@aio
async def test_an_end_that_pings_is_alive() -> None:
    near, stdin = memory_pair()
    far, broker = memory_pair()
    heard = Heard()
    far.start(heard)
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        joining = tasks.create_task(join(stdin, broker, silence=0.2))
        for count in range(1, 6):
            near.write(b"\n")
            await heard.until(count)
        assert not joining.done()
        await near.aclose()


class Heard:
    """Counts what arrives."""

    def __init__(self) -> None:
        self._count = 0
        self._more = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._count += len(data)
        self._more.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self._more.set()

    async def until(self, count: int) -> None:
        while self._count < count:
            self._more.clear()
            await self._more.wait()
