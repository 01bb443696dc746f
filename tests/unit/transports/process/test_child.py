from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator

import pytest

from dragoman.transports.process import child as child_module
from dragoman.transports.process import strays
from dragoman.transports.process.child import (
    ChildProcess,
    Handle,
    PosixHandle,
    ShutdownTimes,
    end_now,
    kill_now,
)
from tests.aio import aio

TIMEOUT = 20.0

AT_ONCE = ShutdownTimes(
    flush_timeout=0.01, exit_timeout=0.01, terminate_timeout=0.01, kill_timeout=0.01
)


class FakeHandle(Handle):
    """A child that dies of what it is told to, and remembers what was done to it."""

    def __init__(self, dies_of: int | str | None, done: list[str]) -> None:
        super().__init__(2**22 + 1)
        self.dies_of = dies_of
        self.done = done
        self.dead = threading.Event()

    def signal_group(self, number: int) -> None:
        self.done.append(signal.Signals(number).name)
        if number == self.dies_of:
            self.dead.set()

    def status(self) -> tuple[int | None, int | None] | None:
        return (0, None) if self.dead.is_set() else None

    def wait(self) -> None:
        self.dead.wait(TIMEOUT)

    def reap(self) -> None:
        self.done.append("reap")

    def sessions(self) -> tuple[int, ...]:
        return (self.pid,)


class FakeGuard:
    def __init__(self, done: list[str]) -> None:
        self._done = done

    def register(self, pid: int, end: object) -> None:
        self._done.append("register")

    def forget(self, pid: int) -> None:
        self._done.append("forget")

    def open_warden(self) -> int:
        return -1


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was done, in order; no real process is touched."""
    steps: list[str] = []

    async def kill_strays(
        mark: str, *, sessions: Collection[int] = (), since: int | None = None
    ) -> set[int]:
        steps.append(f"hunt {mark}")
        return set()

    def kill_strays_now(mark: str, *, sessions: Collection[int] = ()) -> set[int]:
        steps.append(f"hunt {mark} now")
        return set()

    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(38, "not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    monkeypatch.setattr(strays, "kill_strays", kill_strays)
    monkeypatch.setattr(strays, "kill_strays_now", kill_strays_now)
    monkeypatch.setattr(child_module, "guard", FakeGuard(steps))
    monkeypatch.setattr(child_module, "ORPHAN_TIMEOUT", 0.01)
    monkeypatch.setattr(child_module, "NOW_TIMEOUT", 0.01)
    yield steps


def watched(handle: FakeHandle, times: ShutdownTimes = AT_ONCE) -> ChildProcess:
    child = ChildProcess(handle, "mark.1", times=times)
    child.watch()
    return child


END = ["SIGKILL", "hunt mark.1", "reap", "forget"]
"""What follows on every death: the rest of the group, the strays, the child's own number."""


@aio
async def test_a_child_that_dies_by_itself_is_cleaned_up_after(done: list[str]) -> None:
    handle = FakeHandle(None, done)
    child = watched(handle)
    calls: list[str] = []
    child.on_exit = lambda: calls.append("exit")
    child.on_gone = lambda: calls.append("gone")
    assert not child.exited
    handle.dead.set()
    async with asyncio.timeout(TIMEOUT):
        await child.wait_exited()
        assert child.exited
        assert not child.gone
        await child.wait_gone()
    assert child.gone
    assert child.exit_code == 0
    assert calls == ["exit", "gone"]
    assert done == ["register", *END]
    await child.shutdown()
    assert done == ["register", *END]


@aio
async def test_a_shutdown_asks_then_demands_then_kills(done: list[str]) -> None:
    handle = FakeHandle(signal.SIGKILL, done)
    child = watched(handle)

    async def farewell() -> None:
        done.append("farewell")

    child.farewell = farewell
    async with asyncio.timeout(TIMEOUT):
        await child.shutdown()
    assert done == ["register", "farewell", "SIGTERM", "SIGKILL", *END]


@aio
async def test_a_child_that_heeds_the_farewell_gets_no_signal(done: list[str]) -> None:
    handle = FakeHandle(None, done)
    child = watched(handle, ShutdownTimes(exit_timeout=TIMEOUT))

    async def farewell() -> None:
        done.append("farewell")
        handle.dead.set()

    child.farewell = farewell
    async with asyncio.timeout(TIMEOUT):
        await child.shutdown()
    assert done == ["register", "farewell", *END]


@aio
async def test_without_a_farewell_a_shutdown_begins_with_sigterm(done: list[str]) -> None:
    handle = FakeHandle(signal.SIGTERM, done)
    child = watched(handle, ShutdownTimes(exit_timeout=3600, terminate_timeout=TIMEOUT))
    async with asyncio.timeout(TIMEOUT):
        await child.shutdown()
    assert done == ["register", "SIGTERM", *END]


