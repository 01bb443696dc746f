"""Opening, choosing a model, turns, and what an interrupt does to them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.catalogue.descriptor import Quirks
from dragoman.catalogue.enforcement import Enforced
from dragoman.cli import prompt_session as module
from dragoman.cli.prompt_session import PromptSession, talking
from dragoman.cli.run_plan import RunPlan
from dragoman.client.permissions import Denial
from dragoman.client.results import Result
from dragoman.errors import ProtocolMismatch, Unsupported, UsageError
from dragoman.events.parts import Text
from dragoman.events.words import Outcome
from dragoman.runs import run
from tests.aio import aio
from tests.unit.cli.acting import (
    ActedAgent,
    ActedStage,
    ActedTurn,
    Remembering,
    option,
    plan,
)

PROMPT = (Text("do it"),)


class Play:
    """One command with an acted agent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, agent: ActedAgent) -> None:
        monkeypatch.setattr(run, "open_peer", agent.open_peer)
        self.agent = agent
        self.stage = ActedStage()
        self.show = Remembering()

    def talking(self, plan: RunPlan) -> Any:
        return talking(plan, self.stage, self.show)

    async def turn(self, plan: RunPlan, *presses: str) -> Any:
        """One turn in which these things happen once it has begun."""
        async with self.talking(plan) as talk, asyncio.TaskGroup() as group:
            running = group.create_task(talk.turn(PROMPT))
            await self.agent.begun.wait()
            await asyncio.sleep(0)
            for _ in presses:
                self.stage.press()
            return await running


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TERMINATE_GRACE", 0.01)


# -- models


@aio
async def test_a_model_is_chosen_by_the_option_and_read_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent(option("small", "large-preview")))
    agent.obeys = True
    agent.answers = lambda turn: Result(Outcome.OK, "done")
    async with play.talking(plan(model="large")) as talk:
        report = await talk.turn(PROMPT)
    assert agent.chosen == [("model", "large-preview")]
    assert report.model == "large-preview"


@aio
async def test_a_model_that_is_in_use_already_is_not_set_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent(option("small", "large")))
    async with play.talking(plan(model="small")):
        assert agent.chosen == []


@aio
async def test_without_an_option_the_method_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, agent := ActedAgent(model="small"))
    agent.obeys = True
    agent.answers = lambda turn: Result(Outcome.OK, "done")
    async with play.talking(plan(model="large")) as talk:
        assert (await talk.turn(PROMPT)).model == "large"
    assert agent.chosen == [("set_model", "large")]


@aio
async def test_with_neither_the_agent_is_started_again_with_its_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for flag, words in (("--model", ("--model", "large")), ("--model=", ("--model=large",))):
        play = Play(monkeypatch, agent := ActedAgent())
        with pytest.raises(Unsupported, match="does not say which model it uses"):
            async with play.talking(plan(model="large", flag=flag)):
                raise AssertionError("it was prompted")
        assert [way.command for way in agent.ways] == [
            ("actor", "--acp"),
            ("actor", "--acp", *words),
        ]
        assert agent.closed == 2, "the first one is gone before the second is used"


@aio
async def test_an_agent_that_takes_another_model_than_it_was_asked_for_is_not_prompted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, ActedAgent(option("small", "large")))
    with pytest.raises(ProtocolMismatch, match="asked for the model 'large' but uses 'small'"):
        async with play.talking(plan(model="large")):
            raise AssertionError("it was prompted")


@aio
async def test_a_model_that_cannot_be_had_is_an_error_before_the_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, ActedAgent(option("small", "large")))
    with pytest.raises(UsageError, match="small, large"):
        async with play.talking(plan(model="huge")):
            raise AssertionError("it was prompted")
    play = Play(monkeypatch, ActedAgent())
    with pytest.raises(Unsupported, match="no choice of models"):
        async with play.talking(plan(model="huge")):
            raise AssertionError("it was prompted")


@aio
async def test_other_dialects_get_the_model_when_the_session_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent(dialect="codex", model="large"))
    async with play.talking(plan(model="large", mode="read-only")):
        pass
    (opening,) = agent.opened_with
    assert (opening.how, opening.mode, opening.model) == ("new", "read-only", "large")
    play = Play(monkeypatch, agent := ActedAgent(option("large")))
    async with play.talking(plan(model="large")):
        pass
    assert agent.opened_with[0].model is None


