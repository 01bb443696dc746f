"""Brokers as processes of their own: found, started once, shared, replaced and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dragoman
from dragoman.broker.client import hello
from dragoman.broker.client.brokers import list_brokers, reap, status_of, stop_broker
from dragoman.broker.client.find_or_start import FoundBroker, ensure
from dragoman.broker.client.hello import ask_broker
from dragoman.broker.protocol import STATUS
from dragoman.broker.spec import BrokerSpec, FileIdentity
from dragoman.errors import BrokerUnavailable, HandshakeFailed
from dragoman.paths import VARIABLES, Paths
from dragoman.transports.process.identity import ProcessState, identify, state_of
from dragoman.transports.process.stream import start_child
from tests.aio import aio
from tests.integration.broker_places import PROGRAM, Place, broker_place, peer_of, until, wait_dead

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sockets with paths")


@pytest.fixture
def place() -> Iterator[Place]:
    with broker_place() as place:
        yield place


async def reach(spec: BrokerSpec) -> FoundBroker:
    return await ensure(spec, program=PROGRAM)


def paths_of(place: Place) -> Paths:
    folder = place.folder
    return Paths(
        config=folder / "config",
        data=folder / "data",
        cache=folder / "cache",
        state=folder / "state",
        runtime=folder / "run",
    )


def read(path: str) -> bytes:
    return Path(path).read_bytes()


CALLER = """
import asyncio, sys
import msgspec
from dragoman.broker.spec import BrokerSpec
from dragoman.broker.client.find_or_start import ensure

async def main():
    spec = msgspec.json.decode(sys.argv[1], type=BrokerSpec)
    sys.stdin.readline()
    reached = await ensure(spec, program=sys.argv[2:])
    print(reached.greeting.pid, flush=True)
    sys.stdin.readline()
    await reached.connection.aclose()

