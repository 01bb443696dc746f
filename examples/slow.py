"""An agent that begins to answer and does not come to an end: to try out cancelling and budgets."""

from __future__ import annotations

import asyncio

from dragoman import Agent, Turn

agent = Agent("slow", version="1.0.0")


@agent.prompt
async def dawdle(turn: Turn) -> None:
    await turn.say("Well ...")
    await asyncio.Event().wait()


agent.run()
