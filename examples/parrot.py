"""An agent that any ACP client can drive, editors included: it repeats what it is told.

It owns one answer and nothing of the protocol; that is in `dragoman.agent`. Tell your editor to
start it with: python examples/parrot.py
"""

from __future__ import annotations

from dragoman import Agent, Turn

agent = Agent("parrot", version="1.0.0", title="Parrot")


@agent.prompt
async def repeat(turn: Turn) -> None:
    for piece in turn.text.splitlines(keepends=True):
        await turn.say(piece)


agent.run()
