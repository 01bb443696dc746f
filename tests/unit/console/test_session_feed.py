"""The event feed of one session. `test_event_socket` follows sessions with a broker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from dragoman.console import live_state, session_feed
from dragoman.console.live_state import LiveState
from dragoman.console.session_feed import BATCH, SessionFeed
from dragoman.errors import BrokerError, DragomanError, StoreError, UsageError
from dragoman.paths import Paths
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.job_events import EventCursor
from dragoman.store import Redactor, Store
from dragoman.store.store import store_path
from tests.aio import aio
from tests.unit.console.broker_place import broker, submit
from tests.unit.console.place import TIMEOUT, short_paths
from tests.unit.store.stores import chunk, job, session


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


class Browser:
    """Receives what a feed sends."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.caught_up = False
        self._changed = asyncio.Event()

    async def send(self, events: list[dict[str, Any]], caught_up: bool) -> None:
        self.events += events
        self.sizes.append(len(events))
        self.caught_up = self.caught_up or caught_up
        self._changed.set()

    async def until(self, kind: str, count: int = 1) -> list[str]:
        async with asyncio.timeout(TIMEOUT):
            while [event["type"] for event in self.events].count(kind) < count:
                self._changed.clear()
                await self._changed.wait()
        return [event["type"] for event in self.events]


@aio
async def test_a_session_without_a_broker_is_followed_through_the_store(paths: Paths) -> None:
    tasks = TaskOwner("test")
    with Store.open(store_path(paths.state), Redactor(())) as store:
        one = session()
        store.create_session(one)
        first = job(
            one.key, state="ended", outcome="ok", started_at=1.0, first_event=0, next_event=2
        )
        store.create_job(first)
        store.append(one.key, 0, [chunk("a"), chunk("b")])
        state = LiveState(paths, answers=False)
        await state.start()
        browser = Browser()
        tasks.start(SessionFeed(one, state, browser.send).run(), "feed")
        assert await browser.until("TurnEnded") == [
            "TurnStarted",
            "MessageDelta",
            "MessageDelta",
            "TurnEnded",
        ]
        # Another process continues the session.
        second = job(one.key, state="running", started_at=2.0, first_event=2)
        second = type(second)(
            **{f: getattr(second, f) for f in second.__struct_fields__}
            | {"runner": {"pid": os.getpid()}}
        )
        store.create_job(second)
        store.append(one.key, 2, [chunk("c")])
        assert (await browser.until("MessageDelta", 3))[4:] == ["TurnStarted", "MessageDelta"]
        store.update_job(second.id, state="ended", outcome="ok", ended_at=3.0, next_event=3)
        assert (await browser.until("TurnEnded", 2))[-1] == "TurnEnded"
        marks = [event["mark"] for event in browser.events if "mark" in event]
        assert len(marks) == len(set(marks)) == 4
        await tasks.aclose()
        await state.aclose()


@aio
async def test_a_session_that_another_process_continues_is_still_followed(paths: Paths) -> None:
    """Its broker has released it, and the next turn runs without one."""
    tasks = TaskOwner("test")
    browser = Browser()
    async with broker(paths) as (at, _), at.caller() as mine:
        state = LiveState(paths, answers=False)
        await state.start()
        theirs = await mine.new(at.folder)
        await submit(mine, theirs, "count 2")
        await mine.call("_dragoman/result", {"job": "j-1", "wait": True})
        with Store.open(store_path(paths.state), Redactor(())) as store:
            (record,) = store.sessions()
        await at.until(lambda: state.broker_of(record.key))
        tasks.start(SessionFeed(record, state, browser.send).run(), "feed")
        await browser.until("TurnEnded")
        followers = at.broker.sessions.require(theirs).readers
        await at.until(lambda: any(reader.attached for reader in followers.values()))
        assert (await mine.call("_dragoman/release", {"sessionId": theirs}))["released"]
        with Store.open(store_path(paths.state), Redactor(())) as store:
            now = store.session(record.key)
            assert now is not None
            first = now.next_event
            cold = job(
                record.key,
                state="running",
                started_at=2.0,
                first_event=first,
                runner={"pid": os.getpid()},
            )
            store.create_job(cold)
            store.append(record.key, first, [chunk("cold")])
            assert (await browser.until("MessageDelta", 3))[-2:] == ["TurnStarted", "MessageDelta"]
            ended = {"state": "ended", "outcome": "ok", "next_event": first + 1}
            store.update_job(cold.id, **ended)
            assert (await browser.until("TurnEnded", 2))[-1] == "TurnEnded"
        await tasks.aclose()
        await state.aclose()


@aio
async def test_every_turn_of_a_session_has_its_prompt_however_many_there_are(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_state, "MAX_JOBS", 2)
    tasks = TaskOwner("test")
    with Store.open(store_path(paths.state), Redactor(())) as store:
        store.create_session(one := session())
        for number in range(5):
            numbers = {"first_event": number, "next_event": number + 1, "started_at": number + 1.0}
            store.create_job(job(one.key, state="ended", outcome="ok", **numbers))
            store.append(one.key, number, [chunk("word")])
    state = LiveState(paths, answers=False)
    await state.start()
    browser = Browser()
    tasks.start(SessionFeed(one, state, browser.send).run(), "feed")
    turn = ["TurnStarted", "MessageDelta", "TurnEnded"]
    assert await browser.until("TurnEnded", 5) == turn * 5
    await tasks.aclose()
    await state.aclose()


