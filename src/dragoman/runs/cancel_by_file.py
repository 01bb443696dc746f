"""Cancel a job in another process with a note file that the process watches for.

Used for servers that run many jobs in one process, where a signal would stop all of them. The note
is named after the job, in the state directory. Jobs in a broker are cancelled through its socket
instead.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from dragoman.client.folders import make_private
from dragoman.transports.file_watch import FileWatch
from dragoman.transports.process.identity import own_identity

if TYPE_CHECKING:
    from dragoman.paths import Paths

log: Final = logging.getLogger("dragoman.runs")

FOLDER: Final = "stop"
"""Directory of the notes, below the state directory."""

MARK: Final = "notes"
"""Key in a process description which says that the process watches for notes."""

LOOK_INTERVAL: Final = 0.05
"""Seconds between two checks of whether a note was taken."""

TAKE_TIMEOUT: Final = 5.0
"""Seconds for a note to be taken: enough even for a very busy process."""


def note_reader() -> dict[str, Any]:
    """Return a description of this process that says it watches for notes."""
    return {**dataclasses.asdict(own_identity()), MARK: True}


def reads_notes(runner: Mapping[str, Any]) -> bool:
    """Return whether a process watches for notes, according to its description in a job's
    record."""
    return runner.get(MARK) is True


async def leave_note(job: str, paths: Paths) -> bool:
    """Leave a note that asks for a job to be stopped, and wait until it is taken.

    Returns whether it was taken; if not within `TAKE_TIMEOUT`, the note is removed. Raises
    `OSError` if it cannot be written.
    """
    note = _place(job, paths)
    make_private(note.parent)
    note.touch(mode=0o600)
    try:
        async with asyncio.timeout(TAKE_TIMEOUT):
            while note.exists():  # noqa: ASYNC110 - another process takes it
                await asyncio.sleep(LOOK_INTERVAL)
            return True
    except TimeoutError:
        return not _taken(note)
    except asyncio.CancelledError:
        _taken(note)
        raise


async def obey_note(job: str, paths: Paths, stop: Callable[[], object]) -> None:
    """Wait for a note about a job, remove it, and call `stop`. Returns without calling it if the
    directory of the notes cannot be created."""
    note = _place(job, paths)
    try:
        make_private(note.parent)
    except OSError as error:
        log.info("cannot watch for a stop request for %s: %s", job, error)
        return
    changed = asyncio.Event()
    watch = FileWatch([note.parent], lambda folder, name: changed.set())
    try:
        while not _taken(note):
            await changed.wait()
            changed.clear()
    finally:
        watch.close()
    stop()


def _place(job: str, paths: Paths) -> Path:
    return paths.state / FOLDER / quote(job, safe="")


def _taken(note: Path) -> bool:
    try:
        note.unlink()
    except OSError:
        return False
    return True
