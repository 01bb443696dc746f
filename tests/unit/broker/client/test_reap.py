"""What dead brokers left is removed, and nothing else is."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dragoman.broker.client.reap import Reaped, sweep
from dragoman.broker.lock import try_lock
from dragoman.broker.records import BrokerRecord
from dragoman.config.safe_files import write_whole
from dragoman.transports.process.identity import ProcessIdentity, identify, own_identity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="proof by /proc")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Paths of sockets are short, and those of pytest are not.
    monkeypatch.chdir(tmp_path)
    return Path(".")


@pytest.fixture
def child() -> Iterator[int]:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.pause()
        os._exit(0)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def dead() -> ProcessIdentity:
    return dataclasses.replace(own_identity(), started="1")


def write(
    folder: Path,
    broker: ProcessIdentity,
    *,
    name: str = "tool-1",
    children: tuple[ProcessIdentity, ...] = (),
) -> Path:
    record = BrokerRecord(
        name=name,
        address=str(folder / f"{name}.sock"),
        peer="tool",
        workspace="/",
        version="1",
        broker=broker,
        owner="",
        children=children,
        started_at=0.0,
    )
    path = folder / f"{name}.{broker.pid}.json"
    write_whole(path, msgspec.json.encode(record))
    return path


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_files_of_a_dead_broker_go(folder: Path) -> None:
    record = write(folder, dead())
    (folder / "tool-1.lock").touch()
    bind(folder / "tool-1.sock")
    assert sweep(folder) == [Reaped("tool-1", 0, (record.name, "tool-1.sock", "tool-1.lock"))]
    assert names(folder) == set()
    assert sweep(folder) == []


def test_a_record_alone_goes_without_a_trace(folder: Path) -> None:
    record = write(folder, dead())
    assert sweep(folder) == [Reaped("tool-1", 0, (record.name,))]
    assert names(folder) == set()


def test_who_has_the_name_by_now_keeps_it(folder: Path) -> None:
    record = write(folder, dead())
    bind(folder / "tool-1.sock")
    lock = try_lock(folder / "tool-1.lock")
    assert lock is not None
    with lock:
        assert sweep(folder) == [Reaped("tool-1", 0, (record.name,))]
        assert names(folder) == {"tool-1.sock", "tool-1.lock"}


@pytest.mark.parametrize(
    "broker",
    [own_identity(), dataclasses.replace(own_identity(), namespace="another container")],
)
def test_the_living_and_those_that_cannot_be_judged_are_left_alone(
    folder: Path, broker: ProcessIdentity
) -> None:
    record = write(folder, broker, children=(broker,))
    assert sweep(folder) == []
    assert names(folder) == {record.name}


def test_files_that_are_not_records_or_sockets_are_not_ours(folder: Path) -> None:
    (folder / "tool-2.7.json").write_text("from the future")
    (folder / "notes.txt").touch()
    (folder / "tool-1.sock").write_text("no socket")
    write(folder, dead())
    sweep(folder)
    assert names(folder) == {"tool-2.7.json", "notes.txt", "tool-1.sock"}
    assert sweep(folder / "none") == []


def test_locks_and_sockets_of_which_no_record_speaks_go(folder: Path) -> None:
    for name in ("a.lock", "b.starting"):
        (folder / name).touch()
    bind(folder / "a.sock")
    bind(folder / "c.sock")
    reaped = {one.name: set(one.files) for one in sweep(folder)}
    assert reaped == {"a": {"a.lock", "a.sock"}, "b": {"b.starting"}, "c": {"c.sock"}}
    assert names(folder) == set()


def test_a_name_that_cannot_be_examined_does_not_keep_the_others(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.lock", "tool-1.lock"):
        (folder / name).mkdir()
    record = write(folder, dead())
    (folder / "tool-2.lock").touch()
    bind(folder / "tool-1.sock")
    assert sweep(folder) == [
        Reaped("tool-1", 0, (record.name,)),
        Reaped("tool-2", 0, ("tool-2.lock",)),
    ]
    assert names(folder) == {"a.lock", "tool-1.lock", "tool-1.sock"}
    assert str(folder / "a.lock") in caplog.text


def test_a_starting_caller_keeps_its_lock(folder: Path) -> None:
    lock = try_lock(folder / "a.starting")
    assert lock is not None
    with lock:
        assert sweep(folder) == []
        assert names(folder) == {"a.starting"}


def test_a_proved_child_of_a_dead_broker_is_killed(folder: Path, child: int) -> None:
    found = identify(child)
    assert found is not None
    write(folder, dead(), children=(dataclasses.replace(found, started="1"),))
    [reaped] = sweep(folder)
    assert reaped.processes == 0
    assert identify(child) == found
    write(folder, dead(), children=(found,))
    [reaped] = sweep(folder)
    assert reaped.processes == 1
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
