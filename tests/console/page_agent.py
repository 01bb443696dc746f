"""The agent of the console's tests, as a program of its own. The prompt's first word says what to
do; `GO` in the workspace is a pipe that a test writes to when the agent may go on."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp

agent = Agent("page", title="Page agent")

HOSTILE = (
    "<img src=x onerror=\"window.hacked='img'\"><script>window.hacked='script'</script>\n\n"
    "<svg onload=\"window.hacked='svg'\"></svg><form action='http://example.org/'><button>Go"
    "</button></form>\n\n![picture](http://example.org/picture.png)\n\n"
    "[data](data:text/html,<script>window.hacked='data'</script>) "
    "[script](javascript:window.hacked='link')\n\n"
    "\x1b[31mred\x1b[0m \u202eesrever\u202c zero\u200bwidth\n\n"
    "<iframe src='http://example.org/'></iframe><link rel=stylesheet href='http://example.org/a'>"
)


async def go(turn: Turn) -> None:
    await asyncio.to_thread((turn.session.cwd / "GO").read_text)


async def ask(turn: Turn, number: int, call: dict[str, Any]) -> None:
    update = msgspec.convert({"toolCallId": f"c{number}", **call}, acp.ToolCallUpdate)
    allowed = await turn.ask_permission(update)
    await turn.say(f"answer {number}: {'allowed' if allowed else 'refused'}\n")


@agent.prompt
async def answer(turn: Turn) -> None:
    word, _, rest = turn.text.partition(" ")
    cwd = turn.session.cwd
    match word:
        case "stream":
            await turn.plan(["Look around", "Write it down"])
            await turn.think("I should look first.")
            await turn.say("First **bold** words")
            await go(turn)
            async with turn.tool("Read main.py", kind="read"):
                await turn.say("\n\n```python\nprint('code')\n```\n\nand the end.")
        case "ask":
            command: dict[str, Any] = {"title": "Run the tests", "kind": "execute"}
            await ask(turn, 1, command | {"rawInput": {"command": f"make {rest or 'test'}"}})
        case "edit":
            path = str(cwd / "main.py")
            diff = {"type": "diff", "path": path, "oldText": "one\ntwo\n", "newText": "one\n2\n"}
            call: dict[str, Any] = {"title": "Edit main.py", "kind": "edit", "content": [diff]}
            await ask(turn, 1, call | {"locations": [{"path": path}]})
        case "hostile":
            await turn.title("<b>bold</b> " + "x" * 1_000_000)
            await turn.say(HOSTILE)
            call = {"title": HOSTILE, "kind": "execute", "rawInput": {"command": HOSTILE}}
            await ask(turn, 1, call)
        case "many":
            for number in range(int(rest)):
                if number % 10 == 0:
                    async with turn.tool(f"Tool {number}", kind="read"):
                        pass
                else:
                    await turn.say(f"word {number}\n", message_id=f"m{number}")
        case _:
            await turn.say(f"You said: {turn.text}")


if __name__ == "__main__":
    agent.run()
