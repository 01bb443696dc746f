"""The agent of the console tests, as a separate program. The first word of the prompt selects what
it does. `GO` in the workspace is a pipe that a test writes to when the agent may continue. `HOLD`
in the directory of the first argument is one for a test that cannot choose the prompt."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import decoder
from dragoman.errors import RemoteError

agent = Agent("page", title="Page agent")

HOLD = "HOLD"

HOSTILE = (
    "<img src=x onerror=\"window.hacked='img'\"><script>window.hacked='script'</script>\n\n"
    "<svg onload=\"window.hacked='svg'\"></svg><form action='http://example.org/'><button>Go"
    "</button></form>\n\n![picture](http://example.org/picture.png)\n\n"
    "[data](data:text/html,<script>window.hacked='data'</script>) "
    "[script](javascript:window.hacked='link')\n\n"
    "\x1b[31mred\x1b[0m \u202eesrever\u202c zero\u200bwidth\n\n"
    "<iframe src='http://example.org/'></iframe><link rel=stylesheet href='http://example.org/a'>"
)

HOSTILE_NAME = "<img src=x onerror=\"window.hacked='name'\"> \u202eesrever \u200b"

HOSTILE_MARKDOWN = (
    "`" * 90_000 + "a" * 90_000,
    "~" * 190_000 + "`",
    "# a" + " " * 190_000 + "a",
    "# a" + "#" * 190_000 + "a",
    ">" * 190_000,
    "> " * 90_000,
    "[" * 190_000,
    "**a " * 45_000,
    "- a\n" * 45_000,
    "a\n\n" * 60_000,
    "the last of them",
)
"""Texts for which a careless Markdown renderer needs quadratic time, too many elements or a deep
stack."""

GREETING = """def greet(name):
    \"\"\"Greet a person.\"\"\"
    words = f"Hello, {name}"
    return words


def part(name):
    return f"Bye, {name}"
