"""Record a delegation in the ledger, in ``events.jsonl`` and in the store; also record a user's
verdict on it.

A failing disk never stops a delegation: the first failure is reported as a notice. `learning`
computes what to record. The writes run in threads, because another process may hold a file for
seconds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs

from dragoman.config.secrets import redactor
from dragoman.delegation.health import Reading
from dragoman.delegation.learning import revision
from dragoman.errors import FileFailed, StoreCorrupt, StoreError, UnknownJob, UnknownSession
from dragoman.events.words import Outcome
from dragoman.rpc.tasks import TaskOwner, finish, in_thread
from dragoman.runs.cancel_by_file import note_reader
from dragoman.store.jobs import is_alive
from dragoman.store.ledger import (
    AttemptRecord,
    Ending,
    EventName,
    EventsFile,
    HealthChange,
    Learned,
    Ledger,
    events_path,
    ledger_path,
    logged,
)
from dragoman.store.ledger.records import Verdict
from dragoman.store.open import open_store
from dragoman.store.records import REPORT, JobRecord, root_of

if TYPE_CHECKING:
    from dragoman.delegation.attempt_report import AttemptReport
    from dragoman.delegation.request import DelegationRequest
    from dragoman.delegation.routing import Decision
    from dragoman.paths import Paths
    from dragoman.runs.context import RunContext
    from dragoman.store.ledger.attempt_table import EndedAttempt
    from dragoman.store.store import Store


T = TypeVar("T")


class Journal:
    """Async context manager that writes the records of one delegation.

    The methods that record something only queue the writes, which run one after another; `flush`
    waits for them, and so does the end of the context.
    """

    def __init__(
        self, place: RunContext, *, clock: Callable[[], float], on_notice: Callable[[str], None]
    ) -> None:
        self._paths = place.paths
        self._clock = clock
        self._on_notice = on_notice
        self._told = False
        names = [name for peer in place.catalogue for name in peer.credentials.env]
        self._redact = redactor(names, place.environ)
        self._log = EventsFile(events_path(self._paths.state), self._redact)
        self.runner = note_reader()
        self.ledger: Ledger | None = None
        """The ledger; None if it cannot be used."""
        self._store: Store | None = None
        self._ids: dict[tuple[str, int], int] = {}
        """The ledger's ids of the attempts, by job and number."""
        self._queue: deque[Callable[[object], object]] = deque()
        self._hangs = False
        """Whether a write did not end in time. If so, nothing more is recorded."""
        self._tasks = TaskOwner("a journal")
        self._writing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Journal:
        self._loop = asyncio.get_running_loop()
        self._put(lambda _: self._open())
        try:
            await self.flush()
        except BaseException:
            await finish(self._close())
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await finish(self._close())

    def _open(self) -> None:
        self._try(self._open_ledger)
        self._try(self._open_store)
        ledger = self.ledger
        if ledger is not None:
            self._try(lambda: ledger.end_orphans(is_alive, self._last_sign))

    def _open_ledger(self) -> None:
        self.ledger = Ledger.open(ledger_path(self._paths.state), self._redact)
        self._tell_replaced(self.ledger)

    def _open_store(self) -> None:
        self._store = open_store(paths=self._paths)
        self._tell_replaced(self._store)

    def _last_sign(self, attempt: AttemptRecord) -> float | None:
        """Return when the last event of an attempt was stored with its session, or None if that is
        unknown."""
        if self._store is None:
            return None
        try:
            return self._store.last_sign(f"{attempt.job}-{attempt.number}")
        except StoreError:
            return None

    def _tell_replaced(self, file: Ledger | Store) -> None:
        if file.replaced:
            self._notice(f"{file.path}: {file.replaced}")

    async def read(self, read: Callable[[Ledger | None], T]) -> T:
        """Call `read` with the ledger, in a thread and after all queued writes, and return its
        result. If the ledger turns out to be damaged or unreadable, `read` is called again, with
        the new ledger that replaced it or with None. Raises `StoreError` if `read` needs a ledger
        and none can be read."""
        await self.flush()
        return await in_thread(str(self._paths.state), lambda _: self._read(read))

    def _read(self, read: Callable[[Ledger | None], T]) -> T:
        try:
            return read(self.ledger)
        except StoreCorrupt as error:
            self._notice(str(error))
            if not error.replaced and self.ledger is not None:
                self.ledger.close()
                self.ledger = None
            return read(self.ledger)
        except StoreError as error:
            if self.ledger is None:
                raise
            try:
                found = read(None)
            except StoreError:
                raise error from None
            self._notice(f"the results of earlier delegations are not used: {error}")
            return found

    async def flush(self) -> None:
        """Wait until every write that was queued so far has been made or has failed."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.result()

    async def _close(self) -> None:
        self._later(self._close_files)
        try:
            await self.flush()
        finally:
            await self._tasks.aclose()

    def _close_files(self) -> None:
        with ExitStack() as closing:
            if self._store is not None:
                closing.callback(self._store.close)
            if self.ledger is not None:
                closing.callback(self.ledger.close)

    # -- the job

    def job_began(self, job: str, request: DelegationRequest, peer: str) -> None:
        now = self._clock()
        record = JobRecord(
            id=job,
            session_key="",
            peer=peer,
            root=str(root_of(request.workspace)),
            prompt=request.prompt,
            state="running",
            created_at=now,
            started_at=now,
            runner=self.runner,
        )
        store = self._store
        if store is not None:
            self._later(lambda: store.create_job(record))

    def job_tries(self, job: str, peer: str) -> None:
        """Record that a peer starts to work on the job."""
        self._change_job(job, peer=peer)

    def job_follows(self, job: str, attempt: str) -> None:
        """Make the job's record refer to the session and events of an attempt that has ended."""
        store = self._store

        def follow() -> None:
            assert store is not None
            child = store.job(attempt)
            if child is not None:
                store.update_job(
                    job,
                    peer=child.peer,
                    session_key=child.session_key,
                    first_event=child.first_event,
                    next_event=child.next_event,
                )

        if store is not None:
            self._later(follow)

    def keep_report(self, attempt: str, report: AttemptReport) -> None:
        """Store, with the session of an attempt, the facts that a later review needs."""
        from dragoman.delegation.review.kept_report import as_note, kept_report

        store = self._store

        def keep() -> None:
            assert store is not None
            child = store.job(attempt)
            kept = kept_report(attempt, report)
            if kept is not None and child is not None and child.session_key:
                store.note(child.session_key, child.next_event, REPORT, as_note(kept))

        if store is not None:
            self._later(keep)

    def job_ended(self, job: str, final: AttemptReport | None, outcome: str, text: str) -> None:
        fields: dict[str, Any] = {
            "state": "ended",
            "outcome": outcome,
            "text": text,
            "ended_at": self._clock(),
        }
        if final is not None:
            fields |= {"peer": final.peer, "stop": final.stop}
            if final.failure is not None:
                bare = structs.replace(final.failure, data=None)
                fields["failure"] = failed = msgspec.to_builtins(bare, enc_hook=str)
                if final.stderr_tail:
                    failed["stderr_tail"] = final.stderr_tail
            fields["usage"] = msgspec.to_builtins(final.tokens)
        self._change_job(job, **fields)

    def _change_job(self, job: str, **fields: Any) -> None:
        store = self._store
        if store is not None:
            self._later(lambda: store.update_job(job, **fields))

    # -- decisions and attempts

    def decided(self, job: str, decision_id: str, decision: Decision) -> None:
        first = decision.candidates[0].peer if decision.candidates else None
        self._write(
            EventName.DELEGATION_DECIDED,
            job=job,
            role=decision.role,
            peer=first,
            detail=decision.why,
            decision=decision_id,
        )

    def began(self, decision: Decision, attempt: AttemptRecord, health: HealthChange) -> None:
        ledger = self.ledger
        if ledger is not None:
            told = msgspec.to_builtins(decision)

            def begin() -> None:
                self._ids[attempt.job, attempt.number] = ledger.begin(
                    attempt.decision_id, told, attempt, health=health
                )

            self._later(begin)
        self._write(EventName.PEER_CALL_STARTED, attempt, detail=attempt.reason or None)

    def ended(
        self,
        attempt: AttemptRecord,
        ending: Ending,
        *,
        ok: bool,
        learned: Learned | None,
        health: HealthChange | None,
        reading: Reading | None,
        detail: str,
    ) -> AttemptRecord:
        ledger = self.ledger
        fields = structs.asdict(ending)
        if ending.model is None:
            del fields["model"]
        after = structs.replace(attempt, **fields)
        if ledger is not None:

            def finish_attempt() -> None:
                id = self._ids.get((attempt.job, attempt.number))
                if id is not None:
                    ledger.finish(id, ending, learned=learned, health=health)

            self._later(finish_attempt)
        name = EventName.PEER_CALL_COMPLETED if ok else EventName.PEER_CALL_FAILED
        self._write(name, after, detail=detail or None)
        if after.error_class == "protocol_mismatch":
            self._write(EventName.PROTOCOL_MISMATCH, after, detail=detail or None)
        if reading is not None and reading.park_until is not None:
            until = f"parked until {_instant(reading.park_until)}"
            self._write(EventName.PEER_PARKED, after, detail=f"{reading.why}; {until}")
        return after

    def executed(
        self, decision: Decision, decision_id: str, attempts: Sequence[EndedAttempt]
    ) -> None:
        """Record the attempts of a job that ended on another machine, unless they are already
        recorded or the ledger cannot be used."""
        ledger = self.ledger
        if ledger is None:
            return
        told, lines = msgspec.to_builtins(decision), []
        for one in attempts:
            fields = structs.asdict(one.ending)
            if one.ending.model is None:
                del fields["model"]
            ended = structs.replace(one.began, **fields)
            ok = ended.outcome == Outcome.OK and ended.verdict != "bad"
            name = EventName.PEER_CALL_COMPLETED if ok else EventName.PEER_CALL_FAILED
            lines.append(logged(name, ended, at=self._clock(), detail=ended.reason or None))

        def add() -> None:
            if ledger.add_ended(decision_id, told, attempts):
                for line in lines:
                    self._log.write(line)

        self._later(add)

    def fell_back(self, attempt: AttemptRecord, to: str, why: str) -> None:
        self._write(EventName.PEER_CALL_FELL_BACK, attempt, detail=f"to {to}: {why}")

    # -- writing

    def _write(
        self,
        name: EventName,
        attempt: AttemptRecord | None = None,
        *,
        decision: str | None = None,
        **told: Any,
    ) -> None:
        line = logged(name, attempt, at=self._clock(), **told)
        if decision is not None:
            line = structs.replace(line, decision=decision)
        self._later(lambda: self._log.write(line))

    def _later(self, write: Callable[[], object]) -> None:
        self._put(lambda _: self._try(write))

    def _put(self, work: Callable[[object], object]) -> None:
        if self._hangs:
            return
        self._queue.append(work)
        if self._writing is None or self._writing.done():
            self._writing = self._tasks.start(self._empty_queue(), "write")

    async def _empty_queue(self) -> None:
        while self._queue:
            work = self._queue.popleft()
            try:
                await in_thread(str(self._paths.state), work, changes_disk=True)
            except FileFailed as error:
                # The work may still be running, and what follows would have to wait for it.
                self._hangs = True
                self._queue.clear()
                self._unrecorded(error)

    # -- in a thread

    def _try(self, write: Callable[[], object]) -> None:
        try:
            try:
                write()
            except StoreCorrupt as error:
                if not error.replaced:
                    raise
                self._notice(str(error))
                write()
        except (StoreError, FileFailed, UnknownJob, UnknownSession) as error:
            self._unrecorded(error)

    def _unrecorded(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            self._notice(f"this delegation is not recorded completely: {error}")

    def _notice(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._on_notice, text)


def _instant(at: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def give_verdict(
    job: str, word: Verdict, *, paths: Paths, now: float | None = None
) -> AttemptRecord:
    """Record the user's verdict (`word`) on a delegation, found by its job id or that of its last
    attempt. Returns the last attempt as it was before.

    Raises `UnknownJob`, and `StoreError` if the ledger cannot be written.
    """
    redact = redactor(())
    path = ledger_path(paths.state)
    if not os.path.exists(path):
        raise UnknownJob(f"unknown job {job}: nothing has been delegated yet")
    with Ledger.open(path, redact) as ledger:
        ledger.check_kept()
        job = _delegation_of(job, ledger)
        before = ledger.verdict(
            job, word, source="user", learned=lambda attempt: revision(attempt, word)
        )
    after = structs.replace(before, verdict=word, verdict_source="user")
    at = time.time() if now is None else now
    log = EventsFile(events_path(paths.state), redact)
    log.write(logged(EventName.VERDICT_RECORDED, after, at=at, detail=f"{word}, by the user"))
    return before


def _delegation_of(job: str, ledger: Ledger) -> str:
    """Return the delegation's job id; `job` may also be the id of its last attempt. Raises
    `UnknownJob` for the id of an earlier one."""
    parent, _, number = job.rpartition("-")
    attempts = ledger.attempts(parent) if number.isdecimal() and parent else []
    if not attempts:
        return job
    if attempts[-1].number != int(number):
        raise UnknownJob(f"{job} is not the last attempt of {parent}; give the verdict on {parent}")
    return parent
