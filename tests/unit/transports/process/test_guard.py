from __future__ import annotations

import atexit
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from dragoman.transports.process import warden
from dragoman.transports.process.guard import Guard, _open_register

TIMEOUT = 20.0


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard()
    yield made
    atexit.unregister(made.finish)
    pid = made.warden_pid
    made.finish()
    if pid and not warden.is_zombie(pid):
        wait_dead(pid)
    if pid:
        os.waitpid(pid, 0)


def wait_dead(pid: int) -> None:
    fd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(TIMEOUT * 1000), f"process {pid} does not die"
    os.close(fd)


def never() -> None:
    raise AssertionError("not to be called")


def test_nothing_is_started_before_it_is_needed(guard: Guard) -> None:
    assert guard.warden_pid == 0
    guard.register(2**22 + 1, never)
    guard.forget(2**22 + 1)
    assert guard.warden_pid == 0


def test_one_warden_serves_all_children(guard: Guard) -> None:
    guard.protect()
    first = guard.warden_pid
    assert first
    assert not warden.is_zombie(first)
    guard.protect()
    assert guard.warden_pid == first
    # The environment of a process cannot be read while it executes its program.
    give_up_at = time.monotonic() + 10
    while warden.read_environ(first) == b"\0" and time.monotonic() < give_up_at:
        time.sleep(0.001)
    assert warden.read_environ(first) == b"\0DRAGOMAN_MARK=detached\0"
    assert os.getsid(first) == first
    assert os.readlink(f"/proc/{first}/cwd") == "/"


def test_the_pipe_to_the_warden_is_not_inherited(guard: Guard) -> None:
    guard.protect()
    for fd in (guard._pipe_fd, guard._register_fd):
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_a_dead_warden_is_replaced_before_the_next_child(guard: Guard) -> None:
    guard.protect()
    first = guard.warden_pid
    os.kill(first, signal.SIGKILL)
    wait_dead(first)
    guard.protect()
    assert guard.warden_pid not in (0, first)
    assert not os.path.exists(f"/proc/{first}"), "the dead warden was not reaped"


def test_a_new_warden_knows_the_children_of_the_one_before(guard: Guard) -> None:
    guard.protect()
    first = guard.warden_pid
    for number in (1, 2, 3):
        guard.register(2**22 + number, never)
    guard.forget(2**22 + 2)
    os.kill(first, signal.SIGKILL)
    wait_dead(first)
    guard.protect()
    assert warden.read_register(guard._register_fd) == {2**22 + 1, 2**22 + 3}
    guard.forget(2**22 + 1)
    guard.forget(2**22 + 3)


def test_a_warden_that_other_code_reaped_is_replaced(guard: Guard) -> None:
    guard.protect()
    first = guard.warden_pid
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    guard.protect()
    assert guard.warden_pid not in (0, first)


def test_the_register_holds_the_living_and_uses_its_entries_again(guard: Guard) -> None:
    guard.protect()
    for number in range(1, 5):
        guard.register(2**22 + number, never)
    assert warden.read_register(guard._register_fd) == {2**22 + n for n in range(1, 5)}
    for number in range(5, 500):
        guard.forget(2**22 + number - 4)
        guard.register(2**22 + number, never)
    assert warden.read_register(guard._register_fd) == {2**22 + n for n in range(496, 500)}
    assert os.fstat(guard._register_fd).st_size == 4 * warden.ENTRY_SIZE
    for number in range(496, 500):
        guard.forget(2**22 + number)
    assert warden.read_register(guard._register_fd) == set()


def test_the_end_kills_the_living_and_releases_the_warden(guard: Guard) -> None:
    ended: list[str] = []

    def refuse() -> None:
        ended.append("refused")
        raise PermissionError(1, "not yours")

    guard.protect()
    pid = guard.warden_pid
    guard.register(2**22 + 1, refuse)
    guard.register(2**22 + 2, lambda: ended.append("second"))
    guard.register(2**22 + 3, never)
    guard.forget(2**22 + 3)
    guard.forget(2**22 + 3)
    guard.finish()
    assert ended == ["refused", "second"]
    wait_dead(pid)
    guard.forget(2**22 + 1)
    guard.forget(2**22 + 2)


def test_the_end_of_the_program_is_asked_for_once(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[object] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    guard.protect()
    guard.protect()
    assert registered == [guard.finish]


def test_a_fork_starts_from_nothing(guard: Guard) -> None:
    guard.protect()
    pid, pipe = guard.warden_pid, os.dup(guard._pipe_fd)
    guard.register(2**22 + 1, never)
    guard.after_fork()
    assert guard.warden_pid == 0
    guard.finish()
    assert not warden.is_zombie(pid), "the copy sent the original's warden home"
    os.write(pipe, b"goodbye\n")
    os.close(pipe)
    wait_dead(pid)
    os.waitpid(pid, 0)


def test_a_program_that_cannot_start_a_warden_says_so_once(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    guard.protect()
    guard.register(2**22 + 1, never)
    guard.protect()
    guard.forget(2**22 + 1)
    assert guard.warden_pid == 0
    assert len(caplog.records) == 1


def test_an_interpreter_that_is_gone_is_only_a_warning(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    guard.protect()
    assert guard.warden_pid == 0
    assert "no warden" in caplog.text
    assert set(os.listdir("/proc/self/fd")) == before


def test_without_files_in_memory_the_register_is_a_file_without_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    fd = _open_register()
    os.pwrite(fd, b"\1\0\0\0", 0)
    assert warden.read_register(fd) == {1}
    assert os.fstat(fd).st_nlink == 0
    os.close(fd)


def test_on_windows_there_is_no_warden(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    guard.protect()
    assert guard.warden_pid == 0
