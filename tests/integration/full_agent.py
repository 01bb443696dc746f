"""An agent that does everything once: a real child process for tests of conversations and bridges.

The prompt says what to do: its first word names one of the functions below.
"""

from __future__ import annotations

import asyncio
import os

from dragoman.agent import Agent, Turn
from dragoman.agent.session import Session
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired, RemoteError

agent = Agent(
    "full",
    version="7.1",
    title="The full agent",
    modes=[acp.SessionMode(id="ask", name="Ask"), acp.SessionMode(id="code", name="Code")],
    options=[
        acp.SessionConfigSelect(
            id="depth",
            name="Depth",
            current_value="low",
            options=[
                acp.SessionConfigSelectOption(value="low", name="Low"),
                acp.SessionConfigSelectOption(value="high", name="High"),
            ],
        ),
        acp.SessionConfigBoolean(id="fast", name="Fast", current_value=False),
    ],
    auth_methods=[acp.AuthMethodAgent(id="login", name="Log in")],
    image=True,
)

KEPT = "kept-session"


@agent.new_session
async def new_session(session: Session) -> None:
    if session.cwd.name == "locked":
        raise AuthRequired("log in first")


@agent.load_session
async def load_session(session: Session, replay: Turn) -> None:
    if session.id != KEPT:
        raise RemoteError(-32002, "there is no such session")
    await replay.echo("an old question")
    await replay.think("hm")
    await replay.say("an old answer")
    async with replay.tool("Old tool", kind="read"):
        pass


@agent.resume_session
async def resume_session(session: Session) -> None:
    if session.id != KEPT:
        raise RemoteError(-32002, "there is no such session")


@agent.list_sessions
async def list_sessions(request: acp.ListSessionsRequest) -> list[acp.SessionInfo]:
    return [acp.SessionInfo(session_id=KEPT, cwd="/kept", title="Kept", updated_at="2026-01-01")]


@agent.delete_session
async def delete_session(session_id: str) -> None:
    if session_id != KEPT:
        raise RemoteError(-32002, "there is no such session")


@agent.authenticate
async def authenticate(method_id: str) -> None:
    pass


@agent.logout
async def logout() -> None:
    pass


@agent.prompt
async def answer(turn: Turn) -> str | None:
    word, _, rest = turn.text.partition(" ")
    match word:
        case "everything":
            await everything(turn)
        case "permission":
            allowed = await turn.ask_permission(rest or "Dig")
            await turn.say("allowed" if allowed else "refused")
        case "many":
            options = [
                acp.PermissionOption(option_id="a", name="This tool", kind="allow_always"),
                acp.PermissionOption(option_id="b", name="This server", kind="allow_always"),
                acp.PermissionOption(option_id="n", name="No", kind="reject_once"),
            ]
            call = acp.ToolCallUpdate(tool_call_id="many-1", title="Many")
            chosen = await turn.client.permission(call, options)
            await turn.say("none" if chosen is None else chosen.option_id)
        case "denied":
            async with turn.tool("Write", kind="edit", status="pending") as tool:
                if not await tool.permission():
                    await tool.fail()
        case "wait":
            await turn.say("waiting")
            try:
                await asyncio.Event().wait()
            finally:
                await turn.say(" stopped")
        case "die":
            await turn.say("dying")
            await turn.client.permission(acp.ToolCallUpdate(tool_call_id="d", title="Die"))
            os._exit(3)
        case "refuse":
            return "refusal"
        case "fail":
            raise RemoteError(-32603, "broken", {"details": "on purpose"})
        case "mode":
            await turn.mode("code")
        case "count":
            for number in range(int(rest)):
                await turn.say(f"{number} ")
        case "read":
            await turn.say(await turn.read_file(rest))
        case "silence":
            return None
        case _:
            await turn.say(f"{turn.session.mode}: {turn.text}")
    return None


async def everything(turn: Turn) -> None:
    await turn.think("Let me see.")
    await turn.plan(
        [
            acp.PlanEntry(content="Look", priority="high", status="in_progress"),
            acp.PlanEntry(content="Write", priority="low", status="pending"),
        ]
    )
    async with turn.tool("Edit", kind="edit", locations=["/w/a.txt"], raw_input={"n": 1}) as tool:
        await tool.add("editing")
        await tool.diff("/w/a.txt", "new\n", "old\n")
    await turn.say("Hello ", message_id="m1")
    await turn.say(acp.ImageContent(data="aGk=", mime_type="image/png"), message_id="m1")
    await turn.say("world.", message_id="m1")
    await turn.usage(10, 100, acp.Cost(amount=0.5, currency="USD"))
    await turn.commands([acp.AvailableCommand(name="go", description="Go")])
    await turn.title("A title")
    await turn.notice("Look out", severity="warning")
    await turn.option("depth", "high")
    await turn.update(acp.CompactionUpdate(compaction_id="c", status="completed"))


if __name__ == "__main__":
    agent.run()
