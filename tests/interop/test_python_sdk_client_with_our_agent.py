"""A client written with the official Python SDK drives our agent, in a child process.

Covers every stable method that the SDK has, act by act, and checks everything that our agent sends
with the SDK's own models.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import acp as sdk
import pytest
from acp import schema

from dragoman.dialects.acp import v1 as acp
from dragoman.wire import codes
from tests.aio import aio
from tests.integration.conftest import nothing_is_left_behind
from tests.interop import models, script, wire
from tests.interop.acts import PATIENCE
from tests.interop.sdk_client import RecordingClient
from tests.interop.test_acp_v1_types_against_official_models import TOO_NEW_UPDATES

__all__ = ["nothing_is_left_behind"]  # It applies to every test of this module.

CHECKOUT = Path(__file__).resolve().parents[2]

LACKING = {
    "logout": "its clients cannot call it, though it has the models",
    "session/delete": "its clients cannot call it, though it has the models",
    "$/cancel_request": "its clients do not send it",
}
"""The stable methods that a client of this SDK cannot use."""


class Visit:
    """One connection of the SDK's client to our agent."""

    def __init__(self, agent: sdk.ClientSideConnection, client: RecordingClient, folder: Path):
        self.agent = agent
        self.client = client
        self.folder = folder

    async def open(self) -> str:
        """A new session, after our agent has sent its commands, which it does without a request."""
        opened: schema.NewSessionResponse = await self.agent.new_session(str(self.folder))
        await self.client.announced[opened.session_id].wait()
        self.client.updates.clear()
        return opened.session_id

    async def ask(self, session_id: str, scene: str) -> schema.PromptResponse:
        response: schema.PromptResponse = await self.agent.prompt(
            session_id, [sdk.text_block(scene)]
        )
        return response


async def handshake(visit: Visit) -> None:
    response = await visit.agent.initialize(
        1,
        client_capabilities=schema.ClientCapabilities.model_validate(
            {
                "fs": {"readTextFile": True, "writeTextFile": True},
                "terminal": True,
                "elicitation": {"form": {}, "url": {}},
                "session": {"configOptions": {"boolean": {}}},
            }
        ),
        client_info=schema.Implementation(name="sdk", version="1"),
    )
    assert response.protocol_version == 1
    assert response.agent_info == schema.Implementation(
        name="scripted", title="Scripted", version="1"
    )
    capabilities = response.agent_capabilities
    assert capabilities is not None and capabilities.load_session
    offered = capabilities.session_capabilities
    assert offered is not None
    assert None not in (offered.list, offered.resume, offered.close, offered.delete)
    assert [method.id for method in response.auth_methods or []] == ["door"]


async def login(visit: Visit) -> None:
    locked = visit.folder / script.LOCKED
    locked.mkdir()
    with pytest.raises(sdk.RequestError) as wanted:
        await visit.agent.new_session(str(locked))
    assert wanted.value.code == codes.AUTH_REQUIRED
    await visit.agent.authenticate("door")
    assert (await visit.agent.new_session(str(locked))).session_id


async def sessions(visit: Visit) -> None:
    agent, folder = visit.agent, str(visit.folder)
    opened = await agent.new_session(
        folder,
        additional_directories=[f"{folder}/other"],
        mcp_servers=[
            schema.McpServerStdio(
                name="local",
                command="/bin/true",
                args=["-x"],
                env=[schema.EnvVariable(name="A", value="1")],
            ),
            schema.HttpMcpServer(
                type="http", name="web", url="https://example.com/mcp", headers=[]
            ),
            schema.SseMcpServer(
                type="sse", name="stream", url="https://example.com/sse", headers=[]
            ),
        ],
    )
    await visit.ask(opened.session_id, "where")
    assert json.loads(visit.client.texts()) == {
        "cwd": folder,
        "folders": [f"{folder}/other"],
        "servers": ["local", "web", "stream"],
    }
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await agent.list_sessions(cwd=folder, cursor=cursor)
        found += [info.session_id for info in page.sessions]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found[-1] == opened.session_id
    await agent.close_session(opened.session_id)
    visit.client.updates.clear()
    loaded = await agent.load_session(folder, opened.session_id)
    assert loaded.modes is not None and loaded.modes.current_mode_id == "ask"
    replayed = [type(update) for update in visit.client.updates[:2]]
    assert replayed == [schema.UserMessageChunk, schema.AgentMessageChunk]
    resumed = await agent.resume_session(opened.session_id, folder)
    assert resumed.modes is not None
    with pytest.raises(sdk.RequestError) as missing:
        await agent.load_session(folder, "nothing")
    assert missing.value.code == codes.NOT_FOUND


async def settings(visit: Visit) -> None:
    session = await visit.open()
    await visit.agent.set_session_mode(session, "plan")
    await visit.agent.set_config_option("depth", session, "deep")
    answer = await visit.agent.set_config_option("loud", session, True)
    values = {option.id: option.current_value for option in answer.config_options}
    assert values == {"mode": "plan", "depth": "deep", "loud": True}
    await visit.ask(session, "settings")
    assert json.loads(visit.client.texts()) == ["plan", "deep", True]
    with pytest.raises(sdk.RequestError) as invalid:
        await visit.agent.set_session_mode(session, "nothing")
    assert invalid.value.code == codes.INVALID_PARAMS


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def content(visit: Visit) -> None:
    session = await visit.open()
    request = schema.PromptRequest.model_validate({"sessionId": session, "prompt": script.BLOCKS})
    response = await visit.agent.prompt(session, request.prompt)
    assert response.stop_reason == "end_turn"
    echoed = [dumped(update.content) for update in visit.client.updates]
    assert echoed == script.BLOCKS


