"""The coordinator's clock, its inbox and lost workers, with streams in memory.

tests/fleet runs it with a real server, and test_schedule.py tests its decisions.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from dragoman.broker.error_codec import revive
from dragoman.errors import FleetConflict, FleetError, FleetFull, UsageError
from dragoman.fleet import leadership, subjects
from dragoman.fleet.coordinator import (
    MAX_BEAT_SIZE,
    MAX_RECORD_SIZE,
    MAX_SUBMISSION_SIZE,
    Coordinator,
    CoordinatorOptions,
    CoordinatorSession,
    clock,
    why_full,
)
from dragoman.fleet.leadership import LeaderRecord
from dragoman.fleet.records import (
    AttemptActed,
    AttemptEnded,
    Beat,
    CoordinatorReply,
    DrainQuestion,
    FleetAttempt,
    FleetJob,
    FleetLimits,
    FleetResult,
    JobQuestion,
    decode,
    encode,
)
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.fleet.fakes import MemoryConnection
from tests.unit.fleet.test_worker import SPEC


def test_the_clock_never_goes_backwards() -> None:
    first = clock()
    assert clock() >= first


@pytest.mark.parametrize(("days", "kept"), [(3.0, "3 days"), (1.0, "1 day"), (0.5, "0.5 days")])
def test_a_full_fleet_says_how_long_it_keeps_records(days: float, kept: str) -> None:
    assert why_full(FleetLimits(keep_days=days)).endswith(f"for {kept}")


@aio
async def test_a_submitter_gets_the_configured_time_when_the_fleet_is_full() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory, limits=FleetLimits(keep_days=9))
    memory.fail = FleetFull("full")
    assert not await session.take("submit.s1.f2", encode(SPEC))
    tasks = TaskOwner("test")
    tasks.start(session.answer(), "answer")
    await asyncio.sleep(0)
    message = SimpleNamespace(subject="ask.s1.room", data=b"", reply="_INBOX_x")
    await memory.handlers[subjects.QUESTIONS][0](message)
    await tasks.aclose()
    assert "9 days" in decode(memory.replies[0], CoordinatorReply).full


def test_a_leader_is_replaced_before_a_worker_counts_as_lost() -> None:
    options = CoordinatorOptions()
    assert options.ttl < options.lease


class _LoadedSession(CoordinatorSession):
    """A session with a running job whose lease has expired."""

    def __init__(
        self,
        memory: MemoryConnection,
        *,
        limits: FleetLimits = FleetLimits(),  # noqa: B008
    ) -> None:
        connection: Any = memory
        connection.client = SimpleNamespace(jetstream=lambda: None)
        leader: Any = SimpleNamespace(epoch=1, require=lambda: None, leads=True)
        super().__init__(connection, leader, CoordinatorOptions(limits=limits))
        attempt = FleetAttempt(number=1, worker="w1", assigned_at=0.0)
        job = FleetJob(
            id="f1", submitter="s1", spec=SPEC, created_at=0.0, state="running", attempts=(attempt,)
        )
        memory.messages.clear()
        self._schedule.load([job], clock() - 1000)

    async def take(self, subject: str, data: bytes) -> bool:
        """Whether a message is processed; otherwise it waits."""
        return not await self._take(subject, data)

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    async def asked(self, word: str, data: bytes = b"") -> CoordinatorReply:
        memory: Any = self._connection
        message: Any = SimpleNamespace(subject=f"ask.s1.{word}", data=data, reply="_INBOX_s1.x")
        await self._on_question(message)
        return decode(memory.replies[-1], CoordinatorReply)

    async def beat(self, name: str, beat: Beat) -> None:
        message: Any = SimpleNamespace(subject=f"beat.{name}", data=encode(beat), reply="")
        await self._on_beat(message)

    async def end_lost(self) -> None:
        await self._end_lost()

    async def answer(self) -> None:
        await self._answer()

    async def tell_workers(self) -> None:
        await self._tell_workers()

    def take_beat(self, name: str) -> None:
        self._schedule.beat(name, Beat(boot="b", slots=1), clock())


@aio
async def test_a_job_is_queued_again_when_its_worker_stops_sending_heartbeats() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    await session.end_lost()
    (stored,) = memory.messages
    assert decode(stored.data, FleetJob).state == "queued"


@aio
async def test_a_job_whose_report_is_already_in_the_inbox_is_not_run_again() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    await memory.store(subjects.result("w1", "f1", 1), b"{}")
    await session.end_lost()
    assert [one.subject for one in memory.messages] == ["result.w1.f1.1"]


@aio
@pytest.mark.parametrize("read", [True, False])
async def test_a_lost_job_whose_worker_reported_an_action_is_not_run_again(read: bool) -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    note = encode(AttemptActed(acted="it ran a command (make deploy)"))
    if read:
        assert await session.take(subjects.acted("w1", "f1", 1), note)
        # The lease is unchanged and has still expired.
    else:
        await memory.store(subjects.acted("w1", "f1", 1), note)
    await session.end_lost()
    job = decode(memory.messages[-1].data, FleetJob)
    assert job.state == "done" and job.result is not None and job.result.outcome == "lost"
    assert "not run again: it ran a command (make deploy)" in job.result.why


@aio
async def test_a_message_that_cannot_be_processed_ends_the_session() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    tasks = TaskOwner("test")
    answering = tasks.start(session.answer(), "answer")
    await asyncio.sleep(0)
    assert set(memory.handlers) == {subjects.BEATS, subjects.QUESTIONS, subjects.DRAIN}
    for _, options in memory.handlers.values():
        options["on_failure"](KeyError("w9"))
    with pytest.raises(FleetError, match="could not be processed: KeyError"):
        await answering


@aio
@pytest.mark.parametrize(
    ("question", "problem", "kind", "ends"),
    [
        (DrainQuestion(name="w9"), None, UsageError, False),
        (DrainQuestion(name="w2", undo=True), None, UsageError, False),
        (DrainQuestion(name="w2"), FleetFull("full"), FleetFull, False),
        (DrainQuestion(name="w2"), FleetConflict("changed"), FleetConflict, True),
        (DrainQuestion(name="w2"), None, None, False),
    ],
)
async def test_the_answer_to_a_drain_says_whose_fault_a_failure_is(
    question: DrainQuestion, problem: FleetError | None, kind: type | None, ends: bool
) -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    session.take_beat("w2")
    tasks = TaskOwner("test")
    answering = tasks.start(session.answer(), "answer")
    await asyncio.sleep(0)
    memory.fail = problem
    message = SimpleNamespace(subject="drain", data=encode(question), reply="_INBOX_x")
    await memory.handlers[subjects.DRAIN][0](message)
    await asyncio.sleep(0)
    # After a conflict it does not know what is stored.
    assert answering.done() is ends
    await tasks.aclose()
    reply = decode(memory.replies[0], CoordinatorReply)
    if kind is None:
        assert reply == CoordinatorReply()
    else:
        assert type(revive(reply.failure)) is kind and reply.error


@aio
async def test_submitters_are_notified_when_the_list_of_workers_changes() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    # The first message is sent without a change, because this coordinator has not sent one yet.
    for number in (1, 1, 2, 2):
        if number == 2:
            session.take_beat("w2")
        await session.tell_workers()
        assert memory.published == ["workers"] * number


@aio
@pytest.mark.parametrize(
    ("subject", "data"),
    [
        ("submit.s1.f1", encode(SPEC)),
        ("submit.s1.f-old", encode(SPEC)),
        ("submit.s1./etc/x", encode(SPEC)),
        ("result.w1.f1.x", b"{}"),
        ("result.w1.f1.1-acted", b"{}"),
        ("result.w1.f1.x-acted", encode(AttemptActed(acted="x"))),
        ("result.w2.f1.1-acted", encode(AttemptActed(acted="x"))),
        ("cancel.s2.f1", b"{}"),
    ],
)
async def test_no_message_from_a_member_stops_the_coordinator_or_replaces_a_record(
    subject: str, data: bytes
) -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    # A job that ended so long ago that the coordinator no longer has it in memory.
    await memory.store(subjects.job_record("f-old"), b"{}")
    assert await session.take(subject, data)
    assert [one.subject for one in memory.messages] == [subjects.job_record("f-old")]


@aio
async def test_a_report_too_large_for_a_record_fails_its_job() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    result = FleetResult(ok=True, outcome="ok", text="x" * MAX_RECORD_SIZE)
    assert await session.take("result.w1.f1.1", encode(AttemptEnded(result=result)))
    (stored,) = memory.messages
    job = decode(stored.data, FleetJob)
    assert job.result is not None and job.result.why == "the report from w1 is too large"


@aio
async def test_messages_wait_while_the_record_stream_is_full_and_are_not_lost() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    memory.fail = FleetFull("full")
    report = encode(AttemptEnded(result=FleetResult(ok=True, outcome="ok")))
    assert not await session.take("result.w1.f1.1", report)
    assert not await session.take("submit.s1.f2", encode(SPEC))
    assert not session.has_room
    memory.fail = None
    assert await session.take("result.w1.f1.1", report)
    (stored,) = memory.messages
    assert decode(stored.data, FleetJob).state == "done"


@aio
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (encode(structs.replace(SPEC, prompt="x" * MAX_SUBMISSION_SIZE)), "larger than 512 KiB"),
        (b"{}", "invalid fleet data (JobSpec)"),
        (b"[" * 100_000, "invalid fleet data (JobSpec)"),
    ],
)
async def test_a_job_that_cannot_be_read_is_recorded_as_refused(data: bytes, why: str) -> None:
    memory = MemoryConnection()
    assert await _LoadedSession(memory).take("submit.s1.f2", data)
    (stored,) = memory.messages
    job = decode(stored.data, FleetJob)
    assert job.result is not None and job.result.outcome == "refused" and why in job.result.why


@aio
async def test_a_report_that_cannot_be_read_ends_its_job() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    assert await session.take("result.w2.f1.1", b"nonsense")
    assert memory.messages == []
    assert await session.take("result.w1.f1.1", b"nonsense")
    job = decode(memory.messages[-1].data, FleetJob)
    assert job.result is not None and "the report from w1 cannot be read" in job.result.why


@aio
async def test_a_cancellation_waits_for_the_job_that_is_still_in_the_inbox() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    await memory.store(subjects.submission("s1", "f2"), encode(SPEC))
    await memory.store(subjects.cancellation("s1", "f2"), b"{}")
    assert not await session.take("cancel.s1.f2", b"{}")
    # It is not assigned in the meantime.
    assert await session.take("submit.s1.f2", encode(SPEC))
    job = decode(memory.messages[-1].data, FleetJob)
    assert job.result is not None and job.result.outcome == "cancelled"
    assert await session.take("cancel.s1.f2", b"{}")
    assert decode(memory.messages[-1].data, FleetJob) == job
    # A job that does not exist has nothing to wait for.
    assert await session.take("cancel.s1.f3", b"{}")


@aio
async def test_a_submitter_learns_whether_a_job_waits_in_the_inbox() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    await memory.store(subjects.submission("s2", "f2"), encode(SPEC))
    for job, waiting in (("f2", True), ("f1", False), ("f3", False)):
        reply = await session.asked("waiting", encode(JobQuestion(job=job)))
        assert reply == CoordinatorReply(waiting=waiting)
    for data in (b"nonsense", encode(JobQuestion(job="*"))):
        assert (await session.asked("waiting", data)).failure is not None


@aio
async def test_a_heartbeat_that_is_too_large_is_ignored() -> None:
    memory = MemoryConnection()
    session = _LoadedSession(memory)
    await session.beat("w1", Beat(boot="b", slots=1, labels=("x" * MAX_BEAT_SIZE,)))
    assert (await session.asked("workers")).workers == ()


class _SwallowingReader:
    """Reads a stream like nats-py with Python 3.11: a cancellation may end a wait like a result."""

    def __init__(self) -> None:
        self.fetched = 0
        self.waiting = asyncio.Event()

    async def fetch(self, batch: int, timeout: float) -> list[Any]:
        self.fetched += 1
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return []

    async def add_consumer(self, stream: str, config: object) -> Any:
        return SimpleNamespace(name="c", num_pending=1)

    async def pull_subscribe_bind(self, *args: object, **more: object) -> _SwallowingReader:
        return self


@aio
async def test_a_coordinator_that_is_cancelled_while_it_loads_ends() -> None:
    memory, reader = MemoryConnection(), _SwallowingReader()
    memory.client = SimpleNamespace(jetstream=lambda: reader)
    leader: Any = SimpleNamespace(epoch=1)
    session = CoordinatorSession(memory.as_connection(), leader, CoordinatorOptions())
    tasks = TaskOwner("test")
    loading = tasks.start(session.load(), "load")
    await reader.waiting.wait()
    loading.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait({loading})
    assert loading.cancelled() and reader.fetched == 1


@aio
async def test_a_coordinator_leads_while_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, notices, renewed = MemoryConnection(), list[str](), asyncio.Event()

    async def on_renewal(message: object) -> None:
        if len(memory.messages) > 8:
            renewed.set()

    async def load(session: CoordinatorSession) -> None:
        async with asyncio.timeout(30):
            await renewed.wait()

    monkeypatch.setattr(CoordinatorSession, "load", load)
    monkeypatch.setattr(CoordinatorSession, "parts", lambda session: [renewed.wait()])
    memory.client = SimpleNamespace(jetstream=lambda: None)
    await memory.subscribe(leadership.KEY, on_renewal)
    access: Any = None
    coordinator = Coordinator(
        access, CoordinatorOptions(ttl=0.1), team="red", on_notice=notices.append
    )
    await coordinator._lead(memory.as_connection())
    assert notices == ["coordinating team red"]


@aio
async def test_a_coordinator_that_is_replaced_while_it_loads_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, notices = MemoryConnection(), list[str]()

    async def load(session: CoordinatorSession) -> None:
        await memory.store(leadership.KEY, encode(LeaderRecord(id="another", ttl=9.0)))
        await asyncio.Event().wait()

    monkeypatch.setattr(CoordinatorSession, "load", load)
    memory.client = SimpleNamespace(jetstream=lambda: None)
    access: Any = None
    coordinator = Coordinator(access, CoordinatorOptions(ttl=0.1), on_notice=notices.append)
    with pytest.raises(FleetConflict):
        async with asyncio.timeout(30):
            await coordinator._lead(memory.as_connection())
    assert notices == []
