"""Record a delegation in the ledger, in ``events.jsonl`` and in the store, and a user's verdict on
it.

A failing disk never stops a delegation: the first failure is reported as a notice. `learning`
computes what to record. Calls are synchronous and take about a millisecond each.
"""

from __future__ import annotations

import os
import time
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
    """Context manager that writes the records of one delegation."""

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
        self._attempts: dict[int, AttemptRecord] = {}

    def __enter__(self) -> Journal:
        self._try(self._open_ledger)
        ledger = self.ledger
        if ledger is not None:
            self._try(lambda: ledger.end_orphans(is_alive))
        self._try(self._open_store)
        return self

    def _open_ledger(self) -> None:
        self.ledger = Ledger.open(ledger_path(self._paths.state), self._redact)
        self._tell_replaced(self.ledger)

    def _open_store(self) -> None:
        self._store = open_store(paths=self._paths)
        self._tell_replaced(self._store)

    def _tell_replaced(self, file: Ledger | Store) -> None:
        if file.replaced:
            self._on_notice(f"{file.path}: {file.replaced}")

    def read(self, read: Callable[[Ledger | None], T]) -> T:
        """Call `read` with the ledger: with a new one if it turns out to be damaged, and with None
        if it cannot be read."""
        try:
            return read(self.ledger)
        except StoreCorrupt as error:
            self._on_notice(str(error))
            if not error.replaced and self.ledger is not None:
                self.ledger.close()
                self.ledger = None
            return read(self.ledger)

    def __exit__(self, *error: object) -> None:
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
            self._try(lambda: store.create_job(record))

    def job_tries(self, job: str, peer: str) -> None:
        """Record that a peer starts to work on the job."""
        self._change_job(job, peer=peer)

    def job_follows(self, job: str, attempt: str) -> None:
        """Make the job show the events of an ended attempt."""
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
            self._try(follow)

    def keep_report(self, attempt: str, report: AttemptReport) -> None:
        """Store the facts about an attempt that a later review needs, with its session."""
        from dragoman.delegation.review.kept_report import as_note, kept_report

        store = self._store

        def keep() -> None:
            assert store is not None
            child = store.job(attempt)
            kept = kept_report(attempt, report)
            if kept is not None and child is not None and child.session_key:
                store.note(child.session_key, child.next_event, REPORT, as_note(kept))

        if store is not None:
            self._try(keep)

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
            self._try(lambda: store.update_job(job, **fields))

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

    def began(
        self, decision: Decision, attempt: AttemptRecord, health: HealthChange
    ) -> AttemptRecord:
        ledger = self.ledger
        ids: list[int] = []
        if ledger is not None:
            told = msgspec.to_builtins(decision)
            self._try(
                lambda: ids.append(ledger.begin(attempt.decision_id, told, attempt, health=health))
            )
        attempt = structs.replace(attempt, id=ids[0] if ids else 0)
        self._write(EventName.PEER_CALL_STARTED, attempt, detail=attempt.reason or None)
        return attempt

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
        if ledger is not None and attempt.id:
            self._try(lambda: ledger.finish(attempt.id, ending, learned=learned, health=health))
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
    ) -> bool:
        """Record the attempts of a job that ended on another machine. Returns False if they were
        already recorded, or if the ledger cannot be used."""
        ledger = self.ledger
        added: list[bool] = []
        if ledger is not None:
            told = msgspec.to_builtins(decision)
            self._try(lambda: added.append(ledger.add_ended(decision_id, told, attempts)))
        if not any(added):
            return False
        for one in attempts:
            fields = structs.asdict(one.ending)
            if one.ending.model is None:
                del fields["model"]
            ended = structs.replace(one.began, **fields)
            ok = ended.outcome == Outcome.OK and ended.verdict != "bad"
            name = EventName.PEER_CALL_COMPLETED if ok else EventName.PEER_CALL_FAILED
            self._write(name, ended, detail=ended.reason or None)
        return True

    def fell_back(self, attempt: AttemptRecord, to: str, why: str) -> None:
        self._write(EventName.PEER_CALL_FELL_BACK, attempt, detail=f"to {to}: {why}")

    # -- errors of the disk

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
        self._try(lambda: self._log.write(line))

    def _try(self, write: Callable[[], object]) -> None:
        try:
            try:
                write()
            except StoreCorrupt as error:
                if not error.replaced:
                    raise
                self._on_notice(str(error))
                write()
        except (StoreError, FileFailed, UnknownJob, UnknownSession) as error:
            if not self._told:
                self._told = True
                self._on_notice(f"this delegation is not recorded: {error}")


def _instant(at: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def give_verdict(
    job: str, word: Verdict, *, paths: Paths, now: float | None = None
) -> AttemptRecord:
    """Record a verdict on a job. Returns its last attempt as it was before.

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
    """Return the delegation's job id; `job` may also be the id of its last attempt."""
    parent, _, number = job.rpartition("-")
    attempts = ledger.attempts(parent) if number.isdecimal() and parent else []
    if not attempts:
        return job
    if attempts[-1].number != int(number):
        raise UnknownJob(f"{job} is not the last attempt of {parent}; give the verdict on {parent}")
    return parent
