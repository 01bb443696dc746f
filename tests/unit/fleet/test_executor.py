"""FleetExecutor: a job from its submission to its result, and what happens if it can no longer be
followed. The server is in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.delegation.executor import ExecutedJob
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import Candidate, Decision
from dragoman.errors import FleetError, FleetFull, FleetUnreachable, UsageError
from dragoman.events.model import Event, MessageDelta, Source
from dragoman.events.words import Outcome, Role
from dragoman.fleet import executor, objects, subjects, submitter
from dragoman.fleet.credentials import MemberCredential
from dragoman.fleet.executor import FleetExecutor, event_of
from dragoman.fleet.objects import put_object
from dragoman.fleet.records import (
    ATTEMPT_BEGUN,
    DECIDED,
    NOTICE,
    EventBatch,
    FleetAttempt,
    FleetJob,
    FleetResult,
    JobSpec,
    decode,
    encode,
)
from dragoman.fleet.results import pending_jobs
from dragoman.fleet.submitter import PackedWorkspace
from dragoman.paths import find_paths
from dragoman.rpc.tasks import TaskOwner
from dragoman.wire.messages import UNDECODABLE
from tests.aio import aio
from tests.unit.delegation.executed import DECISION, delegation, report
from tests.unit.fleet.fakes import MemoryConnection
from tests.unit.rpc.other_side import until

CREDENTIAL = MemberCredential(team="red", name="s1", kind="submitter", urls=(), seed="", token="")


def published(**fields: Any) -> dict[str, Any]:
    event = MessageDelta(
        Source("acp", "1"), 3, "s", "t", "x", b"{}", False, role=Role.AGENT, text="hello"
    )
    told: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    del told["raw"]
    return {**told, **fields}


def test_a_published_event_decodes_to_the_same_event_without_its_raw_message() -> None:
    event = event_of(published())
    assert isinstance(event, MessageDelta)
    assert (event.text, event.seq, event.raw) == ("hello", 3, None)
    assert event.source.spoken == "fleet"


def test_an_event_of_unknown_type_cannot_be_decoded() -> None:
    with pytest.raises(UNDECODABLE):
        event_of(published(type="NewEvent"))


def test_options_that_only_the_worker_can_decide_are_rejected(tmp_path: Path) -> None:
    executor = FleetExecutor(CREDENTIAL)
    assert executor.name == "fleet red"
    request = DelegationRequest(
        role="review", prompt="x", workspace=tmp_path, allow_unenforced=True
    )
    with pytest.raises(UsageError, match="the worker's settings decide"):
        executor.require(request)


# -- execute

JOB = "f1"


class FakeFleet(MemoryConnection):
    """A server whose coordinator gives each job to w1, which answers at once. `stays` keeps the job
    running until it is cancelled; without a `coordinator` no job is taken."""

    def __init__(self, *, coordinator: bool = True, stays: bool = False) -> None:
        super().__init__("s1")
        self.coordinator = coordinator
        self.stays = stays
        self.outcome = "ok"
        self.patch = b""
        self.spec: JobSpec | None = None

    async def store(self, subject: str, data: bytes, **more: Any) -> int:
        sequence = await super().store(subject, data, **more)
        if self.coordinator and subject == subjects.submission("s1", JOB):
            self.spec = decode(data, JobSpec)
            await self.worker_began()
            if not self.stays:
                await self.worker_ended()
        elif self.coordinator and subject == subjects.cancellation("s1", JOB):
            self.outcome = "cancelled"
            await self.worker_ended()
        return sequence

    async def worker_began(self) -> None:
        await self._record("running", None)
        events = (
            {"type": NOTICE, "text": "the ledger was damaged"},
            {"type": DECIDED, **msgspec.to_builtins(DECISION)},
            {
                "type": ATTEMPT_BEGUN,
                "number": 1,
                "reason": "",
                **msgspec.to_builtins(DECISION.candidates[0]),
            },
            published(),
            published(type="NewEvent"),
        )
        await super().store(
            subjects.events("w1", JOB, 1), encode(EventBatch(first=1, events=events))
        )

    async def worker_ended(self) -> None:
        connection = self.as_connection()
        whole = msgspec.json.encode(msgspec.to_builtins(delegation(report())))
        result = FleetResult(
            ok=self.outcome == "ok",
            outcome=self.outcome,
            worker="w1",
            attempt=1,
            events=4,
            patch=await put_object(connection, self.patch) if self.patch else None,
            delegation=await put_object(connection, whole),
        )
        await self._record("done", result)

    async def _record(self, state: Any, result: FleetResult | None) -> None:
        assert self.spec is not None
        job = FleetJob(
            id=JOB,
            submitter="s1",
            spec=self.spec,
            state=state,
            attempts=(FleetAttempt(number=1, worker="w1", assigned_at=1.0),),
            created_at=0.0,
            result=result,
        )
        await super().store(subjects.job_record(JOB), encode(job))

    @property
    def submitted(self) -> bool:
        return any(one.subject == subjects.submission("s1", JOB) for one in self.messages)

    @property
    def cancelled(self) -> bool:
        return any(one.subject == subjects.cancellation("s1", JOB) for one in self.messages)


class _Executor(FleetExecutor):
    def __init__(self, fleet: FakeFleet) -> None:
        super().__init__(CREDENTIAL)
        self._connection = fleet.as_connection()


class Heard:
    """A listener that notes what it hears; `stop` is set with the first event."""

    def __init__(self, stop: asyncio.Event | None = None) -> None:
        self.told: list[str] = []
        self.began = asyncio.Event()
        self._stop = stop

    def notice(self, text: str) -> None:
        self.told.append(text)

    def placed(self, machine: str) -> None:
        self.told.append(f"placed on {machine}")

    def decided(self, decision: Decision) -> None:
        self.told.append(f"decided: {decision.why}")

    def attempt(self, number: int, candidate: Candidate, reason: str) -> None:
        self.told.append(f"attempt {number} by {candidate.peer}")

    def event(self, event: Event) -> None:
        self.told.append(type(event).__name__)
        self.began.set()
        if self._stop is not None:
            self._stop.set()


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that need not be a repository."""

    async def pack(workspace: Path) -> PackedWorkspace:
        return PackedWorkspace(b"bundle", {})

    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(executor, "pack_workspace", pack)
    monkeypatch.setattr(submitter, "POLL_INTERVAL", 0.01)
    monkeypatch.setattr(submitter, "RETRY_INTERVAL", 0.0)
    monkeypatch.setattr(objects, "READ_INTERVAL", 0.0)
    return tmp_path


