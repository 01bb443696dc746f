"""The streams themselves are tested with real children in tests/integration/test_process_*.py."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from dragoman.errors import ProgramNotFound, SpawnError, UsageError
from dragoman.transports.process import windows
from dragoman.transports.process.child import PosixHandle
from dragoman.transports.process.stream import (
    StderrTail,
    end_detached,
    reap_detached,
    spawn,
    start_child,
    start_detached,
)
from dragoman.transports.process.windows import CreateProcessPlan
from tests.aio import aio


def tail(size: int, *chunks: bytes) -> str:
    kept = StderrTail(size)
    for chunk in chunks:
        kept.add(chunk)
    return kept.text()


def test_all_is_kept_that_fits() -> None:
    assert tail(10) == ""
    assert tail(10, b"0123", b"456789") == "0123456789"


def test_only_the_end_is_kept_of_what_does_not_fit() -> None:
    assert tail(4, b"0123456789") == "6789"
    assert tail(4, b"0123", b"45", b"6", b"789") == "6789"
    assert tail(4, b"0123456789", b"ab") == "89ab"
    assert tail(0, b"0123", b"4") == ""


def test_what_is_held_stays_close_to_the_limit() -> None:
    kept = StderrTail(1000)
    for _ in range(10_000):
        kept.add(b"x" * 99)
    assert kept._held_size < 1100
    assert sum(map(len, kept._chunks)) == kept._held_size


def test_a_cut_through_a_character_leaves_no_trace() -> None:
    assert tail(5, "ääää".encode()) == "ää"
    assert tail(3, "x€€".encode()) == "€"
    assert tail(5, "x€€".encode()) == "€"


def test_bytes_that_are_not_text_are_replaced() -> None:
    assert tail(10, b"\xffx\x80") == "�x�"


def test_a_listener_hears_everything_that_is_written() -> None:
    heard: list[bytes] = []
    kept = StderrTail(2, heard.append)
    kept.add(b"one")
    kept.add(b"two")
    assert heard == [b"one", b"two"]
    assert kept.text() == "wo"


@aio
async def test_pipes_that_cannot_be_made_are_a_failed_start_and_leak_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = os.pipe
    before = set(os.listdir("/proc/self/fd"))
    for allowed in range(3):
        calls = itertools.count()

        def pipe(allowed: int = allowed, calls: Iterator[int] = calls) -> tuple[int, int]:
            if next(calls) >= allowed:
                raise OSError(errno.EMFILE, "too many files")
            return real()

        monkeypatch.setattr(os, "pipe", pipe)
        with pytest.raises(SpawnError, match="too many files"):
            await spawn(["sh"])
    assert set(os.listdir("/proc/self/fd")) == before


@aio
async def test_a_command_line_that_is_too_long_is_the_reason_and_nothing_else() -> None:
    with pytest.raises(SpawnError, match=r"could not be started: Argument list too long$"):
        await spawn(["sh", "x" * 3_000_000])


class FakePopen:
    """Stands for CreateProcess, which is not to be had here."""

    started: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, command: object, **options: Any) -> None:
        self.started.append({"command": command, **options})
        self.pid = 2**22 + 1
        self.returncode: int | None = None


def test_on_windows_a_planned_command_line_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = CreateProcessPlan(
        "C:\\node.exe", "C:\\node.exe cli.js --acp", {"NODE_PATH": "C:\\modules"}
    )
    monkeypatch.setattr(windows, "plan_command", lambda argv, **options: planned)
    monkeypatch.setattr(subprocess, "Popen", FakePopen)
    pid = start_detached(["agent", "--acp"], env={"ADDED": "1"}, platform="win32")
    assert pid == 2**22 + 1
    (options,) = FakePopen.started
    assert options["command"] == planned.command_line
    assert options["executable"] == planned.program
    assert options["env"]["NODE_PATH"] == "C:\\modules"
    assert options["env"]["ADDED"] == "1"
    assert options["creationflags"] == windows.CREATION_FLAGS
    FakePopen.started.clear()


@aio
async def test_on_windows_the_search_is_that_of_windows() -> None:
    with pytest.raises(ProgramNotFound, match=r"\.exe"):
        await spawn(["sh"], platform="win32")


def test_a_child_that_cannot_be_watched_is_ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    real = PosixHandle.__init__

    def remember(self: PosixHandle, pid: int) -> None:
        started.append(pid)
        real(self, pid)

    monkeypatch.setattr(PosixHandle, "__init__", remember)
    null = subprocess.DEVNULL
    with pytest.raises(RuntimeError, match="no running event loop"):
        start_child(["sleep", "3600"], stdin=null, stdout=null, stderr=null)
    (pid,) = started
    assert not os.path.exists(f"/proc/{pid}")


@aio
async def test_an_empty_command_is_refused_by_every_way_to_start_one() -> None:
    null = subprocess.DEVNULL
    for argv in ([], [""]):
        with pytest.raises(UsageError):
            await spawn(argv)
        with pytest.raises(UsageError):
            start_child(argv, stdin=null, stdout=null, stderr=null)
        with pytest.raises(UsageError):
            start_detached(argv)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_detached_child_is_ended_only_while_its_number_is_its_own() -> None:
    pid = start_detached(["sleep", "3600"])
    assert pid in reap_detached()
    end_detached(pid)
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None and ended.si_status == signal.SIGKILL
    assert pid not in reap_detached()
    # Its number may be anybody's by now.
    end_detached(pid)
    end_detached(os.getpid())


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_detached_child_that_does_not_end_at_once_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pid = start_detached(["sleep", "3600"])
    with monkeypatch.context() as patched:
        # A process that waits for a disk does not end either.
        patched.setattr(os, "kill", lambda pid, number: None)
        end_detached(pid)
    assert pid in reap_detached()
    end_detached(pid)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert pid not in reap_detached()
