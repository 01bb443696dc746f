"""An agent that does everything the protocol knows, as a program of its own.

The prompt says what to do. It is written with the agent kit only, and the tests that start it
drive it with the client only, so that each side is tried by the other across a real pipe.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman.agent import Agent, Session, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired, RemoteError
from dragoman.wire import codes

agent = Agent(
    "rich",
    version="1.0.0",
    title="Rich",
    modes=[acp.SessionMode(id="code", name="Code"), acp.SessionMode(id="plan", name="Plan")],
    options=[
        acp.SessionConfigSelect(
            id="depth",
            name="Depth",
            current_value="flat",
            options=[
                acp.SessionConfigSelectOption(value="flat", name="Flat"),
                acp.SessionConfigSelectOption(value="deep", name="Deep"),
            ],
        ),
        acp.SessionConfigBoolean(id="loud", name="Loud", current_value=False),
    ],
    auth_methods=[
        acp.AuthMethodAgent(id="door", name="Door"),
        acp.AuthMethodTerminal(id="tty", name="Terminal", args=["login"]),
    ],
    image=True,
    audio=True,
    embedded_context=True,
    mcp_http=True,
    mcp_sse=True,
    additional_directories=True,
)

logged_in = True
stored = {"old": "/old", "older": "/older"}
called_off = asyncio.Event()

UPDATES: list[acp.SessionUpdate] = [
    acp.UserMessageChunk(content=acp.TextContent(text="what you said")),
    acp.AgentThoughtChunk(content=acp.TextContent(text="hm"), message_id="m1"),
    acp.AgentMessageChunk(content=acp.ImageContent(data="AA==", mime_type="image/png")),
    acp.ToolCall(
        tool_call_id="c1",
        title="Edit",
        kind="edit",
        status="pending",
        content=[acp.Diff(path="/x", old_text="a", new_text="b")],
        locations=[acp.ToolCallLocation(path="/x", line=3)],
        raw_input={"path": "/x"},
    ),
    acp.ToolCallProgress(
        tool_call_id="c1",
        status="completed",
        content=[
            acp.Content(content=acp.TextContent(text="done")),
            acp.Terminal(terminal_id="t1"),
        ],
        raw_output=[1, None],
    ),
    acp.Plan(entries=[acp.PlanEntry(content="Look", priority="high", status="in_progress")]),
    acp.AvailableCommandsUpdate(
        available_commands=[
            acp.AvailableCommand(
                name="go", description="Go", input=acp.UnstructuredCommandInput(hint="where")
            )
        ]
    ),
    acp.CurrentModeUpdate(current_mode_id="plan"),
    acp.ConfigOptionUpdate(
        config_options=[acp.SessionConfigBoolean(id="loud", name="Loud", current_value=True)]
    ),
    acp.SessionInfoUpdate(title="A title", updated_at=None),
    acp.UsageUpdate(used=7, size=100, cost=acp.Cost(amount=0.25, currency="USD")),
    acp.Notice(severity="warning", title="Careful", description="hot"),
    acp.CompactionUpdate(compaction_id="k1", status="in_progress"),
    acp.CompactionSummaryChunk(compaction_id="k1", content=acp.TextContent(text="short")),
    acp.UnknownUpdate(raw={"sessionUpdate": "mood_update", "mood": "good"}),
]
"""One update of each kind, and one of a kind that does not exist yet."""


# -- logging in, and sessions


@agent.authenticate
async def log_in(method_id: str) -> None:
    global logged_in
    logged_in = True


@agent.logout
async def log_out() -> None:
    global logged_in
    logged_in = False


@agent.new_session
async def new(session: Session) -> None:
    if not logged_in:
        raise AuthRequired("Authentication required")


@agent.load_session
async def load(session: Session, replay: Turn) -> None:
    if session.id not in stored:
        raise RemoteError(codes.NOT_FOUND, "there is no such session")
    await replay.echo("earlier question")
    await replay.say("earlier answer")


@agent.resume_session
async def resume(session: Session) -> None:
    session.state.resumed = True


@agent.list_sessions
async def listing(request: acp.ListSessionsRequest) -> acp.ListSessionsResponse:
    found = [acp.SessionInfo(session_id=id, cwd=cwd) for id, cwd in sorted(stored.items())]
    first = int(request.cursor or 0)
    more = str(first + 1) if first + 1 < len(found) else None
    return acp.ListSessionsResponse(sessions=found[first : first + 1], next_cursor=more)


@agent.delete_session
async def delete(session_id: str) -> None:
    stored.pop(session_id, None)


@agent.close_session
async def close(session: Session) -> None:
    stored[session.id] = str(session.cwd)


@agent.extension("_rich/slow")
async def slow(params: Any) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        called_off.set()


@agent.extension("_rich/called_off")
async def wait_called_off(params: Any) -> str:
    await called_off.wait()
    return "slow"


# -- prompts


@agent.command("go", "Go", hint="where")
async def go(turn: Turn, where: str) -> None:
    await turn.say(f"went to {where}")


@agent.prompt
async def answer(turn: Turn) -> str | None:
    scene, _, rest = turn.text.partition(" ")
    match scene:
        case "updates":
            for update in UPDATES:
                await turn.update(update)
        case "blocks":
            await turn.say(",".join(type(block).__name__ for block in turn.prompt))
        case "settings":
            session = turn.session
            await turn.say(f"{session.mode} {session.options['depth']} {session.options['loud']}")
        case "permission":
            async with turn.tool("Remove it", kind="delete", status="pending") as tool:
                allowed = await turn.ask_permission(tool)
            await turn.say(f"allowed: {allowed}")
        case "files":
            text = await turn.read_file(rest, line=2, limit=1)
            await turn.write_file(rest, text.upper())
            await turn.say(text)
        case "terminal":
            await use_terminals(turn)
        case "elicit":
            await elicit(turn)
        case "withdraw":
            await withdraw(turn)
        case "hang":
            await turn.say("hanging")
            await asyncio.Event().wait()
        case _:
            await turn.say(turn.text)
            return "max_tokens"
    return None


async def use_terminals(turn: Turn) -> None:
    async with await turn.terminal("/bin/sh", ["-c", "echo $WORD"], env={"WORD": "hi"}) as terminal:
        status = await terminal.wait()
        output = await terminal.output()
        await turn.say(f"{status.exit_code} {output.output}")
    async with await turn.terminal("/bin/sh", ["-c", "sleep 60"]) as terminal:
        await terminal.kill()
        status = await terminal.wait()
        await turn.say(str(status.signal))


async def elicit(turn: Turn) -> None:
    schema = acp.ElicitationSchema(
        properties={"name": acp.StringPropertySchema(title="Name")}, required=["name"]
    )
    form = await turn.client.ask_form("Who are you?", schema)
    name = (form.content or {}).get("name") if isinstance(form, acp.ElicitationAccepted) else None
    url = await turn.client.ask_url("Look", "https://example.org/", elicitation_id="e1")
    if isinstance(url, acp.ElicitationAccepted):
        await turn.client.elicitation_done("e1")
    await turn.say(f"{name} {type(url).__name__}")


async def withdraw(turn: Turn) -> None:
    """Ask, think better of it, and go on."""
    try:
        async with asyncio.timeout(0.05):
            await turn.ask_permission("May I?")
    except TimeoutError:
        await turn.say("never mind")


if __name__ == "__main__":
    agent.run()
