"""A process is told apart from every other one that had or will have its number."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.transports.process import identity
from dragoman.transports.process.identity import (
    ProcessIdentity,
    ProcessState,
    identify,
    is_stopped,
    kill,
    own_identity,
    resident_size,
    resident_tree,
    state_of,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="proof by /proc")


@pytest.fixture
def child() -> Iterator[int]:
    """A process that waits to be killed, and is reaped."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        yield pid
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


@linux
def test_this_process_lives_and_is_the_same_each_time() -> None:
    own = own_identity()
    assert own.pid == os.getpid()
    assert own == identify(os.getpid())
    assert state_of(own) is ProcessState.ALIVE


@linux
@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"started": "1"}, ProcessState.DEAD),
        ({"boot": "another start of the machine"}, ProcessState.DEAD),
        ({"namespace": "pid:[1]"}, ProcessState.UNKNOWN),
        ({"started": ""}, ProcessState.UNKNOWN),
        ({"boot": ""}, ProcessState.UNKNOWN),
        ({"pid": 2**22 + 1}, ProcessState.DEAD),
    ],
)
def test_a_number_alone_proves_nothing(changes: dict[str, str], state: ProcessState) -> None:
    assert state_of(dataclasses.replace(own_identity(), **changes)) is state  # type: ignore[arg-type]


@linux
def test_a_process_is_killed_only_if_it_is_the_one_that_was_meant(child: int) -> None:
    found = identify(child)
    assert found is not None
    assert not kill(dataclasses.replace(found, started="1"), signal.SIGKILL)
    assert state_of(found) is ProcessState.ALIVE
    assert kill(found, signal.SIGKILL)
    # A zombie is dead: it holds nothing any more.
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert state_of(found) is ProcessState.DEAD
    assert identify(child) is None
    assert not kill(found, signal.SIGKILL)


