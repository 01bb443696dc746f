"""A delegation with an executor: records, patch, cancellation and limits as for a local one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.delegation import (
    CancelHandle,
    Delegation,
    DelegationListener,
    delegate_request,
    executor_run,
)
from dragoman.delegation.executor import ExecutedJob, ExecutorListener
from dragoman.delegation.executor_run import require_executable
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.worktree import received_patch
from dragoman.errors import FleetError, NoPeer, StoreBusy, StoreError, UsageError
from dragoman.events.model import Event, MessageDelta, Source
from dragoman.events.words import Outcome, Role
from dragoman.runs.context import RunContext
from dragoman.runs.direct_recorder import DirectRecorder
from dragoman.runs.lineage import Lineage
from dragoman.store.ledger import Ledger, ledger_path
from dragoman.store.open import open_store
from tests.aio import aio
from tests.unit.delegation.executed import DECISION, executed, report
from tests.unit.delegation.worktree.repositories import git, make
from tests.unit.runs.contexts import place_in

Work = Callable[[str, ExecutorListener, asyncio.Event], Awaitable[ExecutedJob]]

PATCH = (
    b"diff --git a/new.txt b/new.txt\nnew file mode 100644\nindex 0000000..1111111\n"
    b"--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"
)


class FakeExecutor:
    name = "fleet red"

    def __init__(self, work: Work) -> None:
        self.work = work

    def require(self, request: DelegationRequest) -> None:
        if request.tier:
            raise UsageError("no tiers")

    async def execute(
        self,
        job: str,
        request: DelegationRequest,
        *,
        listener: ExecutorListener,
        stop: asyncio.Event,
    ) -> ExecutedJob:
        return await self.work(job, listener, stop)


class Notices(DelegationListener):
    def __init__(self) -> None:
        self.told: list[str] = []

    def notice(self, text: str) -> None:
        self.told.append(text)


class Heard(DelegationListener):
    def __init__(self) -> None:
        self.told: list[str] = []

    def job(self, job: str) -> None:
        self.told.append("job")

    def event(self, event: Event) -> None:
        self.told.append(type(event).__name__)

    def notice(self, text: str) -> None:
        self.told.append(text.partition(" is ")[2])


async def run(
    place: RunContext,
    work: Work,
    *,
    heard: DelegationListener | None = None,
    cancel: CancelHandle | None = None,
    lineage: Lineage | None = None,
    apply: bool = False,
    timeout: float | None = None,
    tier: str | None = None,
) -> Delegation:
    request = DelegationRequest(
        role="review",
        prompt="look",
        workspace=place.cwd,
        isolate=True,
        apply=apply,
        timeout=timeout,
        tier=tier,
    )
    return await delegate_request(
        request,
        place=place,
        executor=FakeExecutor(work),
        listener=heard,
        cancel=cancel,
        lineage=lineage or Lineage(),
    )


def said(text: str) -> MessageDelta:
    source = Source("acp", "1", "fleet")
    return MessageDelta(source, 1, "s", "t", "x", None, False, role=Role.AGENT, text=text)


async def works(job: str, listener: ExecutorListener, stop: asyncio.Event) -> ExecutedJob:
    listener.placed("w1")
    listener.decided(DECISION)
    listener.attempt(1, DECISION.candidates[0], "first")
    listener.event(said("hello"))
    return executed(report(), job=job, patch=PATCH)


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def in_repository(folder: Path) -> RunContext:
    make(folder / "work")
    return place_in(folder)


@aio
async def test_a_job_is_in_the_store_and_in_the_ledger_with_its_events(tmp_path: Path) -> None:
    place, heard = in_repository(tmp_path), Heard()
    done = await run(place, works, heard=heard)
    assert done.ok and done.final.machine == "w1"
    assert heard.told == ["job", "running on w1", "MessageDelta"]
    store = open_store(paths=place.paths)
    try:
        job = store.job(done.job)
        assert job is not None
        assert (job.state, job.outcome, job.text, job.peer) == ("ended", "ok", "done", "codex")
        child = store.job(f"{done.job}-1")
        assert child is not None and child.text == "hello"
        assert job.session_key == child.session_key != ""
    finally:
        store.close()
    with Ledger.open(ledger_path(place.paths.state), read_only=True) as ledger:
        (attempt,) = ledger.attempts(done.job)
        assert (attempt.machine, attempt.decision_id) == ("w1", done.decision_id)


@aio
async def test_the_patch_is_saved_or_applied(tmp_path: Path) -> None:
    place = in_repository(tmp_path)
    kept = await run(place, works)
    assert kept.final.patch is not None and content(kept.final.patch) == PATCH
    assert not (place.cwd / "new.txt").exists()
    applied = await run(place, works, apply=True)
    assert applied.ok and applied.final.applied is not None and applied.final.applied.ok
    assert (place.cwd / "new.txt").read_text() == "new\n"
    again = await run(place, works, apply=True)
    assert not again.ok and again.final.applied is not None and again.final.applied.kept
    assert "new.txt" in git(place.cwd, "status", "--porcelain")


@aio
async def test_a_patch_outside_the_repository_fails_the_job_and_changes_nothing(
    tmp_path: Path,
) -> None:
    place = in_repository(tmp_path)

    async def attacks(job: str, listener: ExecutorListener, stop: asyncio.Event) -> ExecutedJob:
        return executed(report(), job=job, patch=PATCH.replace(b"new.txt", b"../new.txt"))

    done = await run(place, attacks, apply=True)
    assert not done.ok
    assert not (place.cwd.parent / "new.txt").exists()


@pytest.mark.parametrize("apply", [True, False])
@aio
async def test_an_interrupt_while_the_patch_is_handled_is_answered_with_the_place_of_the_changes(
    apply: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, heard, reached, cut = (
        in_repository(tmp_path),
        Notices(),
        asyncio.Event(),
        asyncio.Event(),
    )
    handle = received_patch.apply_received if apply else received_patch.keep_received

    async def slowly(*args: Any, **more: Any) -> Any:
        reached.set()
        await cut.wait()
        return await handle(*args, **more)

    monkeypatch.setattr(executor_run, handle.__name__, slowly)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run(place, works, heard=heard, apply=apply))
        await reached.wait()
        running.cancel()
        cut.set()
    assert running.cancelled()
    patches = list((place.paths.state / "patches").iterdir())
    if apply:
        assert (place.cwd / "new.txt").read_text() == "new\n" and patches == []
        assert heard.told[-1].endswith("were applied")
    else:
        assert heard.told[-1].endswith(f"are saved in {patches[0]}")


@aio
async def test_cancelling_stops_the_executor_and_its_result_is_reported(tmp_path: Path) -> None:
    cancel = CancelHandle()

    async def waits(job: str, listener: ExecutorListener, stop: asyncio.Event) -> ExecutedJob:
        assert cancel.pull()
        await stop.wait()
        return executed(job=job, machine="", outcome=Outcome.CANCELLED, why="it was cancelled")

    done = await run(in_repository(tmp_path), waits, cancel=cancel)
    assert done.interrupted and done.outcome is Outcome.CANCELLED


@aio
async def test_a_timeout_stops_the_executor(tmp_path: Path) -> None:
    async def waits(job: str, listener: ExecutorListener, stop: asyncio.Event) -> ExecutedJob:
        await stop.wait()
        return executed(job=job, machine="", outcome=Outcome.CANCELLED, why="it was cancelled")

    done = await run(in_repository(tmp_path), waits, timeout=0.01)
    assert done.outcome is Outcome.TIMED_OUT and not done.interrupted


@aio
async def test_an_unconfirmed_cancellation_is_not_recorded(tmp_path: Path) -> None:
    place = in_repository(tmp_path)

    async def leaves(job: str, listener: ExecutorListener, stop: asyncio.Event) -> ExecutedJob:
        return executed(job=job, machine="", outcome=Outcome.CANCELLED, confirmed=False)

    done = await run(place, leaves)
    with Ledger.open(ledger_path(place.paths.state), read_only=True) as ledger:
        assert ledger.attempts(done.job) == []


@aio
async def test_an_executor_error_ends_the_stored_job(tmp_path: Path) -> None:
    place = in_repository(tmp_path)
    jobs: list[str] = []

    async def fails(job: str, listener: ExecutorListener, stop: asyncio.Event) -> ExecutedJob:
        jobs.append(job)
        listener.attempt(1, DECISION.candidates[0], "first")
        raise FleetError("gone")

    with pytest.raises(FleetError, match="gone"):
        await run(place, fails)
    store = open_store(paths=place.paths)
    try:
        for id in (jobs[0], f"{jobs[0]}-1"):
            found = store.job(id)
            assert found is not None and (found.state, found.outcome) == ("ended", "failed")
    finally:
        store.close()


@aio
async def test_an_unsupported_request_is_rejected_before_a_job_is_stored(
    tmp_path: Path,
) -> None:
    heard = Heard()
    with pytest.raises(UsageError, match="no tiers"):
        await run(in_repository(tmp_path), works, heard=heard, tier="fast")
    assert heard.told == []


@aio
async def test_delegated_work_is_not_sent_to_another_machine(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be sent"):
        await run(in_repository(tmp_path), works, lineage=Lineage(depth=1))


@aio
async def test_a_locked_ledger_is_an_error_that_a_retry_may_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(path: Path, *, read_only: bool = False) -> Ledger:
        raise StoreBusy(str(path), "another process holds it")

    config = tmp_path / "config_home"
    config.mkdir()
    (config / "config.toml").write_text("[limits]\nday_turns = 1\n")
    place = in_repository(tmp_path)
    monkeypatch.setattr(Ledger, "open", busy)
    with pytest.raises(StoreError, match="limits are set, .*another process holds it") as caught:
        await require_executable("execute", place, where="box", lineage=Lineage(), now=0.0)
    assert caught.value.retryable


@aio
async def test_a_reached_daily_limit_stops_the_work_before_it_is_sent(tmp_path: Path) -> None:
    config = tmp_path / "config_home"
    config.mkdir()
    (config / "config.toml").write_text("[limits]\nday_turns = 1\n")
    place = in_repository(tmp_path)
    assert (await run(place, works)).ok
    with pytest.raises(NoPeer, match="the daily limit is used up: 1 of 1 turns") as caught:
        await run(place, works)
    assert caught.value.over_budget


@aio
async def test_a_recording_that_cannot_be_closed_leaves_no_other_open_and_no_job_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, closed = in_repository(tmp_path), list[DirectRecorder]()
    aclose = DirectRecorder.aclose

    async def fail_once(recorder: DirectRecorder) -> None:
        await aclose(recorder)
        closed.append(recorder)
        if len(closed) == 1:
            raise LookupError("a mistake of ours")

    async def fails(job: str, listener: ExecutorListener, stop: asyncio.Event) -> ExecutedJob:
        for number in (1, 2):
            listener.attempt(number, DECISION.candidates[0], "first")
        raise FleetError("the server is gone")

    monkeypatch.setattr(DirectRecorder, "aclose", fail_once)
    with pytest.raises(LookupError):
        await run(place, fails)
    assert len(set(closed)) == 2
    with open_store(read_only=True, paths=place.paths) as store:
        assert {job.state for job in store.jobs()} == {"ended"}
