"""What the console knows of all work, from real brokers and a real store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.console.live_state import LiveState, SeenJobs, summary_of
from dragoman.console.questions import OpenForm, OpenPermission
from dragoman.errors import RemoteError
from dragoman.paths import Paths
from dragoman.store import Redactor, Store
from dragoman.store.store import store_path
from tests.aio import aio
from tests.unit.console.broker_place import broker, submit
from tests.unit.console.place import TIMEOUT, short_paths
from tests.unit.store.stores import job, session

YES = {"outcome": {"outcome": "selected", "optionId": "yes"}}


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


class Watched:
    """A state, and the changes that it tells."""

    def __init__(self, state: LiveState) -> None:
        self.state = state
        self.told: list[dict[str, Any]] = []
        self._changed = asyncio.Event()
        state.subscribe(self._take)

    def _take(self, message: dict[str, Any]) -> None:
        self.told.append(message)
        self._changed.set()

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def watching(paths: Paths, *, answers: bool = True) -> AsyncIterator[Watched]:
    state = LiveState(paths, answers=answers)
    watched = Watched(state)
    await state.start()
    try:
        yield watched
    finally:
        await state.aclose()


def store_of(paths: Paths) -> Store:
    return Store.open(store_path(paths.state), Redactor(()))


@aio
async def test_a_question_of_a_broker_that_starts_later_is_shown_and_answered(
    paths: Paths,
) -> None:
    async with watching(paths) as seen, broker(paths) as (at, _), at.caller() as mine:
        key = await mine.new(at.folder)
        await submit(mine, key, "ask edit")
        await seen.until(lambda: seen.state.questions)
        (question,) = seen.state.questions
        assert isinstance(question, OpenPermission)
        assert question.title == "edit" and question.peer == "agent"
        await seen.until(lambda: any(item["state"] == "waiting" for item in seen.state.work))
        with pytest.raises(RemoteError):
            await seen.state.answer(question.id, "other", YES)
        assert await seen.state.answer(question.id, question.digest, YES)
        await seen.until(lambda: not seen.state.questions)
        assert await seen.state.answer(question.id, question.digest, YES) is False
        assert {"type": "settled", "id": question.id, "by": "watcher"} in seen.told
        await seen.until(lambda: any(item["state"] == "done" for item in seen.state.work))


@aio
async def test_a_form_is_shown_with_its_fields(paths: Paths) -> None:
    async with broker(paths) as (at, _), watching(paths) as seen, at.caller() as mine:
        await submit(mine, await mine.new(at.folder), "elicit")
        await seen.until(lambda: seen.state.questions)
        (question,) = seen.state.questions
        assert isinstance(question, OpenForm)
        assert question.schema["properties"] == {"name": {"type": "string"}}
        assert await seen.state.answer(question.id, question.digest, {"action": "decline"})


@aio
async def test_the_questions_of_a_broker_go_with_it(paths: Paths) -> None:
    async with watching(paths) as seen:
        async with broker(paths) as (at, _), at.caller() as mine:
            await submit(mine, await mine.new(at.folder), "ask edit")
            await seen.until(lambda: seen.state.questions)
        await seen.until(lambda: not seen.state.questions)


@aio
async def test_work_is_told_when_the_store_changes_and_only_what_is_new(paths: Paths) -> None:
    async with watching(paths) as seen:
        with store_of(paths) as store:
            one, two = session(), session()
            store.create_session(one)
            store.create_session(two)
            await seen.until(lambda: len(seen.state.work) == 2)
            seen.told.clear()
            made = job(one.key, state="running", started_at=1.0, runner={"pid": os.getpid()})
            store.create_job(made)
            await seen.until(lambda: seen.told)
            assert [each["item"]["session"] for each in seen.told] == [one.key]
            assert seen.told[0]["item"]["state"] == "working"
            assert [each.id for each in seen.state.jobs_of(one.key)] == [made.id]
            store.delete_session(one.key)
            await seen.until(lambda: {"type": "gone", "id": one.key} in seen.told)


@aio
async def test_finished_work_is_new_until_it_is_seen_in_any_browser(paths: Paths) -> None:
    with store_of(paths) as store:
        one = session()
        store.create_session(one)
        done = job(one.key, state="ended", outcome="failed", started_at=1.0, ended_at=2.0)
        store.create_job(done)
    async with watching(paths) as here, watching(paths) as there:
        assert here.state.work[0]["job"]["unseen"] is True
        here.state.mark_seen(done.id)
        assert here.state.work[0]["job"]["unseen"] is False
        await there.until(lambda: not there.state.work[0]["job"]["unseen"])
    assert SeenJobs(paths).jobs == [done.id]


@aio
async def test_delegated_work_is_shown_by_its_attempts_and_not_twice(paths: Paths) -> None:
    with store_of(paths) as store:
        one = session()
        store.create_session(one)
        parent = job(one.key, state="ended", outcome="ok", started_at=1.0, ended_at=2.0)
        attempt = job(one.key, id=f"{parent.id}-1", state="ended", outcome="ok", started_at=1.0)
        begun = job(state="running", started_at=3.0, runner={"pid": os.getpid()})
        for each in (parent, attempt, begun):
            store.create_job(each)
    async with watching(paths) as seen:
        assert [each.id for each in seen.state.jobs_of(one.key)] == [attempt.id]
        assert {item["id"] for item in seen.state.work} == {one.key, begun.id}


@pytest.mark.parametrize(
    ("jobs", "waiting", "state"),
    [
        ([], False, "idle"),
        ([{"state": "queued"}], False, "queued"),
        ([{"state": "queued"}, {"state": "running"}], False, "working"),
        ([{"state": "running"}], True, "waiting"),
        ([{"state": "ended", "outcome": "ok", "ended_at": 2.0}], False, "done"),
        ([{"state": "ended", "outcome": "crashed", "ended_at": 2.0}], False, "failed"),
        ([{"state": "ended", "outcome": "cancelled", "ended_at": 2.0}], False, "idle"),
    ],
)
def test_the_state_of_a_session_is_that_of_its_jobs(
    jobs: list[dict[str, Any]], waiting: bool, state: str
) -> None:
    item = summary_of("s-1", [job("s-1", **each) for each in jobs], waiting=waiting)
    assert item["state"] == state


def test_what_a_session_has_cost_is_the_sum_of_its_turns() -> None:
    usage = {"cost": {"amount": 0.25, "unit": "USD"}}
    ended = [job("s", state="ended", outcome="ok", usage=usage) for _ in range(2)]
    assert summary_of("s", ended, waiting=False)["cost"] == {"amount": 0.5, "unit": "USD"}
