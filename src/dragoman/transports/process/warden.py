"""The warden: a small process that kills the children of a dragoman process that was killed.

Runs as a plain file (`python -I -S warden.py OWNER REGISTER`) and must not import dragoman. Its
stdin is a pipe that only its owner holds, so end of file means that the owner is dead. Unless the
owner sent a goodbye, the warden kills all processes with the owner's mark or in a session listed in
the file REGISTER. `guard` starts it, `strays` uses its search of /proc. With `supervise PID` it is
the supervisor of `subreaper`: it waits for PID, then kills every process that it adopted.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Only four modules are imported at run time, because every start of a warden has to load them.
    from collections.abc import Collection, Iterator

MARK_NAME = "DRAGOMAN_MARK"
"""The environment variable that names the owner of a process: `<owner>.<serial>`."""

DETACHED = "detached"
"""The mark of a process that outlives the one that started it: a broker or a warden. Such a process
has no owner, so no search for an owner finds it, and a supervisor that adopts it does not kill it.
"""

SUPERVISE = "supervise"
"""First argument of a command line that starts a supervisor."""

SWEEP_TIMEOUT = 5.0
"""Seconds after which the warden gives up on processes that do not die, because it must not stay
for long."""

WARDEN_TIMEOUT = SWEEP_TIMEOUT + 1.0
"""Seconds that a supervisor gives a warden for its search."""

SWEEP_INTERVAL = 0.02
"""Seconds between two searches: a killed process takes a moment to disappear."""

CLEAN_SWEEPS = 3
"""Number of consecutive searches that must find nothing. During an exec a process has no readable
environment for an instant, so one clean search proves little."""

ENTRY_SIZE = 4
"""Size in bytes of one entry in the register: a session id, little-endian, or 0."""

REGISTER_SIZE = 256 * 1024
"""Maximum number of bytes read from the register: enough for many more children than a machine can
have."""

ENVIRON_READ_SIZE = 32 * 1024
"""Size of one read in bytes, which holds most environments."""


def owner_needle(owner: str) -> bytes:
    """Return what to look for in an environment to find every process of an owner."""
    return b"\0" + f"{MARK_NAME}={owner}.".encode()


def mark_needle(mark: str) -> bytes:
    """Return what to look for in an environment to find the processes that carry the mark of one
    child."""
    return b"\0" + f"{MARK_NAME}={mark}".encode() + b"\0"


def read_environ(pid: int) -> bytes:
    """Return the initial environment of a process: a NUL, then entries each ended by NUL.

    It has no entries if the process is gone, is a zombie, or we may not read it.
    """
    try:
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b"\0"
    try:
        data = b"\0"
        while True:
            part = os.read(fd, ENVIRON_READ_SIZE)
            data += part
            if len(part) < ENVIRON_READ_SIZE:
                return data
    except OSError:
        return b"\0"
    finally:
        os.close(fd)


def is_zombie(pid: int) -> bool:
    """Return whether a process is dead and waits to be reaped, or is gone."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        # The name in parentheses may itself hold a parenthesis: the state follows the last one.
        state = os.read(fd, 4096).rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return True
    finally:
        os.close(fd)
    return state in (b"Z", b"X", b"x")


def is_ours(pid: int, needle: bytes, sessions: Collection[int]) -> bool:
    """Return whether a living process has `needle` in its environment or belongs to one of the
    sessions."""
    try:
        session = os.getsid(pid)
    except OSError:
        return False
    # Session 0 means nothing: kernel threads are in it, and so is whatever the init of a small
    # machine, or a `docker exec` from outside, starts without a session of its own.
    if session in sessions and not is_zombie(pid):
        return True
    return needle in read_environ(pid)


