"""A client written with the official Python SDK drives the real Codex through a bridge."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import acp as sdk
import pytest
from acp import schema

from dragoman.testing.fake_model import FakeModel
from tests.aio import aio
from tests.integration.peers import ENVIRONMENT
from tests.integration.test_bridge_official_client import Client
from tests.peers.codex import WAIT, WITH_KEY, configure
from tests.peers.programs import peer_environment, peer_program


class Refusing(Client):
    """Refuses what it is asked for."""

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **kwargs: Any,
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call.title)
        chosen = next(option for option in options if option.kind == "reject_once")
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )


def bridged(client: Client, home: Path, workspace: Path) -> Any:
    """The official client's end of a bridge to the real Codex."""
    environment = {**peer_environment(home), **ENVIRONMENT, "FAKE_KEY": "k"}
    inherited = [word for name in environment for word in ("--inherit", name)]
    return sdk.spawn_agent_process(
        client,  # type: ignore[arg-type]
        sys.executable,
        *("-m", "dragoman.gateway", *inherited, "--", *peer_program("codex"), "app-server"),
        env=environment,
        cwd=workspace,
    )


@aio
async def test_the_official_client_sees_an_ordinary_agent_where_codex_is(
    home: Path, workspace: Path
) -> None:
    client = Client()
    async with FakeModel() as model, asyncio.timeout(3 * WAIT):
        configure(home, model, WITH_KEY + "\n[tools.update_plan]\nenabled = true\n")
        async with bridged(client, home, workspace) as (agent, _):
            hello = await agent.initialize(1, client_capabilities=schema.ClientCapabilities())
            assert hello.protocol_version == 1
            opened = await agent.new_session(str(workspace))
            said = await agent.prompt(opened.session_id, [sdk.text_block("CHUNKS:3")])
            assert said.stop_reason == "end_turn"
            assert any(isinstance(update, schema.UsageUpdate) for update in client.updates)
            assert client.text() == "chunk-1 chunk-2 chunk-3 "

            await agent.prompt(opened.session_id, [sdk.text_block("WRITE:made.txt:some content")])
            path = workspace / "made.txt"
            assert client.asked == [f"Edit {path}"]
            assert path.read_text() == "some content\n"
            diffs = [
                part
                for update in client.updates
                if isinstance(update, schema.ToolCallStart | schema.ToolCallProgress)
                for part in update.content or ()
                if isinstance(part, schema.FileEditToolCallContent)
            ]
            assert diffs
            assert {diff.path for diff in diffs} == {str(path)}
            assert diffs[-1].new_text == "some content\n"
            client.updates.clear()

            await agent.prompt(opened.session_id, [sdk.text_block("PLAN:look;change")])
            (told,) = [u for u in client.updates if isinstance(u, schema.AgentPlanUpdate)]
            assert [entry.content for entry in told.entries] == ["look", "change"]
            client.updates.clear()

            client.heard.clear()

            async def cancel() -> None:
                await client.heard.wait()
                await agent.cancel(opened.session_id)

            cancelled, _ = await asyncio.gather(
                agent.prompt(opened.session_id, [sdk.text_block("SLOW")]), cancel()
            )
            assert cancelled.stop_reason == "cancelled"
            client.updates.clear()

            with pytest.raises(sdk.RequestError):
                await agent.prompt(opened.session_id, [sdk.text_block("HTTP:400")])
            listed = await agent.list_sessions()
            assert opened.session_id in {info.session_id for info in listed.sessions}

        # Another bridge and another Codex: what was said is still there.
        async with bridged(client, home, workspace) as (agent, _):
            await agent.initialize(1, client_capabilities=schema.ClientCapabilities())
            client.updates.clear()
            await agent.load_session(str(workspace), opened.session_id)
            assert "chunk-1 chunk-2 chunk-3 " in client.text()


@aio
async def test_a_refusal_of_the_official_client_reaches_codex(home: Path, workspace: Path) -> None:
    client = Refusing()
    async with FakeModel() as model, asyncio.timeout(3 * WAIT):
        configure(home, model)
        async with bridged(client, home, workspace) as (agent, _):
            await agent.initialize(1, client_capabilities=schema.ClientCapabilities())
            opened = await agent.new_session(str(workspace))
            await agent.prompt(opened.session_id, [sdk.text_block("WRITE:made.txt:some content")])
            assert len(client.asked) == 1
            assert not (workspace / "made.txt").exists()
