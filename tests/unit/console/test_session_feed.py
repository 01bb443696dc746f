"""The events of one session for one browser. `test_event_socket` follows sessions of brokers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.console import session_feed
from dragoman.console.live_state import LiveState
from dragoman.console.session_feed import BATCH, SessionFeed
from dragoman.paths import Paths
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.job_events import EventCursor
from dragoman.store import Redactor, Store
from dragoman.store.store import store_path
from tests.aio import aio
from tests.unit.console.place import TIMEOUT, short_paths
from tests.unit.store.stores import chunk, job, session


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


class Browser:
    """Takes what a feed sends."""

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
async def test_a_session_without_a_broker_is_followed_by_the_store(paths: Paths) -> None:
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
        # Another process goes on with it.
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
async def test_a_long_history_comes_in_parts_and_each_event_has_a_cursor(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These lines belong to no turn, and nothing is going to claim them.
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
