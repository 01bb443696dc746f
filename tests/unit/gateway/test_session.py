"""The order in which a client gets the events of a session, and what a slow client costs."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionEnded
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.gateway import session as session_module
from dragoman.gateway.events_to_acp import AcpTranslator
from dragoman.gateway.session import GatewaySession, Send, until_told
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio

ENVELOPE = EventEnvelope(model.Source("acp", "a peer"), itertools.count(1), "s1")


def served(send: Send = lambda update: None) -> GatewaySession:
    side: Any = SimpleNamespace(can=lambda capability: True)
    conversation: Any = SimpleNamespace(id="s1")
    speaker = AcpTranslator(notices=False, compaction=False)
    return GatewaySession(conversation, speaker, side, send)


def event(text: str) -> model.Event:
    return model.SessionChanged(*ENVELOPE.base("session/update", None), title=text)


async def settle() -> None:
    """Let the tasks run until each of them waits or has ended."""
    for _ in range(100):
        await asyncio.sleep(0)


class Client:
    """Takes events one by one, each when it is let."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.reads = asyncio.Event()
        self.tasks = TaskOwner("a client")
        self.failure: Any = None

    async def tell(self, told: model.Event) -> None:
        await self.reads.wait()
        assert isinstance(told, model.SessionChanged)
        self.titles.append(str(told.title))

    @property
    def connection(self) -> Any:
        return self


@aio
async def test_events_outside_of_turns_keep_their_order_for_a_slow_client() -> None:
    session, client = served(), Client()
    for number in range(50):
        session.put_outside(event(str(number)))
        session.tell_outside(client.connection, client.tell)
    await asyncio.sleep(0)
    assert client.titles == []
    client.reads.set()
    await settle()
    assert client.titles == [str(number) for number in range(50)]
    await client.tasks.aclose()


@aio
async def test_events_for_a_client_that_does_not_read_are_limited_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_module, "MAX_OUTSIDE", 3)
    session, client = served(), Client()
    with caplog.at_level(logging.WARNING, "dragoman.gateway"):
        for number in range(8):
            session.put_outside(event(str(number)))
        assert len(caplog.records) == 1
        session.tell_outside(client.connection, client.tell)
        client.reads.set()
        await settle()
    assert client.titles == ["0", "1", "2"]
    assert "5 events outside of turns were dropped" in caplog.text
    await client.tasks.aclose()


@aio
async def test_nothing_outside_of_a_turn_is_sent_while_one_runs() -> None:
    session, client = served(), Client()
    client.reads.set()
    session.unanswered = 1
    session.put_outside(event("later"))
    session.tell_outside(client.connection, client.tell)
    await settle()
    assert client.titles == []
    session.unanswered = 0
    session.tell_outside(client.connection, client.tell)
    await settle()
    await client.tasks.aclose()


@aio
async def test_a_client_that_has_gone_is_sent_no_more() -> None:
    session, tasks = served(), TaskOwner("a client")
    connection: Any = SimpleNamespace(tasks=tasks, failure=None)
    tried: list[model.Event] = []

    async def tell(told: model.Event) -> None:
        tried.append(told)
        raise ConnectionEnded("gone")

    for number in range(3):
        session.put_outside(event(str(number)))
    session.tell_outside(connection, tell)
    await settle()
    session.tell_outside(connection, tell)
    await settle()
    assert len(tried) == 1
    await tasks.aclose()


class Running:
    """A turn of the peer with these events."""

    def __init__(self, *events: model.Event) -> None:
        self.untaken = list(events)
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    async def __aiter__(self) -> AsyncIterator[model.Event]:
        while self.untaken:
            yield self.untaken.pop(0)


class SlowClient:
    """Takes the updates of a session when it is let."""

    def __init__(self) -> None:
        self.titles: list[Any] = []
        self.reads = asyncio.Event()
        self.tasks = TaskOwner("a client")
        self.failure: Any = None
        self.session = served(self._send)

    async def _send(self, update: acp.SessionUpdate) -> None:
        await self.reads.wait()
        assert isinstance(update, acp.SessionInfoUpdate)
        self.titles.append(update.title)

    async def tell(self, told: model.Event) -> None:
        await self.session.tell_all(told, self.session.speaker.updates)

    def outside(self, *titles: str) -> None:
        connection: Any = self
        for title in titles:
            self.session.put_outside(event(title))
        self.session.tell_outside(connection, self.tell)

    async def turn(self, running: Any) -> None:
        self.session.unanswered = 1
        try:
            await self.session.follow(running, self.tell)
        finally:
            self.session.unanswered = 0
            self.outside()


@aio
async def test_a_turn_sends_first_what_came_before_it_to_a_slow_client() -> None:
    client = SlowClient()
    client.outside("0", "1", "2")
    # The first one is being sent.
    await settle()
    async with asyncio.TaskGroup() as group:
        group.create_task(client.turn(Running(event("3"), event("4"))))
        await settle()
        client.outside("5")
        client.reads.set()
    client.outside("6")
    await settle()
    assert client.titles == ["0", "1", "2", "3", "4", "5", "6"]
    await client.tasks.aclose()