@aio
async def test_the_end_of_the_output_spares_the_wait_for_orphans(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "ORPHAN_TIMEOUT", 3600)
    handle = FakeHandle(signal.SIGTERM, done)
    child = watched(handle)
    child.output_ended()
    child.output_ended()
    async with asyncio.timeout(TIMEOUT):
        await child.shutdown()
    assert done[-4:] == END


@aio
async def test_what_cannot_be_killed_does_not_hold_up_the_caller(
    done: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    handle = FakeHandle(None, done)
    child = watched(handle)
    async with asyncio.timeout(TIMEOUT):
        await child.shutdown()
    assert child.gone
    assert not child.exited
    assert "cannot be killed" in caplog.text
    assert "reap" not in done
    handle.dead.set()
    async with asyncio.timeout(TIMEOUT):
        await child.wait_exited()
    assert done[-2:] == ["reap", "forget"]


@aio
async def test_a_farewell_that_fails_leads_to_the_kill(done: list[str]) -> None:
    handle = FakeHandle(signal.SIGKILL, done)
    child = watched(handle)

    async def farewell() -> None:
        raise ValueError("a bad farewell")

    child.farewell = farewell
    async with asyncio.timeout(TIMEOUT):
        await child.shutdown()
    assert child.exited
    assert done == ["register", "SIGKILL", "hunt mark.1 now", "reap", "forget"]
    assert child._keeper is not None
    with pytest.raises(ValueError, match="a bad farewell"):
        await child._keeper


@aio
async def test_a_keeper_that_is_cancelled_kills_at_once(done: list[str]) -> None:
    handle = FakeHandle(signal.SIGKILL, done)
    child = watched(handle)
    await asyncio.sleep(0)
    assert child._keeper is not None
    child._keeper.cancel()
    async with asyncio.timeout(TIMEOUT):
        await child.wait_gone()
    assert child.exited
    assert done == ["register", "SIGKILL", "hunt mark.1 now", "reap", "forget"]


@aio
async def test_an_observer_that_fails_does_not_hold_up_the_caller(done: list[str]) -> None:
    handle = FakeHandle(signal.SIGTERM, done)
    child = watched(handle)

    def fail() -> None:
        raise ValueError("a bad observer")

    child.on_gone = fail
    async with asyncio.timeout(TIMEOUT):
        await child.shutdown()
    assert child._keeper is not None
    with pytest.raises(ValueError, match="a bad observer"):
        await child._keeper


@aio
async def test_a_child_that_was_reaped_before_the_watch_is_dead(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(pid: int, flags: int = 0) -> int:
        raise ProcessLookupError(3, "no such process")

    monkeypatch.setattr(os, "pidfd_open", vanished)
    handle = FakeHandle(None, done)
    handle.dead.set()
    child = watched(handle)
    assert not child.exited
    async with asyncio.timeout(TIMEOUT):
        await child.wait_gone()
    assert child.exited
    assert done == ["register", *END]


def test_a_forked_copy_kills_nothing(done: list[str]) -> None:
    handle = FakeHandle(signal.SIGKILL, done)
    handle.owner_pid = os.getpid() + 1
    kill_now(handle, "mark.1")
    assert done == []


def test_an_end_without_a_loop_kills_and_reaps(done: list[str]) -> None:
    end_now(FakeHandle(signal.SIGKILL, done), "mark.1")
    assert done == ["SIGKILL", "hunt mark.1 now", "reap", "forget"]


# -- the handle of a real child -------------------------------------------------------------------


def start(program: str) -> int:
    child = subprocess.Popen(  # noqa: TID251 - a child for the handle under test
        [sys.executable, "-I", "-S", "-c", program], start_new_session=True
    )
    child.returncode = 0  # The handle reaps it.
    return child.pid


platforms = pytest.mark.parametrize("platform", ["linux", "darwin"])


@platforms
def test_an_exit_code_is_read(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    handle = PosixHandle(start("raise SystemExit(7)"))
    handle.wait()
    assert handle.status() == (7, None)
    handle.reap()
    handle.reap()
    assert handle.status() == (7, None)
    assert not os.path.exists(f"/proc/{handle.pid}")


@platforms
def test_a_signal_is_read(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    handle = PosixHandle(start("import signal; signal.pause()"))
    assert handle.status() is None
    handle.signal_group(signal.SIGKILL)
    handle.wait()
    assert handle.status() == (None, signal.SIGKILL)
    handle.signal_group(signal.SIGKILL)
    handle.reap()


def test_a_child_holds_its_number_until_it_is_reaped() -> None:
    handle = PosixHandle(start("pass"))
    assert handle.sessions() == (handle.pid,)
    handle.wait()
    assert handle.sessions() == (handle.pid,)
    handle.reap()
    assert handle.sessions() == ()
    handle.signal_group(signal.SIGKILL)


@platforms
def test_a_child_that_other_code_reaped_is_dead(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    handle = PosixHandle(start("raise SystemExit(7)"))
    os.waitpid(handle.pid, 0)
    assert handle.sessions() == ()
    handle.signal_group(signal.SIGKILL)
    handle.wait()
    assert handle.status() == (None, None)
    handle.reap()
