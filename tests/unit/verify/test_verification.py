from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.permissions import deny_all
from dragoman.errors import ProgramNotFound, RemoteError
from dragoman.events import model
from dragoman.events.words import Outcome
from dragoman.testing import chaos
from dragoman.verify.canary_prompts import Canaries
from dragoman.verify.environment import surroundings
from dragoman.verify.time_limits import LadderLimits
from dragoman.verify.verification import Verification, allow, is_given_up
from tests.aio import aio
from tests.unit.verify.fakes import QUESTION


@asynccontextmanager
async def climbing(fault: str = "healthy") -> AsyncIterator[Verification]:
    way = LaunchSpec(command=tuple(chaos.command(fault)))
    with surroundings(way, careful=True) as where:
        state = Verification(
            way=way,
            surroundings=where,
            limits=LadderLimits(tail=0.02),
            canaries=Canaries(),
            platform="linux",
            turns=True,
            careful=True,
        )
        state.dialect = "acp"
        async with state:
            yield state


@aio
async def test_rungs_share_one_process_and_one_session() -> None:
    async with climbing() as climb:
        one, two = await climb.conversation(), await climb.conversation()
        assert one is two
        assert await climb.peer() is await climb.peer()
        assert climb.session_id == one.id
        assert any(isinstance(event, model.SettingsChanged) for event in climb.settings)
    assert climb.first is not None and not climb.first.alive


@aio
async def test_a_process_that_died_is_replaced_with_its_session() -> None:
    async with climbing("dies-mid-turn") as climb:
        before = await climb.conversation()
        told = await climb.take_turn(before, "hello there")
        assert told.result.outcome is Outcome.CRASHED
        after = await climb.conversation()
        assert after.id != before.id
        assert climb.session_id == after.id


@aio
async def test_the_session_to_be_remembered_is_the_one_in_which_something_was_said() -> None:
    async with climbing() as climb:
        said = await climb.conversation()
        climb.spoken = True
        await (await climb.peer()).aclose()
        assert (await climb.conversation()).id != said.id
        assert climb.session_id == said.id


@aio
async def test_the_successor_is_another_process_and_the_first_is_gone() -> None:
    async with climbing() as climb:
        await climb.peer()
        first = climb.first
        second = await climb.successor()
        assert first is not None and not first.alive
        assert second.alive
        assert await climb.successor() is second
        await second.peer.aclose()
        assert (await climb.successor()).alive


@aio
async def test_what_comes_after_the_end_of_a_turn_is_kept_apart() -> None:
    async with climbing("late-updates") as climb:
        told = await climb.take_turn(await climb.conversation(), "hello")
        assert isinstance(told.events[-1], model.TurnEnded)
        assert [event.text for event in told.after if isinstance(event, model.MessageDelta)] == [
            "One more thing."
        ]


@aio
async def test_questions_are_answered_by_the_policy_of_the_hour_and_counted() -> None:
    async with climbing() as climb:
        assert not climb._decide(QUESTION).allows
        climb.decide_with(allow)
        assert climb.asked == []
        assert climb._decide(QUESTION).allows
        assert climb.asked == [QUESTION]
        climb.decide_with(deny_all)
        assert climb.asked == []


@aio
async def test_a_victim_is_gone_after_its_block() -> None:
    async with climbing() as climb:
        async with climb.victim() as peer:
            with pytest.raises(RemoteError):
                await peer.client.connection.call("nobody/knows", {}, timeout=20)
        assert peer.client.connection.failure is not None


@aio
async def test_a_program_that_cannot_be_started_says_so() -> None:
    async with climbing() as climb:
        climb.way = LaunchSpec(command=("no-such-program",))
        with pytest.raises(ProgramNotFound):
            await climb.peer()


def test_a_rung_held_unless_it_failed_or_was_not_tried(tmp_path: Path) -> None:
    way = LaunchSpec(command=("x", "a b"))
    with surroundings(way, careful=False) as where:
        climb = Verification(
            way=way,
            surroundings=where,
            limits=LadderLimits(),
            canaries=Canaries(),
            platform="linux",
            turns=False,
            careful=False,
        )
        climb.verdicts |= {"a": RungVerdict.PASS, "b": RungVerdict.WARN, "c": RungVerdict.FAIL}
        climb.verdicts["d"] = RungVerdict.SKIPPED
        assert [climb.held(name) for name in "abcde"] == [True, True, False, False, False]
        assert climb.shown == "`x 'a b'`"


@aio
async def test_a_session_that_was_given_up_takes_its_process_with_it() -> None:
    async with climbing("ignores-cancel") as climb:
        climb.limits = LadderLimits(tail=0.02, cancel_grace=0.1)
        before = await climb.conversation()
        first = climb.first
        async with climb.turning(before, "SLOW") as turn:
            turn.cancel()
            await turn.wait()
        assert is_given_up(before)
        after = await climb.conversation()
        assert not is_given_up(after)
        assert first is not None and not first.alive
        assert climb.first is not first
