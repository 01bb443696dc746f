"""An agent for tests of the command line, as a program of its own: the prompt says what to do.

Started with ``bare`` it has no models to choose from; with ``--model NAME`` it then says NAME.
Started with ``maker`` it also has a model with the name of its maker. Started with ``resumes`` it
opens every session again that it is asked for.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgspec import Raw

from dragoman.agent import Agent, Session, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired, RemoteError

BARE = "bare" in sys.argv
LAUNCHED_WITH = sys.argv[sys.argv.index("--model") + 1] if "--model" in sys.argv else "none"

MODELS = acp.SessionConfigSelect(
    id="model",
    name="Model",
    category="model",
    current_value="small",
    options=[
        acp.SessionConfigSelectOption(value="small", name="Small"),
        acp.SessionConfigSelectOption(value="large-preview", name="Large"),
        *(
            [acp.SessionConfigSelectOption(value="maker/huge", name="Huge")]
            if "maker" in sys.argv
            else []
        ),
    ],
)

agent = Agent(
    "tester",
    title="Tester",
    modes=[acp.SessionMode(id="code", name="Code"), acp.SessionMode(id="plan", name="Plan")],
    options=[] if BARE else [MODELS],
    image="blind" not in sys.argv,
    embedded_context=True,
)


SPENT: dict[str, float] = {}
"""Dollars by session."""


@agent.new_session
async def new(session: Session) -> None:
    if "locked" in sys.argv:
        raise AuthRequired("Authentication required")


async def resume(session: Session) -> None:
    pass


if "resumes" in sys.argv:
    agent.resume_session(resume)


@agent.command("dance", "Dance a little", hint="where")
async def dance(turn: Turn, where: str) -> None:
    await turn.say(f"danced {where}")


@agent.prompt
async def answer(turn: Turn) -> Any:
    scene, _, rest = turn.text.partition(" ")
    match scene:
        case "blocks":
            await turn.say(" ".join(_told(block) for block in turn.prompt[1:]))
        case "env":
            await turn.say(f"{rest}={os.environ.get(rest, 'unset')}")
        case "servers":
            await turn.say(" ".join(server.name for server in turn.session.mcp_servers))  # type: ignore[union-attr]
        case "settings":
            model = turn.session.options.get("model", LAUNCHED_WITH)
            await turn.say(f"model {model} mode {turn.session.mode} cwd {turn.session.cwd.name}")
        case "write":
            await write(turn)
        case "files":
            can = turn.session.client.client_capabilities.fs
            await turn.say(f"reads {can.read_text_file} writes {can.write_text_file}")
        case "halfemoji":
            # What a program sends that streams UTF-16 and splits an emoji.
            text = b'{"type":"text","text":"a \\ud83d b"}'
            update = b'{"sessionUpdate":"agent_message_chunk","content":%b}' % text
            params = b'{"sessionId":"%b","update":%b}' % (turn.session.id.encode(), update)
            await turn.client._notify("session/update", Raw(params))
            await turn.say("!")
        case "evil":
            await turn.say("\x1b]0;owned\x07\x1b[2J\x9b31mred\x7f")
        case "wait":
            await turn.say("waiting")
            await asyncio.Event().wait()
        case "recite":
            for word in rest.split():
                await turn.say(f"{word} ")
            await asyncio.Event().wait()
        case "stubborn":
            await stubborn(turn)
        case "handover":
            await turn.say(_told(turn.prompt[0]))
        case "daemon":
            await turn.say(str(daemon(*rest.split())))
        case "talk":
            for number in range(100_000):
                await turn.say(f"line {number}\n")
        case "until":
            await talk_until(turn, Path(rest))
        case "nothing":
            return None
        case "fail":
            raise RemoteError(-32603, "Internal error", json.loads(rest))
        case "login":
            raise RemoteError(-32000, "Authentication required")
        case "spend":
            return await spend(turn)
        case "refuse":
            return "refusal"
        case _:
            await turn.say(f"you said {turn.text}")
    return None


async def talk_until(turn: Turn, file: Path) -> None:
    """Say and do things with numbers until there is a file."""
    number = 0
    while not file.exists():  # noqa: ASYNC240 - another process makes it
        number += 1
        await turn.say(f"line {number}\n")
        if number % 7 == 0:
            change = acp.Diff(path=f"/{number}", old_text="old\n", new_text="new\n")
            update = acp.ToolCall(tool_call_id=f"t{number}", title="Write", content=[change])
            await turn.update(update)
        await asyncio.sleep(0.002)


async def spend(turn: Turn) -> acp.PromptResponse:
    """Every turn costs a quarter of a dollar; what is told is what the session has cost so far."""
    SPENT[turn.session.id] = SPENT.get(turn.session.id, 0.0) + 0.25
    cost = acp.Cost(amount=SPENT[turn.session.id], currency="USD")
    await turn.say("spent")
    await turn.update(acp.UsageUpdate(used=10, size=100, cost=cost))
    usage = {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}
    return acp.PromptResponse(stop_reason="end_turn", extra={"usage": usage})


async def write(turn: Turn) -> None:
    change = acp.Diff(path="/somewhere/notes.md", old_text="old\n", new_text="new\n")
    async with turn.tool("Write notes.md", kind="edit", status="pending", content=[change]) as tool:
        if await turn.ask_permission(tool):
            await turn.say("written")
        else:
            await tool.fail("not allowed")


def daemon(*environment: str) -> int:
    """Start a process that has neither our environment nor our session; its number."""
    life = "import time; time.sleep(120)"
    return subprocess.Popen(  # noqa: TID251 - it is not to be under anybody's care
        [sys.executable, "-I", "-S", "-c", life],
        env=dict(word.split("=", 1) for word in environment),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ).pid


async def stubborn(turn: Turn) -> None:
    await turn.say("never")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await turn.say(" mind")


def _told(block: acp.ContentBlock) -> str:
    match block:
        case acp.EmbeddedResource():
            resource = block.resource
            text = getattr(resource, "text", "")
            return f"embedded:{text.strip()}"
        case acp.ResourceLink():
            return f"link:{block.name}"
        case acp.ImageContent():
            return f"image:{block.mime_type}"
        case _:
            return type(block).__name__


if __name__ == "__main__":
    agent.run()