async def run(
    fleet: FakeFleet,
    workspace: Path,
    *,
    heard: Heard | None = None,
    stop: asyncio.Event | None = None,
) -> ExecutedJob:
    request = DelegationRequest(role="review", prompt="x", workspace=workspace)
    async with asyncio.timeout(30):
        return await _Executor(fleet).execute(
            JOB, request, listener=heard or Heard(), stop=stop or asyncio.Event()
        )


@aio
async def test_a_job_passes_on_its_events_and_returns_result_and_patch(workspace: Path) -> None:
    fleet, heard = FakeFleet(), Heard()
    fleet.patch = b"diff"
    done = await run(fleet, workspace, heard=heard)
    assert (done.job, done.machine, done.outcome, done.patch) == (JOB, "w1", Outcome.OK, b"diff")
    assert done.delegation == delegation(report())
    assert heard.told == [
        "submitted to fleet red",
        "placed on w1",
        "w1: the ledger was damaged",
        "decided: codex is first",
        "attempt 1 by codex",
        "MessageDelta",
        "skipped an unreadable event from w1",
    ]
    assert not fleet.cancelled


@aio
async def test_a_stopped_job_is_cancelled_and_its_end_is_awaited(workspace: Path) -> None:
    fleet, stop = FakeFleet(stays=True), asyncio.Event()
    done = await run(fleet, workspace, heard=Heard(stop), stop=stop)
    assert fleet.cancelled
    assert (done.outcome, done.confirmed) == (Outcome.CANCELLED, True)


@aio
async def test_an_unconfirmed_cancellation_is_reported_as_such(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "CANCEL_TIMEOUT", 0.01)
    fleet, stop = FakeFleet(coordinator=False), asyncio.Event()
    stop.set()
    done = await run(fleet, workspace, stop=stop)
    # It was stopped before it was submitted.
    assert done.confirmed and fleet.messages == []
    tasks = TaskOwner("test")
    stop = asyncio.Event()
    running = tasks.start(run(fleet, workspace, stop=stop), "run")
    async with asyncio.timeout(30):
        await until(lambda: fleet.submitted)
        stop.set()
        done = await running
    assert fleet.cancelled and not done.confirmed
    assert f"dragoman fleet watch {JOB}" in done.why


