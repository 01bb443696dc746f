"""Publishing events: numbered, in order, redacted, and not after the lease has expired."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import msgspec
import pytest

from dragoman.errors import FleetError, FleetFull
from dragoman.events.model import EventEnvelope, MessageDelta, Source, ToolChanged
from dragoman.events.parts import Location
from dragoman.events.words import Role, ToolKind
from dragoman.fleet import event_publisher, subjects
from dragoman.fleet.event_publisher import EventPublisher
from dragoman.fleet.records import AttemptActed, EventBatch, FleetLimits, decode
from dragoman.redaction.redactor import Redactor
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.fleet.fakes import MemoryConnection

DEFAULTS = FleetLimits()
SECRET = "sk-0123456789abcdef"
WORKSPACE = Path("/work/tree")
PLACE = EventEnvelope(Source("acp", "test"), itertools.count(1), None)


def said(text: str) -> MessageDelta:
    return MessageDelta(*PLACE.base("text", None), role=Role.AGENT, text=text)


def tool(kind: ToolKind, title: str) -> ToolChanged:
    return ToolChanged(*PLACE.base("tool", None), tool_id="t1", kind=kind, title=title)


def publisher(
    memory: MemoryConnection, *, holds: bool = True, limits: FleetLimits = DEFAULTS
) -> EventPublisher:
    return EventPublisher(
        memory.as_connection(),
        Redactor([SECRET]),
        job="f1",
        attempt=2,
        may_publish=lambda: holds,
        limits=limits,
    )


def batches(memory: MemoryConnection) -> list[EventBatch]:
    return [decode(one.data, EventBatch) for one in memory.messages]


@aio
async def test_events_are_numbered_from_one_in_order() -> None:
    memory = MemoryConnection()
    out = publisher(memory)
    await out.started()
    for number in range(30):
        out.add(said(f"word {number} "), WORKSPACE)
    out.finish()
    await out.run()
    first, *rest = batches(memory)
    assert first.started and not first.events
    numbers = [n for one in rest for n in range(one.first, one.first + len(one.events))]
    assert numbers == list(range(1, 31)) and out.count == 30
    assert {one.subject for one in memory.messages} == {"evt.w1.f1.2"}
    assert "raw" not in rest[0].events[0]


@aio
async def test_a_secret_split_across_events_is_redacted() -> None:
    memory = MemoryConnection()
    out = publisher(memory)
    for piece in ("the key is ", SECRET[:7], SECRET[7:], " indeed"):
        out.add(said(piece), WORKSPACE)
    out.finish()
    await out.run()
    text = "".join(str(e["text"]) for one in batches(memory) for e in one.events)
    assert "0123456789" not in text and SECRET[:7] not in text
    assert text.startswith("the key is ") and text.endswith(" indeed")


@aio
async def test_nothing_is_sent_after_the_lease_expired() -> None:
    memory = MemoryConnection()
    out = publisher(memory, holds=False)
    with pytest.raises(FleetError, match="lease"):
        await out.started()
    out.add(said("late"), WORKSPACE)
    out.finish()
    await out.run()
    assert memory.messages == []


@aio
@pytest.mark.parametrize(
    ("event", "told"),
    [
        (tool(ToolKind.EXECUTE, "make install"), "it ran a command (make install)"),
        (tool(ToolKind.READ, "read"), ""),
    ],
)
async def test_a_command_is_published_as_an_action_outside_the_worktree(
    event: ToolChanged, told: str
) -> None:
    memory = MemoryConnection()
    out = publisher(memory)
    out.add(event, WORKSPACE)
    out.finish()
    await out.run()
    assert [one.acted for one in batches(memory) if one.acted] == ([told] if told else [])


@aio
async def test_a_secret_is_redacted_before_the_title_of_a_command_is_cut() -> None:
    memory = MemoryConnection()
    out = publisher(memory)
    out.add(tool(ToolKind.EXECUTE, "x" * (80 - len(SECRET) + 1) + SECRET), WORKSPACE)
    out.finish()
    await out.run()
    (acted,) = [one.acted for one in batches(memory) if one.acted]
    assert SECRET[:-1] not in acted


@aio
async def test_the_message_about_an_action_outside_is_short() -> None:
    memory = MemoryConnection()
    out = publisher(memory, limits=FleetLimits(events_size=1))
    event = tool(ToolKind.EDIT, "edit")
    written = (Location("/" + "x" * 2_000_000),)
    out.add(msgspec.structs.replace(event, locations=written), WORKSPACE)
    out.finish()
    await out.run()
    (acted,) = [one.acted for one in batches(memory) if one.acted]
    assert acted.startswith("it wrote outside its worktree (/x") and len(acted) < 200


@aio
async def test_a_large_event_is_stored_as_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_publisher, "MAX_BATCH_SIZE", 200)
    memory = MemoryConnection()
    out = publisher(memory)
    out.add(said("x" * 1000), WORKSPACE)
    out.finish()
    await out.run()
    stored = [one for one in memory.messages if one.subject.startswith("evt.")]
    assert decode(stored[0].data, EventBatch).large is not None and out.count == 1


@aio
async def test_events_that_a_full_server_rejects_are_counted() -> None:
    memory = MemoryConnection()
    out = publisher(memory)
    out.add(said("hello"), WORKSPACE)
    out.finish()
    memory.fail = FleetFull("full")
    await out.run()
    assert (out.count, out.unstored) == (0, 1)


@aio
async def test_an_action_outside_goes_to_the_inbox_if_the_event_stream_is_full() -> None:
    memory = MemoryConnection()
    out = publisher(memory)
    await out.started()
    memory.fail, memory.fails = FleetFull("full"), "evt."
    out.add(tool(ToolKind.EXECUTE, "make deploy"), WORKSPACE)
    out.finish()
    await out.run()
    note = memory.messages[-1]
    assert note.subject == subjects.acted("w1", "f1", 2)
    assert decode(note.data, AttemptActed).acted == "it ran a command (make deploy)"
    assert (out.count, out.unstored, out.heard) == (0, 1, True)


@aio
async def test_publishing_fails_if_an_action_outside_cannot_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_publisher, "STORE_TIMEOUT", 0.0)
    memory = MemoryConnection()
    out = publisher(memory)
    memory.fail = FleetFull("full")
    out.add(tool(ToolKind.EXECUTE, "make deploy"), WORKSPACE)
    with pytest.raises(FleetFull):
        await out.run()
    assert out.unstored == 1


@aio
async def test_an_action_outside_is_stored_at_once_even_if_its_event_is_dropped() -> None:
    memory = MemoryConnection()
    out = publisher(memory, limits=FleetLimits(events_size=1))
    out.add(tool(ToolKind.EXECUTE, "make deploy"), WORKSPACE)
    tasks = TaskOwner("test")
    tasks.start(out.run(), "events")
    async with asyncio.timeout(30):
        await memory.stored.wait()
    await tasks.aclose()
    assert [one.acted for one in batches(memory)] == ["it ran a command (make deploy)"]


@aio
async def test_events_over_the_size_limit_are_dropped_and_counted() -> None:
    memory = MemoryConnection()
    out = publisher(memory, limits=FleetLimits(events_size=2000))
    for _ in range(50):
        out.add(said("x" * 100), WORKSPACE)
    out.finish()
    await out.run()
    assert 0 < out.count < 20
    assert out.count + out.unstored == 50


@aio
async def test_no_half_of_a_secret_is_published_if_the_event_with_the_other_half_is_dropped() -> (
    None
):
    memory = MemoryConnection()
    out = publisher(memory, limits=FleetLimits(events_size=1000))
    half = len(SECRET) // 2
    out.add(said("word " * 60), WORKSPACE)
    out.add(said("word " * 200 + SECRET[:half]), WORKSPACE)
    out.add(said(SECRET[half:] + " done. "), WORKSPACE)
    out.finish()
    await out.run()
    published = b"".join(one.data for one in memory.messages).decode()
    assert out.unstored == 1 and "done" in published
    assert SECRET[half:] not in published


@aio
async def test_publishing_pauses_to_stay_below_the_rate_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr("dragoman.fleet.event_publisher.asyncio.sleep", pause)
    memory = MemoryConnection()
    out = publisher(memory, limits=FleetLimits(events_rate=1000))
    out.add(said("x" * 5000), WORKSPACE)
    out.finish()
    await out.run()
    assert 5.0 < sum(paused) < 10.0
