"""Read what is stored about a lost worker's attempt: whether it prompted a peer and what it did.

`schedule` decides from it whether the job may be run again.
"""

from __future__ import annotations

from typing import Final

from dragoman.errors import FleetError
from dragoman.fleet import subjects
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.records import (
    ATTEMPT_BEGUN,
    AttemptActed,
    EventBatch,
    FleetAttempt,
    decode,
)
from dragoman.fleet.schedule import AttemptFacts

MAX_BATCHES: Final = 20_000
"""Maximum number of event messages to read. An honest worker does not publish more."""

MAX_PEER_SIZE: Final = 100


async def read_facts(
    connection: FleetConnection, job_id: str, attempt: FleetAttempt
) -> AttemptFacts:
    """Read what the record, the inbox and the stored events say about an attempt. If the events
    cannot all be read, assume that a peer was prompted and acted outside the worktree."""
    acted = attempt.acted or await _unread_act(connection, job_id, attempt)
    started, peer, sequence = bool(acted), "", 1
    subject = subjects.events(attempt.worker, job_id, attempt.number)
    for _ in range(MAX_BATCHES):
        found = await connection.after(subjects.EVENTS, sequence, subject)
        if found is None:
            return AttemptFacts(started=started, acted=acted, peer=peer)
        sequence = found.sequence + 1
        try:
            batch = decode(found.data, EventBatch)
        except FleetError:
            # Another program or version wrote them, so anything may have happened.
            return AttemptFacts(started=True, acted="its events cannot be read")
        started = started or batch.started or bool(batch.events)
        acted = acted or batch.acted
        for told in batch.events:
            if told.get("type") == ATTEMPT_BEGUN:
                peer = str(told.get("peer", ""))[:MAX_PEER_SIZE]
    acted = acted or "it published too many events to read them all"
    return AttemptFacts(started=True, acted=acted, peer=peer)


async def _unread_act(connection: FleetConnection, job_id: str, attempt: FleetAttempt) -> str:
    """Return what an attempt did outside its worktree, from a message that is still in the inbox;
    empty if there is none."""
    note = subjects.acted(attempt.worker, job_id, attempt.number)
    found = await connection.last(subjects.INBOX, note)
    if found is None:
        return ""
    try:
        return decode(found.data, AttemptActed).acted
    except FleetError:
        return "its report of what it did cannot be read"
