"""List, find, wait for and cancel jobs.

Merges the stored job with what its broker reports. A job whose process is gone is stored as crashed
when it is next looked at, and shown as crashed if the store cannot be written. A job is cancelled
through its broker, or without one with `cancel_by_file` or SIGINT. Starts nothing.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from dragoman.decoders import convert_typed
from dragoman.errors import (
    BrokerError,
    CallError,
    CallTimeout,
    ConnectError,
    ConnectionLost,
    StoreError,
    UnknownJob,
)
from dragoman.errors.usage import shown
from dragoman.events.words import Outcome
from dragoman.paths import Paths, find_paths
from dragoman.rpc.tasks import in_thread
from dragoman.runs.cancel_by_file import leave_note, reads_notes
from dragoman.runs.sessions import LAST
from dragoman.store.jobs import is_alive
from dragoman.store.open import open_store
from dragoman.transports.process.identity import ProcessIdentity, kill

if TYPE_CHECKING:
    from dragoman.store import Store
    from dragoman.store.records import JobRecord

log = logging.getLogger(__name__)

RECENT: Final = 200
"""Number of recent jobs to search for a mistyped id."""

LOOK_INTERVAL: Final = 0.2
"""Seconds between two polls of the store for the end of a job that another command runs."""

WAIT_TIMEOUT: Final = 30.0
"""Seconds to wait for the end of a job at its broker before checking that the broker still
answers. A job may take hours; a hung broker must not keep its caller waiting as long."""

ANSWER_TIMEOUT: Final = 10.0
"""Timeout in seconds for a broker to report on a job; that needs no peer."""


def list_jobs(
    *,
    root: Path | None = None,
    running: bool = False,
    attempts: bool = True,
    limit: int = 20,
    paths: Paths | None = None,
) -> list[JobRecord]:
    """Return at most `limit` jobs, newest first: with `root`, only those of that project, and with
    `running`, only those that run or are queued. The attempts of a delegation are jobs as well.

    Without `attempts` they are left out, except one that a broker continued after the process of
    its delegation was gone.
    """
    paths = paths or find_paths()
    _end_orphans(paths)
    with open_store(read_only=True, paths=paths) as store:
        where = None if root is None else str(root)
        if not running:
            found = store.jobs(root=where, limit=limit, attempts=attempts)
            found = [_current(store, job) for job in found]
            if not attempts:
                found += [one for job in found if (one := _survivor(store, job)) is not None]
        else:
            found = [
                *store.jobs("running", where, limit=limit),
                *store.jobs("queued", where, limit=limit),
            ]
            found = [job for job in found if _current(store, job).state != "ended"]
            if not attempts:
                found = [job for job in found if not _is_covered(store, job)]
    return sorted(found, key=lambda job: (job.created_at, job.id), reverse=True)[:limit]


def job_id_of(word: str, *, paths: Paths | None = None) -> str:
    """Return the id of the job that `word` names: its id, an unambiguous prefix of it, or `LAST`.
    Raises `UnknownJob`."""
    with open_store(read_only=True, paths=paths or find_paths()) as store:
        if store.job(word) is not None:
            return word
        found = store.job_ids(limit=1) if word == LAST else store.job_ids(word) if word else []
        if len(found) == 1:
            return found[0]
        if found:
            some = ", ".join(found[:3])
            raise UnknownJob(f"{len(found)} jobs begin with {word!r}, such as {some}")
        if word == LAST:
            raise UnknownJob("there are no jobs yet")
        from dragoman.errors.usage import nearest

        near = nearest(word, store.job_ids(limit=RECENT))
    meant = f"; did you mean {near[0]}?" if near else ""
    raise UnknownJob(f"there is no job {shown(word)}{meant}")


async def find_job(
    id: str, *, paths: Paths | None = None, require_answer: bool = False
) -> JobRecord:
    """Return the current state of a job. Raises `UnknownJob`.

    If its broker does not answer in time, returns the job as stored, or with `require_answer`
    raises `BrokerError`, so that a caller that polls does not poll forever.
    """
    paths = paths or find_paths()
    job = await _stored(id, paths)
    if job.state == "ended" or job.endpoint is None:
        return job
    try:
        return await ask(job, wait=False, paths=paths, timeout=ANSWER_TIMEOUT)
    except CallTimeout as error:
        if require_answer:
            raise _hung(job) from error
    except (ConnectError, ConnectionLost, CallError, BrokerError):
        # The job has just ended.
        pass
    return await _stored(id, paths)


def _hung(job: JobRecord) -> BrokerError:
    from dragoman.broker.client.hello import unanswered

    return BrokerError(
        f"the job {job.id} has not ended, and {unanswered(str(job.endpoint), ANSWER_TIMEOUT)}; "
        f"`dragoman jobs result {job.id}` shows what is stored"
    )


async def wait_for(
    id: str, *, timeout: float | None = None, paths: Paths | None = None
) -> JobRecord:
    """Wait for a job to end, and return it; if it has not ended after `timeout` seconds, return it
    as it is then.

    Raises `UnknownJob`, and `BrokerError` if the broker that runs it no longer answers.
    """
    paths = paths or find_paths()
    try:
        async with asyncio.timeout(timeout):
            while (job := await _stored(id, paths)).state != "ended":
                if job.endpoint is not None:
                    try:
                        told = await ask(job, wait=True, paths=paths)
                        if told.state == "ended":
                            return told
                        # After an upgrade a newer broker has the address and does not run the job.
                    except CallTimeout:
                        await find_job(id, paths=paths, require_answer=True)
                        continue
                    except (ConnectError, ConnectionLost, CallError, BrokerError):
                        pass
                # A command runs it, or its broker is ending: poll the store.
                await asyncio.sleep(LOOK_INTERVAL)
            return job
    except TimeoutError:
        return await find_job(id, paths=paths)


async def cancel_job(id: str, *, paths: Paths | None = None) -> bool:
    """Cancel a job, and its turn in the agent. If a broker continues the last attempt of a
    delegation whose process is gone, that attempt is cancelled. Returns False if the work has
    ended. Raises `UnknownJob`, and another `DragomanError` if the process that runs it cannot be
    reached."""
    paths = paths or find_paths()
    job = await _stored(id, paths)
    if job.state == "ended":

        def look(_: object) -> JobRecord | None:
            with open_store(read_only=True, paths=paths) as store:
                return _survivor(store, job)

        attempt = await in_thread(str(paths.state), look)
        return attempt is not None and await cancel_job(attempt.id, paths=paths)
    if job.endpoint is None:
        return await _stop_at_runner(job, paths)
    from dragoman.broker.client.hello import ask_broker
    from dragoman.broker.protocol import CANCEL

    try:
        answer = await ask_broker(
            address_of(job.endpoint, paths), CANCEL, {"job": id}, timeout=ANSWER_TIMEOUT
        )
    except CallTimeout as error:
        hung = _hung(job)
        hung.may_have_run = error.may_have_run
        raise hung from error
    return isinstance(answer, dict) and answer.get("cancelled") is True


async def _stop_at_runner(job: JobRecord, paths: Paths) -> bool:
    """Have the process that runs a job without a broker stop that job, and nothing else it runs.
    Returns False if the job has already ended. Raises `BrokerError` if the process cannot be
    asked."""
    trouble = ""
    if reads_notes(job.runner):
        try:
            if await leave_note(job.id, paths):
                return True
        except OSError as error:
            trouble = f": {error}"
    else:
        # A command that runs nothing else treats this as Ctrl-C, and shows the result so far.
        with suppress(msgspec.ValidationError):
            if kill(convert_typed(job.runner, ProcessIdentity), signal.SIGINT):
                return True
    if (await _stored(job.id, paths)).state == "ended":
        return False
    raise BrokerError(
        f"process {job.runner.get('pid', '?')}, which runs {job.id}, cannot be asked to stop it"
        f"{trouble}; the job continues"
    )


async def ask(
    job: JobRecord, *, wait: bool, paths: Paths, timeout: float | None = None
) -> JobRecord:
    """Return a job, updated with its broker's report. With `wait`, the broker reports only once the
    job has ended. Raises `CallTimeout` after `timeout` seconds (default: `WAIT_TIMEOUT`)."""
    from dragoman.broker.client.hello import ask_broker
    from dragoman.broker.protocol import RESULT

    assert job.endpoint is not None
    told = await ask_broker(
        address_of(job.endpoint, paths),
        RESULT,
        {"job": job.id, "wait": wait},
        timeout=WAIT_TIMEOUT if timeout is None else timeout,
    )
    return updated(job, told)


def updated(job: JobRecord, told: Any) -> JobRecord:
    """Return a stored job, updated with `told`, which is its broker's report."""
    if not isinstance(told, dict):
        return job
    known = dict(zip(type(job).__struct_encode_fields__, type(job).__struct_fields__, strict=True))
    newer = {known[name]: value for name, value in told.items() if name in _TOLD & known.keys()}
    return replace(job, **newer)


