"""The agent of the fleet tests, as a separate program. The prompt says what to do. Each run appends
a line to a file, so that tests can count how often a prompt was run."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from dragoman.agent import Agent, Turn

agent = Agent("scripted", title="Scripted agent")
RUNS = Path(sys.argv[1])

HOLD = RUNS.with_name("hold")
"""If this pipe exists, a command is run only after a test has written to it."""

COMMAND_TIME = 100.0
"""Seconds that a command takes, unless its worker is killed first."""


@agent.prompt
async def answer(turn: Turn) -> None:
    word, seconds, token = turn.text.split(maxsplit=2)
    fd = os.open(RUNS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"{token}\n".encode())
    os.close(fd)
    for number in range(10):
        await turn.say(f"{word} {number}\n")
        await asyncio.sleep(float(seconds) / 10)
    if word == "write":
        (turn.session.cwd / "result.txt").write_text(f"{token}\n")
    if word == "large":
        # Larger than a message to the server may be.
        await turn.say("large " * 400_000)
    if word == "command":
        if HOLD.exists():
            await asyncio.to_thread(HOLD.read_text)
        async with turn.tool("make install", kind="execute"):
            await asyncio.sleep(COMMAND_TIME)
    if word == "files":
        names = sorted(
            str(one.relative_to(turn.session.cwd)) for one in turn.session.cwd.rglob("*")
        )
        await turn.say("\n".join(names))
    if word == "leak":
        (turn.session.cwd / ".env").write_text(f"KEY={os.environ.get('SCRIPTED_API_KEY')}\n")
    if word == "secret":
        for piece in ("the key is ", os.environ.get("SCRIPTED_API_KEY", "")[:6]):
            await turn.say(piece)
        await turn.say(os.environ.get("SCRIPTED_API_KEY", "")[6:] + " indeed\n")


if __name__ == "__main__":
    agent.run()
