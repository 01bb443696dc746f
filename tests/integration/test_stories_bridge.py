"""One story through a bridge: an editor sees what our client would have seen without it.

The tellers share no code with our dialects, and the editor is our own client of ACP, which is
proved against others elsewhere. What is lost is what the dialect loses, and what ACP does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import dragoman
from dragoman.client.conversation import Result
from dragoman.client.permissions import approve_all
from dragoman.events.model import Event
from dragoman.events.words import Outcome, Part
from dragoman.testing.storyteller import Story, command
from tests.aio import aio
from tests.integration.peers import ENVIRONMENT, WAIT_TIMEOUT
from tests.integration.stories import BROKEN, DIALECTS, LOST, PAST, WORK, picture

BRIDGE = [sys.executable, "-m", "dragoman.gateway", "--inherit", "PYTHONPATH"]

SHOWN = {"oneshot": {Part.TOOLS, Part.CHANGES}}
"""What a bridge shows in another way: changes of no tool call are a call of their own."""


def bridged(story: Story, dialect: str) -> list[str]:
    return [*BRIDGE, "--dialect", dialect, "--", *command(story, dialect=dialect)]


async def told(argv: Sequence[str], dialect: str, workspace: Path) -> tuple[list[Event], Result]:
    events: list[Event] = []
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        dragoman.connect(
            argv,
            dialect=dialect,
            workspace=workspace,
            env=ENVIRONMENT,
            permit=approve_all,
            on_event=events.append,
        ) as peer,
        peer.session() as session,
    ):
        result = await session.ask("Tell me.")
    return events, result


@pytest.mark.parametrize("dialect", DIALECTS)
@aio
async def test_an_editor_sees_the_story_through_a_bridge(dialect: str, tmp_path: Path) -> None:
    direct, plain = await told(command(WORK, dialect=dialect), dialect, tmp_path)
    through, result = await told(bridged(WORK, dialect), "acp", tmp_path)
    lost = SHOWN.get(dialect, set())
    assert picture(through, LOST[dialect] | lost) == picture(direct, LOST["acp"] | lost)
    assert (result.outcome, result.text) == (plain.outcome, plain.text)
    if plain.usage is not None and plain.usage.input_tokens is not None:
        assert result.usage is not None
        assert result.usage.output_tokens == plain.usage.output_tokens


@pytest.mark.parametrize("dialect", DIALECTS)
@aio
async def test_an_editor_learns_that_a_turn_failed(dialect: str, tmp_path: Path) -> None:
    _, plain = await told(command(BROKEN, dialect=dialect), dialect, tmp_path)
    _, result = await told(bridged(BROKEN, dialect), "acp", tmp_path)
    assert not result.ok
    assert result.outcome in (plain.outcome, Outcome.FAILED)
    if plain.failure is not None:
        assert result.failure is not None
        assert "Rate limit exceeded" in result.failure.message


@pytest.mark.parametrize("dialect", ["threads", "keyed", "chained"])
@aio
async def test_an_editor_loads_an_earlier_session(dialect: str, tmp_path: Path) -> None:
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        dragoman.connect(
            bridged(WORK, dialect),
            dialect="acp",
            workspace=tmp_path,
            env=ENVIRONMENT,
            permit=approve_all,
        ) as peer,
        peer.session(load=PAST.id) as session,
    ):
        await session.wait_replayed()
        view, _ = picture(session.replayed)
        assert [message.text for message in view.messages] == [text for _, text in PAST.messages]
        assert (await session.ask("Go on.")).text.endswith("It is done.")
