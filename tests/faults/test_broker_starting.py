"""What killed, hung or half-started brokers leave behind: no command hangs, and nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dragoman.broker.client import launch
from dragoman.broker.client.find_or_start import StartTimes, ensure
from dragoman.broker.client.hello import ask
from dragoman.broker.client.reap import sweep
from dragoman.broker.endpoint import Endpoint
from dragoman.broker.lock import is_held, try_lock
from dragoman.broker.records import BrokerRecord
from dragoman.config.safe_files import write_whole
from dragoman.errors import BrokerUnavailable
from dragoman.rpc import Connection, End, Router
from dragoman.transports.base import Stream
from dragoman.transports.listener import listen_unix
from dragoman.transports.process.identity import ProcessIdentity, ProcessState, identify, state_of
from dragoman.transports.process.stream import reap_detached, spawn
from dragoman.transports.process.warden import parent_of
from tests.aio import aio
from tests.integration.broker_places import (
    PROGRAM,
    Place,
    as_json,
    broker_place,
    peer_of,
    until,
    wait_dead,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="proof by /proc")

IMPATIENT = StartTimes(answer=3.0, name=0.5, death=15.0)
"""Short enough for a broker that does not answer, and long enough for one that answers on a busy
machine."""

SLEEPER = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
MUTE = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(1)"]


@pytest.fixture
def place() -> Iterator[Place]:
    with broker_place() as place:
        yield place


def known(pid: int) -> ProcessIdentity:
    found = identify(pid)
    assert found is not None
    return found


def left(place: Place) -> list[str]:
    return sorted(path.name for path in place.brokers.iterdir())


def wardens_of(pid: int) -> list[int]:
    """Return the children of a process that are not peers: its warden."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child) for child in children if b"warden" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@aio
async def test_a_killed_broker_takes_its_peer_along_and_is_replaced(place: Place) -> None:
    spec = place.spec()
    first = await ensure(spec, program=PROGRAM)
    peer = await peer_of(place, spec)
    broker = known(first.greeting.pid)
    os.kill(broker.pid, signal.SIGKILL)
    for process in (broker, peer):
        await asyncio.to_thread(wait_dead, process)
    await first.connection.aclose()
    # Its socket, lock and record still exist, and do no harm.
    assert len(left(place)) == 3
    second = await ensure(spec, program=PROGRAM)
    assert second.started and second.greeting.pid != broker.pid
    await second.connection.aclose()
    await until(lambda: not any(record.broker == broker for record in place.records()))
    assert [record.broker.pid for record in place.records()] == [second.greeting.pid]


@aio
async def test_a_peer_that_survived_its_broker_and_all_who_watch_it_is_found_and_killed(
    place: Place,
) -> None:
    spec = place.spec()
    reached = await ensure(spec, program=PROGRAM)
    peer = await peer_of(place, spec)
    broker = known(reached.greeting.pid)
    [warden] = wardens_of(broker.pid)
    # The peer reads from its broker and would end by itself; a stopped one cannot.
    os.kill(peer.pid, signal.SIGSTOP)
    # The broker cannot replace the warden either.
    os.kill(broker.pid, signal.SIGSTOP)
    for pid in (warden, parent_of(broker.pid), broker.pid):
        os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(wait_dead, broker)
    await reached.connection.aclose()
    assert state_of(peer) is ProcessState.ALIVE
    [reaped] = await asyncio.to_thread(sweep, place.brokers)
    assert reaped.processes == 1
    await asyncio.to_thread(wait_dead, peer)
    assert left(place) == []


@aio
async def test_a_pid_that_another_process_has_now_is_never_killed(place: Place) -> None:
    stranger = await spawn(SLEEPER)
    try:
        now = known(stranger.pid)
        then = ProcessIdentity(pid=now.pid, started="1", boot=now.boot, namespace=now.namespace)
        spec = place.spec()
        endpoint = place.endpoint(spec)
        endpoint.make_safe()
        record = record_of(endpoint, then, children=(then,))
        write_whole(endpoint.record(then.pid), msgspec.json.encode(record))
        endpoint.lock.write_bytes(msgspec.json.encode(then))
        [reaped] = await asyncio.to_thread(sweep, place.brokers)
        assert (reaped.name, reaped.processes) == (endpoint.name, 0)
        assert left(place) == []
        reached = await ensure(spec, program=PROGRAM)
        await reached.connection.aclose()
        assert state_of(now) is ProcessState.ALIVE
    finally:
        await stranger.aclose()


