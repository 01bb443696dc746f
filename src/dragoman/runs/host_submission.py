"""Submit a prompt from another machine only once, no matter how often it is requested.

The other side generates the job id. A lock for that id allows one submission at a time, and a
record on disk says whether the prompt may have been sent, so that an interrupted submission is
repeated only if the prompt was not sent.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from dragoman.broker.lock import lock_within
from dragoman.config.safe_files import write_whole
from dragoman.errors import BrokerError, FileFailed, UnknownJob, UsageError
from dragoman.paths import Paths
from dragoman.rpc.tasks import in_thread
from dragoman.runs.host_files import is_id, make_folder
from dragoman.runs.jobs import find_job
from dragoman.store.records import JobRecord

FOLDER: Final = "host-submissions"
LOCK_TIMEOUT: Final = 330.0
"""Seconds to wait for an earlier connection that is submitting the same job: its agent may have to
start."""
APPEAR_TIMEOUT: Final = 10.0
"""Seconds for a job to appear in the store after its prompt was sent."""
APPEAR_INTERVAL: Final = 0.02


class Submission:
    """The submission of one job, while its lock is held."""

    def __init__(self, job: str, file: Path) -> None:
        self.job = job
        self._file = file

    def sending(self) -> None:
        """Record that the prompt is about to be sent: from now on it may have run."""
        _write(self._file, b"sending\n")

    def not_sent(self) -> None:
        """Remove the record, because the prompt was rejected and cannot have run."""
        with suppress(OSError):
            self._file.unlink()


@asynccontextmanager
async def submission(job: str, *, paths: Paths) -> AsyncIterator[Submission | JobRecord]:
    """Context manager: a new submission, or the job if it was already submitted. Raises
    `UsageError` for an invalid id, `FileFailed` if nothing can be written, and `BrokerError` if the
    prompt may have been sent but the job cannot be found, or if another connection has been
    submitting it for too long."""
    if not is_id(job):
        raise UsageError(f"not a job id: {job!r}")
    folder = paths.state / FOLDER
    try:
        await in_thread(str(folder), lambda _: make_folder(folder))
        lock = await lock_within(folder / f"{job}.lock", timeout=LOCK_TIMEOUT)
    except OSError as error:
        raise _failed(folder, error) from error
    if lock is None:
        slow = BrokerError(
            f"another connection has been submitting the job {job} for more than {LOCK_TIMEOUT:g} s"
        )
        slow.may_have_run = True
        raise slow
    file = folder / job
    with lock:
        try:
            sent = await in_thread(str(file), lambda _: file.exists())
            found = await _find(job, paths, timeout=APPEAR_TIMEOUT if sent else 0.0)
            if found is not None:
                yield found
                return
            if sent:
                lost = BrokerError(
                    f"the prompt of job {job} may have been sent, but its broker has lost it; "
                    "it is not sent again"
                )
                lost.may_have_run = True
                raise lost
            # On a full disk this fails before anything is started.
            new = folder / f"{job}.new"
            await in_thread(str(new), lambda _: _write(new, b"submitting\n" + bytes(4096)))
            yield Submission(job, file)
        finally:
            with suppress(OSError):
                (folder / f"{job}.new").unlink(missing_ok=True)


async def find_sent(job: str, *, paths: Paths) -> JobRecord | None:
    """Return the job with this id if a submission has sent its prompt. None if the prompt was not
    sent, or if the job does not appear within `APPEAR_TIMEOUT`."""
    if not is_id(job) or not (paths.state / FOLDER / job).exists():
        return None
    return await _find(job, paths, timeout=APPEAR_TIMEOUT)


async def _find(job: str, paths: Paths, *, timeout: float) -> JobRecord | None:
    until = time.monotonic() + timeout
    while True:
        try:
            return await find_job(job, paths=paths)
        except UnknownJob:
            if time.monotonic() >= until:
                return None
        await asyncio.sleep(APPEAR_INTERVAL)


def _write(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data, sync=True)
    except OSError as error:
        raise _failed(path, error) from error


def _failed(path: Path, error: OSError) -> FileFailed:
    return FileFailed(str(path), error.strerror or os.strerror(error.errno or 0), error.errno)
