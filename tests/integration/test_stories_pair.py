"""One story from our agent kit to our client, in every dialect: both ends at once.

The other tests of the story have a witness at one end. Here both ends are ours, so that it shows
whether the two of them fit: what the kit says is what the client reads, less the dialect's losses.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

import dragoman
from dragoman.client.conversation import Result
from dragoman.client.permissions import approve_all
from dragoman.events.model import Event
from dragoman.events.words import Outcome, Part
from dragoman.testing.storyteller import Story, dumps
from tests.aio import aio
from tests.integration.peers import ENVIRONMENT, WAIT_TIMEOUT
from tests.integration.stories import BROKEN, DIALECTS, LOST, OTHERS, PAST, WORK, picture

PROGRAM = [sys.executable, "-m", "tests.integration.story_agent"]
MADE_UP = {"keyed": {Part.MESSAGE_IDS}}
"""What a dialect has to have and the kit's authors need not give: it is made up then."""


async def told(story: Story, dialect: str, workspace: Path) -> tuple[list[Event], Result]:
    events: list[Event] = []
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        dragoman.connect(
            [*PROGRAM, dumps(story)],
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


Told: TypeAlias = Mapping[str, list[Event]]


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The whole story, once in every dialect."""
    workspace = tmp_path_factory.mktemp("workspace")

    async def worked(dialect: str) -> list[Event]:
        events, result = await told(WORK, dialect, workspace)
        assert result.outcome is Outcome.OK
        return events

    return {dialect: asyncio.run(worked(dialect)) for dialect in DIALECTS}


@pytest.mark.parametrize("dialect", OTHERS)
def test_what_the_kit_says_is_what_the_client_reads(dialect: str, works: Told) -> None:
    lost = MADE_UP.get(dialect, set())
    assert picture(works[dialect], LOST["acp"] | lost) == picture(
        works["acp"], LOST[dialect] | lost
    )


@pytest.mark.parametrize("dialect", OTHERS)
@aio
async def test_a_failure_of_the_kit_is_understood_by_the_client(
    dialect: str, tmp_path: Path
) -> None:
    events, result = await told(BROKEN, dialect, tmp_path)
    in_acp, _ = await told(BROKEN, "acp", tmp_path)
    lost = MADE_UP.get(dialect, set())
    assert picture(events, LOST["acp"] | lost) == picture(in_acp, LOST[dialect] | lost)
    assert not result.ok


@pytest.mark.parametrize("dialect", ["acp", "threads", "keyed", "chained"])
@aio
async def test_an_earlier_session_goes_on(dialect: str, tmp_path: Path) -> None:
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        dragoman.connect(
            [*PROGRAM, dumps(WORK)],
            dialect=dialect,
            workspace=tmp_path,
            env=ENVIRONMENT,
            permit=approve_all,
        ) as peer,
        peer.session(load=PAST.id) as session,
    ):
        await session.wait_replayed()
        if dialect != "chained":
            # There a history is told in lists, and the kit tells those of its own sessions only.
            view, _ = picture(session.replayed)
            said = [message.text for message in view.messages]
            assert said == [text for _, text in PAST.messages]
        assert (await session.ask("Go on.")).text.endswith("It is done.")
