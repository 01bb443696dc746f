"""What our client does with an agent that plays the scenes of `script`, act by act.

Has the acts and what each of them puts on the wire. The acts do not depend on the agent: they are
played with the official Python SDK here and with the TypeScript SDK in tests/peers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from dragoman.client.acp import AcpClient, ClientOptions
from dragoman.client.permissions import Answer, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired, CallTimeout, RemoteError
from dragoman.wire import codes
from tests.interop import script, wire

PATIENCE = 30.0
"""Seconds for one act. All of them take milliseconds; a loaded machine may pause any process."""


@dataclass(slots=True)
class Stage:
    """The directory of a client, and what the agent sent it outside of turns.

    All acts share one stage and one agent, because starting an agent takes longer than all of them;
    an act must not rely on being the first one.
    """

    workspace: Path
    notified: list[Any] = field(default_factory=list)
    forms: list[acp.CreateElicitationRequest] = field(default_factory=list)
    urls_done: list[str] = field(default_factory=list)
    url_done: asyncio.Event = field(default_factory=asyncio.Event)

    def options(self) -> ClientOptions:
        return ClientOptions(
            permit=self.permit,
            elicit=self.elicit,
            visits=True,
            on_url_done=self.finished,
            extension=self,
            terminals=True,
            unstable=True,
        )

    def permit(self, question: Question) -> Answer:
        return Answer.ALLOW_ONCE if question.title == "Allowed" else Answer.REJECT_ONCE

    def elicit(self, question: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        self.forms.append(question)
        if isinstance(question, acp.ElicitationForm):
            return acp.ElicitationAccepted(content=script.FORM_ANSWER)
        return acp.ElicitationAccepted()

    def finished(self, elicitation_id: str) -> None:
        self.urls_done.append(elicitation_id)
        self.url_done.set()

    async def request(self, method: str, params: Any) -> Any:
        if method != "_test/ask":
            raise RemoteError(codes.METHOD_NOT_FOUND, "no such method")
        return {"answered": params["number"] + 1}

    def notification(self, method: str, params: Any) -> None:
        self.notified.append([method, params])


Play: TypeAlias = Callable[[AcpClient, Stage], Awaitable[None]]


async def handshake(client: AcpClient, stage: Stage) -> None:
    info = client.agent.agent_info
    assert info is not None
    assert (info.name, info.title) == ("scripted", "dragoman")
    assert client.agent.protocol_version == 1
    for capability in (
        "loadSession",
        "promptCapabilities.image",
        "promptCapabilities.audio",
        "promptCapabilities.embeddedContext",
        "mcpCapabilities.http",
        "mcpCapabilities.sse",
        "sessionCapabilities.list",
        "sessionCapabilities.resume",
        "sessionCapabilities.close",
        "sessionCapabilities.additionalDirectories",
    ):
        assert client.can(capability), capability


async def login(client: AcpClient, stage: Stage) -> None:
    locked = stage.workspace / script.LOCKED
    locked.mkdir()
    with pytest.raises(AuthRequired) as wanted:
        await client.new_session(locked)
    assert wanted.value.hint == "log in first: use 'Door': Knock"
    await client.authenticate("door")
    await client.new_session(locked)
    if client.can("auth.logout"):
        await client.logout()
        with pytest.raises(AuthRequired):
            await client.new_session(locked)


async def sessions(client: AcpClient, stage: Stage) -> None:
    other = stage.workspace / "other"
    other.mkdir()
    session = await client.new_session(
        stage.workspace,
        additional_directories=[other],
        mcp_servers=[
            acp.McpServerStdio(
                name="local",
                command="/bin/true",
                args=["-x"],
                env=[acp.EnvVariable(name="A", value="1")],
            ),
            acp.McpServerHttp(
                name="web",
                url="https://example.com/mcp",
                headers=[acp.HttpHeader(name="X-A", value="1")],
            ),
            acp.McpServerSse(name="stream", url="https://example.com/sse", headers=[]),
        ],
    )
    assert json.loads((await session.ask("where")).text) == {
        "cwd": str(stage.workspace),
        "folders": [str(other)],
        "servers": ["local", "web", "stream"],
    }
    second = await client.new_session(stage.workspace)
    found = [info async for info in client.list_sessions(stage.workspace)]
    assert [info.session_id for info in found[-2:]] == [session.id, second.id]
    assert [info.title for info in found] == [f"Session {n}" for n in range(len(found))]
    await session.close()
    await second.close()
    assert session not in client.sessions and second not in client.sessions

    loaded = await client.load_session(session.id, stage.workspace)
    assert [texts(update) for update in loaded.replayed] == ["earlier", "later"]
    assert [type(update) for update in loaded.replayed] == [
        acp.UserMessageChunk,
        acp.AgentMessageChunk,
    ]
    assert loaded.modes is not None
    resumed = await client.resume_session(second.id, stage.workspace)
    assert json.loads((await resumed.ask("where")).text)["cwd"] == str(stage.workspace)
    with pytest.raises(RemoteError) as missing:
        await client.load_session("nothing", stage.workspace)
    assert missing.value.code == codes.NOT_FOUND
    if client.can("sessionCapabilities.fork"):
        forked = await client.fork_session(session.id, stage.workspace)
        assert forked.id not in (session.id, second.id)
        assert json.loads((await forked.ask("where")).text)["cwd"] == str(stage.workspace)
    if client.can("sessionCapabilities.delete"):
        await client.delete_session(second.id)
        left = [info.session_id async for info in client.list_sessions()]
        assert second.id not in left


async def settings(client: AcpClient, stage: Stage) -> None:
    session = await client.new_session(stage.workspace)
    assert session.modes is not None and session.modes.current_mode_id == "ask"
    await session.set_mode("plan")
    await session.set_option("depth", "deep")
    await session.set_option("loud", True)
    assert json.loads((await session.ask("settings")).text) == ["plan", "deep", True]
    assert session.modes.current_mode_id == "plan"
    values = {
        option.id: option.current_value
        for option in session.config_options or ()
        if not isinstance(option, acp.UnknownConfigOption)
    }
    assert values == {"depth": "deep", "loud": True}


async def content(client: AcpClient, stage: Stage) -> None:
    session = await client.new_session(stage.workspace)
    echoed = []
    async with session.prompt([acp.convert(b, acp.ContentBlock) for b in script.BLOCKS]) as turn:
        async for update in turn:
            assert isinstance(update, acp.AgentMessageChunk)
            echoed.append(script.bare(json.loads(acp.encode(update.content))))
    assert echoed == script.BLOCKS
    assert turn.result.stop == "end_turn"


async def updates(client: AcpClient, stage: Stage) -> None:
    session = await client.new_session(stage.workspace)
    received = []
    async with session.prompt("updates") as turn:
        async for update in turn:
            assert not isinstance(update, acp.UnknownUpdate)
            received.append(script.bare(json.loads(acp.encode(update))))
    kinds = {update["sessionUpdate"] for update in received}
    assert received == [u for u in script.UPDATES if u["sessionUpdate"] in kinds]
    assert len(kinds) >= 11
    assert session.modes is not None and session.modes.current_mode_id == "plan"
    assert session.info is not None and session.info.title == "A title"
    assert session.usage is not None and session.usage.used == 10
    assert [command.name for command in session.commands] == ["init", "help"]


async def cancel(client: AcpClient, stage: Stage) -> None:
    session = await client.new_session(stage.workspace)
    heard = []
    async with session.prompt("cancel") as turn:
        async for update in turn:
            heard.append(texts(update))
            turn.cancel()
    assert heard == ["waiting", "stopped"]
    assert turn.result.stop == "cancelled"
    assert turn.response is not None


async def files(client: AcpClient, stage: Stage) -> None:
    session = await client.new_session(stage.workspace)
    assert json.loads((await session.ask("files")).text) == [
        script.FILE_TEXT,
        "two\n",
        codes.NOT_FOUND,
    ]
    assert (stage.workspace / "made.txt").read_text() == script.FILE_TEXT


async def terminals(client: AcpClient, stage: Stage) -> None:
    session = await client.new_session(stage.workspace)
    assert json.loads((await session.ask("terminals")).text) == {
        "output": "hello world\n",
        "truncated": False,
        "code": 0,
        "running": True,
        "killed": True,
    }


async def permission(client: AcpClient, stage: Stage) -> None:
    session = await client.new_session(stage.workspace)
    said = []
    async with session.prompt("permission") as turn:
        async for update in turn:
            if isinstance(update, acp.AgentMessageChunk):
                said.append(texts(update))
    assert json.loads("".join(said)) == ["yes", "no"]
    assert [denial.title for denial in turn.result.denials] == ["Forbidden"]


async def elicitation(client: AcpClient, stage: Stage) -> None:
    session = await client.new_session(stage.workspace)
    assert json.loads((await session.ask("elicitation")).text) == [
        {"action": "accept", "content": script.FORM_ANSWER},
        {"action": "accept"},
    ]
    form, url = stage.forms
    assert isinstance(form, acp.ElicitationForm) and isinstance(url, acp.ElicitationUrl)
    written = script.bare(json.loads(acp.encode(form.requested_schema)))
    assert written == script.FORM
    assert url.url == "https://example.com/go"
    await stage.url_done.wait()
    assert stage.urls_done == ["e1"]


async def extensions(client: AcpClient, stage: Stage) -> None:
    session = await client.new_session(stage.workspace)
    assert await client.call_extension("_test/double", {"number": 21}) == {"doubled": 42}
    with pytest.raises(RemoteError) as unknown:
        await client.call_extension("_test/nothing", {})
    assert unknown.value.code == codes.METHOD_NOT_FOUND
    await client.notify_extension("_test/told", {"number": 7})
    heard = json.loads((await session.ask("extensions")).text)
    assert heard["answer"] == {"answered": 21}
    assert heard["told"][-1] == ["test/told", {"number": 7}]
    assert stage.notified[-1] == ["_test/told", {"number": 21}]


async def giving_up(client: AcpClient, stage: Stage) -> None:
    session = await client.new_session(stage.workspace)
    with pytest.raises(CallTimeout):
        await client.call_extension("_test/slow", {}, timeout=0.1)
    heard = json.loads((await session.ask("extensions")).text)
    assert heard["told"][-2:] == [["slow", "begun"], ["slow", "cancelled"]]


async def play_all(
    acts: dict[str, Act], client: AcpClient, stage: Stage, trace: Path, subtests: pytest.Subtests
) -> None:
    """Play every act, and check in the trace that its methods were on the wire."""
    for name, act in acts.items():
        before = len(list(wire.read(trace)))
        with subtests.test(act=name):
            async with asyncio.timeout(PATIENCE):
                await act.play(client, stage)
            heard = {m["method"] for _, m in list(wire.read(trace))[before:] if "method" in m}
            assert act.methods <= heard


@dataclass(frozen=True, slots=True)
class Act:
    """An act, and the methods it shows besides those that open every act."""

    play: Play
    methods: frozenset[str] = frozenset()
    if_offered: frozenset[str] = frozenset()
    """Methods that it shows if the agent has them."""


OPENING = frozenset({"initialize"})
TALK = frozenset({"session/new", "session/prompt", "session/update"})

ACTS: dict[str, Act] = {
    "handshake": Act(handshake),
    "login": Act(
        login, frozenset({"authenticate", "session/new"}), if_offered=frozenset({"logout"})
    ),
    "sessions": Act(
        sessions,
        TALK | {"session/list", "session/load", "session/resume", "session/close"},
        if_offered=frozenset({"session/delete", "session/fork"}),
    ),
    "settings": Act(settings, TALK | {"session/set_mode", "session/set_config_option"}),
    "content": Act(content, TALK),
    "updates": Act(updates, TALK),
    "cancel": Act(cancel, TALK | {"session/cancel"}),
    "files": Act(files, TALK | {"fs/read_text_file", "fs/write_text_file"}),
    "terminals": Act(
        terminals,
        TALK
        | {
            "terminal/create",
            "terminal/output",
            "terminal/wait_for_exit",
            "terminal/kill",
            "terminal/release",
        },
    ),
    "permission": Act(permission, TALK | {"session/request_permission"}),
    "elicitation": Act(elicitation, TALK | {"elicitation/create", "elicitation/complete"}),
    "extensions": Act(extensions, TALK),
    "giving up": Act(giving_up, TALK | {"$/cancel_request"}),
}


def texts(update: acp.SessionUpdate) -> str:
    assert isinstance(update, acp.UserMessageChunk | acp.AgentMessageChunk)
    assert isinstance(update.content, acp.TextContent)
    return update.content.text
