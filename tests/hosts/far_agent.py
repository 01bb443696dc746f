"""The agent on the far machine, as a separate program. The first word of the prompt says what to
do. Every prompt is appended to the file `prompts` in the workspace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from dragoman.agent import Agent, Turn
from dragoman.agent.session import Session
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired

agent = Agent("far", title="Far agent")


async def ask(turn: Turn, number: int) -> None:
    call = {
        "toolCallId": f"c{number}",
        "title": f"Run step {number}",
        "kind": "execute",
        "rawInput": {"command": f"make step-{number}"},
    }
    allowed = await turn.ask_permission(msgspec.convert(call, acp.ToolCallUpdate))
    await turn.say(f"step {number} {'allowed' if allowed else 'refused'}\n")


@agent.new_session
async def require_login(session: Session) -> None:
    if (Path.home() / "logged-out").exists():
        raise AuthRequired("log in first")


def count(folder: Path, text: str) -> None:
    with (folder / "prompts").open("a") as file:
        file.write(f"{text}\n")


@agent.prompt
async def answer(turn: Turn) -> None:
    count(turn.session.cwd, turn.text)
    word, _, rest = turn.text.partition(" ")
    match word:
        case "count":
            # Numbered words with pauses: `count 300 0.01`.
            number, pause = rest.split()
            for each in range(1, int(number) + 1):
                await turn.say(f"<{each}> ")
                await asyncio.sleep(float(pause))
        case "held":
            # Numbered words; the second half waits for the file `go` in the workspace.
            for each in range(1, int(rest) + 1):
                go = turn.session.cwd / "go"
                while each == int(rest) // 2 and not go.exists():  # noqa: ASYNC110 - a file
                    await asyncio.sleep(0.02)
                await turn.say(f"<{each}> ")
        case "stream":
            for each in range(1, int(rest) + 1):
                await turn.say(f"<{each}> ")
        case "ask":
            for each in range(1, int(rest or "1") + 1):
                await ask(turn, each)
        case "wait":
            await turn.say("waiting\n")
            await asyncio.Event().wait()
        case "where":
            await turn.say(f"in {turn.session.cwd} as {Path.home()}")
        case "write":
            (turn.session.cwd / rest).write_text("written on the far machine\n")
            await turn.say(f"wrote {rest}")
        case _:
            await turn.say(f"far answer to: {turn.text}")


if __name__ == "__main__":
    agent.run()
