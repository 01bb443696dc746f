"""An agent whose prompt is a list of acts in JSON: what to say, think, plan, do and wait for."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp

agent = Agent("stage", title="Stage")


@agent.prompt
async def perform(turn: Turn) -> None:
    for act in json.loads(turn.text):
        for name, value in act.items():
            await do(turn, name, value)


async def do(turn: Turn, name: str, value: Any) -> None:
    match name:
        case "say":
            await turn.say(value)
        case "stream":
            # As a model does it: a few characters at a time.
            for at in range(0, len(value), 3):
                await turn.say(value[at : at + 3])
                await asyncio.sleep(0)
        case "think":
            await turn.think(value)
        case "plan":
            await turn.plan(
                [
                    acp.PlanEntry(content=text, priority="medium", status=status)
                    for text, status in value
                ]
            )
        case "tool":
            title, file = value
            async with turn.tool(title, kind="execute"):
                await until(file)
        case "edit":
            path, old, new = value
            change = acp.Diff(path=path, old_text=old, new_text=new)
            async with turn.tool("Edit", kind="edit", content=[change]):
                pass
        case "spent":
            await turn.usage(10, 100, cost=acp.Cost(amount=value, currency="USD"))
        case "ask":
            async with turn.tool(value, kind="edit") as tool:
                await turn.ask_permission(tool)
        case "wait":
            await until(value)
        case "die":
            os._exit(value)
        case _:
            raise ValueError(name)


async def until(file: str) -> None:
    """Wait until another process has made a file."""
    while not Path(file).exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    agent.run()
