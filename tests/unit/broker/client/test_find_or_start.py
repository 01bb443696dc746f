"""Which broker is of use, which is replaced, and what is said when none can be had."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.broker.client import launch
from dragoman.broker.client.find_or_start import (
    StartTimes,
    ensure,
    outdated,
)
from dragoman.broker.client.hello import BrokerHello
from dragoman.broker.client.launch import MAX_STARTS
from dragoman.broker.endpoint import Endpoint, endpoint_of
from dragoman.broker.lock import is_held
from dragoman.broker.spec import BrokerSpec, FileIdentity, Folders, endpoint_name
from dragoman.errors import BrokerUnavailable, NotInstalled
from dragoman.rpc import Connection, End, Router
from dragoman.transports.base import Stream
from dragoman.transports.listener import Listener, listen_unix
from tests.aio import aio

QUICK = StartTimes(answer=0.2, name=0.2, start=5.0, death=0.2, total=5.0)


@pytest.fixture
def spec(tmp_path: Path) -> BrokerSpec:
    folders = Folders(state=f"{tmp_path}/s", runtime=f"{tmp_path}/r", data=f"{tmp_path}/d")
    return BrokerSpec(peer="tool", workspace="/", version="1.0", paths=folders)


def place_of(spec: BrokerSpec) -> Endpoint:
    place = endpoint_of(endpoint_name(spec), spec.paths)
    place.make_safe()
    return place


class Fake:
    """Greets as it is told, and hears what else is asked."""

    def __init__(self, spec: BrokerSpec, **greeting: Any) -> None:
        self.address = place_of(spec).address
        self.greeting = {
            "version": spec.version,
            "protocol": 1,
            "identity": spec.identity_digest,
            **greeting,
        }
        self.hellos: list[dict[str, Any]] = []
        self.stops: list[dict[str, Any]] = []
        self.listener: Listener | None = None

    async def listen(self) -> Listener:
        self.listener = await listen_unix(self.address, self._serve)
        return self.listener

    async def _serve(self, stream: Stream) -> None:
        router = Router()
        router.on_request("_dragoman/hello", self._hello, dict)
        router.on_request("_dragoman/stop", self._stop, dict)
        async with Connection(stream, End.AGENT, router) as connection:
            await connection.wait_ended()

    def _hello(self, params: dict[str, Any]) -> Any:
        self.hellos.append(params)
        return self.greeting

    def _stop(self, params: dict[str, Any]) -> Any:
        self.stops.append(params)
        assert self.listener is not None
        self.listener.stop_accepting()
        return {"stopping": True}


class Starts:
    """In the place of `launch.start`: a fake begins to listen, or what else a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *fakes: Fake | None) -> None:
        self.specs: list[BrokerSpec] = []
        self._fakes = list(fakes)
        monkeypatch.setattr(launch, "start", self._start)

    async def _start(self, spec: BrokerSpec, endpoint: Endpoint, **_: Any) -> None:
        assert is_held(endpoint.starting)
        self.specs.append(spec)
        fake = self._fakes.pop(0) if self._fakes else None
        if fake is not None:
            await fake.listen()


@aio
async def test_a_broker_that_is_there_is_used_and_told_the_new_time(
    spec: BrokerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(monkeypatch)
    fake = Fake(spec)
    async with await fake.listen():
        reached = await ensure(spec, ttl=9.0)
        assert not reached.started and starts.specs == []
        assert fake.hellos == [{"version": "1.0", "identity": spec.identity_digest, "ttl": 9.0}]
        await reached.connection.aclose()


@aio
async def test_a_start_is_prepared_and_what_that_raises_comes_out(
    spec: BrokerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(spec)
    starts = Starts(monkeypatch, fake)

    async def refuse(spec: BrokerSpec) -> BrokerSpec:
        raise NotInstalled("tool", "no node")

    with pytest.raises(NotInstalled):
        await ensure(spec, prepare=refuse)
    assert starts.specs == [] and not is_held(place_of(spec).starting)

    async def complete(spec: BrokerSpec) -> BrokerSpec:
        return msgspec.structs.replace(spec, parallel=True)

    reached = await ensure(spec, prepare=complete)
    assert reached.started and starts.specs[0].parallel is True
    await reached.connection.aclose()
    assert fake.listener is not None
    await fake.listener.aclose()


@aio
async def test_an_older_broker_is_asked_to_drain_and_replaced_at_once(
    spec: BrokerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Fake(spec, version="0.9"), Fake(spec)
    Starts(monkeypatch, new)
    async with await old.listen():
        reached = await ensure(spec)
        assert reached.started and reached.greeting.version == "1.0"
        assert old.stops == [{"drain": True, "ifIdle": False}]
        await reached.connection.aclose()
    assert new.listener is not None
    await new.listener.aclose()


@aio
async def test_a_broker_that_ends_at_once_is_not_started_again_and_again(
    spec: BrokerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(monkeypatch)
    with pytest.raises(BrokerUnavailable, match=f"ended {MAX_STARTS} times"):
        await ensure(spec, times=QUICK)
    assert len(starts.specs) == MAX_STARTS


@aio
async def test_a_disk_that_takes_no_lock_is_reported(
    spec: BrokerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(launch, "try_lock", full)
    with pytest.raises(BrokerUnavailable, match="No space left"):
        await ensure(spec, times=QUICK)


@aio
async def test_all_of_it_has_a_bound(spec: BrokerSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(launch, "start", never)
    with pytest.raises(BrokerUnavailable, match=r"within 0\.1 s; its log: "):
        await ensure(spec, times=StartTimes(total=0.1))
    assert not is_held(place_of(spec).starting)


def greeting(**fields: Any) -> BrokerHello:
    return BrokerHello(**{"version": "1.0", "protocol": 1, **fields})


@pytest.mark.parametrize(
    ("theirs", "ours", "replaced"),
    [
        ("1.0", "1.0", False),
        ("0.9", "1.0", True),
        ("1.9", "1.10", True),
        ("1.10", "1.9", False),
        ("1.0rc1", "1.0", True),
        ("1.0", "1.0+local", False),
        ("1.0.dev3", "1.0.dev4", True),
        ("1.0.dev9", "1.0.dev10", True),
        ("1.0.dev3", "1.0", True),
        ("1.0", "1.0.dev3", False),
        ("1.0.dev3", "1.0a1", True),
        ("1.0", "1.0.post1", True),
        ("1.0", "1.0.1", True),
        ("2", "1.9.9", False),
        ("unknown", "1.0", True),
    ],
)
def test_an_older_broker_is_replaced_and_a_newer_one_is_not(
    spec: BrokerSpec, theirs: str, ours: str, replaced: bool
) -> None:
    wanted = msgspec.structs.replace(spec, version=ours)
    reason = outdated(greeting(version=theirs), wanted)
    assert (reason is not None) is replaced


def test_a_peer_whose_files_changed_gets_a_new_broker(spec: BrokerSpec) -> None:
    files = (FileIdentity(path="/x", size=1, mtime_ns=1),)
    changed = msgspec.structs.replace(spec, identity=files)
    assert "files" in (outdated(greeting(identity=spec.identity_digest), changed) or "")
    assert outdated(greeting(identity=changed.identity_digest), changed) is None
    # One that does not tell is taken as it is.
    assert outdated(greeting(), changed) is None


def test_a_newer_broker_of_another_protocol_is_of_no_use(spec: BrokerSpec) -> None:
    with pytest.raises(BrokerUnavailable, match="does not understand"):
        outdated(greeting(version="2.0", protocol=2), spec)
    assert outdated(greeting(version="0.1", protocol=0), spec) is not None
