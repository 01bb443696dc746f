"""A delegation that is stopped at any moment reports what there is, and stops nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.delegation import CancelHandle
from dragoman.delegation.attempt import Attempt
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.jobs import cancel_job, find_job
from tests.aio import aio
from tests.integration.delegated_peers import Bench, bench_in
from tests.integration.test_delegating import commit, text_of

PATIENT = "[timeouts]\ninitialize = 20\ncancel_grace = 2\n"


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not fact():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)


@aio
async def test_an_interrupt_between_two_turns_tells_every_attempt_so_far(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "crash")
    bench.peer("beta", "mute")
    bench.peer("gamma", "ok")
    bench.settings("alpha", "beta", "gamma", more=PATIENT)
    cancel, owner = CancelHandle(), TaskOwner("a test")
    running = owner.start(bench.delegate(cancel=cancel), "delegate")
    await until(lambda: bench.told("beta", "starts"))
    assert not cancel.in_turn
    cancel.pull()
    cancel.pull()
    done = await running
    assert done.interrupted and done.stopped == "it was interrupted"
    told = [(one.peer, one.outcome.value) for one in done.attempts]
    assert told == [("alpha", "crashed"), ("beta", "cancelled")]
    assert [(one.peer, one.outcome) for one in bench.attempts(done.job)] == told
    assert bench.told("beta") == [] and bench.told("gamma", "starts") == []
    assert not done.final.may_have_run and "cancelled" in done.lines()[-3]
    assert (await find_job(done.job, paths=bench.place().paths)).outcome == "cancelled"


@aio
async def test_a_fault_of_dragoman_itself_is_not_recorded_as_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "ok")
    bench.settings("alpha", more=PATIENT)

    async def broken(self: Attempt) -> AttemptReport:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Attempt, "run", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        await bench.delegate()
    assert (await find_job(bench.heard.jobs[0], paths=bench.place().paths)).outcome == "failed"


@pytest.mark.parametrize("isolate", [False, True])
@aio
async def test_an_interrupt_of_the_check_still_tells_what_was_changed(
    isolate: bool, tmp_path: Path
) -> None:
    bench = bench_in(tmp_path)
    commit(bench.work)
    bench.peer("alpha", "write")
    bench.settings("alpha", more=PATIENT)
    cancel, owner, mark = CancelHandle(), TaskOwner("a test"), tmp_path / "checking"
    work = bench.delegate(cancel=cancel, isolate=isolate, check=f"touch {mark}; sleep 50")
    running = owner.start(work, "delegate")
    await until(mark.exists)
    cancel.pull()
    done = await running
    assert done.interrupted and not done.ok and done.text == "written"
    if isolate:
        assert "done.txt" in text_of(done.final.patch)
        assert not (bench.work / "done.txt").exists()
    else:
        assert [one.path for one in done.final.files] == ["done.txt"]


@aio
async def test_a_task_that_is_cancelled_from_outside_as_well_ends_as_one(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "mute")
    bench.settings("alpha", more=PATIENT)
    cancel, owner = CancelHandle(), TaskOwner("a test")
    running = owner.start(bench.delegate(cancel=cancel), "delegate")
    await until(lambda: bench.told("alpha", "starts"))
    cancel.pull()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (kept,) = bench.attempts(bench.heard.jobs[0])
    assert kept.outcome == "cancelled"


async def hanging(bench: Bench, owner: TaskOwner, count: int) -> tuple[str, asyncio.Task[object]]:
    running = owner.start(bench.delegate(), "delegate")
    await until(lambda: len(bench.told("alpha")) == count)
    return bench.heard.jobs[0], running


@aio
async def test_of_two_jobs_in_one_process_only_the_cancelled_one_ends(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "hang")
    bench.settings("alpha", more=PATIENT)
    owner, paths = TaskOwner("a test"), bench.place().paths
    first, ending = await hanging(bench, owner, 1)
    second, going_on = await hanging(bench, owner, 2)
    assert await cancel_job(first, paths=paths)
    await ending
    assert (await find_job(first, paths=paths)).outcome == "cancelled"
    assert not going_on.done() and (await find_job(second, paths=paths)).state == "running"
    # An attempt is a job of its own, and stands for the whole delegation.
    assert await cancel_job(f"{second}-1", paths=paths)
    await going_on
    assert not await cancel_job(second, paths=paths)
