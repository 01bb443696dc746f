"""Record a user's verdict (good or bad) on a finished job in the ledger and ``events.jsonl``.

`learning` computes how the verdict changes the posterior.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.config.secrets import redactor
from dragoman.delegation.learning import revision
from dragoman.errors import UnknownJob
from dragoman.store.ledger import (
    AttemptRecord,
    EventName,
    EventsFile,
    Ledger,
    events_path,
    ledger_path,
    logged,
)
from dragoman.store.ledger.records import Verdict

if TYPE_CHECKING:
    from dragoman.paths import Paths


def give_verdict(
    job: str, word: Verdict, *, paths: Paths, now: float | None = None
) -> AttemptRecord:
    """Record a verdict on a job. Returns its last attempt as it was before.

    Raises `UnknownJob`, and `StoreError` if the ledger cannot be written.
    """
    redact = redactor(())
    path = ledger_path(paths.state)
    if not os.path.exists(path):
        raise UnknownJob(f"no attempt of a job {job} has ended here: nothing was delegated yet")
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
    """The delegation's job id; `job` may also be the id of its last attempt."""
    parent, _, number = job.rpartition("-")
    attempts = ledger.attempts(parent) if number.isdecimal() and parent else []
    if not attempts:
        return job
    if attempts[-1].number != int(number):
        raise UnknownJob(f"{job} is not the attempt that {parent} ended with; judge {parent}")
    return parent