@aio
async def test_a_turn_that_is_over_before_it_is_followed_comes_before_later_events() -> None:
    client = SlowClient()
    client.session.unanswered = 1
    client.outside("0")
    running = Running(event("1"))
    client.outside("2")
    client.reads.set()
    await client.turn(running)
    await settle()
    assert client.titles == ["0", "1", "2"]
    await client.tasks.aclose()


@aio
async def test_the_replay_reaches_a_slow_client_before_events_outside_of_turns() -> None:
    client = SlowClient()
    client.outside("2")
    client.session.replaying = True
    async with asyncio.TaskGroup() as group:
        for title in ("0", "1"):
            group.create_task(client.session.tell_next(event(title), client.tell))
        await settle()
        client.reads.set()
    client.session.replaying = False
    client.outside()
    await settle()
    assert client.titles == ["0", "1", "2"]
    await client.tasks.aclose()


@aio
async def test_a_cancel_loses_nothing_that_came_before_the_turn() -> None:
    client = SlowClient()
    client.session.unanswered = 1
    client.outside("0", "1")
    running = Running(event("2"))
    async with asyncio.TaskGroup() as group:
        turn = group.create_task(client.turn(running))
        await settle()
        turn.cancel()
        await settle()
        assert running.cancelled and not turn.done()
        client.reads.set()
    assert client.titles == ["0", "1", "2"]
    await client.tasks.aclose()


@aio
async def test_our_own_updates_come_between_earlier_events_and_the_turn_even_after_a_cancel() -> (
    None
):
    client = SlowClient()
    client.session.unanswered = 1
    client.outside("0")
    ours = ["1", "2"]

    async def first() -> None:
        while ours:
            await client._send(acp.SessionInfoUpdate(title=ours[0]))
            ours.pop(0)
            client.reads.clear()

    running: Any = Running(event("3"))
    async with asyncio.TaskGroup() as group:
        turn = group.create_task(client.session.follow(running, client.tell, first=first))
        await settle()
        client.reads.set()
        await settle()
        asking = group.create_task(client.session.caught_up())
        await settle()
        assert client.titles == ["0", "1"] and not asking.done()
        turn.cancel()
        await settle()
        assert running.cancelled
        client.reads.set()
        await settle()
        client.reads.set()
    assert client.titles == ["0", "1", "2", "3"]
    await client.tasks.aclose()


@aio
async def test_a_turn_that_fails_leaves_what_came_before_it_and_counts_as_sent() -> None:
    client = SlowClient()
    client.session.unanswered = 1
    client.outside("0", "1")
    async with asyncio.TaskGroup() as group:
        turn = group.create_task(client.turn(Running(event("2"))))
        for _ in range(2):
            await settle()
            turn.cancel()
    assert client.session.known == client.session.taken
    client.reads.set()
    await settle()
    assert client.titles == ["0", "1"]
    await client.tasks.aclose()


@aio
async def test_events_before_a_turn_count_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_OUTSIDE", 3)
    client = SlowClient()
    client.session.unanswered = 1
    client.outside("0", "1")
    async with asyncio.TaskGroup() as group:
        group.create_task(client.turn(Running(event("2"))))
        await settle()
        client.outside("3", "dropped")
        client.reads.set()
    await settle()
    assert client.titles == ["0", "1", "2", "3"]
    await client.tasks.aclose()


@aio
async def test_the_rest_of_an_interrupted_event_survives_the_sending_of_another() -> None:
    got: list[Any] = []
    reads = asyncio.Event()

    async def send(update: acp.SessionUpdate) -> None:
        if update.title == "b":  # type: ignore[union-attr]
            await reads.wait()
        got.append(update.title)  # type: ignore[union-attr]

    translated: list[model.Event] = []

    def translate(told: model.Event) -> Iterable[acp.SessionUpdate]:
        translated.append(told)
        assert isinstance(told, model.SessionChanged)
        return [acp.SessionInfoUpdate(title=letter) for letter in str(told.title)]

    session, first = served(send), event("abc")
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(session.tell_all(first, translate))
        await settle()
        sending.cancel()
    await session.tell_all(event("x"), translate)
    reads.set()
    await session.tell_all(first, translate)
    assert got == ["a", "x", "b", "c"]
    assert len(translated) == 2


@aio
async def test_a_question_that_overtakes_events_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_module, "TOLD_TIMEOUT", 0.01)
    with caplog.at_level(logging.WARNING, "dragoman.gateway"):
        await until_told(asyncio.Event())
    assert "did not read the events before a question" in caplog.text


@aio
async def test_our_own_updates_wait_for_the_event_that_is_being_sent() -> None:
    gateway_session, client = served(), Client()

    async def ours() -> None:
        client.titles.append("ours")

    async with asyncio.TaskGroup() as group:
        group.create_task(gateway_session.tell_next(event("theirs"), client.tell))
        await settle()
        group.create_task(gateway_session.tell_ours(ours))
        await settle()
        assert client.titles == []
        client.reads.set()
    assert client.titles == ["theirs", "ours"]
