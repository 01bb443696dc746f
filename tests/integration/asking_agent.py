"""An agent that asks for permission in whatever words it likes, as a program of its own.

The prompt is a JSON list of acts. ``{"ask": {…}}`` asks with that tool call, ``{"save": PATH}`` has
its client write, ``{"after": PATH}`` says so and reads that pipe to its end.
``{"talk": [{…}, TEXT]}`` asks, reads the pipe ``go``, says the text and goes on without an answer;
``{"answered": true}`` waits for it. ``{"end": WORD}`` is the stop reason of the turn. What became
of each is said, and at the end that all is well.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError

agent = Agent("asker", title="Asker")

OPEN: list[asyncio.Task[bool]] = []
"""Questions whose answers are not waited for."""


@agent.prompt
async def answer(turn: Turn) -> str | None:
    acts: list[dict[str, Any]] = json.loads(turn.text)
    stop: str | None = None
    for number, act in enumerate(acts):
        ((what, told),) = act.items()
        match what:
            case "ask":
                call = {"toolCallId": f"c{number}", **told}
                allowed = await turn.ask_permission(msgspec.convert(call, acp.ToolCallUpdate))
                await turn.say(f"ask {number}: {'allowed' if allowed else 'refused'}\n")
            case "talk":
                call, text = told
                update = msgspec.convert({"toolCallId": f"c{number}", **call}, acp.ToolCallUpdate)
                asked = asyncio.get_running_loop().create_task(turn.ask_permission(update))
                OPEN.append(asked)
                await asyncio.to_thread((turn.session.cwd / "go").read_text)
                await turn.say(text)
                (turn.session.cwd / "said").touch()
            case "save":
                path = str(turn.session.cwd / told)
                try:
                    await turn.write_file(path, "saved\n")
                    done = "done"
                except RemoteError as error:
                    done = str((error.data or {}).get("errorClass", error.message))
                await turn.say(f"save {told}: {done}\n")
            case "answered":
                await asyncio.wait(OPEN)
                await turn.say(f"answered {[task.result() for task in OPEN]}\n")
            case "after":
                await turn.say(f"after {told}\n")
                await asyncio.to_thread((turn.session.cwd / told).read_text)
            case "end":
                stop = told
    await turn.say("all is well\n")
    return stop


if __name__ == "__main__":
    agent.run()
