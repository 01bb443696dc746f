"""An agent written with our kit that tells a story: one set of handlers for every dialect.

The story is its argument. Whether somebody can be asked is the only thing that it has to find out.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from dragoman.agent import Agent, Turn
from dragoman.agent.session import Session
from dragoman.agent.tools import ToolCall
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError, Unsupported
from dragoman.testing import storyteller as told


def agent_of(story: told.Story) -> Agent:
    choices = story.choices
    agent = Agent(
        "storyteller",
        version="1.0",
        modes=[acp.SessionMode(id=mode, name=mode.title()) for mode in choices.modes],
        options=[
            acp.SessionConfigSelect(
                id=id,
                name=id.title(),
                category="model" if id == "model" else None,
                current_value=values[0],
                options=[
                    acp.SessionConfigSelectOption(value=value, name=value.title())
                    for value in values
                ],
            )
            for id, values in choices.values.items()
        ],
    )

    @agent.prompt
    async def prompt(turn: Turn) -> Any:
        return await Telling(turn).tell(story.steps)

    for name, description in choices.commands:

        @agent.command(name, description)
        async def carry_out(turn: Turn, input: str) -> None:
            await turn.say(f"carried out {input}")

    @agent.list_sessions
    async def list_sessions(request: acp.ListSessionsRequest) -> list[acp.SessionInfo]:
        return [
            acp.SessionInfo(session_id=past.id, cwd="/past", title=past.title)
            for past in story.past
        ]

    @agent.load_session
    async def load_session(session: Session, replay: Turn) -> None:
        for past in story.past:
            if past.id == session.id:
                for who, text in past.messages:
                    await (replay.echo(text) if who == "user" else replay.say(text))
                return
        raise RemoteError(-32002, "there is no such session")

    return agent


class Telling:
    """One turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._tools: dict[str, ToolCall] = {}
        self._used: dict[str, Any] | None = None

    async def tell(self, steps: Sequence[told.Step]) -> Any:
        for step in steps:
            end = await self._step(step)
            if end is not None:
                return end
        extra = None if self._used is None else {"usage": self._used}
        return acp.PromptResponse(stop_reason="end_turn", extra=extra)

    async def _step(self, step: told.Step) -> Any:
        turn = self._turn
        match step:
            case told.Say(text=text):
                await turn.say(text)
            case told.Think(text=text):
                await turn.think(text)
            case told.UseTool():
                tool = turn.tool(
                    step.title,
                    name=step.name,
                    kind=step.kind,
                    raw_input=step.input,
                    locations=[step.path] if step.path else None,
                    tool_call_id=step.id,
                )
                self._tools[step.id] = tool
                await tool.announce()
            case told.ChangeFile():
                await self._tools[step.tool].diff(step.path, step.new, step.old)
            case told.FinishTool():
                tool = self._tools[step.id]
                await tool.add(step.output)
                await tool.update(status=step.status, raw_output=step.output)
            case told.SetPlan(entries=entries):
                await turn.plan(
                    [
                        acp.PlanEntry(content=text, priority="medium", status=status)
                        for text, status in entries
                    ]
                )
            case told.SwitchMode(mode=mode):
                await turn.mode(mode)
            case told.SetOption(id=id, value=value):
                await turn.option(id, value)
            case told.TellChoices():
                session = turn.session
                values = [f"{id} is {value}" for id, value in session.options.items()]
                await turn.say("; ".join([f"the mode is {session.mode}", *values]))
            case told.Count():
                await turn.usage(step.used, step.size)
                self._used = {"inputTokens": step.input, "outputTokens": step.output}
            case told.Ask():
                for each in step.allowed if await self._may(step.tool) else step.refused:
                    await self._step(each)
            case told.Wait():
                await asyncio.Event().wait()
            case told.Fail():
                raise RemoteError(-32603, step.message)
            case told.End(stop=stop):
                return stop
            case told.Crash():
                raise AssertionError(step)
        return None

    async def _may(self, tool: str) -> bool:
        try:
            return await self._turn.ask_permission(self._tools[tool])
        except Unsupported:
            return True


if __name__ == "__main__":
    agent_of(told.loads(sys.argv[1])).run()
