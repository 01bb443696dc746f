from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.transports.process import warden

TIMEOUT = 20.0

SLEEPS = [sys.executable, "-I", "-S", "-c", "import signal; print(flush=True); signal.pause()"]

Process = subprocess.Popen[bytes]  # noqa: TID251 - children that the code under test must kill


@pytest.fixture
def owner() -> str:
    return os.urandom(8).hex()


class Children:
    """Processes that are really there, and that no test leaves behind."""

    def __init__(self) -> None:
        self.all: list[Process] = []

    def start(self, mark: str | None = None, *, session: bool = False) -> Process:
        environment = {} if mark is None else {"FIRST": "x" * 40000, "DRAGOMAN_MARK": mark}
        child = subprocess.Popen(  # noqa: TID251 - children that the code under test must kill
            SLEEPS,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=session,
        )
        self.all.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child


@pytest.fixture
def children() -> Iterator[Children]:
    started = Children()
    yield started
    for child in started.all:
        child.kill()
        child.wait(TIMEOUT)
        if child.stdout is not None:
            child.stdout.close()


def found(needle: bytes, *sessions: int) -> set[int]:
    return set(warden.find(needle, sessions))


def test_the_parent_of_a_process_is_known() -> None:
    assert warden.parent_of(os.getpid()) == os.getppid()
    assert warden.parent_of(2**22 + 1) == 0


def test_processes_are_found_by_the_whole_mark_or_by_the_owner(
    children: Children, owner: str
) -> None:
    one, two, ten = (children.start(f"{owner}.{number}").pid for number in (1, 2, 10))
    assert found(warden.mark_needle(f"{owner}.1")) == {one}
    assert found(warden.mark_needle(f"{owner}.10")) == {ten}
    assert found(warden.owner_needle(owner)) == {one, two, ten}
    assert found(warden.owner_needle(owner[:-1])) == set()


def test_a_mark_inside_another_variable_is_not_a_mark(children: Children, owner: str) -> None:
    children.start(f"x DRAGOMAN_MARK={owner}.1")
    assert found(warden.owner_needle(owner)) == set()


def test_processes_are_found_by_their_session(children: Children, owner: str) -> None:
    leader = children.start(session=True)
    assert found(warden.owner_needle(owner), leader.pid) == {leader.pid}
    assert found(warden.owner_needle(owner), 2**22 + 1) == set()


def test_a_zombie_does_not_count(children: Children, owner: str) -> None:
    child = children.start(f"{owner}.1", session=True)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert warden.is_zombie(child.pid)
    assert found(warden.owner_needle(owner), child.pid) == set()
    child.wait(TIMEOUT)
    assert warden.is_zombie(child.pid), "a process that is gone is no less dead"


def test_a_process_that_is_gone_has_no_environment() -> None:
    child = subprocess.run([sys.executable, "-I", "-S", "-c", "import os; print(os.getpid())"],
                           capture_output=True, check=True)  # fmt: skip
    assert warden.read_environ(int(child.stdout)) == b"\0"
    assert not warden.is_ours(int(child.stdout), b"x", (1,))


def test_the_searcher_never_finds_itself() -> None:
    assert os.getpid() not in warden.list_processes()
    assert os.getppid() in warden.list_processes()


def test_only_the_process_that_is_still_ours_is_killed(children: Children, owner: str) -> None:
    ours = children.start(f"{owner}.1")
    stranger = children.start("stranger.1")
    needle = warden.owner_needle(owner)
    assert not warden.kill(stranger.pid, needle)
    assert stranger.poll() is None
    assert warden.kill(ours.pid, needle)
    assert ours.wait(TIMEOUT) == -signal.SIGKILL
    assert not warden.kill(ours.pid, needle)