"""

PILE = "\u0301\u0323" * 200
"""Marks that are drawn above and below a letter, over the lines around it."""

OLD_LINES = "\n".join(f"o {number}" for number in range(900))
NEW_LINES = "\n".join(f"n {number}" for number in range(900))

MAKE = {"command": "make again"}
FORM = {
    "type": "object",
    "properties": {
        "version": {"type": "string", "title": "Version", "description": "Such as 1.2"},
        "channel": {"type": "string", "title": "Channel", "enum": ["stable", "next"]},
        "signed": {"type": "boolean", "title": "Signed"},
        "copies": {"type": "integer", "title": "Copies"},
        "parts": {
            "type": "array",
            "title": "Parts",
            "items": {"type": "string", "enum": ["code", "docs", "tests"]},
            "minItems": 1,
            "maxItems": 2,
        },
    },
    "required": ["version"],
}


def text_of(text: str) -> Any:
    return acp.Content(content=acp.TextContent(text=text))


def diff_of(text: str) -> Any:
    return acp.Diff(path=text, old_text=text, new_text=text + "!")


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
    hold = Path(sys.argv[1]) / HOLD
    if hold.exists():
        await asyncio.to_thread(hold.read_text)
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
        case "titled":
            await ask(turn, 1, {"title": f"make {'x' * 300} && reboot", "kind": "execute"})
        case "hide":
            # A careless page omits the rest of an escape sequence in a command.
            given = {"script": "echo '\x1b]'; rm -rf ~\x1b[;m", "command": ["rm", "-rf", "a b"]}
            secret = {"path": "/etc/passwd"}
            diff = {"type": "diff", "path": "/tmp/notes.md", "newText": "harmless"}
            call: dict[str, Any] = {"title": "Write notes", "kind": "edit", "content": [diff]}
            call |= {"locations": [secret]}
            await ask(turn, 1, call | {"rawInput": given})
        case "crowd":
            async with asyncio.TaskGroup() as asking:
                for number in range(int(rest)):
                    call = {"title": f"Run {number}", "kind": "execute", "rawInput": MAKE}
                    asking.create_task(ask(turn, number, call))
        case "rewrite":
            # Many files, each rewritten completely.
            diff = {"type": "diff", "oldText": OLD_LINES, "newText": NEW_LINES}
            diffs = [diff | {"path": f"/tmp/file-{number}"} for number in range(int(rest))]
            await ask(turn, 1, {"title": "Rewrite", "kind": "edit", "content": diffs})
        case "flood":
            for number in range(int(rest)):
                async with turn.tool(f"Edit {number}", kind="edit") as tool:
                    await tool.diff(str(cwd / "file"), NEW_LINES, OLD_LINES)
                words = "".join(f"- `item` {line}\n" for line in range(1000))
                await turn.say(words, message_id=f"f{number}")
        case "far":
            # What matters is far from what is seen first.
            given = {"command": "ls" + "\n" * 100 + "rm -rf ~"}
            paths = [{"path": f"/tmp/{number}"} for number in range(201)]
            call = {"title": "List", "kind": "execute", "rawInput": given, "locations": paths}
            await ask(turn, 1, call)
        case "marks":
            pile = f"Z{PILE}"
            await turn.say(pile)
            await ask(turn, 1, {"title": pile, "kind": "execute", "rawInput": {"command": pile}})
        case "hostile-form":
            field = {"type": "string", "title": HOSTILE, "description": HOSTILE, "enum": [HOSTILE]}
            form = {"type": "object", "properties": {HOSTILE: field}}
            schema = msgspec.convert(form, acp.ElicitationSchema)
            await turn.client.ask_form(HOSTILE, schema)
        case "clobber-form":
            names = ("elements", "submit", "children")
            named = {name: {"type": "string", "title": name} for name in names}
            form = {"type": "object", "properties": named}
            schema = msgspec.convert(form, acp.ElicitationSchema)
            reply = await turn.client.ask_form("Names?", schema)
            if isinstance(reply, acp.ElicitationAccepted):
                await turn.say(f"`{dict(sorted((reply.content or {}).items()))}`")
        case "hostile-markdown":
            for number, text in enumerate(HOSTILE_MARKDOWN):
                await turn.say(text, message_id=f"h{number}")
        case "hostile-change":
            for name in (HOSTILE_NAME, f"{HOSTILE_NAME} two"):
                async with turn.tool(HOSTILE, kind="edit") as tool:
                    (cwd / name).write_text(HOSTILE)
                    await tool.diff(str(cwd / name), HOSTILE, None)
        case "hostile-quota":
            data = {"details": HOSTILE, "retryDelay": "7200s"}
            raise RemoteError(429, f"insufficient_quota: {HOSTILE}", data)
        case "hostile-failure":
            raise RemoteError(-32000, HOSTILE)
        case "failure":
            raise RemoteError(-32603, "the disk is full")
        case "twice":
            for number in (1, 2):
                await ask(turn, number, {"title": "Run it", "kind": "execute", "rawInput": MAKE})
        case "form":
            schema = decoder(acp.ElicitationSchema)(msgspec.json.encode(FORM))
            reply = await turn.client.ask_form("Which release?", schema)
            if isinstance(reply, acp.ElicitationAccepted):
                content = dict(sorted((reply.content or {}).items()))
                await turn.say(f"you chose {content}")
            else:
                await turn.say("you declined")
        case "edit":
            path = str(cwd / "main.py")
            diff = {"type": "diff", "path": path, "oldText": "one\ntwo\n", "newText": "one\n2\n"}
            call = {"title": "Edit main.py", "kind": "edit", "content": [diff]}
            await ask(turn, 1, call | {"locations": [{"path": path}]})
        case "change":
            # Two files with tool calls, and one without reporting it, as a command does.
            for name, old, new in (
                ("greeting.py", GREETING, GREETING.replace("Hello", "Good morning")),
                ("notes.md", None, "# Notes\n\n<script>window.hacked = 'diff'</script>\n"),
            ):
                async with turn.tool(f"Edit {name}", kind="edit") as tool:
                    (cwd / name).write_text(new)
                    await tool.diff(str(cwd / name), new, old)
            (cwd / "made-by-a-command.txt").write_text("one\ntwo\n")
            await turn.say(f"Changed three files: {rest}")
        case "spend":
            await turn.usage(100, 1000, acp.Cost(amount=float(rest), currency="USD"))
            turn.tokens(80, 20)
            await turn.say(f"That was {rest} USD")
        case "quota":
            data = {"details": "quota exceeded", "retryDelay": "7200s"}
            raise RemoteError(429, "insufficient_quota: you exceeded your monthly limit", data)
        case "hostile":
            await turn.title("<b>bold</b> " + "x" * 1_000_000)
            await turn.plan([HOSTILE])
            await turn.think(HOSTILE)
            await turn.say(HOSTILE)
            async with turn.tool(HOSTILE, kind="edit") as tool:
                await tool.update(content=[text_of(HOSTILE), diff_of(HOSTILE)])
            call = {"title": HOSTILE, "kind": "execute", "rawInput": {"command": HOSTILE}}
            call["content"] = [{"type": "diff", "path": HOSTILE, "newText": HOSTILE}]
            await ask(turn, 1, call)
        case "clock":
            for number in range(int(rest)):
                await turn.say(f"{time.time()}", message_id=f"c{number}")
                await asyncio.sleep(0.005)
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
