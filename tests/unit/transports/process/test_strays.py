from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dragoman.transports.process import strays, warden
from tests.aio import aio

TIMEOUT = 20.0

Process = subprocess.Popen[bytes]  # noqa: TID251 - children that the code under test must kill


def start(mark: str, *, session: bool = False, program: str = "signal.pause()") -> Process:
    child = subprocess.Popen(  # noqa: TID251 - children that the code under test must kill
        [sys.executable, "-I", "-S", "-c", f"import os, signal\nprint(flush=True)\n{program}"],
        env={"DRAGOMAN_MARK": mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=session,
    )
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
    return child


@pytest.fixture
def owner() -> Iterator[str]:
    name = os.urandom(8).hex()
    yield name
    warden.sweep(name, ())


def end(child: Process) -> int:
    return child.wait(TIMEOUT)


@aio
async def test_strays_are_killed_and_strangers_are_not(owner: str) -> None:
    first, second = start(f"{owner}.1"), start(f"{owner}.1", session=True)
    other = start(f"{owner}.2")
    assert set(strays.find_strays(f"{owner}.1")) == {first.pid, second.pid}
    assert set(strays.find_owned(owner)) == {first.pid, second.pid, other.pid}
    assert await strays.kill_strays(f"{owner}.1", since=first.pid) == {first.pid, second.pid}
    assert end(first) == end(second) == -signal.SIGKILL
    assert other.poll() is None
    assert strays.find_strays(f"{owner}.1") == []
    assert strays.kill_strays_now(f"{owner}.2") == {other.pid}
    assert end(other) == -signal.SIGKILL
    assert strays.find_owned(owner) == []


@pytest.mark.parametrize(
    ("first", "newest", "found"),
    [(5, 9, [5, 7, 9]), (9, 3, [2, 3, 9, 11]), (5, 5, [5]), (5, 0, [2, 3, 5, 7, 9, 11])],
)
def test_pids_begin_again_at_the_end_of_their_range(
    first: int, newest: int, found: list[int]
) -> None:
    assert strays.created_since(first, [2, 3, 5, 7, 9, 11], newest=newest) == found


@aio
async def test_a_process_that_keeps_forking_does_not_escape(owner: str) -> None:
    program = "import time\nwhile True:\n  time.sleep(0.002)\n  if os.fork(): os._exit(0)"
    child = start(f"{owner}.1", session=True, program=program)
    try:
        # It is never at one number for long, and a search alone may miss it time after time.
        await strays.kill_strays(f"{owner}.1", sessions=(child.pid,))
        for _ in range(20):
            assert strays.find_strays(f"{owner}.1") == []
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        end(child)


@aio
async def test_the_hunt_is_bounded(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    child = start(f"{owner}.1")
    with monkeypatch.context() as patch:
        patch.setattr(signal, "pidfd_send_signal", lambda fd, number: None)
        assert await strays.kill_strays(f"{owner}.1", hunt_timeout=0.05) == {child.pid}
        assert strays.kill_strays_now(f"{owner}.1", hunt_timeout=0.05) == {child.pid}
    assert child.poll() is None
    assert await strays.kill_strays(f"{owner}.1") == {child.pid}
    end(child)


@aio
async def test_what_may_not_be_killed_does_not_hold_up_the_hunt(
    owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, number: int) -> None:
        raise PermissionError(1, "not yours")

    child = start(f"{owner}.1")
    with monkeypatch.context() as patch:
        patch.setattr(signal, "pidfd_send_signal", refuse)
        assert await strays.kill_strays(f"{owner}.1", hunt_timeout=3600) == set()
        assert strays.kill_strays_now(f"{owner}.1", hunt_timeout=3600) == set()
    assert strays.kill_strays_now(f"{owner}.1") == {child.pid}
    end(child)


@aio
async def test_elsewhere_than_on_linux_nothing_is_found(
    owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(f"{owner}.1")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        assert strays.find_strays(f"{owner}.1") == []
        assert strays.find_owned(owner) == []
        assert await strays.kill_strays(f"{owner}.1") == set()
        assert strays.kill_strays_now(f"{owner}.1") == set()
    assert child.poll() is None
    strays.kill_strays_now(f"{owner}.1")
    end(child)
