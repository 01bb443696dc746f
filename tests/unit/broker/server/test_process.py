"""The process of a broker: it takes its name, says that it is there, and gives everything up."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from dragoman.broker import lock as broker_lock
from dragoman.broker.lock import HeldLock, is_held, try_lock
from dragoman.broker.records import read_record
from dragoman.broker.server import process as module
from dragoman.broker.server.process import BrokerProcess, main
from dragoman.broker.spec import BrokerSpec, Folders
from dragoman.errors import BrokerUnavailable, NotInstalled
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.base import Stream
from dragoman.transports.listener import Listener, listen_unix
from dragoman.transports.sockets import connect_unix
from tests.aio import aio


@pytest.fixture
def folder() -> Iterator[Path]:
    # The folders of pytest have paths that are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="dgm") as name:
        yield Path(name)


def spec_in(folder: Path, **fields: Any) -> BrokerSpec:
    paths = Folders(state=f"{folder}/s", runtime=f"{folder}/r", data=f"{folder}/d")
    return BrokerSpec(**{"peer": "tool", "workspace": "/", "paths": paths, **fields})


class Fake:
    """Serves nobody, and does to its host what a test says."""

    made: Fake

    def __init__(self, spec: BrokerSpec, host: BrokerProcess) -> None:
        Fake.made = self
        self.host = host
        self.running = asyncio.Event()
        self.stopped = asyncio.Event()
        self.drained: bool | None = None
        self.serving = asyncio.Event()

    async def serve(self, stream: Stream) -> None:
        self.serving.set()
        await self.stopped.wait()

    async def run(self) -> None:
        self.running.set()
        await self.stopped.wait()

    def stop(self, *, drain: bool) -> None:
        self.drained = drain
        self.stopped.set()


class Running:
    """A broker's process as a task of the test."""

    def __init__(self, spec: BrokerSpec) -> None:
        self.said: list[dict[str, Any]] = []
        self._spoken = asyncio.Event()
        self.process = BrokerProcess(spec, self._say)
        self._tasks = TaskOwner("test")

    def _say(self, word: dict[str, Any]) -> None:
        self.said.append(word)
        self._spoken.set()

    async def __aenter__(self) -> Running:
        self.task = self._tasks.start(self.process.run(cast("Any", Fake)), "broker")
        async with asyncio.timeout(5):
            await self._spoken.wait()
            await Fake.made.running.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        Fake.made.stop(drain=False)
        await self.task

    @property
    def names(self) -> set[str]:
        runtime = self.process.endpoint.runtime
        return {path.name.rpartition(".")[2] for path in runtime.iterdir()}


@aio
async def test_a_running_broker_has_a_lock_a_socket_and_a_record(folder: Path) -> None:
    async with Running(spec_in(folder)) as running:
        endpoint = running.process.endpoint
        assert running.said == [{"ready": True, "pid": os.getpid()}]
        assert running.names == {"lock", "sock", "json"}
        record = read_record(endpoint.record(os.getpid()))
        assert record is not None and record.broker.pid == os.getpid() and record.owner
        Fake.made.host.peer_started(os.getpid())
        assert len((read_record(endpoint.record(os.getpid())) or record).children) == 1
        Fake.made.host.peer_ended(os.getpid())
        assert (read_record(endpoint.record(os.getpid())) or record).children == ()
        # The name is taken: a second one says so and does nothing else.
        said: list[dict[str, Any]] = []
        monkey = pytest.MonkeyPatch()
        monkey.setattr(module, "LOCK_TIMEOUT", 0.0)
        await BrokerProcess(running.process.spec, said.append).run(cast("Any", Fake))
        monkey.undo()
        assert said == [{"taken": True}]
    assert running.names == set()


@aio
async def test_a_released_broker_keeps_its_callers_and_accepts_no_new_ones(folder: Path) -> None:
    async with Running(spec_in(folder)) as running:
        endpoint = running.process.endpoint
        stream = await connect_unix(endpoint.address)
        async with asyncio.timeout(5):
            await Fake.made.serving.wait()
        for _ in range(2):
            Fake.made.host.release()
        assert running.names == {"json"}
        record = read_record(endpoint.record(os.getpid()))
        assert record is not None and record.draining
        # Its successor may have the name at once, and loses nothing when the old one ends.
        lock = try_lock(endpoint.lock)
        assert lock is not None
        async with await listen_unix(endpoint.address, Fake.made.serve):
            Fake.made.stop(drain=True)
            await running.task
            assert running.names == {"lock", "sock"}
        lock.release()
        await stream.aclose()


@aio
async def test_a_lock_that_is_taken_for_a_moment_is_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_in(folder)
    endpoint = BrokerProcess(spec, lambda word: None).endpoint
    endpoint.make_safe()
    lock = try_lock(endpoint.lock)
    assert lock is not None
    tried: list[Path] = []

    def try_again(path: Path) -> HeldLock | None:
        found = try_lock(path)
        if path == endpoint.lock and not tried:
            assert found is None
            tried.append(path)
            lock.release()
        return found

    monkeypatch.setattr(broker_lock, "try_lock", try_again)
    async with Running(spec) as running:
        assert running.said[0]["ready"]
        assert is_held(endpoint.lock)
    assert tried


@aio
async def test_an_idle_broker_drains_when_its_time_is_over(folder: Path) -> None:
    async with Running(spec_in(folder, ttl=600.0)):
        broker = Fake.made
        broker.host.idle_changed(False)
        broker.host.keep_for(0.0)
        assert not broker.stopped.is_set()
        broker.host.idle_changed(True)
        broker.host.idle_changed(True)
        async with asyncio.timeout(5):
            await broker.stopped.wait()
        assert broker.drained is True


