"""The session of a chat: commands that change it, and what its turns are told and cost."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.cli import chat_session, prompt_session
from dragoman.cli.chat_session import Chat
from dragoman.cli.run_plan import RunOptions
from dragoman.client.results import Result
from dragoman.errors import PolicyNotEnforced, UnknownSession, Unsupported, UsageError
from dragoman.events.parts import Cost, Usage
from dragoman.events.words import Outcome
from dragoman.rpc.tasks import THREAD_NAME
from dragoman.runs import run
from dragoman.store import Store
from dragoman.store.open import open_store
from tests.aio import aio
from tests.unit.cli.acting import ActedAgent, ActedStage, Remembering, option, plan


@asynccontextmanager
async def chatting(monkeypatch: pytest.MonkeyPatch, agent: ActedAgent, **more: Any) -> Any:
    monkeypatch.setattr(run, "open_peer", agent.open_peer)
    options = RunOptions(peer="actor", command=None)
    async with Chat(plan(), ActedStage(), Remembering(), options, interactive=True) as chat:
        yield chat


@aio
async def test_the_model_is_chosen_in_the_open_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = ActedAgent(option("small", "large"))
    agent.obeys = True
    async with chatting(monkeypatch, agent) as chat:
        assert await chat.carry_out("/model") is None
        assert capsys.readouterr().err == "* small  Small\n  large  Large\n"
        assert await chat.carry_out("/model LARGE") is None
        assert agent.chosen == [("model", "large")]
        with pytest.raises(Unsupported, match="did you mean small"):
            await chat.carry_out("/model smal")
        assert [each.text for each in chat.suggestions("/model s")] == ["small"]
    assert len(agent.opened_with) == 1


@aio
async def test_a_chat_reads_stored_sessions_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def opened(**options: Any) -> Store:
        threads.append(threading.current_thread().name)
        return open_store(**options)

    async with chatting(monkeypatch, ActedAgent()) as chat:
        monkeypatch.setattr(chat_session, "open_store", opened)
        await chat.carry_out("/sessions")
        with pytest.raises(UnknownSession):
            await chat.carry_out("/sessions nothing")
    assert threads == [THREAD_NAME] * 3


@aio
async def test_the_turns_of_a_chat_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = ActedAgent()
    used = Usage(total_tokens=7, cost=Cost(0.5, "USD"))
    agent.answers = lambda turn: Result(Outcome.OK, "fine", usage=used)
    async with chatting(monkeypatch, agent) as chat:
        for text in ("one", "two"):
            assert await chat.carry_out(text) == text
            report = await chat.turn(text, chat.content(text))
            assert report.result.text == "fine"
        await chat.carry_out("/cost")
        assert capsys.readouterr().err == "2 turns, 14 tokens, 1.00 USD\n"
        assert not chat.over
        await chat.carry_out("/quit")
        assert chat.over


@aio
async def test_an_error_is_a_line_unless_it_needs_an_option_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with chatting(monkeypatch, ActedAgent()) as chat:
        chat.failed(UsageError("not like this"))
        chat.failed(PolicyNotEnforced("actor", "it does not ask"))
        assert chat.show.notices == ["not like this"]
        assert [type(error) for error in chat.show.errors] == [PolicyNotEnforced]


@aio
async def test_an_interrupt_between_turns_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with chatting(monkeypatch, ActedAgent()) as chat:
        chat.live.press()
        assert chat.live.interrupts == 0


class Lingering(ActedAgent):
    """An agent that takes long to close a session."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = lambda turn: Result(Outcome.OK, "fine")
        self.closing = asyncio.Event()

    async def close(self) -> None:
        self.closing.set()
        await asyncio.Event().wait()


@asynccontextmanager
async def interrupted(monkeypatch: pytest.MonkeyPatch, agent: Lingering, line: str) -> Any:
    """A chat in which Ctrl-C was pressed while a command closed the session before."""
    monkeypatch.setattr(run, "LEAVE_TIMEOUT", 10.0)
    monkeypatch.setattr(chat_session, "plan_of", lambda options: plan())
    monkeypatch.setattr(chat_session, "show_of", lambda plan, options: Remembering())

    async def press(chat: Chat) -> None:
        await agent.closing.wait()
        chat.live.press()

    async with chatting(monkeypatch, agent) as chat, asyncio.TaskGroup() as tasks:
        await chat.turn("one", chat.content("one"))
        tasks.create_task(press(chat))
        assert await chat.carry_out(line) is None
        monkeypatch.setattr(run, "LEAVE_TIMEOUT", 0.0)
        yield chat


@aio
async def test_an_interrupt_after_the_switch_does_not_lose_the_summary_for_the_new_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Lingering()
    async with interrupted(monkeypatch, agent, "/peer other") as chat:
        assert chat.show.notices[-1] == "cancelled"
        await chat.turn("two", chat.content("two"))
        assert agent.turn is not None and "one" in str(agent.turn.prompt[0])


@aio
async def test_an_interrupt_after_the_switch_does_not_keep_the_old_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Lingering()
    async with interrupted(monkeypatch, agent, "/new") as chat:
        assert chat.show.notices == ["a new session with Actor", "cancelled"]
        await chat.carry_out("/peer other")
        assert chat.show.notices == ["chatting with Actor"]


@aio
async def test_an_interrupt_before_the_prompt_is_sent_ends_the_turn_and_not_the_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looking = asyncio.Event()

    async def look(run: run.Run) -> None:
        looking.set()
        await asyncio.Event().wait()

    async def press(chat: Chat) -> None:
        await looking.wait()
        chat.live.press()

    agent = ActedAgent()
    agent.answers = lambda turn: Result(Outcome.OK, "fine")
    async with chatting(monkeypatch, agent) as chat:
        with monkeypatch.context() as slow:
            # Takes seconds in a large repository.
            slow.setattr(run.Run, "_look", look)
            async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
                tasks.create_task(press(chat))
                with pytest.raises(UsageError, match="before the agent was prompted"):
                    await chat.turn("one", chat.content("one"))
        assert agent.turn is None
        assert chat.live.interrupts == 0
        report = await chat.turn("two", chat.content("two"))
        assert report.result.text == "fine"


@aio
async def test_secrets_of_the_agent_are_not_kept_in_the_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2hunter2hunter2")
    async with chatting(monkeypatch, ActedAgent()) as chat:
        assert "hunter2" not in chat.redacted("it is hunter2hunter2hunter2")


@aio
async def test_the_time_of_a_turn_does_not_count_how_long_its_prompt_took_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(prompt_session, "time", SimpleNamespace(monotonic=lambda: now))
    agent = ActedAgent()
    agent.answers = lambda turn: Result(Outcome.OK, "fine")
    async with chatting(monkeypatch, agent) as chat:
        now = 100.0
        report = await chat.turn("one", chat.content("one"))
    assert report.seconds == 0.0
