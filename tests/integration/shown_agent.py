"""An agent that says how its own values are shown."""

from __future__ import annotations

from dragoman import Agent, Turn

agent = Agent("shown", version="1.2")


@agent.prompt
async def show(turn: Turn) -> None:
    shown = [repr(agent), repr(turn.session), repr(turn)]
    async with turn.tool("Look") as tool:
        shown.append(repr(tool))
    await turn.say("\n".join([*shown, repr(tool)]))


if __name__ == "__main__":
    agent.run()
