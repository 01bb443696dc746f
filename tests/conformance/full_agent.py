"""An agent with every handler of the agent kit, for the checks.

It answers from a script instead of a model. It stores its sessions as files in the directory given
as its first argument, so that another process can load them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from dragoman.agent import Agent, Session, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError
from dragoman.wire import codes

STORE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()

agent = Agent(
    "full-agent",
    version="1.0",
    title="An agent with everything",
    modes=[acp.SessionMode(id="ask", name="Ask"), acp.SessionMode(id="code", name="Code")],
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
        ),
        acp.SessionConfigBoolean(id="verbose", name="Verbose", current_value=False),
    ],
    auth_methods=[
        acp.AuthMethodAgent(id="own", name="Log in"),
        acp.AuthMethodTerminal(id="terminal", name="Log in here", args=["login"]),
    ],
    image=True,
    embedded_context=True,
    additional_directories=True,
)


def file_of(session_id: str) -> Path:
    return STORE / f"{session_id}.json"


def remembered(session_id: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file_of(session_id).read_text("utf-8"))
    except (OSError, ValueError):
        raise RemoteError(codes.NOT_FOUND, "there is no such session") from None
    return found


def remember(session_id: str, cwd: str, said: list[list[str]]) -> None:
    file_of(session_id).write_text(json.dumps({"cwd": cwd, "said": said}), "utf-8")


@agent.new_session
def begin(session: Session) -> None:
    remember(session.id, str(session.cwd), [])


@agent.prompt
async def answer(turn: Turn) -> str | None:
    if turn.text.startswith("Count"):
        await turn.say("one\n")
        await asyncio.Event().wait()
    await turn.think("What could be meant?")
    await turn.plan(["Think", "Answer"])
    async with turn.tool("Look at nothing", kind="read", locations=["/somewhere/nothing"]) as tool:
        await tool.diff("/somewhere/nothing", "something\n")
    await turn.usage(10, 1000)
    await turn.say("OK")
    stored = remembered(turn.session.id)
    remember(turn.session.id, stored["cwd"], [*stored["said"], [turn.text, "OK"]])
    return None


@agent.load_session
async def load(session: Session, replay: Turn) -> None:
    for asked, answered in remembered(session.id)["said"]:
        await replay.echo(asked)
        await replay.say(answered)


@agent.resume_session
def resume(session: Session) -> None:
    remembered(session.id)


@agent.list_sessions
def sessions(request: acp.ListSessionsRequest) -> list[acp.SessionInfo]:
    if request.cursor is not None:
        raise RemoteError(codes.INVALID_PARAMS, "there is no such page")
    found = [(path.stem, json.loads(path.read_text("utf-8"))) for path in STORE.glob("*.json")]
    return [
        acp.SessionInfo(session_id=id, cwd=entry["cwd"])
        for id, entry in found
        if request.cwd in (None, entry["cwd"])
    ]


@agent.close_session
def close(session: Session) -> None:
    pass


@agent.delete_session
def delete(session_id: str) -> None:
    file_of(session_id).unlink(missing_ok=True)


@agent.set_mode
def set_mode(session: Session, mode_id: str) -> None:
    pass


@agent.set_option
def set_option(session: Session, option_id: str, value: str | bool) -> None:
    pass


@agent.authenticate
def authenticate(method_id: str) -> None:
    pass


@agent.logout
def logout() -> None:
    pass


@agent.command("again", "Say it again", hint="what")
async def again(turn: Turn, what: str) -> None:
    await turn.say(what)


@agent.extension("_full/ping")
async def ping(params: Any) -> Any:
    return params


if __name__ == "__main__":
    agent.run()