@aio
async def test_a_broker_that_can_no_longer_be_found_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NAME_INTERVAL", 0.01)
    async with Running(spec_in(folder)) as running:
        assert not Fake.made.stopped.is_set()
        shutil.rmtree(running.process.endpoint.runtime)
        async with asyncio.timeout(5):
            await Fake.made.stopped.wait()
        assert Fake.made.drained is True
        running.process.endpoint.runtime.mkdir()


@aio
async def test_an_address_in_use_by_another_program_is_reported_and_nothing_is_left(
    folder: Path,
) -> None:
    spec = spec_in(folder)
    process = BrokerProcess(spec, lambda word: None)
    process.endpoint.make_safe()

    async def serve(stream: Stream) -> None:
        return

    async with await listen_unix(process.endpoint.address, serve):
        with pytest.raises(BrokerUnavailable, match="does not hold this broker's lock"):
            await process.run(cast("Any", Fake))
        assert {path.name for path in process.endpoint.runtime.iterdir()} == {
            Path(process.endpoint.address).name
        }


@aio
async def test_what_a_broker_raises_at_its_making_leaves_nothing(folder: Path) -> None:
    def fail(spec: BrokerSpec, host: BrokerProcess) -> Fake:
        raise NotInstalled("tool", "no tool")

    process = BrokerProcess(spec_in(folder), lambda word: None)
    with pytest.raises(NotInstalled):
        await process.run(cast("Any", fail))
    assert list(process.endpoint.runtime.iterdir()) == []


# -- the program


class Program:
    """`main` in a forked process, with pipes for its input and output."""

    def __init__(self, text: bytes, **options: Any) -> None:
        stdin, tell = os.pipe()
        hear, stdout = os.pipe()
        read_log, log = os.pipe()
        pid = os.fork()
        if pid == 0:
            for fd, at in ((stdin, 0), (stdout, 1), (log, 2)):
                os.dup2(fd, at)
            os.closerange(3, 64)
            code = 99
            try:
                import logging
                import sys

                # A test of the command line in this process may have silenced it.
                ours = logging.getLogger("dragoman")
                ours.handlers, ours.propagate, ours.disabled = [], True, False
                ours.setLevel(logging.NOTSET)
                sys.stdin = open(0)
                sys.stderr = open(2, "w")
                module._leave_parent = lambda: None
                code = main(**options)
                sys.stderr.flush()
            finally:
                os._exit(code)
        for fd in (stdin, stdout, log):
            os.close(fd)
        os.write(tell, text)
        os.close(tell)
        with open(hear, "rb") as heard, open(read_log) as logged:
            self.word = heard.read()
            self.log = logged.read()
        self.code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_without_a_spec_there_is_no_broker() -> None:
    program = Program(b'{"peer": "to')
    assert (program.code, program.word) == (2, b"")
    assert "cannot read a spec from standard input" in program.log


def test_an_error_is_reported_to_the_starter(folder: Path) -> None:
    def fail(spec: BrokerSpec, host: BrokerProcess) -> Fake:
        raise NotInstalled("tool", "no tool", remedy="get one")

    program = Program(spec_in(folder).encode(), make=fail)
    assert program.code == 1
    told = json.loads(program.word)["failed"]["dragoman"]
    assert (told["kind"], told["details"]["remedy"]) == ("NotInstalled", "get one")


def test_an_error_of_the_system_is_reported_to_the_starting_process(folder: Path) -> None:
    def fail(spec: BrokerSpec, host: BrokerProcess) -> Fake:
        raise OSError(errno.ENOSPC, "No space left on device", "/state")

    program = Program(spec_in(folder).encode(), make=fail)
    assert program.code == 1
    told = json.loads(program.word)["failed"]["dragoman"]
    assert told["kind"] == "BrokerUnavailable"
    assert "cannot start: [Errno 28] No space left on device: '/state'" in told["message"]


def test_a_defect_is_in_the_log_without_secrets(folder: Path) -> None:
    secret = "hunter2-hunter2"

    def fail(spec: BrokerSpec, host: BrokerProcess) -> Fake:
        raise RuntimeError(f"what about {secret}?")

    spec = spec_in(folder, env={"ACME": secret}, secret_values=(secret,))
    program = Program(spec.encode(), make=fail)
    assert (program.code, program.word) == (1, b"")
    assert "RuntimeError: what about [redacted]?" in program.log
    assert secret not in program.log


def test_a_broker_that_ends_in_order_says_so_by_its_exit_code(folder: Path) -> None:
    class Short(Fake):
        async def run(self) -> None:
            return

    program = Program(spec_in(folder).encode(), make=Short)
    assert program.code == 0
    assert msgspec.json.decode(program.word)["ready"] is True


def test_nothing_of_the_log_of_a_test_is_changed() -> None:
    assert not any(
        isinstance(handler.formatter, module._Redacting) for handler in logging.root.handlers
    )


@aio
async def test_a_broker_whose_socket_cannot_be_closed_leaves_no_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aclose = Listener.aclose

    async def fail(listener: Listener) -> None:
        await aclose(listener)
        raise OSError("the disk is gone")

    monkeypatch.setattr(Listener, "aclose", fail)
    running = Running(spec_in(folder))
    with pytest.raises(OSError, match="the disk is gone"):
        async with running:
            assert "json" in running.names
            Fake.made.stop(drain=False)
    assert running.names == set()
