"""An agent made with the agent kit that does everything in every turn, as a program.

Whatever a client of a dialect can be told or asked is told and asked, so that the types of its
document can be checked.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman.agent import Agent, Session, Turn
from dragoman.dialects.acp import v1 as acp

agent = Agent(
    "my-coding-agent",
    version="1.0.0",
    title="My agent",
    image=True,
    audio=True,
    embedded_context=True,
    mcp_http=True,
    mcp_sse=True,
    modes=[acp.SessionMode(id="code", name="Code"), acp.SessionMode(id="plan", name="Plan")],
    auth_methods=[
        acp.AuthMethodAgent(id="password", name="Password"),
        acp.AuthMethodAgent(id="oauth", name="OAuth"),
    ],
)


@agent.prompt
async def answer(turn: Turn) -> None:
    if turn.text == "wait":
        await turn.say("waiting")
        await asyncio.Event().wait()
    await turn.think("First, I need to consider...")
    await turn.plan(["Look", "Edit", "Test"])
    async with turn.tool("read_file", kind="read", raw_input={"path": "file.go"}) as tool:
        await tool.add("file contents...")
    async with turn.tool("Edit c.py", kind="edit", locations=["/project/c.py"]) as tool:
        # The other dialects have no permissions.
        if turn.client.can("terminal"):
            await turn.ask_permission(tool)
        await tool.diff("/project/c.py", "return\n", "pass\n")
    async with turn.tool("Run", kind="execute") as tool:
        await tool.fail("no such file")
    if turn.client.can("fs.readTextFile"):
        path = str(turn.session.cwd / "c.py")
        await turn.write_file(path, await turn.read_file(path, line=1, limit=10))
    if turn.client.can("terminal"):
        run = await turn.terminal("echo", ["hi"], cwd=str(turn.session.cwd), env={"A": "1"})
        async with run as terminal:
            await terminal.wait()
            await terminal.output()
            await terminal.kill()
    if turn.session.mode == "plan":
        await turn.mode("code")
    await turn.say("Processing your request...\n")
    await turn.say("I've read the file and...")
    turn.tokens(1234, 5678)


@agent.command("search", "Search")
async def search(turn: Turn, input: str) -> None:
    await turn.say(f"searching {input}")


@agent.command("fix", "Fix")
async def fix(turn: Turn, input: str) -> None:
    await turn.say("fixed")


@agent.load_session
async def load_session(session: Session, replay: Turn) -> None:
    await replay.echo("Does it build?")
    await replay.say("It builds.")


@agent.list_sessions
async def list_sessions(request: acp.ListSessionsRequest) -> list[acp.SessionInfo]:
    updated = "2024-01-15T10:30:00Z"
    return [acp.SessionInfo(session_id="s1", cwd="/", title="Session title", updated_at=updated)]


@agent.authenticate
async def authenticate(method: Any) -> None:
    assert method.password or method.token


if __name__ == "__main__":
    agent.run()