# -- turns


@aio
async def test_a_turn_is_reported_with_its_code_and_denials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent())
    denials = (Denial("c1", "Write", "edit"),)
    agent.answers = lambda turn: Result(Outcome.DENIED, "", denials=denials)
    async with play.talking(plan()) as talk:
        report = await talk.turn(PROMPT)
    assert (report.exit_code, report.peer, report.session) == (5, "actor", "s1")
    assert play.show.reports == [report]
    assert agent.turn is not None and agent.turn.prompt == PROMPT
    assert agent.opened_peer_with.guard is not None


@aio
async def test_an_error_that_a_peer_sends_as_text_is_not_a_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent())
    agent.answers = lambda turn: Result(Outcome.OK, "API Error: no credit")
    usual = plan()
    way = replace(usual.way, quirks=Quirks(error_texts=("API Error:",)))
    quirky = replace(usual, way=way, enforced=Enforced(way=way))
    async with play.talking(quirky) as talk:
        report = await talk.turn(PROMPT)
    assert (report.exit_code, report.result.outcome) == (1, Outcome.FAILED)


@aio
async def test_after_mute_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, agent := ActedAgent(option("a")))
    async with play.talking(plan()) as talk:
        shown = len(play.show.events)
        talk.mute()
        agent.tell_settings()
    assert len(play.show.events) == shown == 1


# -- interrupts


@aio
async def test_the_first_interrupt_cancels_the_turn_in_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent())
    report = await play.turn(plan(), "^C")
    assert (report.exit_code, report.interrupted, report.result.text) == (130, True, "half")
    assert agent.turn is not None and agent.turn.cancels == 1
    assert "Ctrl-C again" in play.show.notices[0]


@aio
async def test_the_second_interrupt_ends_an_agent_that_does_not_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent())
    agent.deaf = True
    report = await play.turn(plan(), "^C", "^C")
    assert (report.exit_code, report.interrupted) == (130, True)


@aio
async def test_being_ended_from_outside_gives_the_agent_a_short_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent())
    agent.deaf = True
    play.stage.terminated = True
    report = await play.turn(plan(), "SIGTERM")
    assert report.exit_code == 143


@aio
async def test_an_interrupt_outside_of_a_turn_ends_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent())

    async def command() -> None:
        async with play.talking(plan()):
            play.stage.press()
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            await group.create_task(command())
    assert agent.closed == 1


@aio
async def test_a_turn_that_still_succeeded_was_not_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent())

    def answer(turn: ActedTurn) -> Result:
        play.stage.interrupts = 1
        return Result(Outcome.OK, "done")

    agent.answers = answer
    async with play.talking(plan()) as talk:
        report = await talk.turn(PROMPT)
    assert (report.exit_code, report.interrupted) == (0, False)


@aio
async def test_when_the_output_is_closed_the_turn_is_cancelled_silently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, agent := ActedAgent())
    agent.deaf = True
    async with play.talking(plan()) as talk, asyncio.TaskGroup() as group:
        assert isinstance(talk, PromptSession)
        running = group.create_task(talk.turn(PROMPT))
        await agent.begun.wait()
        await asyncio.sleep(0)
        play.show.broken = True
        assert play.show.on_broken is not None
        play.show.on_broken()
        report = await running
    assert report.exit_code == 1
    assert play.show.reports == []


@aio
async def test_when_the_output_is_closed_before_the_turn_it_is_cancelled_as_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TERMINATE_GRACE", 10.0)
    play = Play(monkeypatch, agent := ActedAgent())
    async with play.talking(plan()) as talk:
        play.show.broken = True
        assert play.show.on_broken is not None
        play.show.on_broken()
        async with asyncio.timeout(5):
            report = await talk.turn(PROMPT)
    assert agent.turn is not None and agent.turn.cancels == 1
    assert report.exit_code == 1


@aio
async def test_the_last_words_of_an_agent_are_shown_without_a_newline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play = Play(monkeypatch, agent := ActedAgent())
    async with play.talking(replace(plan(), agent_stderr=True)):
        on_stderr = agent.opened_peer_with.on_stderr
        assert on_stderr is not None
        on_stderr(b"one\nlast words")
    assert capsys.readouterr().err == "agent: one\nagent: last words\n"