def record_of(
    endpoint: Endpoint, broker: ProcessIdentity, children: tuple[ProcessIdentity, ...] = ()
) -> BrokerRecord:
    return BrokerRecord(
        name=endpoint.name,
        address=endpoint.address,
        peer="tool",
        workspace="/",
        version="0",
        broker=broker,
        owner="",
        children=children,
        started_at=0.0,
    )


@aio
async def test_of_two_brokers_that_race_for_a_name_one_gives_way(place: Place) -> None:
    spec = place.spec()
    endpoint = place.endpoint(spec)
    endpoint.make_safe()
    # Bypass the lock that prevents callers from doing this.
    starts = (launch.start(spec, endpoint, timeout=20.0, program=PROGRAM) for _ in range(3))
    await asyncio.gather(*starts)
    [record] = place.records()
    reached = await ensure(spec, program=PROGRAM)
    assert (reached.started, reached.greeting.pid) == (False, record.broker.pid)
    await reached.connection.aclose()


SLOW = f"""
import os, select, sys, time
select.select([0], [], [])
open(sys.argv[1] + ".given", "w").close()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.005)
os.execv(sys.executable, [sys.executable, {PROGRAM[1]!r}])
"""
"""A broker that reports when it has its spec, and does not start before a file exists."""


@aio
async def test_a_broker_whose_starter_was_killed_is_there_for_the_next_caller(
    place: Place,
) -> None:
    spec = place.spec()
    gate = place.folder / "gate"
    caller = [sys.executable, "-c", CALLER, as_json(spec)]
    starter = await spawn(
        [*caller, sys.executable, "-c", SLOW, str(gate)],
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    endpoint = place.endpoint(spec)
    given = Path(f"{gate}.given")
    await until(lambda: given.exists() and is_held(endpoint.starting))
    [program] = await asyncio.to_thread(processes_with, str(gate), starter.pid)
    os.kill(starter.pid, signal.SIGKILL)
    await starter.wait_exited()
    await starter.aclose()
    assert not is_held(endpoint.starting)
    # It has its spec, but its starter is gone.
    gate.touch()
    await until(lambda: bool(place.records()))
    reached = await ensure(spec, program=PROGRAM)
    assert not reached.started
    await reached.connection.aclose()
    await asyncio.to_thread(wait_dead, program)


CALLER = """
import asyncio, sys
import msgspec
from dragoman.broker.spec import BrokerSpec
from dragoman.broker.client.find_or_start import ensure
asyncio.run(ensure(msgspec.json.decode(sys.argv[1], type=BrokerSpec), program=sys.argv[2:]))
"""


def processes_with(word: str, but: int) -> list[ProcessIdentity]:
    """Return the processes that have a word on their command line."""
    give_up_at = time.monotonic() + 10
    while time.monotonic() < give_up_at:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if word.encode() in path.read_bytes() and int(path.parent.name) != but:
                    found.append(identify(int(path.parent.name)))
        known = [one for one in found if one is not None]
        if known:
            return known
    return []


@aio
async def test_a_stale_socket_and_the_lock_of_a_dead_process_are_replaced(place: Place) -> None:
    spec = place.spec()
    endpoint = place.endpoint(spec)
    endpoint.make_safe()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(endpoint.address)
    dead = ProcessIdentity(pid=2**22 - 1, started="5", boot=known(os.getpid()).boot)
    endpoint.lock.write_bytes(msgspec.json.encode(dead))
    endpoint.starting.touch()
    reached = await ensure(spec, program=PROGRAM)
    assert reached.started
    await reached.connection.aclose()


@aio
async def test_a_broker_that_holds_its_name_and_does_not_answer_is_replaced(place: Place) -> None:
    spec = place.spec()
    first = await ensure(spec, program=PROGRAM)
    peer = await peer_of(place, spec)
    broker = known(first.greeting.pid)
    os.kill(broker.pid, signal.SIGSTOP)
    second = await ensure(spec, program=PROGRAM, times=IMPATIENT)
    assert second.started and second.greeting.pid != broker.pid
    for process in (broker, peer):
        await asyncio.to_thread(wait_dead, process)
    for reached in (first, second):
        await reached.connection.aclose()


@aio
async def test_a_lock_with_an_unknown_holder_is_left_alone(place: Place) -> None:
    spec = place.spec()
    endpoint = place.endpoint(spec)
    endpoint.make_safe()
    lock = try_lock(endpoint.lock)
    assert lock is not None
    with lock:
        lock.write(b"somebody")
        with pytest.raises(BrokerUnavailable, match="is held by an unknown process"):
            await ensure(spec, program=PROGRAM, times=IMPATIENT)


@aio
async def test_a_holder_that_dies_while_it_is_waited_for_makes_room(place: Place) -> None:
    spec = place.spec()
    endpoint = place.endpoint(spec)
    endpoint.make_safe()
    lock = try_lock(endpoint.lock)
    assert lock is not None
    asyncio.get_running_loop().call_later(0.05, lock.release)
    reached = await ensure(spec, program=PROGRAM)
    assert reached.started
    await reached.connection.aclose()


@aio
async def test_a_listener_that_is_not_a_broker_is_named(place: Place) -> None:
    spec = place.spec()
    endpoint = place.endpoint(spec)
    endpoint.make_safe()

    async def serve(stream: Stream) -> None:
        async with Connection(stream, End.AGENT, Router()) as connection:
            await connection.wait_ended()

    async with await listen_unix(endpoint.address, serve):
        with pytest.raises(BrokerUnavailable, match="is not a broker: "):
            await ensure(spec, program=PROGRAM, times=IMPATIENT)


@aio
async def test_a_caller_that_is_cancelled_while_it_starts_a_broker_leaves_no_lock(
    place: Place,
) -> None:
    spec = place.spec()
    endpoint = place.endpoint(spec)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await ensure(spec, program=MUTE)
    assert not endpoint.starting.exists()
    reached = await ensure(spec, program=PROGRAM)
    assert reached.started
    await reached.connection.aclose()
    await until(lambda: not reap_detached())


@aio
async def test_a_program_that_says_nothing_is_killed(place: Place) -> None:
    with pytest.raises(BrokerUnavailable, match=r"did not start within 0\.1 s"):
        await ensure(place.spec(), program=MUTE, times=StartTimes(start=0.1))
    assert not reap_detached()


def knock_as_nobody(address: str) -> str:
    """Say hello as another user, and return the result."""
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(tell, knock(address))
        finally:
            os._exit(0)
    os.close(tell)
    with open(hear, "rb") as heard:
        said = heard.read()
    os.waitpid(pid, 0)
    return said.decode()


def knock(address: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect(address)
            door.sendall(b'{"jsonrpc":"2.0","id":1,"method":"_dragoman/hello","params":{}}\n')
            return b"answered" if door.recv(100) else b"dropped"
        except PermissionError:
            return b"refused"
        except ConnectionError:
            return b"dropped"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="becomes another user")
@aio
async def test_another_user_is_refused_by_the_directory_and_by_the_socket(place: Place) -> None:
    reached = await ensure(place.spec(), program=PROGRAM)
    address = reached.endpoint.address

    def open_doors() -> None:
        for folder in (place.folder, place.folder / "run", place.brokers):
            folder.chmod(0o755)
        os.chmod(address, 0o666)

    assert await asyncio.to_thread(knock_as_nobody, address) == "refused"
    # Even if all permissions are open: the kernel tells which user connects.
    await asyncio.to_thread(open_doors)
    assert await asyncio.to_thread(knock_as_nobody, address) == "dropped"
    assert await ask(reached.connection, "_dragoman/status", {})
    await reached.connection.aclose()
