"""Reading the events of a job: in order, once each, and only those of the current attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct, structs

from dragoman.broker.error_codec import describe
from dragoman.catalogue.session_settings import WantedSettings
from dragoman.delegation.request import DelegationRequest
from dragoman.errors import (
    DragomanError,
    FleetError,
    FleetFull,
    FleetRefused,
    FleetUnreachable,
    UnknownJob,
    UsageError,
)
from dragoman.fleet import subjects, submitter
from dragoman.fleet.connection import StoredMessage
from dragoman.fleet.credentials import JoinReply
from dragoman.fleet.records import (
    CoordinatorReply,
    DrainQuestion,
    EventBatch,
    FleetAttempt,
    FleetJob,
    FleetResult,
    JobSpec,
    ObjectRef,
    encode,
)
from dragoman.fleet.submitter import (
    MAX_PROMPT_SIZE,
    JobReader,
    ask,
    cancel,
    drain,
    join,
    read_job,
    spec_of,
    submit,
)
from tests.aio import aio
from tests.unit.fleet.fakes import MemoryConnection

SPEC = JobSpec(
    role="execute",
    prompt="x",
    bundle=ObjectRef(owner="s1", id="x", chunks=1, size=1, key=""),
)
LOST = FleetAttempt(number=1, worker="w1", assigned_at=1.0, end="lost")
DONE = FleetAttempt(number=2, worker="w2", assigned_at=2.0, end="done")
JOB = FleetJob(
    id="f1",
    submitter="s1",
    spec=SPEC,
    state="done",
    attempts=(LOST, DONE),
    created_at=0.0,
    result=FleetResult(ok=True, outcome="ok", events=4, worker="w2", attempt=2),
)


def batch(first: int, *texts: str) -> bytes:
    return encode(EventBatch(first=first, events=tuple({"text": text} for text in texts)))


async def read(
    memory: MemoryConnection, on_notice: Callable[[str], None] = lambda text: None
) -> list[tuple[int, int, object]]:
    reader = JobReader(memory.as_connection(), "f1", on_notice=on_notice)
    return [(one.attempt, one.number, one.event["text"]) async for one in reader.follow()]


@aio
async def test_a_late_reader_gets_each_event_of_the_last_attempt_once() -> None:
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(JOB))
    for subject, data in (
        (subjects.events("w1", "f1", 1), batch(1, "superseded")),
        (subjects.events("w2", "f1", 2), batch(1, "a", "b")),
        (subjects.events("w2", "f1", 2), batch(1, "a", "b")),
        (subjects.events("w2", "f1", 2), batch(2, "b", "c")),
        # Another worker, and the first one again: both are ignored.
        (subjects.events("w3", "f1", 2), batch(3, "forged")),
        (subjects.events("w1", "f1", 1), batch(2, "stale")),
        (subjects.events("w2", "f1", 2), b"nonsense"),
        (subjects.events("w2", "f1", 2), batch(4, "d")),
    ):
        await memory.store(subject, data)
    notices: list[str] = []
    found = await read(memory, notices.append)
    assert found == [(2, 1, "a"), (2, 2, "b"), (2, 3, "c"), (2, 4, "d")]
    # All events were read, but there may have been others.
    (notice,) = notices
    assert notice.startswith("events of w2 cannot be read: invalid fleet data (EventBatch)")


@aio
async def test_a_slow_reader_misses_no_event_of_a_second_attempt() -> None:
    memory = MemoryConnection("s1")
    running = structs.replace(LOST, end="")
    first = structs.replace(JOB, state="running", attempts=(running,), result=None)
    await memory.store(subjects.job_record("f1"), encode(first))
    await memory.store(subjects.events("w1", "f1", 1), batch(1, "superseded"))
    following = JobReader(memory.as_connection(), "f1").follow()
    events = [await anext(following)]
    # It has not read the new record when the first worker, which was only slow, publishes more.
    await memory.store(subjects.events("w2", "f1", 2), batch(1, "a", "b"))
    await memory.store(subjects.events("w1", "f1", 1), batch(2, "stale"))
    await memory.store(subjects.events("w2", "f1", 2), batch(3, "c", "d"))
    await memory.store(subjects.job_record("f1"), encode(JOB))
    events += [one async for one in following]
    assert [one.event["text"] for one in events if one.attempt == 2] == ["a", "b", "c", "d"]
    assert [one.event["text"] for one in events if one.attempt == 1] == ["superseded", "stale"]


@aio
async def test_a_reader_of_a_job_that_is_done_has_no_subscriptions_left() -> None:
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(JOB))
    await memory.store(subjects.events("w2", "f1", 2), batch(1, "a", "b", "c", "d"))
    following = JobReader(memory.as_connection(), "f1").follow()
    await anext(following)
    assert len(memory.handlers) == 2
    assert len([one async for one in following]) == 3
    assert not memory.handlers


@aio
async def test_a_reader_that_is_closed_early_has_no_subscriptions_left() -> None:
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(JOB))
    await memory.store(subjects.events("w2", "f1", 2), batch(1, "a", "b", "c", "d"))
    following = JobReader(memory.as_connection(), "f1").follow()
    await anext(following)
    await following.aclose()
    assert not memory.handlers


@aio
async def test_a_large_batch_is_read_from_its_object() -> None:
    from dragoman.fleet.objects import put_object

    memory = MemoryConnection("w2")
    result = FleetResult(ok=True, outcome="ok", events=1, worker="w2", attempt=2)
    await memory.store(subjects.job_record("f1"), encode(structs.replace(JOB, result=result)))
    ref = await put_object(memory.as_connection(), batch(1, "large"))
    await memory.store(subjects.events("w2", "f1", 2), encode(EventBatch(first=1, large=ref)))
    assert await read(memory) == [(2, 1, "large")]


@aio
async def test_a_worker_whose_events_cannot_be_read_does_not_block_a_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submitter, "SETTLE_TIMEOUT", 0.0)

    class Unreadable(MemoryConnection):
        async def after(self, stream: str, sequence: int, subject: str) -> None:
            raise FleetUnreachable("a header that the client takes for the server's")

    memory = Unreadable("s1")
    await memory.store(subjects.job_record("f1"), encode(JOB))
    assert await read(memory) == []


@aio
@pytest.mark.parametrize("job", ["*", ">", "f1 0\r\nPUB x 0", "", "a.b"])
async def test_what_is_not_the_id_of_a_job_is_not_sent_to_the_server(job: str) -> None:
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(JOB))
    assert await read_job(memory.as_connection(), job) is None
    with pytest.raises(UnknownJob):
        async for _ in JobReader(memory.as_connection(), job).follow():
            pass


@aio
async def test_events_that_are_missing_at_the_end_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submitter, "SETTLE_TIMEOUT", 0.0)
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(JOB))
    await memory.store(subjects.events("w2", "f1", 2), batch(1, "a"))
    for _ in range(3):
        await memory.store(subjects.events("w2", "f1", 2), b"nonsense")
    notices: list[str] = []
    assert await read(memory, notices.append) == [(2, 1, "a")]
    assert len(notices) == 2 and notices[1] == "3 events of f1 are missing"


@aio
async def test_a_server_that_is_away_for_a_while_is_waited_for_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submitter, "RETRY_INTERVAL", 0.0)
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(JOB))
    await memory.store(subjects.events("w2", "f1", 2), batch(1, "a", "b", "c", "d"))
    memory.fail_reads = FleetUnreachable("no answer")
    notices: list[str] = []

    def notice(text: str) -> None:
        notices.append(text)
        memory.fail_reads = None

    assert len(await read(memory, notice)) == 4
    assert notices == [
        "no answer; the job continues. Reconnecting …",
        "the fleet's server answers again",
    ]


@aio
async def test_a_subscription_that_fails_at_first_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submitter, "RETRY_INTERVAL", 0.0)

    class Stalls(MemoryConnection):
        failures = 3

        async def subscribe(self, subject: str, handler: Any, **more: Any) -> Any:
            if self.failures:
                self.failures -= 1
                raise FleetUnreachable("no answer")
            assert subject not in self.handlers
            return await super().subscribe(subject, handler, **more)

    memory = Stalls("s1")
    await memory.store(subjects.job_record("f1"), encode(JOB))
    await memory.store(subjects.events("w2", "f1", 2), batch(1, "a", "b", "c", "d"))
    notices: list[str] = []
    assert len(await read(memory, notices.append)) == 4
    assert len(notices) == 2 and not memory.handlers


@aio
async def test_events_that_cannot_be_read_are_reported_while_the_job_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submitter, "RETRY_INTERVAL", 0.0)
    monkeypatch.setattr(submitter, "SETTLE_TIMEOUT", 0.0)
    told: list[str] = []

    class NoEvents(MemoryConnection):
        """Serves the records of jobs, but not their events until a notice was given."""

        async def after(self, stream: str, sequence: int, subject: str) -> StoredMessage | None:
            if not told:
                raise FleetUnreachable("no leader")
            if sequence == 1:
                await self.store(subjects.job_record("f1"), encode(JOB))
            return await super().after(stream, sequence, subject)

    memory = NoEvents("s1")
    running = structs.replace(JOB, state="running", result=None)
    await memory.store(subjects.job_record("f1"), encode(running))
    await memory.store(subjects.events("w2", "f1", 2), batch(1, "a", "b", "c", "d"))
    async with asyncio.timeout(10):
        assert len(await read(memory, told.append)) == 4
    assert told == [
        "no leader; the job continues. Reconnecting …",
        "the fleet's server answers again",
    ]


@aio
@pytest.mark.parametrize("failure", [FleetUnreachable("closed"), FleetRefused("revoked")])
async def test_an_error_after_the_submission_says_that_the_job_may_have_run(
    failure: FleetError,
) -> None:
    memory = MemoryConnection("s1")
    memory.fail_reads, memory.closed = failure, True
    with pytest.raises(type(failure)) as caught:
        async for _ in JobReader(memory.as_connection(), "f1", submitted=True).follow():
            pass
    assert caught.value.may_have_run


@aio
@pytest.mark.parametrize("submitted", [True, False])
async def test_a_server_that_stays_away_ends_the_following_and_names_the_command(
    monkeypatch: pytest.MonkeyPatch, submitted: bool
) -> None:
    monkeypatch.setattr(submitter, "RETRY_INTERVAL", 0.0)
    monkeypatch.setattr(submitter, "RECONNECT_TIMEOUT", 0.0)
    memory = MemoryConnection("s1")
    memory.fail_reads = FleetUnreachable("no answer")
    reader = JobReader(memory.as_connection(), "f1", submitted=submitted)
    with pytest.raises(FleetUnreachable, match="^no answer$") as caught:
        async for _ in reader.follow():
            pass
    assert "dragoman fleet watch f1" in caught.value.remedy
    assert caught.value.may_have_run is submitted


@aio
@pytest.mark.parametrize(
    ("reply", "submitted", "kind", "told"),
    [
        (None, False, FleetUnreachable, "is waiting for one, or has exp"),
        (None, True, FleetUnreachable, "has accepted it: no coordinator is running"),
        (CoordinatorReply(), False, UnknownJob, "it has expired, or was never submitted"),
        (CoordinatorReply(waiting=True), False, FleetUnreachable, "has accepted it$"),
        (CoordinatorReply(waiting=True, full="full"), False, FleetUnreachable, "it: full$"),
        (CoordinatorReply(), True, FleetUnreachable, "has accepted it$"),
    ],
)
async def test_a_job_without_a_record_has_expired_or_waits_for_a_coordinator(
    monkeypatch: pytest.MonkeyPatch,
    reply: CoordinatorReply | None,
    submitted: bool,
    kind: type[DragomanError],
    told: str,
) -> None:
    monkeypatch.setattr(submitter, "ACCEPT_TIMEOUT", 0.0)
    memory = MemoryConnection("s1") if reply is None else _Answers(reply)
    reader = JobReader(memory.as_connection(), "f1", submitted=submitted)
    with pytest.raises(kind, match=told) as caught:
        async for _ in reader.follow():
            pass
    assert caught.value.may_have_run is submitted


@aio
async def test_a_job_that_is_accepted_just_when_its_reader_gives_up_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submitter, "ACCEPT_TIMEOUT", 0.0)

    class Late(_Answers):
        async def request(self, subject: str, data: bytes = b"", **more: Any) -> Any:
            await self.store(subjects.job_record("f1"), encode(JOB))
            await self.store(subjects.events("w2", "f1", 2), batch(1, "a", "b", "c", "d"))
            return await super().request(subject, data, **more)

    assert len(await read(Late(CoordinatorReply()))) == 4


def request(prompt: str = "x") -> DelegationRequest:
    return DelegationRequest(role="execute", prompt=prompt, workspace=Path("/"))


def test_the_fields_of_a_request_become_a_job() -> None:
    fields = spec_of(request(), needs=("gpu",))
    spec = JobSpec(bundle=SPEC.bundle, **fields)
    assert (spec.role, spec.prompt, spec.needs) == ("execute", "x", ("gpu",))
    assert structs.replace(spec, needs=()) == SPEC


def test_requests_that_a_fleet_does_not_support_are_rejected() -> None:
    with pytest.raises(UsageError, match="KiB"):
        spec_of(request("x" * (MAX_PROMPT_SIZE + 1)))
    import dataclasses

    wanted = dataclasses.replace(request(), session=WantedSettings(system_prompt="be brief"))
    with pytest.raises(UsageError, match="--system-prompt"):
        spec_of(wanted)


class _FailsAt(MemoryConnection):
    """Does not acknowledge the submission of one job."""

    def __init__(self, job: str, failure: Exception) -> None:
        super().__init__("s1")
        self.fail, self.fails = failure, subjects.submission("s1", job)


@aio
async def test_a_submission_without_an_acknowledgement_names_the_job_that_may_be_accepted() -> None:
    memory = _FailsAt("f2", FleetUnreachable("no answer", may_have_run=True))
    with pytest.raises(FleetUnreachable) as caught:
        await submit(memory.as_connection(), SPEC, ("f1", "f2", "f3"))
    told = str(caught.value)
    assert told == "no answer; f2 may have been accepted; accepted before that: f1"
    assert caught.value.may_have_run and caught.value.retryable
    assert "dragoman fleet watch f2" in caught.value.remedy


@aio
@pytest.mark.parametrize(("first", "accepted"), [("f1", True), ("f2", False)])
async def test_a_full_server_has_accepted_only_what_the_error_names(
    first: str, accepted: bool
) -> None:
    memory = _FailsAt("f2", FleetFull("full"))
    with pytest.raises(FleetFull) as caught:
        await submit(memory.as_connection(), SPEC, (first, "f2"))
    assert caught.value.may_have_run is accepted
    assert ("accepted before that: f1" in str(caught.value)) is accepted


class _Answers(MemoryConnection):
    """Has a coordinator that answers every question the same."""

    def __init__(self, reply: Struct) -> None:
        super().__init__("s1")
        self._reply = reply

    async def request(self, subject: str, data: bytes = b"", **more: Any) -> Any:
        return SimpleNamespace(data=encode(self._reply))


NO_WORKER = UsageError("no such worker is connected", remedy="look at the list")


@aio
async def test_a_refused_question_raises_the_error_of_the_coordinator() -> None:
    memory = _Answers(CoordinatorReply(error=str(NO_WORKER), failure=describe(NO_WORKER)))
    with pytest.raises(UsageError, match="no such worker") as caught:
        await drain(memory.as_connection(), DrainQuestion(name="w9"))
    assert caught.value.remedy == "look at the list"


@aio
async def test_an_error_without_a_class_is_one_of_the_fleet() -> None:
    with pytest.raises(FleetError, match="^it failed$"):
        await ask(_Answers(CoordinatorReply(error="it failed")).as_connection(), "jobs")


@aio
@pytest.mark.parametrize("problem", [UsageError("the code was used"), FleetError("a full disk")])
async def test_a_refused_join_raises_the_error_of_the_coordinator(
    monkeypatch: pytest.MonkeyPatch, problem: DragomanError
) -> None:
    memory = _Answers(JoinReply(error=str(problem), failure=describe(problem)))
    monkeypatch.setattr(submitter, "FleetConnection", lambda code: nullcontext(memory))
    monkeypatch.setattr(submitter, "decode_code", lambda code: SimpleNamespace(id="join-1"))
    with pytest.raises(type(problem), match=str(problem)):
        await join("code")


class _Silent(MemoryConnection):
    """Has a coordinator that does not answer the first requests; without a `last` answer none."""

    def __init__(self, *failures: FleetUnreachable, last: Struct | None = None) -> None:
        super().__init__("s1")
        self._failures = list(failures)
        self._last = last
        self.asked: list[bytes] = []
        self.changes: list[bool] = []

    async def request(
        self, subject: str, data: bytes = b"", *, changes: bool = False, **more: Any
    ) -> Any:
        self.asked.append(data)
        self.changes.append(changes)
        if self._last is None:
            raise self._failures[0]
        if self._failures:
            raise self._failures.pop(0)
        return SimpleNamespace(data=encode(self._last))


def no_answer(*, sent: bool) -> FleetUnreachable:
    return FleetUnreachable("timeout" if sent else "no responders", may_have_run=sent)


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> Callable[[MemoryConnection], None]:
    """Replaces the connection and the code of `join`."""
    code = SimpleNamespace(id="join-1", team="t", name="w1", kind="worker", urls=(), authority="")
    monkeypatch.setattr(submitter, "RETRY_INTERVAL", 0.0)
    monkeypatch.setattr(submitter, "decode_code", lambda text: code)
    return lambda memory: monkeypatch.setattr(
        submitter, "FleetConnection", lambda code: nullcontext(memory)
    )


@aio
async def test_a_join_without_an_answer_is_asked_for_again_with_the_same_key(
    joining: Callable[[MemoryConnection], None],
) -> None:
    failures = [no_answer(sent=sent) for sent in (True, False, True)]
    memory = _Silent(*failures, last=JoinReply(token="t"))
    joining(memory)
    assert (await join("code")).token == "t"
    assert len(memory.asked) == 4 and len(set(memory.asked)) == 1


@aio
@pytest.mark.parametrize("sent", [True, False])
async def test_a_join_without_an_answer_says_whether_the_code_may_be_used_up(
    joining: Callable[[MemoryConnection], None], monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    monkeypatch.setattr(submitter, "JOIN_TIMEOUT", 0.05)
    memory = _Silent(no_answer(sent=sent))
    joining(memory)
    with pytest.raises(FleetUnreachable, match="coordinator does not answer") as caught:
        await join("code")
    assert caught.value.may_have_run is sent
    assert ("fleet revoke w1" in caught.value.remedy) is sent
    # Without a coordinator, there is nothing to wait for.
    assert sent or len(memory.asked) == 1


@aio
async def test_a_drain_without_an_answer_may_have_run_and_a_question_has_no_effect() -> None:
    memory = _Silent(no_answer(sent=True))
    with pytest.raises(FleetUnreachable) as caught:
        await drain(memory.as_connection(), DrainQuestion(name="w1"))
    assert caught.value.may_have_run
    with pytest.raises(FleetUnreachable):
        await ask(memory.as_connection(), "jobs")
    assert memory.changes == [True, False]


@aio
async def test_a_join_code_that_the_server_refuses_has_expired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(code: object) -> None:
        raise FleetRefused("Authorization Violation")

    monkeypatch.setattr(submitter, "FleetConnection", refuse)
    monkeypatch.setattr(submitter, "decode_code", lambda code: SimpleNamespace(id="join-1"))
    with pytest.raises(UsageError, match="it has expired"):
        await join("code")


@aio
async def test_a_job_that_has_ended_is_not_cancelled() -> None:
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(JOB))
    assert not await cancel(memory.as_connection(), "f1")
    assert len(memory.messages) == 1
    # One that no coordinator has taken yet is, if it was submitted here.
    with pytest.raises(UnknownJob):
        await cancel(memory.as_connection(), "f2")
    assert await cancel(memory.as_connection(), "f2", known=False)
    assert memory.messages[-1].subject == "cancel.s1.f2"
