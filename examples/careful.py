"""An agent that asks before it acts: it writes what it is told into note.txt of the workspace.

Try it with: dragoman run "was here" -- python examples/careful.py
"""

from __future__ import annotations

from dragoman import Agent, Turn

agent = Agent("careful", version="1.0.0")


@agent.prompt
async def take_note(turn: Turn) -> None:
    note = str(turn.session.cwd / "note.txt")
    async with turn.tool("Write note.txt", kind="edit") as tool:
        await tool.diff(note, turn.text)
        if await tool.permission():
            await turn.write_file(note, turn.text)
            await turn.say("Written.")
        else:
            await turn.say("Not written.")


agent.run()
