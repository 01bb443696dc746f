"""The bridge as a program: where it serves, and how it says that it cannot."""

from __future__ import annotations

import asyncio
import json
import subprocess
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


DYING = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    result = {"protocolVersion": 1, "agentCapabilities": {}, "sessionId": "s"}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    if message["method"] == "session/new":
        sys.exit("fatal: out of memory")
"""
"""An agent that exits after it has opened a session."""


@pytest.mark.parametrize("where", ["stdio", "--unix", "--websocket"])
@aio
async def test_an_idle_agent_that_exits_is_said_on_stderr_and_is_the_exit_code(
    where: str, tmp_path: Path
) -> None:
    address = str(tmp_path / "socket") if where == "--unix" else "127.0.0.1:0"
    options = [] if where == "stdio" else [where, address]
    said: asyncio.Queue[bytes] = asyncio.Queue()
    async with asyncio.timeout(WAIT_TIMEOUT):
        program = await spawn(
            [*BRIDGE, "--dialect", "acp", *options, "--", sys.executable, "-c", DYING],
            cwd=tmp_path,
            env=ENVIRONMENT,
            on_stderr=said.put_nowait,
        )
        inbox = Inbox()
        program.start(inbox)
        try:
            if where == "stdio":
                program.write(_line(1, "initialize", {"protocolVersion": 1}))
                program.write(_line(2, "session/new", {"cwd": str(tmp_path), "mcpServers": []}))
            else:
                found = (await said.get()).decode().split("listening on ")[1].strip()
                target = found if found.startswith("ws") else f"unix:{found}"
                async with connect(target, workspace=tmp_path) as peer:
                    async with peer.session():
                        await peer.client.connection.wait_ended()
            end = await inbox.end()
        finally:
            await program.aclose()
    assert getattr(end, "exit_code", None) == 1
    message = "dragoman.gateway: the process exited with code 1; last output: fatal: out of memory"
    assert message in program.stderr_tail()


@aio
async def test_a_bridge_whose_editor_leaves_exits_with_success(tmp_path: Path) -> None:
    ended = await asyncio.to_thread(
        subprocess.run,
        [*BRIDGE, "--", *AGENT],
        input=_line(1, "initialize", {"protocolVersion": 1}),
        capture_output=True,
        env=ENVIRONMENT,
        cwd=tmp_path,
        timeout=WAIT_TIMEOUT,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b'"protocolVersion":1' in ended.stdout


LOADED = """
import json, socket, sys

def send(message):
    print(json.dumps(message), flush=True)

def item(number):
    text = f"{number} " + "x" * 4000
    return {"type": "agentMessage", "id": f"a{number}", "text": text}

turns = [{"id": f"u{n}", "status": "completed", "items": [item(n)]} for n in range(200)]
results = {
    "initialize": {"userAgent": "codex/1.0 (test)"},
    "account/read": {"account": None, "requiresOpenaiAuth": False},
    "model/list": {"data": [{"id": "sol", "model": "sol", "displayName": "Sol"}]},
    "thread/resume": {
        "thread": {"id": "t1", "cwd": "/", "turns": turns},
        "cwd": "/",
        "model": "sol",
        "modelProvider": "openai",
        "approvalPolicy": "on-request",
        "sandbox": {"type": "readOnly"},
    },
}
pages = 0
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "thread/list":
        pages += 1
        results["thread/list"] = {"data": [], "nextCursor": str(pages) if pages < 100 else None}
        if pages == 100:
            socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    if "id" in message:
        send({"id": message["id"], "result": results.get(message["method"], {})})
    if message["method"] == "thread/resume":
        name = {"threadId": "t1", "threadName": "A name"}
        send({"method": "thread/name/updated", "params": name})
"""
"""A Codex whose thread has a long history and gets a name right after it is resumed. It connects to
the socket when a caller that lists threads has read that name: the caller asks for the next page.
"""


@aio
async def test_a_title_after_a_long_history_is_not_lost_and_comes_behind_it(tmp_path: Path) -> None:
    named = asyncio.Event()
    path = str(tmp_path / "named")
    agent = [sys.executable, "-c", LOADED, path]

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        named.set()

    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        await asyncio.start_unix_server(connected, path),
    ):
        program = await spawn([*BRIDGE, "--dialect", "codex", "--", *agent], env=ENVIRONMENT)
        editor = OtherSide(program)
        program.start(editor)
        try:
            await ask(editor, 1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            load = {"sessionId": "t1", "cwd": str(tmp_path), "mcpServers": []}
            editor.say({"jsonrpc": "2.0", "id": 2, "method": "session/load", "params": load})
            editor.say({"jsonrpc": "2.0", "id": 3, "method": "session/list", "params": {}})
            # The editor is busy and does not read.
            program.pause_reading()
            await named.wait()
            program.resume_reading()
            said: list[str] = []
            while not said or said[-1] != "A name":
                message = await editor.next()
                assert "error" not in message
                update = message.get("params", {}).get("update", {})
                if update.get("sessionUpdate") == "agent_message_chunk":
                    said.append(update["content"]["text"].split()[0])
                elif update.get("sessionUpdate") == "session_info_update":
                    said.append(update["title"])
        finally:
            await program.aclose()
    assert said == [*map(str, range(200)), "A name"]
    assert program.stderr_tail() == "", "a failed task is in the log"


def _line(id: int, method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + (
        b"\n"
    )


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
