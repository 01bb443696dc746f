"""The bridge as a program: where it serves, and how it says that it cannot."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import connect
from dragoman.transports.process.stream import spawn
from tests.aio import aio
from tests.integration.children import Inbox
from tests.integration.peers import AGENT, ENVIRONMENT, WAIT_TIMEOUT
from tests.unit.rpc.other_side import OtherSide

BRIDGE = [sys.executable, "-m", "dragoman.gateway", "--inherit", "PYTHONPATH"]


@pytest.mark.parametrize("where", ["--unix", "--websocket"])
@aio
async def test_the_bridge_serves_one_client_after_another_on_a_socket(
    where: str, tmp_path: Path
) -> None:
    address = str(tmp_path / "socket") if where == "--unix" else "127.0.0.1:0"
    said: asyncio.Queue[bytes] = asyncio.Queue()
    async with asyncio.timeout(WAIT_TIMEOUT):
        program = await spawn(
            [*BRIDGE, where, address, "--", *AGENT],
            cwd=tmp_path,
            env=ENVIRONMENT,
            on_stderr=said.put_nowait,
        )
        program.start(Inbox())
        try:
            line = (await said.get()).decode()
            found = line.split("listening on ")[1].strip()
            target = found if found.startswith("ws") else f"unix:{found}"
            for _ in range(2):
                async with connect(target, workspace=tmp_path) as peer:
                    async with peer.session() as session:
                        assert (await session.ask("hi")).text == "ask: hi"
        finally:
            await program.aclose()


@aio
async def test_an_agent_that_cannot_be_used_is_said_on_stderr_and_is_the_exit_code(
    tmp_path: Path,
) -> None:
    program = await spawn(
        [*BRIDGE, "--", sys.executable, "-c", "print('Welcome!')"], cwd=tmp_path, env=ENVIRONMENT
    )
    inbox = Inbox()
    program.start(inbox)
    end = await inbox.end()
    assert getattr(end, "exit_code", None) == 1
    assert "exited with code 0 before it answered" in program.stderr_tail()
    assert "Welcome!" in program.stderr_tail()
    assert inbox.bytes == b""
    await program.aclose()


@asynccontextmanager
async def editing(tmp_path: Path, **capabilities: Any) -> AsyncIterator[OtherSide]:
    """An editor that has started the bridge to an agent which wants everything."""
    agent = [sys.executable, "-m", "tests.integration.wanting_agent"]
    async with asyncio.timeout(WAIT_TIMEOUT):
        program = await spawn([*BRIDGE, "--", *agent], env=ENVIRONMENT)
        editor = OtherSide(program)
        program.start(editor)
        try:
            hello = {"protocolVersion": 1, "clientCapabilities": capabilities}
            await ask(editor, 1, "initialize", hello)
            opening = {"cwd": str(tmp_path), "mcpServers": []}
            session = (await ask(editor, 2, "session/new", opening))["sessionId"]
            text = {"type": "text", "text": "go"}
            prompt = {"sessionId": session, "prompt": [text]}
            editor.say({"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": prompt})
            yield editor
        finally:
            await program.aclose()


async def ask(editor: OtherSide, id: int, method: str, params: Any) -> Any:
    editor.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    return (await editor.next())["result"]


async def play(editor: OtherSide, answers: dict[str, Any]) -> tuple[str, list[str]]:
    """What the agent says in its turn, and what it asked the editor for."""
    said = ""
    asked: list[str] = []
    while True:
        message = await editor.next()
        method = message.get("method")
        if method is None:
            assert message["result"] == {"stopReason": "end_turn"}
            return said, asked
        if method == "session/update":
            said += message["params"]["update"]["content"]["text"]
        else:
            asked.append(method)
            editor.answer(message, answers[method])


@aio
async def test_an_editor_serves_the_agent_behind_the_bridge_as_far_as_it_can(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("from disk")
    answers = {
        "fs/read_text_file": {"content": "from the editor"},
        "fs/write_text_file": {},
        "terminal/create": {"terminalId": "t"},
        "terminal/wait_for_exit": {"exitCode": 0},
        "terminal/output": {"output": "made", "truncated": False},
        "terminal/release": {},
        "elicitation/create": {"action": "accept", "content": {"name": "me"}},
    }
    files = {"readTextFile": True, "writeTextFile": True}
    async with editing(tmp_path, fs=files, terminal=True, elicitation={"form": {}}) as editor:
        said, asked = await play(editor, answers)
    assert said == "I want: file from the editor, terminal made, form me"
    assert asked == list(answers)
    assert (tmp_path / "a.txt").read_text() == "from disk"


@aio
async def test_what_an_editor_cannot_is_served_by_the_bridge_or_not_offered(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("from disk")
    async with editing(tmp_path) as editor:
        said, asked = await play(editor, {})
    assert said == "I want: file from disk, no terminal: unsupported, no form: unsupported"
    assert asked == []
    assert (tmp_path / "a.txt").read_text() == "written"


LATE = """
import json, sys

def answer(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)

opening = waiting = None
for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            can = {"sessionCapabilities": {"close": {}}}
            answer(message["id"], {"protocolVersion": 1, "agentCapabilities": can})
        case "session/new":
            opening = message["id"]
        case "_wait_for_close":
            waiting = message["id"]
            answer(opening, {"sessionId": "late"})
        case "session/close":
            answer(message["id"], {})
            answer(waiting, message["params"])
"""
"""An agent that opens a session although the request was cancelled."""


@aio
async def test_a_session_that_opens_after_its_request_was_cancelled_is_closed(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT):
        program = await spawn([*BRIDGE, "--", sys.executable, "-c", LATE], env=ENVIRONMENT)
        editor = OtherSide(program)
        program.start(editor)
        try:
            await ask(editor, 1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            opening = {"cwd": str(tmp_path), "mcpServers": []}
            off = {"requestId": 2}
            editor.say(
                {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": opening},
                {"jsonrpc": "2.0", "method": "$/cancel_request", "params": off},
            )
            assert (await editor.next())["error"]["code"] == -32800
            assert await ask(editor, 3, "_wait_for_close", {}) == {"sessionId": "late"}
        finally:
            await program.aclose()
