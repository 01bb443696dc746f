"""A client written with the official Python SDK drives our agent through a bridge."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import acp as sdk
import pytest
from acp import schema

from tests.aio import aio
from tests.integration.full_agent import KEPT
from tests.integration.peers import AGENT, BRIDGE, ENVIRONMENT, WAIT_TIMEOUT


class Client:
    """Keeps what it hears, and allows what it is asked for."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[str | None] = []
        self.heard = asyncio.Event()

    def on_connect(self, conn: sdk.Agent) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        self.heard.set()

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **kwargs: Any,
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call.title)
        chosen = next(option for option in options if option.kind == "allow_once")
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    def text(self) -> str:
        said = [
            update.content.text
            for update in self.updates
            if isinstance(update, schema.AgentMessageChunk)
            and isinstance(update.content, schema.TextContentBlock)
        ]
        self.updates.clear()
        return "".join(said)


@aio
async def test_the_official_client_sees_an_ordinary_agent_behind_the_bridge(
    tmp_path: Path,
) -> None:
    client = Client()
    command, *arguments = [*BRIDGE, *AGENT]
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        sdk.spawn_agent_process(
            client,  # type: ignore[arg-type]
            command,
            *arguments,
            env=ENVIRONMENT,
            cwd=tmp_path,
        ) as (agent, _),
    ):
        hello = await agent.initialize(1, client_capabilities=schema.ClientCapabilities())
        assert hello.agent_info is not None
        assert (hello.agent_info.name, hello.agent_info.version) == ("full", "7.1")
        opened = await agent.new_session(str(tmp_path))
        assert opened.modes is not None
        assert opened.modes.current_mode_id == "ask"
        answer = await agent.prompt(opened.session_id, [sdk.text_block("everything")])
        assert answer.stop_reason == "end_turn"
        kinds = {type(update) for update in client.updates}
        assert {
            schema.AgentThoughtChunk,
            schema.AgentMessageChunk,
            schema.AgentPlanUpdate,
            schema.ToolCallStart,
            schema.ToolCallProgress,
            schema.UsageUpdate,
            schema.AvailableCommandsUpdate,
            schema.SessionInfoUpdate,
        } <= kinds
        client.text()
        await agent.prompt(opened.session_id, [sdk.text_block("permission Dig deeper")])
        assert (client.asked, client.text()) == (["Dig deeper"], "allowed")
        await agent.set_session_mode(opened.session_id, "code")
        await agent.prompt(opened.session_id, [sdk.text_block("hi")])
        assert client.text() == "code: hi"
        with pytest.raises(sdk.RequestError) as caught:
            await agent.prompt(opened.session_id, [sdk.text_block("fail")])
        assert (caught.value.code, caught.value.data) == (-32603, {"details": "on purpose"})
        listed = await agent.list_sessions()
        assert [info.session_id for info in listed.sessions] == [KEPT]
        client.updates.clear()
        await agent.load_session(str(tmp_path), KEPT)
        assert client.text() == "an old answer"
        client.heard.clear()

        async def cancel() -> None:
            await client.heard.wait()
            await agent.cancel(opened.session_id)

        cancelled, _ = await asyncio.gather(
            agent.prompt(opened.session_id, [sdk.text_block("wait")]), cancel()
        )
        assert cancelled.stop_reason == "cancelled"