async def updates(visit: Visit) -> None:
    session = await visit.open()
    await visit.ask(session, "updates")
    received = [script.bare(dumped(update)) for update in visit.client.updates]
    assert received == [u for u in script.UPDATES if u["sessionUpdate"] not in TOO_NEW_UPDATES]


async def shorthands(visit: Visit) -> None:
    session = await visit.open()
    response = await visit.ask(session, "shorthands")
    assert response.stop_reason == "max_tokens"
    kinds = [update.session_update for update in visit.client.updates]
    # This client cannot receive notices, so the notice is part of the answer.
    assert kinds == [
        "user_message_chunk",
        "agent_thought_chunk",
        "plan",
        "usage_update",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "session_info_update",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "tool_call_update",
        "tool_call_update",
        "tool_call_update",
        "tool_call",
        "tool_call_update",
    ]
    last = [u.status for u in visit.client.updates if isinstance(u, schema.ToolCallProgress)][-2:]
    assert last == ["completed", "failed"]


async def commands(visit: Visit) -> None:
    session = await visit.open()
    assert visit.client.commands == ["shout"]
    await visit.ask(session, "/shout hello")
    assert visit.client.texts() == "HELLO"


async def cancel(visit: Visit) -> None:
    session = await visit.open()
    visit.client.heard.clear()

    async def stop() -> None:
        await visit.client.heard.wait()
        await visit.agent.cancel(session)

    async with asyncio.TaskGroup() as group:
        turn = group.create_task(visit.ask(session, "cancel"))
        group.create_task(stop())
    assert turn.result().stop_reason == "cancelled"
    assert visit.client.texts() == "waitingstopped"


async def files(visit: Visit) -> None:
    session = await visit.open()
    await visit.ask(session, "files")
    assert json.loads(visit.client.texts()) == [script.FILE_TEXT, "two\n", codes.NOT_FOUND]
    assert visit.client.files == {str(visit.folder / "made.txt"): script.FILE_TEXT}


async def terminals(visit: Visit) -> None:
    session = await visit.open()
    await visit.ask(session, "terminals")
    assert json.loads(visit.client.texts()) == {
        "output": "hello world\n",
        "truncated": False,
        "code": 0,
        "running": True,
        "killed": True,
    }
    first = visit.client.terminals["t1"]
    assert (first.command, first.args) == script.HELLO
    assert (first.cwd, first.output_byte_limit) == (str(visit.folder), 1000)
    assert visit.client.released == ["t1", "t2"]
    assert visit.client.killed == {"t2"}


async def permission(visit: Visit) -> None:
    session = await visit.open()
    await visit.ask(session, "permission")
    assert json.loads(visit.client.texts()) == ["yes", "no"]
    assert visit.client.asked == [("Allowed", ["no", "yes"]), ("Forbidden", ["no", "yes"])]


async def elicitation(visit: Visit) -> None:
    session = await visit.open()
    await visit.ask(session, "elicitation")
    assert json.loads(visit.client.texts()) == [
        {"action": "accept", "content": script.FORM_ANSWER},
        {"action": "accept"},
    ]
    (_, form), (message, url) = visit.client.elicited
    assert isinstance(form, schema.ElicitationFormSessionMode)
    assert script.bare(dumped(form.requested_schema)) == script.FORM
    assert isinstance(url, schema.ElicitationUrlSessionMode)
    assert (message, str(url.url)) == ("Go there", "https://example.com/go")
    assert visit.client.urls_done == ["e1"]


async def extensions(visit: Visit) -> None:
    session = await visit.open()
    assert await visit.agent.ext_method("test/double", {"number": 21}) == {"doubled": 42}
    with pytest.raises(sdk.RequestError) as unknown:
        await visit.agent.ext_method("test/nothing", {})
    assert unknown.value.code == codes.METHOD_NOT_FOUND
    await visit.agent.ext_notification("test/told", {"number": 7})
    await visit.ask(session, "extensions")
    assert json.loads(visit.client.texts()) == {
        "answer": {"answered": 21},
        "told": [["test/told", {"number": 7}]],
    }
    assert visit.client.notified == [["test/told", {"number": 21}]]


ACTS: tuple[Callable[[Visit], Awaitable[None]], ...] = (
    handshake,
    login,
    sessions,
    settings,
    content,
    updates,
    shorthands,
    commands,
    cancel,
    files,
    terminals,
    permission,
    elicitation,
    extensions,
)


@aio
async def test_a_client_of_the_sdk_and_our_agent_understand_each_other(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    trace = tmp_path / "trace.jsonl"
    client = RecordingClient()
    async with sdk.spawn_agent_process(
        client,
        sys.executable,
        "-m",
        "tests.interop.our_agent",
        env={"PYTHONPATH": str(CHECKOUT / "src"), "DRAGOMAN_TRACE": str(trace)},
        cwd=CHECKOUT,
        use_unstable_protocol=True,
    ) as (agent, process):
        visit = Visit(agent, client, tmp_path / "workspace")
        visit.folder.mkdir()
        for act in ACTS:
            with subtests.test(act=act.__name__):
                async with asyncio.timeout(PATIENCE):
                    await act(visit)
    assert process.returncode == 0

    messages = wire.said(trace)
    wire.judge_all(messages, models.judge)
    ours = {m.name for m in acp.METHODS if m.direction != "client_to_agent"}
    theirs = {m.name for m in acp.METHODS if m.direction != "agent_to_client"}
    assert wire.called(messages) == ours - LACKING.keys()
    assert wire.answered(messages) == theirs - LACKING.keys() - {"session/cancel"}
    assert wire.updates(messages) == {u["sessionUpdate"] for u in script.UPDATES} - TOO_NEW_UPDATES
