"""An agent that has its client read, write and ask, as a program of its own.

The prompt is a list of words: ``save PATH`` writes without a question, ``ask PATH`` announces an
edit and then asks with its id alone, ``load PATH`` reads, ``execute HEX`` and ``read HEX`` ask for
a line of a shell under that kind and run it if they may. What became of each is said.
"""

from __future__ import annotations

import asyncio
import shutil

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError

agent = Agent("saver", title="Saver")


@agent.prompt
async def answer(turn: Turn) -> None:
    words = turn.text.split()
    for what, name in zip(words[::2], words[1::2], strict=True):
        path = str(turn.session.cwd / name)
        try:
            match what:
                case "save":
                    await turn.write_file(path, "saved")
                case "load":
                    await turn.read_file(path)
                case "ask":
                    await ask(turn, path)
                case "execute" | "read":
                    await run(turn, what, bytes.fromhex(name).decode())
            told = "done"
        except RemoteError as error:
            told = str((error.data or {}).get("errorClass", error.message))
        except PermissionError:
            told = "rejected"
        await turn.say(f"{what} {name}: {told}\n")


async def ask(turn: Turn, path: str) -> None:
    place = acp.ToolCallLocation(path=path)
    async with turn.tool("Edit it", kind="edit", locations=[place]) as tool:
        bare = acp.ToolCallUpdate(tool_call_id=tool.id, kind="read")
        if not await turn.ask_permission(bare):
            await tool.fail("not allowed")
            raise PermissionError(path)


async def run(turn: Turn, kind: str, line: str) -> None:
    async with turn.tool("git status", kind=kind, raw_input={"command": line}) as tool:
        if not await turn.ask_permission(tool):
            await tool.fail("not allowed")
            raise PermissionError(line)
        for shell in filter(shutil.which, ("bash", "dash")):
            child = await asyncio.create_subprocess_exec(shell, "-c", line, cwd=turn.session.cwd)
            await child.wait()


if __name__ == "__main__":
    agent.run()
