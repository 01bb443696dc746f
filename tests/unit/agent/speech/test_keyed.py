"""An agent that serves a client of the keyed dialect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.agent import Agent, Session, Turn
from dragoman.agent.speech.keyed import Login
from dragoman.dialects.acp import v1 as acp
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.agent.speech.client_of_document import DocumentClient, make_agent, served
from tests.unit.rpc.other_side import until

EXAMPLES = load("keyed")


async def opened(client: DocumentClient) -> str:
    await client.play(EXAMPLES["initialize"])
    session: str = (await client.play(EXAMPLES["new"]))["sessionId"]
    return session


def prompt(session: str, text: str) -> dict[str, Any]:
    return {"sessionId": session, "content": [{"type": "text", "text": text}]}


@aio
async def test_the_documents_conversation_is_answered() -> None:
    async with served() as client:
        hello = await client.play(EXAMPLES["initialize"])
        assert hello == {
            "protocolVersion": 1,
            "agentInfo": {"name": "my-coding-agent", "version": "1.0.0"},
            "agentCapabilities": {"modes": True, "plan": True},
            "authMethods": ["none"],
        }
        session = await client.play(EXAMPLES["new"])
        assert session["currentModeId"] == "plan"
        assert session["modes"] == [{"id": "code", "name": "Code"}, {"id": "plan", "name": "Plan"}]
        body = {**EXAMPLES["prompt"].body, "sessionId": session["sessionId"]}
        body["content"] = [body["content"][0], body["content"][1]]
        assert await client.call("session/prompt", body) == {"stopReason": "end_turn"}
        chunk = client.told[-1][1]["contentChunk"]
        assert chunk == {"id": "part-1", "index": 0, "delta": "You said: Fix the bug and 1"}


@aio
async def test_a_model_is_an_option_of_an_agent_that_offers_it_as_one() -> None:
    known = [acp.SessionConfigSelectOption(value=v, name=v) for v in ("house/small", "house/large")]
    option = acp.SessionConfigSelect(
        id="model", name="Model", category="model", current_value="house/small", options=known
    )
    agent = Agent("a", options=[option])
    models: list[Any] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        models.append(turn.session.options["model"])

    async with served(agent) as client:
        await client.play(EXAMPLES["initialize"])
        for model in ("large", "unknown"):
            named = {"providerID": "house", "modelID": model}
            session = (await client.call("session/new", {"cwd": "/w", "model": named}))["sessionId"]
            await client.call("session/prompt", prompt(session, "x"))
    assert models == ["house/large", "house/small"]


@aio
async def test_every_block_of_the_document_reaches_the_agent() -> None:
    agent = Agent("reader", image=True, audio=True, embedded_context=True)
    kinds: list[str] = []
    servers: list[Any] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        kinds.extend(type(block).__name__ for block in turn.prompt)
        servers.extend(turn.session.mcp_servers)
        assert turn.session.meta == {"model": "anthropic/large"}

    async with served(agent) as client:
        await client.play(EXAMPLES["initialize"])
        new = {k: v for k, v in EXAMPLES["new"].body.items() if k != "modeId"}
        session = (await client.call("session/new", new))["sessionId"]
        await client.call("session/prompt", {**EXAMPLES["prompt"].body, "sessionId": session})
    assert kinds == [
        "TextContent",
        "ImageContent",
        "AudioContent",
        "ResourceLink",
        "EmbeddedResource",
    ]
    assert isinstance(servers[0], acp.McpServerStdio) and servers[0].command == "mcp-files"
    assert isinstance(servers[1], acp.McpServerHttp) and servers[1].headers[0].name == "X-Team"


@aio
async def test_tools_diffs_and_plans_are_keyed() -> None:
    async with served() as client:
        session = await opened(client)
        await client.call("session/prompt", prompt(session, "tools"))
        updates = [params for method, params in client.told if method == "session/update"]
        assert all(update["sessionId"] == session for update in updates)
        plan = next(u["plan"] for u in updates if "plan" in u)
        assert plan["steps"][0] == {"title": "Look", "status": "pending"}
        calls = [u["toolCall"] for u in updates if "toolCall" in u]
        assert calls[0]["kind"] == "edit" and calls[0]["status"] == "in_progress"
        diffs = [c["diff"] for c in calls if "diff" in c]
        assert diffs[0] == {
            "path": "/project/c.py",
            "oldContent": "pass\n",
            "newContent": "return\n",
        }
        assert calls[-1]["status"] == "completed"


@aio
async def test_a_session_is_loaded_with_a_replay_before_the_answer() -> None:
    agent = make_agent()

    @agent.load_session
    async def load_session(session: Session, replay: Turn) -> None:
        await replay.say("Looking")

    async with served(agent) as client:
        await client.play(EXAMPLES["initialize"])
        loaded = await client.play({**EXAMPLES}["load"])
        assert loaded["sessionId"] == "ses_1" and loaded["currentModeId"] == "code"
        methods = [m.get("method") for m in client.heard]
        assert methods[-2:] == ["session/update", None]
        assert (await client.call("session/prompt", prompt("ses_1", "x")))["stopReason"]


@aio
async def test_modes_are_switched_and_unknown_ones_refused() -> None:
    async with served() as client:
        session = await opened(client)
        mode = {"sessionId": session, "modeId": "code"}
        assert await client.call("session/set_mode", mode) is None
        wrong = {"sessionId": session, "modeId": "dance"}
        assert (await client.refused("session/set_mode", wrong))["code"] == -32602


@aio
async def test_a_cancel_is_understood_as_a_notification_and_as_a_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for as_request in (False, True):
        async with served() as client:
            session = await opened(client)
            id = client.send("session/prompt", prompt(session, "wait"))
            await until(lambda client=client: bool(client.told))  # type: ignore[misc]
            message = {"jsonrpc": "2.0", "method": "session/cancel", "params": {}}
            client.say(message)
            message["params"] = {"sessionId": session}
            client.say({**message, "id": 99} if as_request else message)
            assert (await client.answered(id))["result"] == {"stopReason": "cancelled"}
            assert "a session/cancel could not be decoded: " in caplog.text
            caplog.clear()


@aio
async def test_a_secret_reaches_only_the_login_handler() -> None:
    agent = make_agent()
    agent.auth_methods = (acp.AuthMethodAgent(id="password", name="Password"),)
    logins: list[Login] = []

    @agent.authenticate
    async def login(method: str) -> None:
        assert isinstance(method, Login)
        logins.append(method)

    async with served(agent) as client:
        hello = await client.play(EXAMPLES["initialize"])
        assert hello["authMethods"] == ["password"]
        assert await client.play(EXAMPLES["password"]) is None
        assert (await client.refused("authenticate", {"method": "oauth"}))["code"] == -32602
    assert [(str(each), each.password, each.token) for each in logins] == [
        ("password", "open sesame", None)
    ]


def asking_agent() -> Agent:
    agent = Agent("asker")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        if turn.text == "permission":
            async with turn.tool("Edit c.py", kind="edit", tool_call_id="call_1") as tool:
                await tool.add("a diff")
                await turn.say(str(await turn.ask_permission(tool)))
        elif turn.text == "files":
            text = await turn.read_file("/project/c.py", line=1, limit=10)
            await turn.write_file("/project/c.py", text.upper())
        else:
            async with await turn.terminal(
                "echo", ["hi"], env={"A": "1"}, cwd="/project", output_byte_limit=1024
            ) as terminal:
                ended = await terminal.wait()
                shown = await terminal.output()
                await terminal.kill()
            status = shown.exit_status
            await turn.say(f"{shown.output}{ended.exit_code}{status and status.exit_code}")

    return agent


async def asking(client: DocumentClient, text: str) -> str:
    await client.play(EXAMPLES["initialize"])
    new = {"cwd": "/project"}
    session: str = (await client.call("session/new", new))["sessionId"]
    client.send("session/prompt", prompt(session, text))
    return session


@aio
async def test_a_permission_is_asked_as_the_document_shows_and_its_decision_understood() -> None:
    for decision, allowed in (
        ({"decision": "once"}, "True"),
        ({"decision": "always"}, "True"),
        ({"decision": "reject"}, "False"),
        ({"decision": "once", "cancelled": True}, "False"),
        ({"decision": "perhaps"}, "False"),
    ):
        async with served(asking_agent()) as client:
            session = await asking(client, "permission")
            request = await client.asked("session/request_permission")
            expected = {
                **EXAMPLES["permission"].body,
                "sessionId": session,
                "permissionId": "permission-1",
            }
            assert request["params"] == expected
            client.answer(request, decision)
            await until(
                lambda client=client: any("contentChunk" in p for _, p in client.told)  # type: ignore[misc]
            )
            assert client.told[-1][1].get("contentChunk", {}).get("delta", allowed) == allowed


@aio
async def test_files_are_asked_for_as_the_document_shows() -> None:
    async with served(asking_agent()) as client:
        session = await asking(client, "files")
        read = await client.asked("fs/read_text_file")
        assert read["params"] == {**EXAMPLES["read"].body, "sessionId": session}
        client.answer(read, EXAMPLES["content"].body)
        write = await client.asked("fs/write_text_file")
        assert write["params"] == {
            **EXAMPLES["write"].body,
            "sessionId": session,
            "content": "PASS\n",
        }
        client.answer(write, EXAMPLES["written"].body)
        await until(lambda: any("stopReason" in str(m.get("result")) for m in client.heard))


@aio
async def test_terminals_are_asked_for_as_the_document_shows() -> None:
    async with served(asking_agent()) as client:
        session = await asking(client, "terminal")
        create = await client.asked("terminal/create")
        assert create["params"] == {**EXAMPLES["create_terminal"].body, "sessionId": session}
        client.answer(create, EXAMPLES["terminal"].body)
        for method, name in (
            ("terminal/wait_for_exit", "exit"),
            ("terminal/output", "output"),
            ("terminal/kill", None),
            ("terminal/release", None),
        ):
            request = await client.asked(method)
            assert request["params"] == {"sessionId": session, "terminalId": "term_1"}
            client.answer(request, None if name is None else EXAMPLES[name].body)
        await until(lambda: any("stopReason" in str(m.get("result")) for m in client.heard))
        assert client.told[-1][1]["contentChunk"]["delta"] == "hi\n00"


@aio
async def test_a_malformed_answer_is_the_clients_fault_and_ends_the_turn() -> None:
    async with served(asking_agent()) as client:
        await asking(client, "files")
        client.answer(await client.asked("fs/read_text_file"), {"nothing": 1})
        await until(lambda: any("error" in m for m in client.heard))


@aio
async def test_the_author_sees_who_the_client_is_and_a_refusal_is_not_a_success() -> None:
    agent = Agent("a", modes=[acp.SessionMode(id="plan", name="Plan")])
    seen: list[Any] = []

    @agent.prompt
    async def answer(turn: Turn) -> str:
        seen.append(turn.session.client.client_info)
        return turn.text

    async with served(agent) as client:
        session = await opened(client)
        for stop, told in (("refusal", "tool_error"), ("max_turn_requests", "max_tokens")):
            answered = await client.call("session/prompt", prompt(session, stop))
            assert answered == {"stopReason": told}
    info = seen[0]
    assert (info.name, info.title, info.version) == ("zed", "Zed", "0.200")


@aio
async def test_a_session_that_cannot_be_opened_as_requested_is_closed() -> None:
    agent = make_agent()
    opened_ids: list[str] = []
    closed_ids: list[str] = []

    @agent.new_session
    async def new(session: Session) -> None:
        opened_ids.append(session.id)

    @agent.close_session
    async def close(session: Session) -> None:
        closed_ids.append(session.id)

    async with served(agent) as client:
        await client.play(EXAMPLES["initialize"])
        error = await client.refused("session/new", {"cwd": "/w", "modeId": "unknown"})
        assert error["message"] == "the agent has no mode 'unknown'; it has code, plan"
    assert len(opened_ids) == 1
    assert closed_ids == opened_ids


@aio
async def test_a_load_that_is_refused_during_a_turn_changes_nothing_for_the_turn() -> None:
    agent = Agent("slow")
    told = asyncio.Event()

    @agent.load_session
    async def load(session: Session, replay: Turn) -> None: ...

    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.say("one")
        await told.wait()
        await turn.say(" and two")

    async with served(agent) as client:
        await client.play(EXAMPLES["initialize"])
        session = (await client.call("session/new", {"cwd": "/w"}))["sessionId"]
        prompting = client.send("session/prompt", prompt(session, "go"))
        await until(lambda: bool(client.told))
        refused = await client.refused("session/load", {"sessionId": session, "cwd": "/w"})
        assert "still running" in refused["message"]
        told.set()
        await client.answered(prompting)
        chunks = [params["contentChunk"] for _, params in client.told]
    assert [(chunk["id"], chunk["index"]) for chunk in chunks] == [("part-1", 0), ("part-1", 1)]