@linux
def test_without_handles_of_processes_the_number_is_used_after_the_proof(
    child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    found = identify(child)
    assert found is not None
    assert kill(found, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize("pid", [0, -1])
def test_a_number_that_means_many_processes_means_none(pid: int) -> None:
    assert identify(pid) is None


def test_neither_we_nor_init_are_killed() -> None:
    assert not kill(own_identity())
    assert not kill(ProcessIdentity(pid=1, started="0", boot="x"))
    assert not kill(ProcessIdentity(pid=0, started="0", boot="x"))


def write_stat(proc: Path, pid: int, name: str, state: str) -> None:
    fields = [state, *["0"] * 18, "4711", "0"]
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


@linux
def test_the_name_of_a_program_may_look_like_fields(tmp_path: Path) -> None:
    write_stat(tmp_path, 7, "a) Z 1 (b", "S")
    found = identify(7, proc=tmp_path)
    assert found is not None and found.started == "4711"


@linux
@pytest.mark.parametrize("state", ["Z", "X"])
def test_what_waits_to_be_reaped_is_not_there(tmp_path: Path, state: str) -> None:
    write_stat(tmp_path, 7, "dead", state)
    assert identify(7, proc=tmp_path) is None


@linux
def test_a_system_that_does_not_tell_its_boot_proves_nothing(tmp_path: Path) -> None:
    write_stat(tmp_path, 7, "x", "S")
    assert state_of(own_identity(), proc=tmp_path) is ProcessState.UNKNOWN


def test_elsewhere_the_start_time_comes_from_another_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("psutil")
    monkeypatch.setattr(sys, "platform", "darwin")
    identity._boot.cache_clear()
    identity._namespace.cache_clear()
    try:
        found = identify(os.getpid())
        assert found is not None
        assert state_of(found) is ProcessState.ALIVE
        assert state_of(dataclasses.replace(found, started="1.000")) is ProcessState.DEAD
        assert identify(2**22 + 1) is None
        monkeypatch.setitem(sys.modules, "psutil", None)
        identity._boot.cache_clear()
        assert identify(os.getpid()) is None
        assert own_identity().pid == os.getpid()
        assert state_of(found) is ProcessState.UNKNOWN
    finally:
        identity._boot.cache_clear()
        identity._namespace.cache_clear()


@linux
def test_the_memory_of_a_process_is_reported() -> None:
    size = resident_size(os.getpid())
    assert size is not None and size > 1024 * 1024
    assert resident_size(2**22 + 1) is None


@pytest.mark.parametrize(("state", "stopped"), [("S", False), ("T", True), ("t", False)])
def test_a_process_that_a_signal_stopped_is_distinguished_from_one_that_is_traced(
    tmp_path: Path, state: str, stopped: bool
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c) {state} 1 7 7 0")
    assert is_stopped(7, proc=tmp_path) is stopped
    assert not is_stopped(8, proc=tmp_path)


def process(
    proc: Path, pid: int, state: str, *, reads: str, children: str = "", number: int = 0
) -> None:
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (task / "children").write_text(children)
    (proc / str(pid) / "stat").write_text(f"{pid} (a) {state} 1 7 7 0")
    (proc / str(pid) / "fd").mkdir()
    (proc / str(pid) / "fd" / str(number)).symlink_to(reads)


@pytest.mark.parametrize(
    ("reads", "children", "stopped"),
    [("pipe:[1]", "8 ", True), ("/dev/null", "8 ", False), ("pipe:[1]", "8 9 ", False)],
)
def test_a_launcher_is_stopped_if_the_program_is_that_it_started(
    tmp_path: Path, reads: str, children: str, stopped: bool
) -> None:
    process(tmp_path, 6, "S", reads="pipe:[1]", children="7 ")
    process(tmp_path, 7, "S", reads="pipe:[1]", children=children)
    process(tmp_path, 8, "T", reads=reads, number=5)
    process(tmp_path, 9, "S", reads="pipe:[1]")
    assert is_stopped(6, proc=tmp_path) is stopped
    assert not is_stopped(9, proc=tmp_path)


PAGE = os.sysconf("SC_PAGE_SIZE")


def family(
    proc: Path, pid: int, parent: int, pages: int, children: dict[int, str] | None = None
) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "statm").write_text(f"900 {pages} 1 1 0 1 0")
    (folder / "stat").write_text(f"{pid} (a) program) S {parent} 1 1")
    for thread, found in (children or {}).items():
        (folder / "task" / str(thread)).mkdir(parents=True)
        (folder / "task" / str(thread) / "children").write_text(found)


@pytest.mark.parametrize("listed", [True, False])
def test_children_and_their_children_count_and_strangers_do_not(
    tmp_path: Path, listed: bool
) -> None:
    def below(of: dict[int, str]) -> dict[int, str] | None:
        return of if listed else None

    family(tmp_path, 10, 1, 5, below({10: "11 ", 19: "12 404 "}))
    family(tmp_path, 11, 10, 7, below({11: "13 "}))
    family(tmp_path, 12, 10, 11, below({12: ""}))
    family(tmp_path, 13, 11, 13, below({13: "10 "}))
    family(tmp_path, 20, 1, 1000, below({20: ""}))
    (tmp_path / "uptime").write_text("no process")
    assert resident_tree(10, proc=tmp_path) == (5 + 7 + 11 + 13) * PAGE
    assert resident_tree(13, proc=tmp_path) is not None
    assert resident_tree(99, proc=tmp_path) is None


def test_the_number_of_examined_processes_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "MAX_PROCESSES", 3)
    for pid in range(10, 20):
        family(tmp_path, pid, pid - 1, 1, {pid: str(pid + 1)})
    assert resident_tree(10, proc=tmp_path) == 3 * PAGE


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_real_child_is_counted_with_its_parent() -> None:
    program = "import sys; sys.stdin.read()"
    with subprocess.Popen(  # noqa: TID251 - a child to be found
        [sys.executable, "-c", program], stdin=subprocess.PIPE
    ) as child:
        alone, together = resident_size(os.getpid()), resident_tree(os.getpid())
        theirs = resident_tree(child.pid)
        assert alone is not None and together is not None and theirs is not None
        assert together >= alone + theirs / 2
        assert child.stdin is not None
        child.stdin.close()