@pytest.mark.parametrize("during", ["pack_workspace", "upload"])
@aio
async def test_a_job_that_is_stopped_while_its_files_are_sent_is_not_submitted(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    fleet, stop, cancelled = FakeFleet(), asyncio.Event(), asyncio.Event()

    async def hang(*args: object) -> None:
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    monkeypatch.setattr(executor, during, hang)
    done = await run(fleet, workspace, stop=stop)
    assert (done.outcome, done.machine, done.why) == (
        Outcome.CANCELLED,
        "",
        "cancelled before it was submitted",
    )
    assert cancelled.is_set() and fleet.messages == []
    assert pending_jobs(find_paths().state, "red", now=0.0) == []


@aio
async def test_a_cancelled_caller_cancels_the_job(workspace: Path) -> None:
    fleet, heard = FakeFleet(stays=True), Heard()
    tasks = TaskOwner("test")
    running = tasks.start(run(fleet, workspace, heard=heard), "run")
    async with asyncio.timeout(30):
        await heard.began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert fleet.cancelled


@aio
async def test_a_submitted_job_without_a_coordinator_is_cancelled(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "ACCEPT_TIMEOUT", 0.0)
    fleet = FakeFleet(coordinator=False)
    with pytest.raises(
        FleetUnreachable, match="job f1 was submitted, but no coordinator"
    ) as caught:
        await run(fleet, workspace)
    assert fleet.cancelled and str(caught.value).endswith("f1 was cancelled")
    assert caught.value.may_have_run
    assert f"dragoman fleet watch {JOB}" in caught.value.remedy


@aio
async def test_the_error_says_that_a_job_that_could_not_be_cancelled_continues(
    workspace: Path,
) -> None:
    fleet = FakeFleet(stays=True)

    class Refused(Heard):
        def event(self, event: Event) -> None:
            fleet.fail = fleet.fail_reads = FleetError("revoked")

    with pytest.raises(FleetError) as caught:
        await run(fleet, workspace, heard=Refused())
    assert str(caught.value) == "revoked; job f1 continues" and caught.value.may_have_run
    assert f"dragoman fleet cancel {JOB}" in caught.value.remedy


@aio
async def test_waiting_ends_if_the_server_does_not_answer_for_too_long(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "RECONNECT_TIMEOUT", 0.0)
    fleet = FakeFleet(stays=True)

    class Away(Heard):
        def event(self, event: Event) -> None:
            fleet.fail = fleet.fail_reads = FleetUnreachable("no answer")

    heard = Away()
    with pytest.raises(FleetUnreachable, match="no answer; job f1 continues") as caught:
        await run(fleet, workspace, heard=heard)
    assert caught.value.may_have_run and caught.value.retryable
    assert "no answer; the job continues. Reconnecting …" in heard.told


@aio
async def test_a_rejected_job_is_not_cancelled(workspace: Path) -> None:
    fleet = FakeFleet()
    fleet.fail, fleet.fails = FleetFull("full"), "submit."
    with pytest.raises(FleetFull, match="^full$") as caught:
        await run(fleet, workspace)
    assert not fleet.cancelled and not caught.value.may_have_run
    assert pending_jobs(find_paths().state, "red", now=0.0) == []


@aio
async def test_a_submission_that_may_have_been_accepted_is_cancelled(workspace: Path) -> None:
    fleet = FakeFleet(coordinator=False)
    fleet.fail, fleet.fails = FleetUnreachable("no answer", may_have_run=True), "submit."
    with pytest.raises(FleetUnreachable, match="f1 may have been accepted; job f1 was cancelled"):
        await run(fleet, workspace)
    assert fleet.cancelled
    assert pending_jobs(find_paths().state, "red", now=0.0) == [JOB]


@aio
async def test_the_error_for_an_unreadable_result_says_that_the_job_is_done(
    workspace: Path,
) -> None:
    fleet, heard = FakeFleet(), Heard()

    async def last(stream: str, subject: str) -> Any:
        return None if stream == subjects.OBJECTS else await FakeFleet.last(fleet, stream, subject)

    fleet.last = last  # type: ignore[method-assign]
    with pytest.raises(FleetError, match="expired") as caught:
        await run(fleet, workspace, heard=heard)
    assert caught.value.may_have_run and caught.value.remedy.startswith("the job is done")
    assert not fleet.cancelled
