"""What the coordinator learns about an attempt whose worker was lost."""

from __future__ import annotations

import pytest

from dragoman.fleet import attempt_facts, subjects
from dragoman.fleet.attempt_facts import read_facts
from dragoman.fleet.records import ATTEMPT_BEGUN, AttemptActed, EventBatch, FleetAttempt, encode
from dragoman.fleet.schedule import AttemptFacts
from tests.aio import aio
from tests.unit.fleet.fakes import MemoryConnection

ATTEMPT = FleetAttempt(number=1, worker="w1", assigned_at=0.0)


async def facts(*batches: EventBatch, note: bytes = b"") -> AttemptFacts:
    memory = MemoryConnection()
    for batch in batches:
        await memory.store(subjects.events("w1", "f1", 1), encode(batch))
    # Of another worker, and of another attempt.
    for subject in (subjects.events("w2", "f1", 1), subjects.events("w1", "f1", 2)):
        await memory.store(subject, encode(EventBatch(first=0, acted="it did not")))
    if note:
        await memory.store(subjects.acted("w1", "f1", 1), note)
    return await read_facts(memory.as_connection(), "f1", ATTEMPT)


@aio
async def test_without_events_no_peer_was_prompted() -> None:
    assert await facts() == AttemptFacts(started=False)


@aio
async def test_the_last_peer_and_the_first_act_are_found() -> None:
    begun = [{"type": ATTEMPT_BEGUN, "peer": peer} for peer in ("codex", "gemini")]
    found = await facts(
        EventBatch(first=0, started=True),
        EventBatch(first=1, events=tuple(begun)),
        EventBatch(first=0, acted="it ran a command"),
        EventBatch(first=0, acted="it ran another"),
    )
    assert found == AttemptFacts(started=True, acted="it ran a command", peer="gemini")


@aio
async def test_a_note_that_waits_in_the_inbox_counts() -> None:
    found = await facts(note=encode(AttemptActed(acted="it ran a command")))
    assert found == AttemptFacts(started=True, acted="it ran a command")
    assert (await facts(note=b"nonsense")).acted == "its report of what it did cannot be read"


@aio
async def test_events_that_cannot_be_read_or_are_too_many_may_hide_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = MemoryConnection()
    await memory.store(subjects.events("w1", "f1", 1), b"nonsense")
    found = await read_facts(memory.as_connection(), "f1", ATTEMPT)
    assert found == AttemptFacts(started=True, acted="its events cannot be read")
    monkeypatch.setattr(attempt_facts, "MAX_BATCHES", 3)
    many = [EventBatch(first=number) for number in range(1, 5)]
    assert "too many events" in (await facts(*many)).acted
