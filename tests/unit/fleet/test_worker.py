"""The lease and the report of a job on a worker. tests/fleet runs real workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.errors import (
    FleetError,
    FleetFull,
    FleetUnreachable,
    IsolationFailed,
    UsageError,
)
from dragoman.events.words import ToolKind
from dragoman.fleet import event_publisher, subjects, worker
from dragoman.fleet.coordinator import clock
from dragoman.fleet.credentials import MemberCredential
from dragoman.fleet.records import (
    AttemptEnded,
    BeatReply,
    EventBatch,
    FleetResult,
    JobAssignment,
    JobSpec,
    ObjectRef,
    PeerDetails,
    RunningJob,
    decode,
    encode,
)
from dragoman.fleet.worker import FleetWorker, LeasedJob, WorkerOptions
from dragoman.redaction.redactor import Redactor
from dragoman.runs.run_values import CancelHandle
from tests.aio import aio
from tests.unit.fleet.fakes import MemoryConnection
from tests.unit.fleet.test_event_publisher import WORKSPACE, said, tool

SPEC = JobSpec(
    role="execute",
    prompt="x",
    bundle=ObjectRef(owner="s1", id="x", chunks=1, size=1, key=""),
)


@aio
async def test_a_lease_is_valid_from_the_first_answered_heartbeat_until_it_is_fenced() -> None:
    leased = LeasedJob(JobAssignment(epoch=1, boot="b", job="f1", attempt=2, spec=SPEC))
    assert leased.running == RunningJob("f1", 2)
    assert not leased.holds()
    leased.until = clock() + 1000
    assert leased.holds()
    leased.fenced = True
    assert not leased.holds()


@aio
async def test_an_expired_lease_is_not_valid() -> None:
    leased = LeasedJob(JobAssignment(epoch=1, boot="b", job="f1", attempt=1, spec=SPEC))
    leased.until = clock() - 0.001
    assert not leased.holds()


Job = Callable[..., Coroutine[Any, Any, Any]]
CREDENTIAL = MemberCredential(team="t", name="w1", kind="worker", urls=(), seed="", token="")


class _HoldingWorker(FleetWorker):
    """A worker with a confirmed job, connected to streams in memory."""

    def __init__(
        self, memory: MemoryConnection, on_notice: Callable[[str], None] = lambda text: None
    ) -> None:
        super().__init__(CREDENTIAL, WorkerOptions(), on_notice=on_notice)
        connection: Any = memory
        place: Any = None
        self._connection, self._place, self._redact = connection, place, Redactor([])
        assignment = JobAssignment(epoch=1, boot="b", job="f1", attempt=2, spec=SPEC)
        self.leased = LeasedJob(assignment)
        self.leased.until = clock() + 1000
        self.leased.confirmed.set()

    async def hold(self) -> None:
        await self._hold(self.leased)
        await self._tasks.aclose()


@pytest.fixture
def delegate(monkeypatch: pytest.MonkeyPatch) -> Callable[[Job], None]:
    """Replaces the delegation with a function. No repository is unpacked."""

    async def nothing(*args: object, **more: object) -> bytes:
        return b""

    async def unpacked(*args: object, **more: object) -> Any:
        return SimpleNamespace(tree=SimpleNamespace(path=str(WORKSPACE)))

    monkeypatch.setattr(worker, "worker_context", lambda *args: None)
    monkeypatch.setattr(worker, "worker_secrets", lambda *args: ())
    monkeypatch.setattr(worker, "refusal", lambda *args: "")
    monkeypatch.setattr(worker, "job_folder", lambda *args: Path("/nowhere"))
    monkeypatch.setattr(worker, "get_object", nothing)
    monkeypatch.setattr(worker, "unpacked", unpacked)
    monkeypatch.setattr(worker, "removed", nothing)
    return lambda job: monkeypatch.setattr(worker, "run_job", job)


def report(memory: MemoryConnection) -> FleetResult:
    (found,) = [one for one in memory.messages if one.subject == subjects.result("w1", "f1", 2)]
    result = decode(found.data, AttemptEnded).result
    assert result is not None
    return result


@aio
async def test_a_late_reply_about_an_attempt_does_not_remove_the_next_attempt() -> None:
    memory = MemoryConnection()
    worker_ = _HoldingWorker(memory)
    later = LeasedJob(JobAssignment(epoch=1, boot="b", job="f1", attempt=3, spec=SPEC))
    worker_._jobs["f1"] = later
    worker_._drop(worker_.leased)
    assert worker_.leased.fenced
    assert worker_._jobs == {"f1": later}


@pytest.mark.parametrize("is_late", [False, True])
@aio
async def test_an_earlier_epoch_is_ignored_until_the_later_one_is_silent_for_a_lease(
    monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    class Coordinator(MemoryConnection):
        epoch = 7

        async def request(self, subject: str, data: bytes = b"", **more: Any) -> Any:
            reply = BeatReply(epoch=self.epoch, lease=10.0, drain=self.epoch == 3)
            return SimpleNamespace(data=encode(reply))

    notices: list[str] = []
    coordinator, now = Coordinator(), 1000.0
    monkeypatch.setattr(worker, "clock", lambda: now)
    holding = _HoldingWorker(coordinator, notices.append)
    await holding._beat()
    # The server was started again with empty streams.
    coordinator.epoch, now = 3, 1011.0 if is_late else 1009.0
    await holding._beat()
    assert notices == (["drained: accepting no more jobs"] if is_late else [])


@aio
async def test_the_agent_is_ended_when_its_actions_cannot_be_recorded(
    delegate: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_publisher, "STORE_TIMEOUT", 0.0)
    memory = MemoryConnection()
    ended = asyncio.Event()

    async def job(*args: object, on_event: Callable[..., None], **more: object) -> None:
        memory.fail = FleetUnreachable("gone")
        on_event(tool(ToolKind.EXECUTE, "make deploy"))
        try:
            await asyncio.Event().wait()
        finally:
            # The server is back, but too late for the publisher.
            memory.fail = None
            ended.set()

    delegate(job)
    async with asyncio.timeout(30):
        await _HoldingWorker(memory).hold()
    assert ended.is_set()
    result = report(memory)
    assert (result.ok, result.outcome) == (False, "failed")
    assert result.why == "could not store the agent's events: gone"


@aio
async def test_the_result_is_reported_even_if_actions_could_not_be_recorded(
    delegate: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_publisher, "STORE_TIMEOUT", 0.0)
    memory = MemoryConnection()
    holding = _HoldingWorker(memory)

    async def job(*args: object, on_event: Callable[..., None], **more: object) -> Any:
        memory.fail = FleetFull("full")
        memory.fails = ("evt.", subjects.acted("w1", "f1", 2))
        on_event(tool(ToolKind.EXECUTE, "make deploy"))
        raise IsolationFailed("the patch", "too large")

    delegate(job)
    async with asyncio.timeout(30):
        await holding.hold()
    assert holding.leased.reported
    assert report(memory).why == "the patch failed: too large"


@aio
async def test_the_acts_of_an_agent_are_stored_even_if_the_disk_of_the_worker_fails(
    delegate: Callable[[Job], None],
) -> None:
    class Slow(MemoryConnection):
        async def store(self, subject: str, data: bytes, **more: Any) -> int:
            for _ in range(10):
                await asyncio.sleep(0)
            return await super().store(subject, data, **more)

    memory = Slow()
    holding = _HoldingWorker(memory)

    async def job(*args: object, on_event: Callable[..., None], **more: object) -> Any:
        on_event(tool(ToolKind.EXECUTE, "make deploy"))
        raise OSError(28, "no space left")

    delegate(job)
    async with asyncio.timeout(30):
        await holding.hold()
    # It is not reported: the lease expires, and the coordinator decides by what is stored.
    assert not holding.leased.reported
    stored = [decode(one.data, EventBatch) for one in memory.messages]
    assert any(one.acted == "it ran a command (make deploy)" for one in stored)


@aio
async def test_secrets_in_settings_that_changed_after_the_start_are_not_published(
    delegate: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def job(*args: object, on_event: Callable[..., None], **more: object) -> Any:
        on_event(said("correct-horse-battery"))
        raise IsolationFailed("the patch", "correct-horse-battery")

    delegate(job)
    monkeypatch.setattr(worker, "worker_secrets", lambda *args: ("correct-horse-battery",))
    memory = MemoryConnection()
    await _HoldingWorker(memory).hold()
    assert report(memory).outcome == "failed" and len(memory.messages) > 1
    assert b"correct-horse-battery" not in b"".join(one.data for one in memory.messages)


@aio
async def test_the_peers_of_changed_settings_are_announced(
    delegate: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    details = PeerDetails(state="ready")
    monkeypatch.setattr(worker, "worker_context", lambda *args: "changed")
    monkeypatch.setattr(worker, "announced_peers", lambda place, _: {place: details})
    holding = _HoldingWorker(MemoryConnection())
    await holding._read_peers()
    assert holding._peers == {"changed": details}


@pytest.mark.parametrize("error", [UsageError("no home"), PermissionError(13, "denied")])
@aio
async def test_settings_that_cannot_be_read_are_reported_and_do_not_end_the_worker(
    delegate: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def unreadable(*args: object) -> None:
        raise error

    monkeypatch.setattr(worker, "worker_context", unreadable)
    notices: list[str] = []
    memory = MemoryConnection()
    holding = _HoldingWorker(memory, notices.append)
    told = f"cannot read the state of the peers: {error}"
    for _ in range(2):
        await holding._read_peers()
    assert notices == [told], "it is said once"
    with monkeypatch.context() as repaired:
        repaired.setattr(worker, "worker_context", lambda *args: "repaired")
        repaired.setattr(worker, "announced_peers", lambda *args: {})
        await holding._read_peers()
    await holding._read_peers()
    assert notices == [told] * 2
    await holding.hold()
    (found,) = memory.messages
    assert decode(found.data, AttemptEnded).refused == f"its settings cannot be read: {error}"


@aio
async def test_a_job_whose_patch_cannot_be_stored_fails_and_is_not_run_again(
    delegate: Callable[[Job], None],
) -> None:
    memory = MemoryConnection()

    async def job(*args: object, on_event: Callable[..., None], **more: object) -> Any:
        memory.fail, memory.fails = FleetFull("the server is full"), "obj."
        on_event(said("hello"))
        return SimpleNamespace(delegation=None, patch=b"x")

    delegate(job)
    async with asyncio.timeout(30):
        await _HoldingWorker(memory).hold()
    assert report(memory).why == "the server is full"


@aio
async def test_a_job_ends_with_the_reason_if_the_server_has_no_room_for_its_events(
    delegate: Callable[[Job], None],
) -> None:
    memory = MemoryConnection()
    memory.fail, memory.fails = FleetFull("the server is full"), "evt."

    async def job(*args: object, **more: object) -> Any:
        raise AssertionError("no peer may be prompted")

    delegate(job)
    await _HoldingWorker(memory).hold()
    assert (report(memory).outcome, report(memory).why) == ("failed", "the server is full")
    assert not report(memory).may_have_run


@aio
async def test_a_job_that_is_cancelled_before_a_peer_is_prompted_is_reported_as_cancelled(
    delegate: Callable[[Job], None],
) -> None:
    async def job(*args: object, cancel: CancelHandle, **more: object) -> Any:
        assert cancel.pulled
        raise asyncio.CancelledError

    delegate(job)
    memory = MemoryConnection()
    holding = _HoldingWorker(memory)
    holding.leased.cancel.pull()
    async with asyncio.timeout(30):
        await holding.hold()
    assert holding.leased.reported
    assert (report(memory).outcome, report(memory).may_have_run) == ("cancelled", False)


@aio
async def test_a_report_waits_for_room_in_the_inbox_and_is_stored_once(
    delegate: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RETRY_INTERVAL", 0.0)
    notices: list[str] = []

    class Full(MemoryConnection):
        tries = 0

        async def store(self, subject: str, data: bytes, **more: Any) -> int:
            if subject.startswith("result."):
                self.tries += 1
                if self.tries < 4:
                    raise FleetFull("the fleet's server is full")
            return await super().store(subject, data, **more)

    async def job(*args: object, **more: object) -> Any:
        raise IsolationFailed("the patch", "too large")

    delegate(job)
    memory = Full()
    holding = _HoldingWorker(memory, notices.append)
    async with asyncio.timeout(30):
        await holding.hold()
    assert holding.leased.reported and memory.tries == 4
    assert len([one for one in memory.messages if one.subject.startswith("result.")]) == 1
    assert [one for one in notices if "cannot store its report yet" in one] == [
        "job f1: cannot store its report yet: the fleet's server is full"
    ]


@aio
async def test_a_job_ends_with_the_reason_if_its_repository_is_gone(
    delegate: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*args: object) -> bytes:
        raise FleetError("it has expired")

    delegate(gone)
    monkeypatch.setattr(worker, "get_object", gone)
    memory = MemoryConnection()
    await _HoldingWorker(memory).hold()
    assert report(memory).why == "cannot use the repository: it has expired"
    assert not report(memory).may_have_run