_TOLD: Final = frozenset(
    {
        "state",
        "outcome",
        "stop",
        "text",
        "failure",
        "usage",
        "startedAt",
        "endedAt",
        "firstEvent",
        "nextEvent",
    }
)
"""The fields for which the broker's report takes precedence."""


def address_of(endpoint: str, paths: Paths) -> str:
    """Return the address of a broker, by the name of its endpoint."""
    from dragoman.broker.endpoint import endpoint_of
    from dragoman.broker.spec import folders_of

    return endpoint_of(endpoint, folders_of(paths)).address


async def _stored(id: str, paths: Paths) -> JobRecord:
    """Return a job as stored, or as crashed if its process is gone; the store is then updated. Runs
    in a thread, because another process may hold the store."""
    return await in_thread(str(paths.state), lambda _: _read(id, paths), changes_disk=True)


def _read(id: str, paths: Paths) -> JobRecord:
    with open_store(read_only=True, paths=paths) as store:
        job = store.job(id)
        if job is None:
            raise UnknownJob(f"there is no job {id!r}")
        if job.state == "ended" or is_alive(job.runner):
            return _with_attempt(store, job)
    _end_orphans(paths)
    with open_store(read_only=True, paths=paths) as store:
        return _with_attempt(store, _current(store, store.job(id) or job))


