"""An agent written with dragoman, as a program: the peer of the official SDKs' clients.

It plays the scenes of `script`. With DRAGOMAN_TRACE in its environment it writes a trace of the
wire, which the tests check with the official models and schema.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from dragoman.agent import Agent, Turn
from dragoman.agent.session import Session
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired, RemoteError
from dragoman.wire import codes
from tests.interop import script

agent = Agent(
    "scripted",
    version="1",
    title="Scripted",
    modes=[acp.SessionMode(id="ask", name="Ask"), acp.SessionMode(id="plan", name="Plan")],
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
    auth_methods=[acp.AuthMethodAgent(id="door", name="Door", description="Knock")],
    image=True,
    audio=True,
    embedded_context=True,
    mcp_http=True,
    mcp_sse=True,
    additional_directories=True,
)

logged_in = False
known: dict[str, str] = {}
told: list[Any] = []


@agent.authenticate
async def log_in(method_id: str) -> None:
    global logged_in
    logged_in = True


@agent.logout
async def log_out() -> None:
    global logged_in
    logged_in = False


@agent.new_session
async def opened(session: Session) -> None:
    if session.cwd.name == script.LOCKED and not logged_in:
        raise AuthRequired("the folder is locked")
    known[session.id] = str(session.cwd)


@agent.load_session
async def load(session: Session, replay: Turn) -> None:
    if session.id not in known:
        raise RemoteError(codes.NOT_FOUND, "there is no such session")
    await replay.echo("earlier")
    await replay.say("later")


@agent.resume_session
async def resume(session: Session) -> None:
    if session.id not in known:
        raise RemoteError(codes.NOT_FOUND, "there is no such session")


@agent.list_sessions
async def sessions(request: acp.ListSessionsRequest) -> acp.ListSessionsResponse:
    number = int(request.cursor or 0)
    ids = list(known)
    following = number + 1
    return acp.ListSessionsResponse(
        sessions=[
            acp.SessionInfo(
                session_id=ids[number],
                cwd=known[ids[number]],
                title=f"Session {number}",
                updated_at="2026-01-02T03:04:05Z",
            )
        ],
        next_cursor=str(following) if following < len(ids) else None,
    )


@agent.delete_session
async def delete(session_id: str) -> None:
    known.pop(session_id, None)


@agent.extension("_test/double")
async def double(params: Any) -> Any:
    return {"doubled": params["number"] * 2}


@agent.extension("_test/slow")
async def slow(params: Any) -> Any:
    told.append(["slow", "begun"])
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        told.append(["slow", "cancelled"])
        raise


@agent.extension_notification("_test/told")
async def tell(params: Any) -> None:
    told.append(["test/told", params])


@agent.command("shout", "say it loudly", hint="what to say")
async def shout(turn: Turn, words: str) -> None:
    await turn.say(words.upper())


@agent.prompt
async def prompt(turn: Turn) -> Any:
    first = turn.prompt[0]
    assert isinstance(first, acp.TextContent)
    return await globals()[f"play_{first.text}"](turn)


async def play_where(turn: Turn) -> None:
    session = turn.session
    await turn.say(
        json.dumps(
            {
                "cwd": str(session.cwd),
                "folders": [str(folder) for folder in session.additional_directories],
                "servers": [
                    server.name
                    for server in session.mcp_servers
                    if not isinstance(server, acp.UnknownMcpServer)
                ],
            }
        )
    )


async def play_settings(turn: Turn) -> None:
    options = turn.session.options
    await turn.say(json.dumps([turn.session.mode, options["depth"], options["loud"]]))


async def play_content(turn: Turn) -> None:
    for block in turn.prompt:
        await turn.say(block)


async def play_updates(turn: Turn) -> None:
    for update in script.UPDATES:
        wanted = {"notice": "session.notices"}.get(update["sessionUpdate"])
        if "compactionId" in update:
            wanted = "session.compaction"
        if wanted is None or turn.client.can(wanted):
            await turn.update(acp.convert(update, acp.SessionUpdate))


async def play_shorthands(turn: Turn) -> acp.PromptResponse:
    """Every update again, by the methods that authors use."""
    await turn.echo("asked")
    await turn.think("thought", message_id="m2")
    await turn.plan(["look", acp.PlanEntry(content="do", priority="low", status="completed")])
    await turn.usage(1, 2, acp.Cost(amount=1.5, currency="credits"))
    await turn.commands([acp.AvailableCommand(name="help", description="help")])
    await turn.mode("plan")
    await turn.title("Named")
    await turn.title(None)
    await turn.notice("Mind", severity="warning", description="the gap")
    async with turn.tool("Edit", kind="edit", locations=["/w/a.py"], raw_input={"a": 1}) as tool:
        await tool.add("working")
        await tool.diff("/w/a.py", "new", "old")
        await tool.update(raw_output=[1, None, "x"])
    try:
        async with turn.tool("Break"):
            raise RuntimeError("broken on purpose")
    except RuntimeError:
        pass
    return acp.PromptResponse(stop_reason="max_tokens")


async def play_cancel(turn: Turn) -> None:
    await turn.say("waiting")
    try:
        await asyncio.Event().wait()
    finally:
        await turn.say("stopped")


async def play_files(turn: Turn) -> None:
    folder = turn.session.cwd
    path = str(folder / "made.txt")
    await turn.write_file(path, script.FILE_TEXT)
    whole = await turn.read_file(path)
    part = await turn.read_file(path, line=2, limit=1)
    try:
        await turn.read_file(str(folder / "missing.txt"))
        code = 0
    except RemoteError as error:
        code = error.code
    await turn.say(json.dumps([whole, part, code]))


async def play_terminals(turn: Turn) -> None:
    command, args = script.HELLO
    folder = str(turn.session.cwd)
    async with await turn.terminal(
        command, args, cwd=folder, env={"GREETED": "world"}, output_byte_limit=1000
    ) as terminal:
        ended = await terminal.wait()
        output = await terminal.output()
    command, args = script.ENDLESS
    async with await turn.terminal(command, args) as endless:
        running = await endless.output()
        await endless.kill()
        killed = await endless.wait()
    await turn.say(
        json.dumps(
            {
                "output": output.output,
                "truncated": output.truncated,
                "code": ended.exit_code,
                "running": running.exit_status is None,
                "killed": killed.signal is not None or killed.exit_code not in (0, None),
            }
        )
    )


async def play_permission(turn: Turn) -> None:
    options = [
        acp.PermissionOption(option_id="no", name="No", kind="reject_once"),
        acp.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    ]
    answers = []
    for title in ("Allowed", "Forbidden"):
        async with turn.tool(title, kind="execute", status="pending") as tool:
            chosen = await tool.permission(options)
        answers.append(None if chosen is None else chosen.option_id)
    await turn.say(json.dumps(answers))


async def play_elicitation(turn: Turn) -> None:
    form = await turn.client.ask_form(
        "Who are you?", acp.convert(script.FORM, acp.ElicitationSchema)
    )
    url = await turn.client.ask_url("Go there", "https://example.com/go", elicitation_id="e1")
    await turn.client.elicitation_done("e1")
    await turn.say(json.dumps([json.loads(acp.encode(answer)) for answer in (form, url)]))


async def play_extensions(turn: Turn) -> None:
    answer = await turn.client.call_extension("_test/ask", {"number": 20})
    await turn.client.notify_extension("_test/told", {"number": 21})
    await turn.say(json.dumps({"answer": answer, "told": told}))


if __name__ == "__main__":
    agent.run()
