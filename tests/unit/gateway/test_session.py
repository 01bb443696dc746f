"""The order in which a client gets the events of a session, and what a slow client costs."""

from __future__ import annotations

import asyncio
import itertools
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.errors import ConnectionEnded
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.gateway import session as session_module
from dragoman.gateway.events_to_acp import AcpTranslator
from dragoman.gateway.session import GatewaySession, until_told
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio

ENVELOPE = EventEnvelope(model.Source("acp", "a peer"), itertools.count(1), "s1")


def served() -> GatewaySession:
    side: Any = SimpleNamespace(can=lambda capability: True)
    conversation: Any = SimpleNamespace(id="s1")
    speaker = AcpTranslator(notices=False, compaction=False)
    return GatewaySession(conversation, speaker, side, lambda update: None)


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
    session.turning = True
    session.put_outside(event("later"))
    session.tell_outside(client.connection, client.tell)
    await settle()
    assert client.titles == []
    session.turning = False
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


@aio
async def test_a_question_that_overtakes_events_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_module, "TOLD_TIMEOUT", 0.01)
    with caplog.at_level(logging.WARNING, "dragoman.gateway"):
        await until_told(asyncio.Event())
    assert "did not read the events before a question" in caplog.text