def test_killing_works_without_pidfds(
    children: Children, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    ours = children.start(f"{owner}.1")
    assert warden.kill(ours.pid, warden.owner_needle(owner))
    assert ours.wait(TIMEOUT) == -signal.SIGKILL


def test_a_process_that_may_not_be_killed_is_not_reported_as_killed(
    children: Children, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = children.start(f"{owner}.1")

    def refuse(fd: int, number: int) -> None:
        raise PermissionError(1, "not yours")

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    assert not warden.kill(ours.pid, warden.owner_needle(owner))
    assert ours.poll() is None


def test_a_sweep_kills_the_owner_s_processes_and_the_named_sessions(
    children: Children, owner: str
) -> None:
    marked = children.start(f"{owner}.3")
    leader = children.start(session=True)
    stranger = children.start("stranger.1")
    warden.sweep(owner, {leader.pid})
    assert marked.wait(TIMEOUT) == -signal.SIGKILL
    assert leader.wait(TIMEOUT) == -signal.SIGKILL
    assert stranger.poll() is None


def test_a_sweep_of_what_cannot_be_killed_ends(
    children: Children, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = children.start(f"{owner}.3")
    tries = 0

    def pretend(fd: int, number: int) -> None:
        nonlocal tries
        tries += 1

    monkeypatch.setattr(signal, "pidfd_send_signal", pretend)
    warden.sweep(owner, (), sweep_timeout=0.1)
    assert tries > 1
    assert child.poll() is None


def test_without_proc_a_sweep_kills_the_named_groups(
    children: Children, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = children.start(session=True)
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    warden.sweep(owner, {leader.pid, 2**22 + 1})
    assert leader.wait(TIMEOUT) == -signal.SIGKILL


def test_without_proc_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise FileNotFoundError(2, "no /proc")

    monkeypatch.setattr(os, "listdir", refuse)
    assert warden.list_processes() == []


# -- the program ----------------------------------------------------------------------------------


class Program:
    """A warden that runs, with its pipe and its register in our hand."""

    def __init__(self, owner: str) -> None:
        reader, self.pipe = os.pipe()
        self.register = os.memfd_create("register")
        self.process = subprocess.Popen(  # noqa: TID251 - the warden itself
            [sys.executable, "-I", "-S", warden.__file__, owner, str(self.register)],
            pass_fds=[self.register],
            stdin=reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
        )
        os.close(reader)

    def write_entry(self, entry: int, pid: int) -> None:
        os.pwrite(self.register, pid.to_bytes(4, "little"), entry * 4)

    def end(self) -> int:
        os.close(self.pipe)
        os.close(self.register)
        return self.process.wait(TIMEOUT)


def test_the_end_of_the_pipe_kills_what_the_owner_left(children: Children, owner: str) -> None:
    marked = children.start(f"{owner}.1")
    leader = children.start(session=True)
    forgotten = children.start(session=True)
    program = Program(owner)
    program.write_entry(0, forgotten.pid)
    program.write_entry(5, leader.pid)
    program.write_entry(0, 0)
    os.write(program.pipe, b"no goodb")
    assert marked.poll() is None
    assert program.end() == 0
    assert marked.wait(TIMEOUT) == -signal.SIGKILL
    assert leader.wait(TIMEOUT) == -signal.SIGKILL
    assert forgotten.poll() is None


def test_a_register_without_entries_names_no_process() -> None:
    fd = os.memfd_create("register")
    assert warden.read_register(fd) == set()
    os.write(fd, b"\0\0\0\0" + (70_000).to_bytes(4, "little") + b"\1\1")
    assert warden.read_register(fd) == {70_000}
    os.close(fd)


def test_a_process_may_be_ours_and_of_no_session(
    children: Children, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = children.start(f"{owner}.1")
    monkeypatch.setattr(os, "getsid", lambda pid: 0)
    assert found(warden.owner_needle(owner)) == {ours.pid}


def test_a_goodbye_ends_only_the_warden(children: Children, owner: str) -> None:
    marked = children.start(f"{owner}.1")
    program = Program(owner)
    program.write_entry(0, marked.pid)
    os.write(program.pipe, b"good")
    os.write(program.pipe, b"bye\n")
    assert program.process.wait(TIMEOUT) == 0
    program.end()
    assert marked.poll() is None


def test_the_warden_imports_only_what_it_needs() -> None:
    source = Path(warden.__file__).read_text()
    imported = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert imported == [
        "from __future__ import annotations",
        "import os",
        "import signal",
        "import sys",
        "import time",
    ]