def _with_attempt(store: Store, job: JobRecord) -> JobRecord:
    """Return a job with the agent's text; for a delegated one, that of its last attempt. If a
    broker continued this attempt, the failure of the job says so."""
    from dragoman.store.history import text_of

    attempt = _survivor(store, job)
    last = [attempt] if attempt else [] if job.session_key else store.attempts(job.id)
    job = replace(job, text=text_of(store, last[-1] if last and not job.text else job))
    if attempt is None:
        return job
    state = f"ended: {attempt.outcome}" if attempt.state == "ended" else f"is {attempt.state}"
    verb = "result" if attempt.state == "ended" else "watch"
    told = (
        f"{(job.failure or {}).get('message')}; its attempt {state} "
        f"(`dragoman jobs {verb} {attempt.id}`)"
    )
    return replace(job, failure={**(job.failure or {}), "message": told})


def _survivor(store: Store, job: JobRecord) -> JobRecord | None:
    """Return the last attempt of a delegation whose process is gone, if a broker continued it, else
    None."""
    if job.outcome != Outcome.CRASHED:
        return None
    attempts = [_current(store, attempt) for attempt in store.attempts(job.id)]
    if not attempts or attempts[-1].outcome == Outcome.CRASHED:
        return None
    return attempts[-1]


def _is_covered(store: Store, job: JobRecord) -> bool:
    """Return whether a job is an attempt of a delegation that is listed itself."""
    parent = store.job(job.id.rpartition("-")[0])
    return parent is not None and parent.state != "ended"


def _end_orphans(paths: Paths) -> None:
    """Store as crashed the jobs whose process is gone, if the store can be written."""
    with open_store(read_only=True, paths=paths) as store:
        unfinished = [*store.jobs("running"), *store.jobs("queued")]
    if all(is_alive(job.runner) for job in unfinished):
        return
    try:
        with open_store(paths=paths) as store:
            store.end_orphans(is_alive)
    except StoreError as error:
        # What can only be read is shown as it is: see `_current`.
        log.info("cannot store that jobs have crashed: %s", error)


def _current(store: Store, job: JobRecord) -> JobRecord:
    """Return a job as stored, or as crashed if its process is gone."""
    if job.state == "ended" or is_alive(job.runner):
        return job
    return store.as_crashed(job)
