"""Turns that are cancelled, abandoned, closed and asked for permission at random moments, on both
sides at once.

In every order, each turn ends, the session stays usable or reports that it is not, and no task is
left. The moments are counted in iterations of the event loop, so a failure can be reproduced.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.agent import Agent, Turn
from dragoman.client.acp import AcpClient, ClientOptions, Session, use_agent
from dragoman.client.permissions import Answer, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.rpc.other_side import turns

TIMEOUT = 30.0
"""Seconds until a wait counts as a failure; other tests may keep the machine busy."""

EXAMPLES = 150
"""Each example is a whole conversation."""


@dataclass(frozen=True)
class Act:
    """One turn: what the agent does in it, how often, and which side ends it when."""

    what: str
    times: int
    cancel_after: int | None
    leave_after: int | None


acts = st.builds(
    Act,
    what=st.sampled_from(["talk", "ask", "tool", "hang", "fail", "refuse", "linger"]),
    times=st.integers(0, 5),
    cancel_after=st.none() | st.integers(0, 30),
    leave_after=st.none() | st.integers(0, 30),
)
plays = st.lists(st.lists(acts, min_size=1, max_size=4), min_size=1, max_size=3)


def playing() -> Agent:
    agent = Agent("play")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        what, _, times = turn.text.partition(" ")
        for number in range(int(times)):
            match what:
                case "ask":
                    await turn.say(str(await turn.ask_permission("May I?")))
                case "tool":
                    async with turn.tool(str(number)) as tool:
                        await turn.ask_permission(tool)
                case _:
                    await turn.say(str(number))
                    await asyncio.sleep(0)
        match what:
            case "hang":
                await asyncio.Event().wait()
            case "fail":
                raise ZeroDivisionError
            case "refuse":
                raise RemoteError(-32099, "no")
            case "linger":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    await turns(3)
                    await turn.say("at last")

    return agent


async def permit(question: Question) -> Answer:
    await turns(2)
    return Answer.ALLOW_ONCE


async def play(session: Session, act: Act) -> None:
    async def cancel(turn: Any) -> None:
        assert act.cancel_after is not None
        await turns(act.cancel_after)
        turn.cancel()

    endless = act.what in ("hang", "linger")
    async with asyncio.TaskGroup() as tasks:
        async with session.prompt(f"{act.what} {act.times}") as turn:
            if act.cancel_after is not None:
                tasks.create_task(cancel(turn))
            elif endless and act.leave_after is None:
                turn.cancel()
            if act.leave_after is not None:
                await turns(act.leave_after)
                return
            said = 0
            async for update in turn:
                said += isinstance(update, acp.AgentMessageChunk)
            reason, error = turn.result.stop, turn.result.error
            if isinstance(error, RemoteError):
                assert (act.what, error.code) in (("fail", -32603), ("refuse", -32099))
                return
            assert reason in ("end_turn", "cancelled")
            if act.cancel_after is None and not endless:
                assert reason == "end_turn"
                assert act.what not in ("fail", "refuse")
                assert said == (0 if act.what == "tool" else act.times)


@settings(max_examples=EXAMPLES)
@given(plays)
def test_whatever_is_cancelled_when_every_turn_ends_and_the_session_goes_on(
    script: list[list[Act]],
) -> None:
    @aio
    async def conversation() -> None:
        ours, theirs = memory_pair()
        async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
            tasks.create_task(playing().serve(theirs))
            async with use_agent(ours, options=ClientOptions(permit=permit)) as client:
                await asyncio.gather(*(scene(client, part) for part in script))
                assert len(client.connection.tasks) == 0
                assert client.connection.flow.queued == 0

    async def scene(client: AcpClient, part: list[Act]) -> None:
        session = await client.new_session("/w")
        for act in part:
            await play(session, act)
            assert session.turn is None
            assert not session.unusable
        assert (await session.ask("talk 3")).text == "012"
        await session.close()

    conversation()
