"""Identify a process safely: pid, start time, boot and namespace; check that it lives, or kill it.

A bare pid from a file is never trusted, because the pid may have been reused. Uses /proc on Linux,
and psutil elsewhere; if that is missing, nothing is proven and nothing is killed. Also reports the
memory of a process and of its descendants. For our own children see `child`.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC = Path("/proc")

MAX_PROCESSES: Final = 1000
"""Maximum number of processes whose memory is added up; the rest of a larger tree is ignored."""

MAX_LAUNCHERS = 5
"""Maximum length of the chain of launchers before the program that does the work: `npx` starts a
shell, which starts the agent's script, which starts itself once more."""


class ProcessState(enum.Enum):
    """State of a recorded process."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """The process was recorded in another process namespace, or this system cannot tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process, distinguished from every other one that had or will have its pid."""

    pid: int
    started: str
    """Start time in the system's own unit; only compared, never interpreted."""
    boot: str
    """Identifies the boot of the machine in which the process was started."""
    namespace: str = ""
    """The pid namespace in which `pid` counts (a container has its own); empty if the system has
    none."""


def own_identity() -> ProcessIdentity:
    """Return the identity of this process; without start time and boot if the system does not
    report them."""
    found = identify(os.getpid())
    # Without a way to prove the identity only the pid is recorded, and proves nothing later.
    return found or ProcessIdentity(pid=os.getpid(), started="", boot="")


def identify(pid: int, *, proc: Path = PROC) -> ProcessIdentity | None:
    """Return the identity of the process with this pid, or None if there is none, it is dead, or
    the system cannot tell."""
    if pid <= 0:
        return None
    started = _started(pid, proc)
    if not started:
        return None
    return ProcessIdentity(pid=pid, started=started, boot=_boot(proc), namespace=_namespace(proc))


def state_of(identity: ProcessIdentity, *, proc: Path = PROC) -> ProcessState:
    """Return the state of the identified process. A zombie is dead."""
    if not identity.started or not identity.boot:
        return ProcessState.UNKNOWN
    boot = _boot(proc)
    if not boot:
        return ProcessState.UNKNOWN
    if boot != identity.boot:
        return ProcessState.DEAD
    if identity.namespace != _namespace(proc):
        return ProcessState.UNKNOWN
    alive = _started(identity.pid, proc) == identity.started
    return ProcessState.ALIVE if alive else ProcessState.DEAD


def kill(identity: ProcessIdentity, number: int = signal.SIGTERM) -> bool:
    """Send the signal `number` to the identified process. Returns False if it is not proven to be
    alive, we may not signal it, or it is init or ourselves.

    Where the system has process handles, one is opened before the identity is checked, so that a
    pid reused in between is never hit.
    """
    if identity.pid in (0, 1, os.getpid()):
        return False
    try:
        handle = os.pidfd_open(identity.pid)
    except (AttributeError, OSError):
        handle = -1
    try:
        if state_of(identity) is not ProcessState.ALIVE:
            return False
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(identity.pid, number)
    except OSError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def is_stopped(pid: int, *, proc: Path = PROC) -> bool:
    """Return whether a process is stopped by a signal, so that it does nothing until it is
    continued. False if the system does not report it.

    A launcher, such as a shell or `npx`, counts as stopped if the program that it waits for is
    stopped: its only child, which has the same input.
    """
    launcher = pid
    for _ in range(MAX_LAUNCHERS):
        if _fields(pid, proc)[:1] == [b"T"]:
            return True
        children = _children(pid, proc)
        if len(children) != 1 or not _has_input_of(launcher, children[0], proc):
            return False
        pid = children[0]
    return False


