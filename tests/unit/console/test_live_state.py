"""The live state of all work, from real brokers and a real store."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.broker import question_sockets
from dragoman.client.folders import make_state
from dragoman.console import live_state as module
from dragoman.console import retry
from dragoman.console.live_state import LiveState, SeenJobs
from dragoman.console.questions import OpenForm, OpenPermission
from dragoman.errors import CallTimeout, FileFailed, RemoteError, StoreBusy
from dragoman.paths import Paths
from dragoman.rpc.tasks import TaskOwner
from dragoman.store import Redactor, Store
from dragoman.store.records import EDITOR_PEER
from dragoman.store.store import FILE_NAME, store_path
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
    """A live state and the changes that it reports."""

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
async def test_a_change_that_becomes_visible_only_after_it_was_reported_is_shown(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE_INTERVAL", 0.05)
    load, early = LiveState._load, [1, 2]

    def read(state: LiveState) -> Any:
        if not early:
            return load(state)
        early.pop()
        return [], []

    with store_of(paths) as store:
        store.create_session(session())
        monkeypatch.setattr(LiveState, "_load", read)
        async with watching(paths) as seen:
            assert seen.state.work == []
            # One change is reported, and the read that it causes comes too early.
            seen.state._file_changed(paths.state, FILE_NAME)
            await seen.until(lambda: seen.state.work)
    assert early == []


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
async def test_a_question_of_a_cancelled_turn_is_gone_and_cannot_be_answered(paths: Paths) -> None:
    async with broker(paths) as (at, _), watching(paths) as seen, at.caller() as mine:
        await submit(mine, await mine.new(at.folder), "ask edit")
        await seen.until(lambda: seen.state.questions)
        (question,) = seen.state.questions
        assert (await mine.call("_dragoman/cancel", {"job": "j-1"}))["cancelled"]
        await seen.until(lambda: not seen.state.questions)
        assert {"type": "settled", "id": question.id, "by": "cancelled"} in seen.told
        assert await seen.state.answer(question.id, question.digest, YES) is False


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
async def test_the_questions_of_a_broker_disappear_with_it(paths: Paths) -> None:
    async with watching(paths) as seen:
        async with broker(paths) as (at, _), at.caller() as mine:
            await submit(mine, await mine.new(at.folder), "ask edit")
            await seen.until(lambda: seen.state.questions)
        await seen.until(lambda: not seen.state.questions)


@aio
async def test_a_run_that_always_hangs_up_is_given_up(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_INTERVAL", 0.01)
    reached = 0

    def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal reached
        reached += 1
        writer.close()

    address = question_sockets.new_address(paths)
    forgotten = asyncio.Event()
    monkeypatch.setattr(question_sockets, "forget_address", lambda *_: forgotten.set())
    server = await asyncio.start_unix_server(hang_up, address)
    async with server, watching(paths):
        async with asyncio.timeout(TIMEOUT):
            await forgotten.wait()
    assert reached == module.MAX_REFUSED


@aio
async def test_a_run_that_was_suspended_is_watched_again(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_INTERVAL", 0.0)
    calls, watched = 0, asyncio.Event()

    async def silent_at_first(address: str, name: str, **_: object) -> None:
        nonlocal calls
        calls += 1
        if calls <= module.MAX_REFUSED + 1:
            raise CallTimeout("_dragoman/watch", 10.0)
        watched.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "watch_questions", silent_at_first)
    monkeypatch.setattr(question_sockets, "addresses", lambda _: ["run.sock"])
    forgotten: list[str] = []
    monkeypatch.setattr(question_sockets, "forget_address", lambda _, at: forgotten.append(at))
    async with watching(paths), asyncio.timeout(TIMEOUT):
        await watched.wait()
    assert not forgotten


@aio
async def test_the_session_of_an_editor_is_not_listed_beside_those_of_its_peers(
    paths: Paths,
) -> None:
    with store_of(paths) as store:
        of_peer = session()
        store.create_session(session(peer=EDITOR_PEER))
        store.create_session(of_peer)
    async with watching(paths) as seen:
        assert [item["session"] for item in seen.state.work] == [of_peer.key]


@aio
async def test_only_changed_work_is_reported_when_the_store_changes(paths: Paths) -> None:
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
async def test_an_earlier_reading_of_the_store_does_not_replace_a_later_one(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_of(paths) as store:
        store.create_session(one := session())
    held, released = threading.Event(), threading.Event()
    load = LiveState._load

    def slow_once(state: LiveState) -> Any:
        found = load(state)
        if not held.is_set():
            held.set()
            released.wait(TIMEOUT)
        return found

    tasks = TaskOwner("test")
    monkeypatch.setattr(LiveState, "_load", slow_once)
    state = LiveState(paths, answers=False)
    earlier = tasks.start(state.find_session("s-none"), "ask")
    await asyncio.to_thread(held.wait, TIMEOUT)
    with store_of(paths) as store:
        store.create_job(job(one.key, state="ended", outcome="ok", ended_at=2.0))
    later = tasks.start(state.find_session("s-none"), "ask")
    # Time for it to overtake the one that is held.
    await asyncio.to_thread(released.wait, 0.3)
    released.set()
    await earlier
    await later
    assert state.work[0]["state"] == "done"


@aio
async def test_a_change_that_could_not_be_read_is_read_again(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_INTERVAL", 0.01)
    load = LiveState._load
    failed: list[bool] = []

    def fail_twice(state: LiveState) -> Any:
        if len(failed) < 2:
            failed.append(True)
            raise StoreBusy("sessions.db", "it is locked")
        return load(state)

    async with watching(paths) as seen:
        monkeypatch.setattr(LiveState, "_load", fail_twice)
        with store_of(paths) as store:
            store.create_session(session())
        await seen.until(lambda: seen.state.work)
        assert len(failed) == 2


@aio
async def test_brokers_that_could_not_be_listed_are_listed_again_without_a_change(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "READ_INTERVAL", 0.0)
    monkeypatch.setattr(retry, "backoff", lambda failed, rng: 0.01 * failed)
    failures = [FileFailed("run", "no answer"), FileFailed("run", "no answer")]
    loop, listed = asyncio.get_running_loop(), asyncio.Event()

    def fail_twice(paths: Paths) -> list[str]:
        if failures:
            raise failures.pop()
        loop.call_soon_threadsafe(listed.set)
        return []

    monkeypatch.setattr(question_sockets, "addresses", fail_twice)
    async with watching(paths), asyncio.timeout(TIMEOUT):
        await listed.wait()
    assert [text for text in caplog.messages if "cannot list" in text] == [caplog.messages[0]]


@aio
async def test_a_session_that_is_too_old_for_the_list_is_found_with_all_its_jobs(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 1)
    monkeypatch.setattr(module, "MAX_JOBS", 1)
    with store_of(paths) as store:
        old, new = session(), session(updated_at=200.0)
        for each in (old, new):
            store.create_session(each)
            for number in range(3):
                store.create_job(job(each.key, state="ended", outcome="ok", ended_at=number + 2.0))
    async with watching(paths) as seen:
        assert [item["session"] for item in seen.state.work] == [new.key]
        assert await seen.state.find_session(old.key) is not None
        item = await seen.state.find_item(old.key)
        assert item is not None and item["state"] == "done" and item["job"]["endedAt"] == 4.0
        assert len(await seen.state.stored_jobs(old.key)) == 3
        assert await seen.state.find_item("s-none") is None


@aio
async def test_a_title_without_end_is_not_sent_with_every_change(paths: Paths) -> None:
    with store_of(paths) as store:
        store.create_session(session(title="x" * 1_000_000, model="y" * 1_000_000))
    async with watching(paths) as seen:
        (item,) = seen.state.work
        assert len(item["title"]) == len(item["model"]) == module.MAX_TITLE


@aio
async def test_finished_work_is_unseen_until_any_browser_marks_it(paths: Paths) -> None:
    with store_of(paths) as store:
        one = session()
        store.create_session(one)
        done = job(one.key, state="ended", outcome="failed", started_at=1.0, ended_at=2.0)
        store.create_job(done)
    async with watching(paths) as here, watching(paths) as there:
        assert here.state.work[0]["job"]["unseen"] is True
        await here.state.mark_seen(done.id)
        assert here.state.work[0]["job"]["unseen"] is False
        await there.until(lambda: not there.state.work[0]["job"]["unseen"])
    assert SeenJobs(paths).jobs == [done.id]


@aio
async def test_questions_and_work_are_shown_even_if_the_file_of_seen_jobs_is_unreadable(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    make_state(paths.state)
    (paths.state / SeenJobs.FILE_NAME).mkdir()
    async with broker(paths) as (at, _), watching(paths) as seen, at.caller() as mine:
        await submit(mine, await mine.new(at.folder), "ask edit")
        await seen.until(lambda: seen.state.questions)
        (question,) = seen.state.questions
        await seen.until(lambda: any(item["state"] == "waiting" for item in seen.state.work))
        assert await seen.state.answer(question.id, question.digest, YES)
        await seen.until(lambda: any(item["state"] == "done" for item in seen.state.work))
        assert [each["type"] for each in seen.told].count("question") == 1
    assert caplog.text.count("cannot read which work was seen") == 1


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
