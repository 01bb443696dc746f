"""An agent whose author makes mistakes: the prompt names the one to make."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp

agent = Agent("mistaken")
KEPT: list[Any] = []


class Unusual(BaseException):
    pass


@agent.prompt
async def answer(turn: Any) -> Any:
    assert isinstance(turn, Turn)
    careless: Any = turn
    match turn.text:
        case "raise":
            raise ValueError("my bug")
        case text if "raise with the key" in text:
            raise ValueError(f"my bug with {os.environ['MISTAKEN_KEY']}")
        case "exit":
            sys.exit(3)
        case "return":
            return "hello"
        case "stop":
            return acp.PromptResponse(stop_reason="done")
        case "number":
            await careless.say(42)
        case "none":
            await careless.say(None)
        case "string":
            await careless.update("hello")
        case "nothing":
            await careless.update(None)
        case "divide":
            1 / 0  # noqa: B018
        case "relative":
            await turn.read_file("relative")
        case "print":
            sys.stdout.write("not a message\n")
            print("nor this")  # noqa: T201
            await turn.say("said")
        case "tool call update":
            await turn.update(acp.ToolCallUpdate(tool_call_id="c", title="T"))
            await turn.say("said")
        case "letters":
            await careless.plan("do a")
        case "kind":
            async with turn.tool("T", kind="frobnicate"):
                pass
        case "status of a plan":
            await turn.plan([acp.PlanEntry(content="a", priority="high", status="doing")])
        case "mapping":
            await careless.plan({"do": "a"})
        case "path":
            await careless.read_file(Path("/a"))
        case "content":
            await careless.write_file("/a", 5)
        case "question":
            await careless.ask_permission(42)
        case "options":
            await careless.ask_permission("Do it", "yes")
        case "say":
            careless.say("lost")
        case "plan":
            careless.plan(["lost"])
        case "notice":
            careless.notice("lost")
        case "tool":
            careless.tool("T")
        case "truth":
            if careless.ask_permission("Do it"):
                await turn.say("did it although nobody answered")
        case "compared":
            if careless.ask_permission("Do it") != False:  # noqa: E712
                await turn.say("did it although nobody answered")
        case "kept":
            KEPT.append(careless.ask_permission("Do it"))
        case "asked":
            careless.client.ask(None, None)
        case "entered":
            async with careless.terminal("ls"):
                pass
        case "then raised":
            answer = careless.read_file("/a")
            return len(answer)
        case "base":
            raise Unusual("my bug")
        case "unused":
            careless.ask_permission("Do it")
        case "refused":
            async with turn.tool("T", kind="edit") as tool:
                done = "did it" if await tool.permission() else "left it"
            await turn.say(done)
        case "stderr":
            sys.stderr.write("words on stderr\n")
            sys.stderr.flush()
            await turn.say("said")
    return None


if __name__ == "__main__":
    agent.run()
