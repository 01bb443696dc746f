"""An agent that writes files and never asks, for tests of what a policy can be kept with.

With the variable ``ASKING`` set, or in the mode ``ask``, it asks first. It has modes with ``moded``
on its command line, and only the one in which it does not ask with ``free``. At the prompt
``go free`` it goes over to that mode by itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp

MODES = [
    acp.SessionMode(id=name, name=name)
    for name in ("free", "ask")
    if "moded" in sys.argv or name in sys.argv
]

agent = Agent("unasking", version="1", modes=MODES)


@agent.prompt
async def work(turn: Turn) -> None:
    name = turn.text
    if name == "go free":
        await turn.mode("free")
        await turn.say("free")
        return
    asks = "ASKING" in os.environ or turn.session.mode == "ask"
    async with turn.tool(f"Write {name}", kind="edit", status="pending") as tool:
        if asks and not await turn.ask_permission(tool):
            await tool.fail("not allowed")
            return
        (Path(turn.session.cwd) / name).write_text("written")
    await turn.say(f"wrote {name} {os.environ.get('ASKING', '')}")


if __name__ == "__main__":
    agent.run()