def resident_size(pid: int, *, proc: Path = PROC) -> int | None:
    """Return the resident memory of a process in bytes, or None if the system does not report
    it."""
    try:
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def resident_tree(pid: int, *, proc: Path = PROC) -> int | None:
    """Return the resident memory of a process and its descendants (at most `MAX_PROCESSES`
    processes) in bytes, or None if the system does not report it."""
    total = resident_size(pid, proc=proc)
    if total is None:
        return None
    # The kernel lists a process's children if it was built for that; else scan all processes.
    listed = (proc / str(pid) / "task" / str(pid) / "children").exists()
    below = None if listed else _all_children(proc)
    seen = {pid}
    waiting = [pid]
    while waiting and len(seen) < MAX_PROCESSES:
        parent = waiting.pop()
        for child in _children(parent, proc) if below is None else below.get(parent, ()):
            if child not in seen:
                seen.add(child)
                waiting.append(child)
                # A process that has just ended has no memory any more.
                total += resident_size(child, proc=proc) or 0
    return total


def _all_children(proc: Path) -> dict[int, list[int]]:
    """Return, for every process that has children, the pids of its children, from one scan of all
    processes."""
    below: dict[int, list[int]] = {}
    for entry in proc.iterdir() if proc.is_dir() else ():
        if entry.name.isdigit() and (parent := parent_of(int(entry.name), proc=proc)):
            below.setdefault(parent, []).append(int(entry.name))
    return below


def parent_of(pid: int, *, proc: Path = PROC) -> int:
    """Return the pid of a process's parent, or 0 if the system does not report it."""
    try:
        return int(_fields(pid, proc)[1])
    except (ValueError, IndexError):
        return 0


def variables_of(pid: int, prefix: str, *, proc: Path = PROC) -> dict[str, str] | None:
    """Return those initial environment variables of a process whose names begin with `prefix`, or
    None if they cannot be read, for example because the process belongs to another user."""
    try:
        text = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    found = (entry.decode("utf-8", "replace").partition("=") for entry in text.split(b"\0"))
    return {name: value for name, _, value in found if name.startswith(prefix)}


def _started(pid: int, proc: Path) -> str:
    """Return the start time of a living process; empty if there is none."""
    if sys.platform != "linux":
        return _started_elsewhere(pid)
    fields = _fields(pid, proc)
    if len(fields) < 20 or fields[0] in (b"Z", b"X", b"x"):
        return ""
    # Ticks since boot, unaffected by changes of the clock.
    return fields[19].decode()


def _fields(pid: int, proc: Path) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; empty where there is no /proc."""
    try:
        text = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return []
    # The second field is the program's name in parentheses, which may hold spaces and parentheses.
    return text.rpartition(b")")[2].split()


def _children(pid: int, proc: Path) -> list[int]:
    """Return the pids of the children of a process (of all its threads), as far as the system
    reports them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in (proc / str(pid) / "task").iterdir():
            # A thread may end while it is being read.
            with contextlib.suppress(OSError, ValueError):
                found += map(int, (task / "children").read_text().split())
    return found


def _has_input_of(pid: int, other: int, proc: Path) -> bool:
    """Return whether `other` holds the pipe that is the standard input of `pid`.

    It may be under any descriptor: some programs move it so that their children do not read it.
    """
    try:
        wanted = os.readlink(proc / f"{pid}/fd/0")
        held = {os.readlink(entry) for entry in (proc / f"{other}/fd").iterdir()}
    except OSError:
        return False
    return wanted in held and wanted.startswith(("pipe:", "socket:"))


def _started_elsewhere(pid: int) -> str:
    with contextlib.suppress(ImportError):
        import psutil

        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                return f"{process.create_time():.3f}"
    return ""


@functools.cache
def _boot(proc: Path) -> str:
    if sys.platform != "linux":
        with contextlib.suppress(ImportError):
            import psutil

            # Derived from the clock on some systems, so a small difference does not mean another
            # boot.
            return str(round(psutil.boot_time() / 60))
        return ""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@functools.cache
def _namespace(proc: Path) -> str:
    if sys.platform != "linux":
        return ""
    try:
        return os.readlink(proc / "self/ns/pid")
    except OSError:
        return ""