def list_processes() -> list[int]:
    """Return every pid except ours; none where there is no /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    own = os.getpid()
    return [int(name) for name in names if name.isdecimal() and int(name) != own]


def find(needle: bytes, sessions: Collection[int] = ()) -> Iterator[int]:
    """Yield the living processes that have `needle` in their environment or belong to one of the
    sessions."""
    for pid in list_processes():
        if is_ours(pid, needle, sessions):
            yield pid


def kill(pid: int, needle: bytes, sessions: Collection[int] = ()) -> bool:
    """Kill a process found a moment ago. Returns False if it is not ours, or we may not kill it.

    The handle is opened first and `is_ours` is checked again while it is open, so a pid reused in
    between is never hit. Systems without such handles do not have this protection.
    """
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        fd = -1
    try:
        if not is_ours(pid, needle, sessions):
            return False
        if fd >= 0:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    finally:
        if fd >= 0:
            os.close(fd)
    return True


def kill_group(group: int) -> None:
    """Kill a process group, if there is one."""
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass


def sweep(
    owner: str,
    groups: Collection[int],
    *,
    sweep_timeout: float = SWEEP_TIMEOUT,
    clean_sweeps: int = CLEAN_SWEEPS,
) -> None:
    """Kill all processes of an owner and of the sessions `groups`, until none is left or the
    timeout has passed. Without /proc, only the process groups can be found."""
    needle = owner_needle(owner)
    deadline = time.monotonic() + sweep_timeout
    if not os.path.isdir("/proc/self"):
        for group in groups:
            kill_group(group)
        return
    clean = 0
    while True:
        # All at once first: a process that forks faster than the search proceeds is never where it
        # was found.
        for group in groups:
            kill_group(group)
        killed = [pid for pid in find(needle, groups) if kill(pid, needle, groups)]
        clean = 0 if killed else clean + 1
        if clean >= clean_sweeps or time.monotonic() > deadline:
            return
        time.sleep(SWEEP_INTERVAL)


def said_goodbye(fd: int) -> bool:
    """Read the pipe until a goodbye or its end. Returns whether there was a goodbye."""
    data = b""
    while part := os.read(fd, 64):
        data += part
        if data.endswith(b"goodbye\n"):
            return True
    return False


def read_register(fd: int) -> set[int]:
    """Return the sessions of the children that may still exist."""
    data = os.pread(fd, REGISTER_SIZE, 0)
    entries = range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE)
    return {int.from_bytes(data[at : at + ENTRY_SIZE], "little") for at in entries} - {0}


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent, or 0 if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may itself hold a parenthesis.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def supervise(child: int) -> None:
    """Reap everything that ends, until the child with this pid has ended. Then end all other
    children, including adopted ones, except detached processes."""
    while True:
        try:
            if os.wait()[0] == child:
                break
        except ChildProcessError:
            break
    end_children()
    end_wardens()


def end_wardens(end_timeout: float = WARDEN_TIMEOUT) -> None:
    """Reap the wardens among the children of this process. One that does not end in time was
    stopped by a signal, and is killed. Their dragoman processes are dead: otherwise those would
    still be their parents."""
    own = os.getpid()
    deadline = time.monotonic() + end_timeout
    while left := [
        pid
        for pid in list_processes()
        if parent_of(pid) == own and not reap(pid) and is_warden(pid)
    ]:
        if time.monotonic() > deadline:
            kill_children(left)
        time.sleep(SWEEP_INTERVAL)


def is_warden(pid: int) -> bool:
    """Return whether a process runs this very file, and not as a supervisor."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False
    return os.fsencode(__file__) in words and SUPERVISE.encode() not in words


def end_children(end_timeout: float = SWEEP_TIMEOUT) -> None:
    """Kill and reap every child of this process until none is left or `end_timeout` has passed. The
    children of a killed one are adopted in turn. Detached processes are left alone."""
    detached = mark_needle(DETACHED)
    own = os.getpid()
    deadline = time.monotonic() + end_timeout
    while time.monotonic() < deadline:
        children = [pid for pid in list_processes() if parent_of(pid) == own and not reap(pid)]
        left = [pid for pid in children if detached not in read_environ(pid)]
        if not left:
            return
        kill_children(left)
        time.sleep(SWEEP_INTERVAL)


def kill_children(pids: list[int]) -> None:
    """Kill children of this process. Only this process reaps them, so their pids are not reused."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def reap(child: int) -> bool:
    """Reap a child if it is dead. Returns whether it was."""
    try:
        return os.waitpid(child, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True


def main() -> None:
    """Run as a program. Signals meant for our dragoman process do not end its warden."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    if sys.argv[1] == SUPERVISE:
        supervise(int(sys.argv[2]))
        return
    owner, register = sys.argv[1], int(sys.argv[2])
    if not said_goodbye(0):
        sweep(owner, read_register(register))


if __name__ == "__main__":
    main()