@aio
async def test_lines_that_wait_for_a_browser_are_limited_by_their_size(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_feed, "TURN_TIMEOUT", 0.01)
    monkeypatch.setattr(session_feed, "MAX_LINES_SIZE", 10_000)
    monkeypatch.setattr(session_feed, "BATCH_SIZE", 1)
    tasks = TaskOwner("test")
    with Store.open(store_path(paths.state), Redactor(())) as store:
        store.create_session(one := session())
        store.append(one.key, 0, [chunk("x" * 4_000)] * 40)
    state = LiveState(paths, answers=False)
    await state.start()
    browser = Browser()
    most = 0

    async def send(events: list[dict[str, Any]], caught_up: bool) -> None:
        nonlocal most
        # What reads has every chance to read on before the next line is taken.
        for _ in range(20):
            await asyncio.sleep(0)
        most = max(most, feed._lines.qsize())
        await browser.send(events, caught_up)

    feed = SessionFeed(one, state, send)
    tasks.start(feed.run(), "feed")
    await browser.until("MessageDelta", 40)
    assert 1 <= most <= 3
    await tasks.aclose()
    await state.aclose()


@aio
async def test_a_long_history_comes_in_batches_and_each_event_has_a_cursor(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These lines belong to no turn, and no job will claim them.
    monkeypatch.setattr(session_feed, "TURN_TIMEOUT", 0.01)
    tasks = TaskOwner("test")
    with Store.open(store_path(paths.state), Redactor(())) as store:
        one = session()
        store.create_session(one)
        store.append(one.key, 0, [chunk(str(number)) for number in range(3 * BATCH)])
    state = LiveState(paths, answers=False)
    await state.start()
    whole, rest = Browser(), Browser()
    tasks.start(SessionFeed(one, state, whole.send).run(), "feed")
    await whole.until("MessageDelta", 3 * BATCH)
    assert max(whole.sizes) <= BATCH
    middle = whole.events[BATCH]["cursor"]
    tasks.start(SessionFeed(one, state, rest.send, EventCursor.parse(middle)).run(), "feed")
    await rest.until("MessageDelta", 2 * BATCH - 1)
    assert [event["text"] for event in rest.events] == [
        event["text"] for event in whole.events[BATCH + 1 :]
    ]
    await tasks.aclose()
    await state.aclose()


@aio
async def test_a_feed_ends_with_the_error_of_its_reader(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow(*_: object, **__: object) -> None:
        raise LookupError("a mistake of ours")

    monkeypatch.setattr(session_feed, "follow_session", follow)
    with Store.open(store_path(paths.state), Redactor(())) as store:
        one = session()
        store.create_session(one)
    state = LiveState(paths, answers=False)
    await state.start()
    with pytest.raises(LookupError, match="a mistake of ours"):
        async with asyncio.timeout(TIMEOUT):
            await SessionFeed(one, state, Browser().send).run()
    await state.aclose()


@aio
@pytest.mark.parametrize(
    "error",
    [BrokerError("it hangs"), StoreError("store.db", "it is locked")],
    ids=["broker", "store"],
)
async def test_an_error_of_the_reader_is_reported_once_and_reading_is_tried_again(
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: DragomanError,
) -> None:
    monkeypatch.setattr(session_feed, "RETRY_INTERVAL", 0.0)
    monkeypatch.setattr(session_feed, "TURN_TIMEOUT", 0.01)
    tries = 0

    async def follow(*_: object, **__: object) -> AsyncIterator[tuple[int, bytes]]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise error
        yield 0, chunk("back")
        await asyncio.Event().wait()

    monkeypatch.setattr(session_feed, "follow_session", follow)
    with Store.open(store_path(paths.state), Redactor(())) as store:
        store.create_session(one := session())
    state, browser, tasks = LiveState(paths, answers=False), Browser(), TaskOwner("test")
    await state.start()
    tasks.start(SessionFeed(one, state, browser.send).run(), "feed")
    assert await browser.until("MessageDelta") == ["Noticed", "MessageDelta"]
    assert browser.events[0]["detail"] == str(error)
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warned == [f"cannot read the events of session {one.key}: {error}"]
    await tasks.aclose()
    await state.aclose()


@aio
async def test_a_line_that_does_not_exist_yet_is_not_reported(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = asyncio.Event()

    async def follow(*_: object, **__: object) -> AsyncIterator[tuple[int, bytes]]:
        refused.set()
        raise UsageError("there is no event 0")
        yield 0, b""

    monkeypatch.setattr(session_feed, "follow_session", follow)
    with Store.open(store_path(paths.state), Redactor(())) as store:
        store.create_session(one := session())
    state, browser, tasks = LiveState(paths, answers=False), Browser(), TaskOwner("test")
    await state.start()
    tasks.start(SessionFeed(one, state, browser.send).run(), "feed")
    async with asyncio.timeout(TIMEOUT):
        await refused.wait()
    await asyncio.sleep(0)
    assert browser.events == []
    assert not [each for each in caplog.records if each.levelname == "WARNING"]
    await tasks.aclose()
    await state.aclose()
