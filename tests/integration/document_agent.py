"""An agent made with the agent kit, as a program of its own: for clients that are plain `json`.

What it does is decided by the prompt, so that a test can ask for each thing by name.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman.agent import Agent, Session, Turn
from dragoman.dialects.acp import v1 as acp

agent = Agent(
    "served",
    version="1.0.0",
    image=True,
    modes=[acp.SessionMode(id="code", name="Code"), acp.SessionMode(id="plan", name="Plan")],
)


@agent.prompt
async def answer(turn: Turn) -> Any:
    match turn.text:
        case "fail":
            raise ValueError("a secret detail")
        case "wait":
            await turn.say("waiting")
            await asyncio.Event().wait()
        case "ask":
            async with turn.tool("Edit c.py", kind="edit") as tool:
                allowed = await turn.ask_permission(tool)
            await turn.say(f"allowed: {allowed}")
        case _:
            await turn.think("hm")
            await turn.plan(["Look", "Edit"])
            async with turn.tool("Edit c.py", kind="edit") as tool:
                await tool.diff("/project/c.py", "return\n", "pass\n")
            await turn.say(f"You said: {turn.text}")
    usage = {"usage": {"inputTokens": 12, "outputTokens": 3}}
    return acp.PromptResponse(stop_reason="end_turn", extra=usage)


@agent.load_session
async def load_session(session: Session, replay: Turn) -> None:
    await replay.echo("Does it build?")
    await replay.say("It builds.")


@agent.list_sessions
async def list_sessions(request: acp.ListSessionsRequest) -> list[acp.SessionInfo]:
    return [acp.SessionInfo(session_id=f"s{n}", cwd="/", title=f"Session {n}") for n in range(3)]


if __name__ == "__main__":
    agent.run()
