"""The handshake, logins, new sessions and extensions: what a client sends and refuses to send.

Starting modes, earlier sessions and lists are in tests/integration/test_acp_client_sessions.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.client.acp import AcpClient, ClientOptions, Session
from dragoman.client.acp import client as client_module
from dragoman.client.acp.peer import AcpPeer
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Opening
from dragoman.client.permissions import Answer, Question, approve_all
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import (
    AuthRequired,
    CallTimeout,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    HandshakeFailed,
    InvalidAnswer,
    ProtocolMismatch,
    RemoteError,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.memory import MemoryStream, memory_pair
from tests.aio import aio
from tests.unit.client.acp.agent_side import (
    CWD,
    EVERYTHING,
    MODELS,
    MODES,
    AgentSide,
    Refusal,
    chunk,
    driven,
    opened,
    select,
)
from tests.unit.rpc.other_side import WAIT_TIMEOUT, soon, turns, until

TINY = 0.02
"""A budget that is meant to run out."""


# -- the handshake


class Echo:
    """Sends back what it receives."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream

    def data_received(self, data: bytes) -> None:
        self.stream.write(data)

    def stream_ended(self, failure: ConnectionLost) -> None:
        pass


@aio
async def test_a_program_that_only_repeats_its_input_is_not_called_an_agent() -> None:
    ours, theirs = memory_pair()
    theirs.start(Echo(theirs))
    client = AcpClient(ours)
    with pytest.raises(HandshakeFailed, match="only repeats its input"):
        await client.start()
    await client.aclose()
    await theirs.aclose()


@aio
async def test_the_handshake_offers_version_one_and_only_what_the_options_say() -> None:
    async with driven() as (client, agent):
        (params,) = agent.told("initialize")
        assert params["protocolVersion"] == 1
        assert params["clientInfo"] == {"name": "dragoman", "version": dragoman.__version__}
        assert params["clientCapabilities"] == {
            "fs": {"readTextFile": True, "writeTextFile": True},
            "auth": {},
            "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
        }
        assert client.agent.protocol_version == 1


