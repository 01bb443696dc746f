"""Brokers that are listed are alive, and those that are stopped are gone."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.broker.client import brokers as client_list
from dragoman.broker.client.brokers import list_brokers, reap, status_of, stop_broker
from dragoman.broker.records import BrokerRecord
from dragoman.config.safe_files import write_whole
from dragoman.errors import BrokerError, BrokerUnavailable
from dragoman.paths import Paths
from dragoman.transports.process.identity import ProcessIdentity, identify, own_identity
from tests.aio import aio

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="proof by /proc")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "run" / "brokers").mkdir(parents=True)
    folders = {name: tmp_path / name for name in ("config", "data", "cache", "state")}
    return Paths(**folders, runtime=tmp_path / "run")


@pytest.fixture
def child() -> Iterator[ProcessIdentity]:
    """A process that nobody can talk with."""
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(tell, b"1")
        while True:
            signal.pause()
    os.read(hear, 1)
    for fd in (hear, tell):
        os.close(fd)
    found = identify(pid)
    assert found is not None
    yield found
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def record(broker: ProcessIdentity, **fields: Any) -> BrokerRecord:
    chosen: dict[str, Any] = {
        "name": "tool-1",
        "address": "/nowhere.sock",
        "peer": "tool",
        "workspace": "/",
        "version": "1",
        "broker": broker,
        "owner": "",
        "started_at": 0.0,
        "log": "/logs/x.log",
    }
    return BrokerRecord(**{**chosen, **fields})


def write(paths: Paths, one: BrokerRecord) -> None:
    path = paths.runtime / "brokers" / f"{one.name}.{one.broker.pid}.json"
    write_whole(path, msgspec.json.encode(one))


@aio
async def test_the_living_are_listed_and_the_dead_are_reaped(paths: Paths) -> None:
    own = own_identity()
    write(paths, record(own, name="b", started_at=2.0))
    write(paths, record(own, name="a", started_at=1.0, draining=True))
    write(paths, record(dataclasses.replace(own, started="1"), name="dead"))
    # The last one has the same process id and its own name.
    assert [one.name for one in list_brokers(paths)] == ["a", "b"]
    assert [one.name for one in await reap(paths)] == ["dead"]
    assert await reap(paths) == []


@aio
async def test_one_that_does_not_answer_has_no_status() -> None:
    assert await status_of(record(own_identity())) is None
    assert await status_of(record(own_identity(), draining=True)) is None


@aio
async def test_one_that_does_not_answer_is_ended_by_signals(
    child: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It ignores the first one, and the second cannot be ignored.
    assert await stop_broker(record(child), timeout=0.05)
    assert identify(child.pid) is None


@aio
async def test_one_that_may_be_busy_is_not_killed(child: ProcessIdentity) -> None:
    with pytest.raises(BrokerError, match="it is unknown whether the broker tool-1 is idle: "):
        await stop_broker(record(child), if_idle=True)
    assert not await stop_broker(record(child, draining=True), if_idle=True)
    assert await stop_broker(record(child, draining=True), drain=True)
    assert identify(child.pid) == child


@aio
async def test_one_that_is_dead_is_stopped() -> None:
    dead = dataclasses.replace(own_identity(), started="1")
    assert await stop_broker(record(dead))
    assert await stop_broker(record(dead), if_idle=True)


@aio
async def test_one_that_cannot_be_stopped_is_named(
    child: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_list, "kill", lambda process, number: False)
    with pytest.raises(BrokerUnavailable, match=f"tool-1 .process {child.pid}. cannot be stopped"):
        await stop_broker(record(child))


@pytest.mark.parametrize("answer", [{"stopping": False}, None])
@aio
async def test_one_that_does_not_want_to_stop_goes_on(
    child: ProcessIdentity, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    async def ask(*_: Any, **__: Any) -> Any:
        return answer

    monkeypatch.setattr(client_list, "ask_broker", ask)
    assert not await stop_broker(record(child))
    assert await status_of(record(child)) == answer


@aio
async def test_one_that_drains_is_not_waited_for(
    child: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(*_: Any, **__: Any) -> Any:
        return {"stopping": True}

    monkeypatch.setattr(client_list, "ask_broker", ask)
    async with asyncio.timeout(5):
        assert await stop_broker(record(child), drain=True)
    assert identify(child.pid) == child