asyncio.run(main())
"""
"""A process that waits for a word, reaches the broker, says its process id and waits again."""


@aio
async def test_the_second_call_finds_the_broker_of_the_first(place: Place) -> None:
    spec = place.spec()
    first = await reach(spec)
    second = await reach(spec)
    assert first.started and not second.started
    assert first.greeting.pid == second.greeting.pid != os.getpid()
    for reached in (first, second):
        await reached.connection.aclose()
    # It outlives its callers, in a session of its own, away from any folder that may go.
    third = await reach(spec)
    pid = third.greeting.pid
    assert pid == first.greeting.pid
    assert os.getsid(pid) not in (os.getsid(0), pid)
    assert f"\nPPid:\t{os.getpid()}\n" not in read(f"/proc/{pid}/status").decode()
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    await third.connection.aclose()


@aio
async def test_many_callers_at_the_same_moment_start_one_broker(place: Place) -> None:
    spec = place.spec()
    reached = await asyncio.gather(*(reach(spec) for _ in range(20)))
    assert len({one.greeting.pid for one in reached}) == 1
    assert sum(one.started for one in reached) == 1
    for one in reached:
        await one.connection.aclose()
    assert len(place.records()) == 1


@aio
async def test_processes_that_call_at_the_same_moment_share_one_broker(place: Place) -> None:
    argv = [sys.executable, "-c", CALLER, msgspec.json.encode(place.spec()).decode(), *PROGRAM]
    callers = []
    for _ in range(6):
        stdin, tell = os.pipe()
        hear, stdout = os.pipe()
        child = start_child(
            argv, stdin=stdin, stdout=stdout, stderr=2, env={"PYTHONPATH": "src"}, inherit=["PATH"]
        )
        os.close(stdin)
        os.close(stdout)
        callers.append((child, tell, hear))
    try:
        for _, tell, _ in callers:
            os.write(tell, b"go\n")
        said = await asyncio.gather(
            *(asyncio.to_thread(os.read, hear, 100) for _, _, hear in callers)
        )
        assert len(set(said)) == 1 and int(said[0]) > 0
        # The one that started it is killed with all the others; the broker stays.
        for child, _, _ in callers:
            os.kill(child.pid, signal.SIGKILL)
            await child.wait_exited()
        status = await ask_broker(place.endpoint(place.spec()).address, STATUS, {})
        assert status["callers"] == 0
        assert len(place.records()) == 1
    finally:
        for child, tell, hear in callers:
            os.close(tell)
            os.close(hear)
            child.output_ended()
            await child.shutdown()


@aio
async def test_others_may_not_look_into_what_a_broker_makes(place: Place) -> None:
    spec = place.spec()
    reached = await reach(spec)
    endpoint = reached.endpoint
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (
            endpoint.runtime,
            Path(endpoint.address),
            endpoint.lock,
            endpoint.record(reached.greeting.pid),
            endpoint.logs,
            endpoint.log,
        )
    }
    assert set(modes.values()) == {0o700, 0o600}
    assert modes["brokers"] == modes["logs"] == 0o700
    await reached.connection.aclose()


@aio
async def test_nothing_secret_is_in_the_brokers_environment_or_files(place: Place) -> None:
    secret = "sk-" + "c0ffee" * 6
    spec = place.spec(env={"TOKEN": secret}, secret_values=(secret,))
    reached = await reach(spec)
    await reached.connection.aclose()
    pid = reached.greeting.pid
    process = Path(f"/proc/{pid}")
    texts = [process.joinpath(name).read_bytes() for name in ("environ", "cmdline")]
    texts += [path.read_bytes() for path in place.folder.rglob("*") if path.is_file()]
    assert not any(secret.encode() in text for text in texts)
    peer = await peer_of(place, spec)
    # The peer has it, and exactly what the spec says.
    seen = read(f"/proc/{peer.pid}/environ")
    assert f"TOKEN={secret}".encode() in seen


@aio
async def test_a_failed_start_says_why_and_hides_secrets(place: Place) -> None:
    secret = "sk-" + "c0ffee" * 6
    spec = place.spec(env={"TOKEN": secret}, secret_values=(secret,), details={"fail": True})
    with pytest.raises(BrokerUnavailable, match=r"it fails with \[redacted\]") as raised:
        await reach(spec)
    assert "Traceback" in raised.value.log_tail
    assert secret not in place.log(spec)
    # A lock without a holder is no hindrance: the next start fails for its own reason.
    with pytest.raises(BrokerUnavailable, match="it fails with"):
        await reach(spec)


@aio
async def test_a_program_that_is_not_a_broker_is_reported_with_its_last_words(place: Place) -> None:
    program = (sys.executable, "-c", "import sys; sys.exit('no such module')")
    with pytest.raises(BrokerUnavailable, match="its log ends with: no such module"):
        await ensure(place.spec(), program=program)


@aio
async def test_a_newer_dragoman_lets_an_older_broker_finish_and_starts_its_own(
    place: Place,
) -> None:
    old = place.spec(version="0.0.1")
    first = await reach(old)
    await hello.ask(first.connection, "initialize", {})  # A caller with work to do.
    second = await reach(place.spec(version="0.0.2"))
    assert second.started and second.greeting.version == "0.0.2"
    assert second.endpoint == first.endpoint
    # The old one still serves whom it has.
    assert (await hello.ask(first.connection, STATUS, {}))["callers"] == 1
    draining = {record.version: record.draining for record in place.records()}
    assert draining == {"0.0.1": True, "0.0.2": False}
    process = identify(first.greeting.pid)
    assert process is not None
    await first.connection.aclose()
    await asyncio.to_thread(wait_dead, process)
    # An older caller makes do with the newer one.
    third = await reach(old)
    assert third.greeting.pid == second.greeting.pid
    for one in (second, third):
        await one.connection.aclose()


@aio
async def test_a_peer_with_other_files_gets_another_broker(place: Place) -> None:
    def of(size: int) -> BrokerSpec:
        return place.spec(identity=(FileIdentity(path="/x", size=size, mtime_ns=1),))

    first = await reach(of(1))
    await first.connection.aclose()
    second = await reach(of(2))
    assert second.greeting.pid != first.greeting.pid
    assert second.endpoint == first.endpoint
    await second.connection.aclose()


@aio
async def test_an_unused_broker_ends_and_leaves_nothing(place: Place) -> None:
    reached = await reach(place.spec(ttl=0.2))
    broker = identify(reached.greeting.pid)
    assert broker is not None
    peer = await peer_of(place, place.spec(ttl=0.2))
    await reached.connection.aclose()
    for process in (broker, peer):
        await asyncio.to_thread(wait_dead, process)
    assert [path.name for path in place.brokers.iterdir()] == []


@aio
async def test_a_signal_ends_a_broker_in_order(place: Place) -> None:
    reached = await reach(place.spec())
    peer = await peer_of(place, place.spec())
    broker = identify(reached.greeting.pid)
    assert broker is not None
    os.kill(broker.pid, signal.SIGHUP)  # The terminal it was started from is closed.
    assert await hello.ask(reached.connection, STATUS, {})
    os.kill(broker.pid, signal.SIGTERM)
    for process in (broker, peer):
        await asyncio.to_thread(wait_dead, process)
    await reached.connection.aclose()
    assert [path.name for path in place.brokers.iterdir()] == []


@aio
async def test_with_one_idle_broker_too_many_one_of_the_earlier_ones_stops(place: Place) -> None:
    specs = [place.spec(peer=name, max_idle=2) for name in ("a", "b", "c")]
    callers = []
    for spec in specs:
        reached = await reach(spec)
        await hello.ask(reached.connection, "initialize", {})
        callers.append(reached)
    for reached in callers:
        await reached.connection.aclose()
        while (await ask_broker(reached.endpoint.address, STATUS, {}))["callers"]:
            pass
    await until(lambda: len(list_brokers(paths_of(place))) == 2)
    assert "c" in {record.peer for record in list_brokers(paths_of(place))}


@aio
async def test_brokers_are_listed_and_stopped(place: Place) -> None:
    paths = paths_of(place)
    reached = await reach(place.spec())
    [record] = list_brokers(paths)
    assert (record.peer, record.workspace) == ("tool", str(place.folder))
    status = await status_of(record)
    assert status is not None and status["callers"] == 0
    await hello.ask(reached.connection, "initialize", {})
    assert not await stop_broker(record, if_idle=True)
    assert await stop_broker(record)
    assert state_of(record.broker) is ProcessState.DEAD
    assert list_brokers(paths) == []
    assert await status_of(record) is None
    assert await reap(paths) == []
    await reached.connection.aclose()


@aio
async def test_a_runtime_folder_with_a_long_path_has_its_socket_elsewhere(place: Place) -> None:
    runtime = place.folder / ("long" * 20) / "run"
    folders = msgspec.structs.replace(place.spec().paths, runtime=str(runtime))
    spec = place.spec(paths=folders)
    reached = await reach(spec)
    try:
        folder = Path(reached.endpoint.address).parent
        assert folder == Path(f"/tmp/dragoman-{os.getuid()}")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        broker = identify(reached.greeting.pid)
        assert broker is not None
        os.kill(broker.pid, signal.SIGTERM)
        await asyncio.to_thread(wait_dead, broker)
        await reached.connection.aclose()
    assert not await asyncio.to_thread(os.path.lexists, reached.endpoint.address)


# -- by the name of a peer, with the real thing at the other end of the socket

AGENT = """
import json, os, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            info = {"name": "mine", "version": "1"}
            say(id=message["id"], result={"protocolVersion": 1, "agentInfo": info})
        case "session/new":
            say(id=message["id"], result={"sessionId": f"s{message['id']}"})
        case "session/prompt":
            text = f"{os.getpid()} {os.environ.get('A_KEY')}"
            content = {"type": "text", "text": text}
            update = {"sessionUpdate": "agent_message_chunk", "content": content}
            session = message["params"]["sessionId"]
            say(method="session/update", params={"sessionId": session, "update": update})
            say(id=message["id"], result={"stopReason": "end_turn"})
        case _:
            if "id" in message:
                say(id=message["id"], result={})
