"""A peer behind the door, as a program of its own: the prompt says what to do.

``door_agent.py NAME`` calls itself NAME. It forgets its sessions when it ends.
"""

from __future__ import annotations

import asyncio
import json
import sys

from dragoman.agent import Agent, Session, Turn
from dragoman.dialects.acp import v1 as acp

NAME = sys.argv[1]

agent = Agent(
    NAME,
    options=[
        acp.SessionConfigSelect(
            id="model",
            name="Model",
            category="model",
            current_value="small",
            options=[
                acp.SessionConfigSelectOption(value="small", name="Small"),
                acp.SessionConfigSelectOption(value="large", name="Large"),
            ],
        )
    ],
    embedded_context=True,
    additional_directories=NAME == "left",
)

known: dict[str, list[str]] = {}


@agent.new_session
async def new(session: Session) -> None:
    known[session.id] = []


@agent.prompt
async def answer(turn: Turn) -> None:
    said = known[turn.session.id]
    said.append(turn.text)
    word, _, rest = turn.text.partition(" ")
    match word:
        case "brief":
            for block in turn.blocks(acp.EmbeddedResource):
                if isinstance(block.resource, acp.TextResourceContents):
                    await turn.say(block.resource.text)
        case "count":
            for number in range(int(rest)):
                await turn.say(f"{number} ")
        case "wait":
            await turn.say("waiting")
            await asyncio.Event().wait()
        case "write":
            async with turn.tool("Write it", kind="edit", locations=[rest]) as tool:
                await turn.say("written" if await turn.ask_permission(tool) else "not written")
        case "notice":
            await turn.notice("Careful", description="it is hot")
            await turn.say("noticed")
        case "form":
            answer = await turn.client.ask_form("which?", acp.ElicitationSchema(properties={}))
            await turn.say(type(answer).__name__)
        case "kimi":
            asked, *written = rest.split()
            await like_kimi(turn, asked, written)
        case "model":
            await turn.say(str(turn.session.options["model"]))
        case "folders":
            await turn.say(" ".join(str(path) for path in turn.session.roots))
        case "known":
            await turn.say(", ".join(said))
        case _:
            await turn.say(f"{NAME} heard {turn.text}")


async def like_kimi(turn: Turn, asked: str, written: list[str]) -> None:
    """Do as Kimi Code does: the input stands as text in the announcement, the question has neither
    input nor path, and the path is told under the same id when the tool runs."""
    block = acp.TextContent(text=json.dumps({"path": asked, "content": "x"}))
    call = acp.ToolCall(
        tool_call_id="1:call",
        title="Write",
        kind="edit",
        status="pending",
        content=[acp.Content(content=block)],
    )
    await turn.update(call)
    asking = acp.TextContent(text=f"Requesting approval to Writing {asked}")
    question = acp.ToolCallUpdate(
        tool_call_id="1:call", title="Write", kind="edit", content=[acp.Content(content=asking)]
    )
    if not await turn.ask_permission(question):
        await turn.say("not written")
        return
    await turn.update(
        acp.ToolCallProgress(
            tool_call_id="1:call",
            status="in_progress",
            locations=[acp.ToolCallLocation(path=path) for path in written],
        )
    )
    for path in written:
        await turn.write_file(path, "x")
    await turn.update(acp.ToolCallProgress(tool_call_id="1:call", status="completed"))
    await turn.say("written")


if __name__ == "__main__":
    agent.run()
