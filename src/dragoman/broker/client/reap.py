"""Clean up after killed brokers: kill their orphaned peers, remove sockets, locks and records.

Runs at every start of a broker and for `dragoman broker reap`. A process is killed only if its
identity matches a record, or if it carries the mark of a broker that is proven dead. Anything
uncertain is left alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.broker.endpoint import LOCK, SOCKET, STARTING
from dragoman.broker.lock import is_held, try_lock
from dragoman.broker.records import BrokerRecord, read_records
from dragoman.transports.process import warden
from dragoman.transports.process.identity import ProcessState, kill, state_of
from dragoman.transports.process.strays import find_owned

log = logging.getLogger(__name__)

SWEEP_TIMEOUT: Final = 3.0
"""Seconds to look for the processes of one dead broker. They are gone within milliseconds."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """The processes that were killed and the files that were removed for one dead broker."""

    name: str
    processes: int
    """Number of processes killed."""
    files: tuple[str, ...]


def sweep(folder: Path) -> list[Reaped]:
    """Clean up after every dead broker. Returns what was killed and removed for each; brokers for
    which there was nothing to do are left out. Blocks for a moment if there are processes to kill.

    Safe to run concurrently and while brokers start: live ones are not touched.
    """
    found = [*_sweep_records(folder), *_sweep_files(folder)]
    return [one for one in found if one.processes or one.files]


def _sweep_records(folder: Path) -> list[Reaped]:
    reaped: list[Reaped] = []
    for path, record in read_records(folder):
        if record is None:
            # A newer dragoman may use another format, or its process may be replacing the file
            # right now.
            continue
        if state_of(record.broker) is not ProcessState.DEAD:
            continue
        killed = _end_processes(record)
        with contextlib.suppress(OSError):
            path.unlink()
        files = [path.name]
        with _one_of_many(folder / f"{record.name}{LOCK}"):
            files += _remove_address(folder, record)
        reaped.append(Reaped(record.name, killed, tuple(files)))
    return reaped


@contextlib.contextmanager
def _one_of_many(path: Path) -> Iterator[None]:
    """Context manager: log an `OSError` instead of raising it, so that the files of other brokers
    are still cleaned up."""
    try:
        yield
    except OSError as error:
        log.warning("%s cannot be cleaned up: %s", path, error.strerror or error)


def _end_processes(record: BrokerRecord) -> int:
    """Kill the children of a dead broker and their descendants; returns how many."""
    groups = [one.pid for one in record.children if state_of(one) is ProcessState.ALIVE]
    marked = set(find_owned(record.owner)) if record.owner else set()
    if not groups and not marked:
        return 0
    for child in record.children:
        if state_of(child) is ProcessState.ALIVE:
            # Each child leads the process group with its own pid. It was alive a moment ago, so the
            # pid still belongs to this group.
            warden.kill_group(child.pid)
            kill(child, signal.SIGKILL)
    if record.owner:
        warden.sweep(record.owner, (), sweep_timeout=SWEEP_TIMEOUT)
    return len(marked | set(groups))


def _remove_address(folder: Path, record: BrokerRecord) -> list[str]:
    """Remove the socket and the lock of a dead broker, unless another broker has the name by
    now."""
    removed: list[str] = []
    if not (folder / f"{record.name}{LOCK}").exists() and not os.path.lexists(record.address):
        return removed
    # Held while the files are removed, so that no broker starts listening there in the meantime.
    lock = try_lock(folder / f"{record.name}{LOCK}")
    if lock is None:
        return removed
    with lock:
        if _remove_socket(Path(record.address)):
            removed.append(os.path.basename(record.address))
        removed.append(lock.path.name)
    return removed


def _sweep_files(folder: Path) -> list[Reaped]:
    """Remove the locks that no process holds, and their sockets, such as those of a broker that
    died before it wrote a record."""
    reaped: list[Reaped] = []
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return reaped
    for name in names:
        endpoint, dot, ending = name.rpartition(".")
        kind = f"{dot}{ending}"
        if kind not in (LOCK, SOCKET, STARTING):
            continue
        path = folder / (name if kind == STARTING else f"{endpoint}{LOCK}")
        with _one_of_many(path):
            if is_held(path) or not (folder / name).exists():
                # The lock is in use, or was just released in an orderly way.
                continue
            lock = try_lock(path)
            if lock is None:
                continue
            with lock:
                files = [name] if kind != SOCKET else []
                socket = folder / f"{endpoint}{SOCKET}"
                if kind != STARTING and _remove_socket(socket):
                    files.append(socket.name)
            reaped.append(Reaped(endpoint, 0, tuple(files)))
    return reaped


def _remove_socket(path: Path) -> bool:
    """Remove a socket; any other file at its path is left alone. Returns whether it was removed."""
    if sys.platform == "win32":
        return False
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        path.unlink()
    except OSError:
        return False
    return True