"""
"""Answers each prompt with its process id and a variable."""


@pytest.fixture
def named(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A user with a peer of the name `mine`, whose brokers are on."""
    folders = {"config": "config", "data": "data", "cache": "cache", "state": "state"}
    for name, folder in {**folders, "runtime": "run"}.items():
        monkeypatch.setenv(VARIABLES[name], str(place.folder / folder))
    monkeypatch.setenv("DRAGOMAN_WARM", "1")
    monkeypatch.setenv("A_KEY", "first")
    command = json.dumps([sys.executable, "-c", AGENT])
    text = (
        f'name = "mine"\ntitle = "Mine"\nprotocol = "acp"\n[[launch]]\ncommand = {command}\n'
        '[credentials]\nenv = ["A_KEY"]\n'
    )
    file = place.folder / "config" / "peers" / "mine.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return place


async def ask(place: Place, **options: Any) -> list[str]:
    async with (
        dragoman.connect("mine", workspace=place.folder, **options) as peer,
        peer.session() as session,
    ):
        return (await session.ask("who?")).require_ok().text.split()


@aio
async def test_a_peer_by_its_name_stays_warm_between_calls(named: Place) -> None:
    first = await ask(named)
    assert await ask(named) == first
    cold = await ask(named, warm=False)
    assert cold != first and cold[1] == first[1] == "first"
    [record] = list_brokers(paths_of(named))
    assert record.peer == "mine"
    assert [str(one.pid) for one in record.children] == first[:1]
    # Nobody is left with it, and it goes when it is asked to.
    assert await stop_broker(record)
    assert named.records() == []


@aio
async def test_other_credentials_have_another_broker(
    named: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await ask(named)
    monkeypatch.setenv("A_KEY", "second")
    second = await ask(named)
    assert (first[1], second[1]) == ("first", "second")
    assert first[0] != second[0]
    assert len(list_brokers(paths_of(named))) == 2


def test_a_program_without_a_loop_finds_the_broker_too(named: Place) -> None:
    def ask_once(**options: Any) -> str:
        with (
            dragoman.connect_sync("mine", workspace=named.folder, **options) as peer,
            peer.session() as session,
        ):
            return session.ask("who?").require_ok().text

    first = ask_once()
    assert ask_once() == first
    assert ask_once(warm=False) != first
    assert len(list_brokers(paths_of(named))) == 1


@aio
async def test_a_peer_that_does_not_start_fails_as_it_does_without_a_broker(named: Place) -> None:
    file = named.folder / "config" / "peers" / "mine.toml"
    command = json.dumps([sys.executable, "-c", "import sys; sys.exit('no key')"])
    text = f'name = "mine"\ntitle = "Mine"\nprotocol = "acp"\n[[launch]]\ncommand = {command}\n'
    await asyncio.to_thread(file.write_text, text)
    errors: list[HandshakeFailed] = []
    for warm in (True, False):
        with pytest.raises(HandshakeFailed, match="no key") as raised:
            await ask(named, warm=warm)
        errors.append(raised.value)
    assert str(errors[0]) == str(errors[1])
    assert errors[0].exit_code == errors[1].exit_code == 1
