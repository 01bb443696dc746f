from __future__ import annotations

import atexit
import fcntl
import os
import select
import signal
import sys
from collections.abc import Iterator

import pytest

from dragoman.transports import warden
from dragoman.transports.guard import Guard

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
    assert warden.read_environ(first) == b"\0"
    assert os.getsid(first) == first
    assert os.readlink(f"/proc/{first}/cwd") == "/"


def test_the_pipe_to_the_warden_is_not_inherited(guard: Guard) -> None:
    guard.protect()
    assert fcntl.fcntl(guard._pipe_fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_a_dead_warden_is_replaced_before_the_next_child(guard: Guard) -> None:
    guard.protect()
    first = guard.warden_pid
    os.kill(first, signal.SIGKILL)
    wait_dead(first)
    guard.protect()
    assert guard.warden_pid not in (0, first)
    assert not os.path.exists(f"/proc/{first}"), "the dead warden was not reaped"


def test_a_warden_that_dies_before_the_registration_is_replaced_with_it(guard: Guard) -> None:
    guard.protect()
    first = guard.warden_pid
    os.kill(first, signal.SIGKILL)
    wait_dead(first)
    guard.register(2**22 + 1, never)
    assert guard.warden_pid not in (0, first)
    os.waitpid(first, 0)
    guard.forget(2**22 + 1)


def test_a_warden_that_somebody_else_reaped_is_replaced(guard: Guard) -> None:
    guard.protect()
    first = guard.warden_pid
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    guard.protect()
    assert guard.warden_pid not in (0, first)


def test_a_stopped_warden_does_not_block_us(guard: Guard) -> None:
    guard.protect()
    os.kill(guard.warden_pid, signal.SIGSTOP)
    for number in range(20_000):
        guard.register(2**22 + number, never)
        guard.forget(2**22 + number)
    os.kill(guard.warden_pid, signal.SIGCONT)


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


def test_on_windows_there_is_no_warden(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    guard.protect()
    assert guard.warden_pid == 0
