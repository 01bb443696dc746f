"""Files and terminals that a client offers to its agent, with the real services behind them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman import Budgets, connect
from dragoman.client.acp import ClientOptions
from dragoman.client.permissions import approve_all
from tests.aio import aio
from tests.unit.client.acp.agent_side import EVERYTHING, opened
from tests.unit.rpc.other_side import soon, turns, until

ELICIT = "elicitation/create"
NOT_FOUND = -32601


@aio
async def test_files_are_read_and_written_in_the_workspace_and_nowhere_else(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "poem.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret.txt").write_text("swordfish")
    (root / "image.bin").write_bytes(b"\xff\xfe\x00")
    async with opened(cwd=root) as (_, agent):

        async def call(method: str, **params: Any) -> Any:
            agent.ask(9, method, {"sessionId": "s1", **params})
            return await agent.heard_answer(9)

        def code(message: Any) -> int:
            assert "swordfish" not in json.dumps(message)
            found: int = message["error"]["code"]
            return found

        read, write = "fs/read_text_file", "fs/write_text_file"
        poem = str(root / "poem.txt")
        assert (await call(read, path=poem))["result"] == {"content": "one\ntwo\nthree\n"}
        assert (await call(read, path=poem, line=2, limit=1))["result"] == {"content": "two\n"}
        assert code(await call(read, path=str(root / "missing.txt"))) == -32002
        assert code(await call(read, path=str(tmp_path / "secret.txt"))) == -32602
        assert code(await call(read, path=f"{root}/../secret.txt")) == -32602
        assert code(await call(read, path="poem.txt")) == -32602
        assert code(await call(read, path=str(root / "image.bin"))) == -32602
        assert code(await call(read, path=poem, line=-1)) == -32602
        assert code(await call(read, path=7)) == -32602
        assert (await call(write, path=str(root / "new.txt"), content="new"))["result"] == {}
        assert (root / "new.txt").read_text() == "new"
        assert code(await call(write, path=str(tmp_path / "secret.txt"), content="x")) == -32602
        assert (tmp_path / "secret.txt").read_text() == "swordfish"
        agent.ask(9, read, {"sessionId": "nobody", "path": poem})
        assert code(await agent.heard_answer(9)) == -32002


@aio
async def test_an_agent_that_waits_for_a_command_of_ours_is_not_silent(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(
        "from dragoman import Agent\n"
        "agent = Agent('waits')\n"
        "@agent.prompt\n"
        "async def run(turn):\n"
        "    await turn.say('it is ')\n"
        "    terminal = await turn.terminal('sleep', ['3'])\n"
        "    await terminal.wait()\n"
        "    await turn.say('done')\n"
        "agent.run()\n"
    )
    opening = connect(
        [sys.executable, str(program)],
        workspace=tmp_path,
        budgets=Budgets(silence=1.0),
        permit=approve_all,
        terminals=True,
    )
    async with opening as peer, peer.session() as session:
        result = await session.ask("run it")
    assert (result.outcome, result.text) == ("ok", "it is done")


@aio
async def test_a_missing_file_may_be_read_as_an_empty_one(tmp_path: Path) -> None:
    options = ClientOptions(missing_file_is_empty=True)
    async with opened(options, cwd=tmp_path) as (_, agent):
        path = str(tmp_path / "missing.txt")
        agent.ask(1, "fs/read_text_file", {"sessionId": "s1", "path": path})
        assert (await agent.heard_answer(1))["result"] == {"content": ""}


@aio
async def test_additional_folders_are_part_of_the_workspace(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two" / "x.txt").write_text("x")
    async with opened(capabilities=EVERYTHING, cwd=tmp_path / "one") as (session, agent):
        agent.replies["session/new"] = {"sessionId": "s2"}
        await session.client.new_session(
            tmp_path / "one", additional_directories=[tmp_path / "two"]
        )
        for session_id, code in (("s1", -32602), ("s2", None)):
            path = str(tmp_path / "two" / "x.txt")
            agent.ask(1, "fs/read_text_file", {"sessionId": session_id, "path": path})
            answer = await agent.heard_answer(1)
            assert (answer["error"]["code"] if code else answer["result"]) == (
                code or {"content": "x"}
            )


@aio
async def test_a_folder_that_is_gone_is_an_internal_error_without_its_name(tmp_path: Path) -> None:
    async with opened(cwd=tmp_path / "gone") as (_, agent):
        path = str(tmp_path / "gone" / "x")
        agent.ask(1, "fs/read_text_file", {"sessionId": "s1", "path": path})
        error = (await agent.heard_answer(1))["error"]
        assert error["code"] == -32603
        assert "gone" not in json.dumps(error)


@pytest.mark.parametrize(
    ("options", "method"),
    [
        (ClientOptions(read_files=False), "fs/read_text_file"),
        (ClientOptions(write_files=False), "fs/write_text_file"),
        (ClientOptions(), "terminal/create"),
        (ClientOptions(), "terminal/output"),
        (ClientOptions(), "terminal/wait_for_exit"),
        (ClientOptions(), "terminal/kill"),
        (ClientOptions(), "terminal/release"),
        (ClientOptions(), ELICIT),
        (ClientOptions(), "session/prompt"),
        (ClientOptions(), "craft/drainMidTurnQueue"),
    ],
)
@aio
async def test_what_is_not_offered_is_not_found(options: ClientOptions, method: str) -> None:
    async with opened(options) as (_, agent):
        agent.ask("x", method, {"sessionId": "s1", "path": "/workspace/x"})
        assert (await agent.heard_answer("x"))["error"]["code"] == NOT_FOUND


@aio
async def test_a_terminal_is_created_watched_killed_and_released(tmp_path: Path) -> None:
    async with opened(ClientOptions(terminals=True), cwd=tmp_path) as (_, agent):

        async def call(method: str, **params: Any) -> Any:
            agent.ask(9, f"terminal/{method}", {"sessionId": "s1", **params})
            return await soon(agent.heard_answer(9))

        created = await call(
            "create",
            command="/bin/sh",
            args=["-c", 'printf "$WORD"; pwd'],
            env=[{"name": "WORD", "value": "hello "}],
            outputByteLimit=1000,
        )
        terminal = created["result"]["terminalId"]
        assert (await call("wait_for_exit", terminalId=terminal))["result"] == {"exitCode": 0}
        assert (await call("output", terminalId=terminal))["result"] == {
            "output": f"hello {tmp_path}\n",
            "truncated": False,
            "exitStatus": {"exitCode": 0},
        }
        assert (await call("release", terminalId=terminal))["result"] == {}
        for method in ("output", "wait_for_exit", "kill", "release"):
            assert (await call(method, terminalId=terminal))["error"]["code"] == -32002

        created = await call("create", command="/bin/sh", args=["-c", "sleep 60"])
        terminal = created["result"]["terminalId"]
        output = (await call("output", terminalId=terminal))["result"]
        assert output == {"output": "", "truncated": False}
        assert (await call("kill", terminalId=terminal))["result"] == {}
        ended = (await call("wait_for_exit", terminalId=terminal))["result"]
        assert ended == {"signal": "SIGTERM"}
        assert (await call("release", terminalId=terminal))["result"] == {}


@aio
async def test_a_command_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    async with opened(ClientOptions(terminals=True), cwd=tmp_path) as (_, agent):
        for params, code in (
            ({"command": "no-such-program-anywhere"}, -32002),
            ({"command": ""}, -32602),
            ({"command": "ls", "cwd": "/"}, -32602),
            ({"command": "ls", "cwd": "relative"}, -32602),
        ):
            agent.ask(1, "terminal/create", {"sessionId": "s1", **params})
            error = (await soon(agent.heard_answer(1)))["error"]
            assert error["code"] == code, (params, error)
            assert error["message"] != "Internal error"


@aio
async def test_closing_a_session_ends_its_commands(tmp_path: Path) -> None:
    async with opened(ClientOptions(terminals=True), cwd=tmp_path) as (session, agent):
        params = {"sessionId": "s1", "command": "/bin/sh", "args": ["-c", "sleep 60"]}
        agent.ask(1, "terminal/create", params)
        terminal = (await soon(agent.heard_answer(1)))["result"]["terminalId"]
        agent.ask(2, "terminal/wait_for_exit", {"sessionId": "s1", "terminalId": terminal})
        await until(lambda: len(session.client.connection.tasks) == 1)
        await turns()
        await soon(session.close())
        assert (await soon(agent.heard_answer(2)))["result"] == {"signal": "SIGTERM"}