@aio
async def test_every_service_is_offered_when_it_is_switched_on() -> None:
    async def elicit(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        return acp.ElicitationDeclined()

    options = ClientOptions(
        name="editor",
        title="An Editor",
        version="7",
        read_files=False,
        write_files=False,
        terminals=True,
        terminal_login=True,
        elicit=elicit,
        visits=True,
    )
    async with driven(options) as (_, agent):
        (params,) = agent.told("initialize")
        assert params["clientInfo"] == {"name": "editor", "title": "An Editor", "version": "7"}
        assert params["clientCapabilities"] == {
            "fs": {},
            "terminal": True,
            "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
            "auth": {"terminal": True},
            "elicitation": {"form": {}, "url": {}},
        }


@aio
async def test_a_url_is_offered_only_where_it_can_be_opened() -> None:
    options = ClientOptions(elicit=lambda request: acp.ElicitationDeclined())
    async with driven(options) as (_, agent):
        (params,) = agent.told("initialize")
        assert params["clientCapabilities"]["elicitation"] == {"form": {}}


@pytest.mark.parametrize("version", [0, 2, 99])
@aio
async def test_another_version_than_ours_is_a_mismatch_and_the_stream_is_closed(
    version: int,
) -> None:
    reply = {"protocolVersion": version, "agentCapabilities": {}}
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    agent.replies["initialize"] = reply
    theirs.start(agent)
    with pytest.raises(ProtocolMismatch, match=str(version)):
        async with AcpClient(ours):
            pytest.fail("the client must not be usable")
    await until(lambda: agent.ended is not None)
    await theirs.aclose()


@aio
async def test_an_agent_that_refuses_our_version_is_a_mismatch() -> None:
    refusal = Refusal(-32022, "unsupported", {"requested": 1, "supported": [2]})
    with pytest.raises(ProtocolMismatch, match="version 1"):
        async with driven(replies={"initialize": refusal}):
            pytest.fail("the client must not be usable")


@pytest.mark.parametrize(
    ("reply", "dialect"),
    [
        ({"userAgent": "x/0.166.0", "codexHome": "/h", "platformFamily": "unix"}, "codex"),
        ({"protocolVersion": "2025-06-18"}, "oneshot"),
        ({"protocolVersion": "1", "agentInfo": {}}, "tagged"),
        ({"protocolVersion": True}, None),
        ({"protocolVersion": 2, "info": {}}, None),
        ([], None),
        ("hello", None),
    ],
)
@aio
async def test_an_answer_that_is_not_a_handshake_is_a_mismatch_and_tells_what_it_shows(
    reply: Any, dialect: str | None
) -> None:
    with pytest.raises(ProtocolMismatch, match="version 1") as caught:
        async with driven(replies={"initialize": reply}):
            pytest.fail("the client must not be usable")
    assert caught.value.dialect == dialect


@aio
async def test_malformed_capabilities_count_as_absent() -> None:
    capabilities = {"loadSession": "yes", "sessionCapabilities": 7, "auth": {"logout": True}}
    async with driven(capabilities=capabilities) as (client, _):
        assert not client.can("loadSession")
        assert not client.can("sessionCapabilities.list")


@aio
async def test_a_handshake_without_an_answer_uses_up_its_budget() -> None:
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    agent.replies.clear()
    theirs.start(agent)
    options = ClientOptions(budgets=Budgets(initialize=TINY))
    with pytest.raises(CallTimeout, match="initialize"):
        async with AcpClient(ours, options):
            pytest.fail("the client must not be usable")
    await until(lambda: agent.ended is not None)
    await theirs.aclose()


@aio
async def test_an_agent_that_ends_instead_of_answering_ends_the_handshake() -> None:
    ours, theirs = memory_pair()
    await theirs.aclose()
    with pytest.raises(ConnectionEnded):
        async with AcpClient(ours):
            pytest.fail("the client must not be usable")


@aio
async def test_a_capability_is_asked_for_by_its_name_on_the_wire() -> None:
    async with driven(capabilities=EVERYTHING) as (client, _):
        for name in (
            "loadSession",
            "promptCapabilities.image",
            "mcpCapabilities.http",
            "sessionCapabilities.fork",
            "auth.logout",
        ):
            assert client.can(name), name
        assert not client.can("sessionCapabilities.teleport")
        assert not client.can("loadSession.deeper")


# -- authentication


AGENT_LOGIN = {"id": "oauth", "name": "Log in", "description": "In the browser"}
TERMINAL_LOGIN = {"id": "tty", "name": "Terminal", "type": "terminal", "args": ["login"]}


def offering(*methods: dict[str, Any]) -> dict[str, Any]:
    return {
        "initialize": {
            "protocolVersion": 1,
            "agentCapabilities": EVERYTHING,
            "authMethods": list(methods),
        }
    }


@aio
async def test_a_login_names_its_method_and_sends_no_secret() -> None:
    replies = offering(AGENT_LOGIN, TERMINAL_LOGIN) | {"authenticate": {}}
    async with driven(replies=replies) as (client, agent):
        await client.authenticate("oauth")
        assert agent.told("authenticate") == [{"methodId": "oauth"}]


@aio
async def test_a_terminal_login_is_never_passed_to_authenticate() -> None:
    async with driven(replies=offering(AGENT_LOGIN, TERMINAL_LOGIN)) as (client, agent):
        with pytest.raises(UsageError, match="login"):
            await client.authenticate("tty")
        with pytest.raises(UsageError, match="oauth, tty"):
            await client.authenticate("password")
        assert agent.told("authenticate") == []


@aio
async def test_logging_out_needs_an_agent_that_can() -> None:
    async with driven() as (client, agent):
        with pytest.raises(Unsupported, match=r"auth\.logout"):
            await client.logout()
        assert agent.told("logout") == []
    async with driven(capabilities=EVERYTHING, replies={"logout": {}}) as (client, agent):
        await client.logout()
        assert agent.told("logout") == [{}]


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/list"])
@aio
async def test_a_wanted_login_says_how_to_log_in(method: str) -> None:
    refusal = Refusal(-32000, "Authentication required", {"authMethods": []})
    replies = offering(AGENT_LOGIN, TERMINAL_LOGIN) | {method: refusal}
    async with driven(replies=replies) as (client, _):
        with pytest.raises(AuthRequired) as caught:
            match method:
                case "session/new":
                    await client.new_session(CWD)
                case "session/load":
                    await client.load_session("s1", CWD)
                case _:
                    async for _info in client.list_sessions():
                        pass
        assert [each.id for each in caught.value.methods] == ["oauth", "tty"]
        assert "In the browser" in caught.value.hint
        assert "login" in caught.value.hint
        assert caught.value.data == {"authMethods": []}
        assert client.sessions == ()


# -- opening sessions


@aio
async def test_a_new_session_has_its_id_and_its_settings() -> None:
    options = [select("m", "mode", "code", "code", "plan")]
    reply = {"sessionId": "s9", "modes": MODES, "models": MODELS, "configOptions": options}
    async with driven(replies={"session/new": reply}) as (client, agent):
        session = await client.new_session(CWD, meta={"k": 1})
        assert agent.told("session/new") == [
            {"cwd": "/workspace", "mcpServers": [], "_meta": {"k": 1}}
        ]
        assert session.id == "s9"
        assert session.modes is not None and session.modes.current_mode_id == "code"
        assert session.models is not None and session.models.current_model_id == "small"
        assert session.config_options is not None and len(session.config_options) == 1
        assert client.sessions == (session,)


@aio
async def test_a_relative_folder_becomes_absolute_before_it_is_sent() -> None:
    async with driven() as (client, agent):
        await client.new_session("some/where")
        assert agent.told("session/new")[0]["cwd"] == str(Path.cwd() / "some/where")


@aio
async def test_additional_folders_need_an_agent_that_takes_them() -> None:
    async with driven() as (client, agent):
        with pytest.raises(Unsupported, match="additionalDirectories"):
            await client.new_session(CWD, additional_directories=["/more"])
        assert agent.told("session/new") == []
    async with driven(capabilities=EVERYTHING) as (client, agent):
        session = await client.new_session(CWD, additional_directories=["/more"])
        assert agent.told("session/new")[0]["additionalDirectories"] == ["/more"]
        assert session.additional_directories == (Path("/more"),)


@aio
async def test_mcp_servers_go_only_where_the_agent_can_reach_them() -> None:
    stdio = acp.McpServerStdio(name="files", command="/bin/files", args=[], env=[])
    http = acp.McpServerHttp(name="web", url="http://localhost/", headers=[])
    sse = acp.McpServerSse(name="old", url="http://localhost/", headers=[])
    async with driven() as (client, agent):
        await client.new_session(CWD, mcp_servers=[stdio])
        sent = agent.told("session/new")[0]["mcpServers"]
        assert sent == [{"name": "files", "command": "/bin/files", "args": [], "env": []}]
        with pytest.raises(Unsupported, match=r"mcpCapabilities\.http"):
            await client.new_session(CWD, mcp_servers=[stdio, http])
        with pytest.raises(Unsupported, match=r"mcpCapabilities\.sse"):
            await client.new_session(CWD, mcp_servers=[sse])
        assert len(agent.told("session/new")) == 1


@aio
async def test_mcp_servers_over_http_are_sent_to_an_agent_that_can() -> None:
    http = acp.McpServerHttp(
        name="web", url="http://localhost/", headers=[acp.HttpHeader(name="a", value="b")]
    )
    async with driven(capabilities=EVERYTHING) as (client, agent):
        await client.new_session(CWD, mcp_servers=[http])
        assert agent.told("session/new")[0]["mcpServers"] == [
            {
                "type": "http",
                "name": "web",
                "url": "http://localhost/",
                "headers": [{"name": "a", "value": "b"}],
            }
        ]


@aio
async def test_a_session_that_does_not_open_in_time_uses_up_its_budget() -> None:
    options = ClientOptions(budgets=Budgets(session=TINY))
    async with driven(options) as (client, agent):
        del agent.replies["session/new"]
        with pytest.raises(CallTimeout, match="session/new"):
            await client.new_session(CWD)
        assert client.sessions == ()
        asked = await agent.expect("session/new")
        notice = await agent.expect("$/cancel_request")
        assert notice["params"] == {"requestId": asked["id"]}


@aio
async def test_a_caller_that_is_cancelled_calls_the_session_off() -> None:
    async with driven() as (client, agent):
        del agent.replies["session/new"]
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(client.new_session(CWD))
            asked = await agent.expect("session/new")
            task.cancel()
        await agent.expect("$/cancel_request")
        agent.answer(asked, {"sessionId": "late"})
        agent.replies["session/new"] = {"sessionId": "s2"}
        assert (await client.new_session(CWD)).id == "s2"
        assert [session.id for session in client.sessions] == ["s2"]


@aio
async def test_a_caller_that_is_cancelled_while_the_answer_arrives_leaves_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with driven(capabilities=EVERYTHING) as (client, agent):
        del agent.replies["session/new"]
        async with asyncio.TaskGroup() as tasks:
            task: asyncio.Task[Session] | None = None

            def make(*known: Any) -> Session:
                # In the very moment in which the answer is being read.
                assert task is not None
                task.cancel()
                return Session(*known)

            monkeypatch.setattr(client_module, "Session", make)
            task = tasks.create_task(client.new_session(CWD))
            agent.answer(await agent.expect("session/new"), {"sessionId": "s1"})
        assert task.cancelled()
        assert client.sessions == ()
        agent.answer(await agent.expect("session/close"), {})


@aio
async def test_a_session_that_opens_after_its_caller_was_cancelled_is_closed() -> None:
    seen: list[model.Event] = []
    async with driven(capabilities=EVERYTHING) as (client, agent):
        peer = AcpPeer(client, CWD)
        peer.on_event = seen.append
        del agent.replies["session/new"]
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(peer.open(Opening(cwd=CWD)))
            asked = await agent.expect("session/new")
            task.cancel()
        await agent.expect("$/cancel_request")
        agent.answer(asked, {"sessionId": "late"})
        closing = await agent.expect("session/close")
        assert closing["params"] == {"sessionId": "late"}
        agent.answer(closing, {})
        assert client.sessions == ()
    assert not any(isinstance(event, model.SessionOpened) for event in seen)


@aio
async def test_a_session_that_opens_after_its_time_is_over_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ClientOptions(budgets=Budgets(session=TINY), unstable=True)
    async with driven(options, capabilities=EVERYTHING) as (client, agent):
        expect_late = client.connection.expect_late
        # As long as a busy machine may need.
        monkeypatch.setattr(
            client.connection, "expect_late", lambda call, timeout: expect_late(call, WAIT_TIMEOUT)
        )
        del agent.replies["session/new"]
        for opening, reply in (
            (client.new_session(CWD), {"sessionId": "late"}),
            (client.load_session("late", CWD), {}),
            (client.resume_session("late", CWD), {}),
            (client.fork_session("early", CWD), {"sessionId": "late"}),
        ):
            with pytest.raises(CallTimeout):
                await opening
            asked = await agent.next()
            await agent.expect("$/cancel_request")
            agent.answer(asked, reply)
            closing = await agent.expect("session/close")
            assert closing["params"] == {"sessionId": "late"}
            agent.answer(closing, {})
            assert client.sessions == ()


@aio
async def test_a_session_that_was_opened_again_is_not_closed_by_a_late_response() -> None:
    async with driven(capabilities=EVERYTHING) as (client, agent):
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(client.resume_session("s1", CWD))
            late = await agent.expect("session/resume")
            task.cancel()
        await agent.expect("$/cancel_request")
        agent.replies["session/resume"] = {}
        session = await client.resume_session("s1", CWD)
        agent.answer(late, {})
        await turns()
        async with session.prompt("hello") as turn:
            # A close would have come before.
            await agent.end()
            await turn.wait()
        assert client.sessions == (session,)


@aio
async def test_a_session_that_is_opened_again_with_its_late_response_is_not_closed() -> None:
    again: list[asyncio.Task[Session]] = []

    def open_again(noise: object) -> None:
        opening = client.resume_session("s1", CWD)
        again.append(client.connection.tasks.start(opening, "open it again"))

    options = ClientOptions(on_noise=open_again)
    async with driven(options, capabilities=EVERYTHING) as (client, agent):
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(client.resume_session("s1", CWD))
            late = await agent.expect("session/resume")
            task.cancel()
        await agent.expect("$/cancel_request")
        agent.replies["session/resume"] = {}
        # An update of a session that is not open is noise.
        response = {"jsonrpc": "2.0", "id": late["id"], "result": {}}
        agent.say(agent.updating(chunk("x")), response)
        await until(lambda: bool(again))
        session = await soon(again[0])
        assert client.sessions == (session,)
        assert agent.told("session/close") == []


@aio
async def test_a_session_whose_caller_is_cancelled_while_its_mode_is_set_is_closed() -> None:
    replies = {"session/new": {"sessionId": "s1", "modes": MODES}}
    async with driven(capabilities=EVERYTHING, replies=replies) as (client, agent):
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(client.new_session(CWD, mode="plan"))
            await agent.expect("session/set_mode")
            task.cancel()
        await agent.expect("$/cancel_request")
        agent.answer(await agent.expect("session/close"), {})
        assert client.sessions == ()


@aio
async def test_a_session_that_cannot_be_made_fails_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(*known: Any) -> Session:
        raise ZeroDivisionError

    monkeypatch.setattr(client_module, "Session", make)
    async with driven() as (client, _):
        with pytest.raises(ZeroDivisionError):
            await soon(client.new_session(CWD))
        assert client.sessions == ()


@pytest.mark.parametrize("reply", [{}, {"sessionId": 7}, None, "s1"])
@aio
async def test_an_answer_without_a_session_id_is_invalid(reply: Any) -> None:
    async with driven(replies={"session/new": reply}) as (client, _):
        with pytest.raises(InvalidAnswer, match="session/new"):
            await client.new_session(CWD)


@aio
async def test_an_id_that_is_open_already_is_not_a_new_session() -> None:
    async with driven() as (client, _):
        first = await client.new_session(CWD)
        with pytest.raises(InvalidAnswer, match="the id of an open session"):
            await client.new_session(CWD)
        assert client.sessions == (first,)


# -- extensions


@aio
async def test_extensions_are_called_and_notified_as_they_are() -> None:
    replies = {"_vendor/ask": {"answer": [1, None]}, "_vendor/fail": Refusal(-5, "no", "why")}
    async with driven(replies=replies) as (client, agent):
        assert await client.call_extension("_vendor/ask", {"q": 1}) == {"answer": [1, None]}
        assert agent.told("_vendor/ask") == [{"q": 1}]
        with pytest.raises(RemoteError) as caught:
            await client.call_extension("_vendor/fail", None, timeout=None)
        assert (caught.value.code, caught.value.data) == (-5, "why")
        await client.notify_extension("_vendor/tell", [1])
        assert (await agent.expect("_vendor/tell"))["params"] == [1]


@aio
async def test_only_names_with_an_underscore_are_extensions() -> None:
    async with driven() as (client, agent):
        before = len(agent.heard)
        with pytest.raises(UsageError):
            await client.call_extension("session/prompt", {})
        with pytest.raises(UsageError):
            await client.notify_extension("session/cancel", {})
        assert len(agent.heard) == before


# -- what a prompt may contain


@pytest.mark.parametrize(
    ("block", "capability"),
    [
        (acp.ImageContent(data="AA==", mime_type="image/png"), "image"),
        (acp.AudioContent(data="AA==", mime_type="audio/wav"), "audio"),
        (
            acp.EmbeddedResource(resource=acp.TextResourceContents(uri="file:///x", text="x")),
            "embeddedContext",
        ),
    ],
)
@aio
async def test_content_is_refused_unless_the_agent_takes_it(
    block: acp.ContentBlock, capability: str
) -> None:
    link = acp.ResourceLink(uri="file:///x", name="x")
    for others in ({}, {name: True for name in ("image", "audio") if name != capability}):
        async with opened(capabilities={"promptCapabilities": others}) as (session, agent):
            with pytest.raises(Unsupported, match=capability):
                session.prompt([acp.TextContent(text="look"), block])
            session.prompt([acp.TextContent(text="look"), link])
            assert agent.told("session/prompt") == []
    async with opened(capabilities={"promptCapabilities": {capability: True}}) as (session, agent):
        async with session.prompt(block) as turn:
            await agent.end()
            await turn.wait()
        (params,) = agent.told("session/prompt")
        assert len(params["prompt"]) == 1


# -- the end


@aio
async def test_closing_the_client_ends_turns_questions_and_sessions() -> None:
    asked = asyncio.Event()

    async def permit(question: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async with driven(ClientOptions(permit=permit)) as (client, agent):
        session = await client.new_session(CWD)
        turn = session.prompt("hi")
        await turn.begin()
        agent.ask(1, "session/request_permission", agent.permission())
        await soon(asked.wait())
        await client.aclose()
        assert client.sessions == ()
        assert isinstance((await turn.wait()).error, ConnectionClosed)
        with pytest.raises(ConnectionClosed):
            await client.new_session(CWD)


@aio
async def test_options_default_to_refusing() -> None:
    assert ClientOptions().permit is not approve_all
    with pytest.raises(TypeError):
        ClientOptions(permitt=approve_all)  # type: ignore[call-arg]


@aio
async def test_a_session_that_does_not_load_ends_its_commands_and_its_questions(
    tmp_path: Path,
) -> None:
    async def wait(question: Question) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    options = ClientOptions(terminals=True, permit=wait)
    tasks = TaskOwner("test")
    async with driven(options, capabilities=EVERYTHING) as (client, agent):
        loading = tasks.start(client.load_session("s1", tmp_path), "load")
        load = await agent.expect("session/load")
        (session,) = client.sessions
        terminals = session.terminals()
        agent.ask(1, "session/request_permission", agent.permission())
        await until(lambda: len(session.questions) == 1)
        agent.reply(load, Refusal(-32603, "no"))
        with pytest.raises(RemoteError):
            await soon(loading)
        assert (await agent.heard_answer(1))["result"] == {"outcome": {"outcome": "cancelled"}}
        with pytest.raises(UsageError, match="terminals of this session are closed"):
            await terminals.create("true")
        assert client.sessions == ()
