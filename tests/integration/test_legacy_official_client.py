"""The official Python SDK's client with agents of the legacy dialects.

Through the gateway, `dragoman serve acp` and `dragoman broker attach`, as programs. The agents
answer in the messages of their documents. The SDK validates everything that it gets, and fails for
a word that ACP does not have.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp as sdk
import pytest
from acp import schema

from tests.aio import aio
from tests.integration.cli_shell import Cli, cli_in, warm_cli
from tests.integration.test_bridge_official_client import Client

AGENT = str(Path(__file__).with_name("replay_agent.py"))
WAIT_TIMEOUT = 40.0
"""For a whole conversation; long, because the machine may be busy with other tests."""

GOOD = {
    "oneshot": ("chunk tool file answer", "..."),
    "threads": ("complete", "..."),
    "tagged": (
        "processing tool_running tool_completed plan final_chunk end_turn",
        "Processing your request...\nI've read the file and...",
    ),
    "keyed": (
        "chunk tool tool_pending plan mode everything permission end_turn",
        "Looking further",
    ),
    "chained": ("sent delta tool_start tool_result reasoning status", "Paris"),
}
"""A good turn of each dialect, and what is said in it."""

BAD = {
    "threads": "error",
    "tagged": "processing failed",
    "keyed": "chunk tool_error",
    "chained": "sent error",
}
"""One that fails, where the document has one."""


GATEWAY, COLD, WARM, ATTACH = "gateway", "serve acp, cold", "serve acp, warm", "broker attach"


@pytest.fixture
def cli(way: str, tmp_path: Path) -> Iterator[Cli]:
    if way in (WARM, ATTACH):
        with warm_cli() as warm:
            yield warm
    else:
        yield cli_in(tmp_path)


def argv(cli: Cli, way: str, dialect: str, turn: str) -> list[str]:
    """The command line that an editor would have for an agent."""
    agent = [sys.executable, AGENT, str(cli.home / "log"), dialect, *turn.split()]
    if way == GATEWAY:
        return [sys.executable, "-m", "dragoman.gateway", "--dialect", dialect, "--", *agent]
    config = Path(cli.env["DRAGOMAN_CONFIG_HOME"])
    (config / "peers").mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text('enabled_peers = ["old"]\n')
    (config / "peers" / "old.toml").write_text(
        f'name = "old"\ntitle = "old"\nprotocol = "{dialect}"\nroles = ["review"]\n'
        f"[[launch]]\ncommand = {json.dumps(agent)}\n"
    )
    if way == ATTACH:
        return cli.argv("broker", "attach", "old")
    return cli.argv("serve", "acp", "--peer", "old")


@asynccontextmanager
async def editor(cli: Cli, words: list[str]) -> AsyncIterator[tuple[Client, Any, str]]:
    """An editor with one session."""
    client = Client()
    command, *arguments = words
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        sdk.spawn_agent_process(
            client,  # type: ignore[arg-type]
            command,
            *arguments,
            env=cli.env,
            cwd=cli.cwd,
        ) as (agent, process),
    ):
        await agent.initialize(1, client_capabilities=schema.ClientCapabilities())
        opened = await agent.new_session(str(cli.cwd))
        yield client, agent, opened.session_id
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


@pytest.mark.parametrize("way", [GATEWAY, COLD, WARM, ATTACH])
@pytest.mark.parametrize("dialect", GOOD)
@aio
async def test_the_official_client_completes_turns(cli: Cli, way: str, dialect: str) -> None:
    turn, said = GOOD[dialect]
    async with editor(cli, argv(cli, way, dialect, turn)) as (client, agent, session):
        for number in range(2):
            client.updates.clear()
            answer = await agent.prompt(session, [sdk.text_block("hello")])
            assert answer.stop_reason == "end_turn"
            if dialect in ("oneshot", "threads"):
                usage = answer.usage
                assert (usage.input_tokens, usage.output_tokens) == (1234, 5678)
            tools = any(isinstance(each, schema.ToolCallStart) for each in client.updates)
            # The document's ids of tool calls are the same in the second turn.
            assert tools or dialect == "threads" or number > 0
            assert client.text() == said
        assert client.asked == (["Edit c.py"] * 2 if dialect == "keyed" else [])


@pytest.mark.parametrize("way", [GATEWAY])
@aio
async def test_an_agent_whose_handshake_shows_nothing_is_found_behind_the_gateway(
    cli: Cli, way: str
) -> None:
    bare = "initialize=initialized_bare session/new=opened_bare"
    words = argv(cli, way, "keyed", f"{bare} {GOOD['keyed'][0]}")
    del words[words.index("--dialect") : words.index("--")]
    async with editor(cli, words) as (client, agent, session):
        answer = await agent.prompt(session, [sdk.text_block("hello")])
        assert answer.stop_reason == "end_turn"
        assert client.text() == "Looking further"
        assert client.asked == ["Edit c.py"]


@pytest.mark.parametrize("way", [GATEWAY, COLD])
@pytest.mark.parametrize("dialect", BAD)
@aio
async def test_a_turn_that_failed_is_an_error(cli: Cli, way: str, dialect: str) -> None:
    async with editor(cli, argv(cli, way, dialect, BAD[dialect])) as (_, agent, session):
        with pytest.raises(sdk.RequestError):
            await agent.prompt(session, [sdk.text_block("hello")])


@pytest.mark.parametrize("way", [GATEWAY, COLD])
@pytest.mark.parametrize(
    ("dialect", "turn", "stop"),
    [("tagged", "cancelled", "cancelled"), ("keyed", "chunk max_tokens", "max_tokens")],
)
@aio
async def test_a_turn_ends_with_a_stop_reason_of_acp(
    cli: Cli, way: str, dialect: str, turn: str, stop: str
) -> None:
    async with editor(cli, argv(cli, way, dialect, turn)) as (_, agent, session):
        answer = await agent.prompt(session, [sdk.text_block("hello")])
        assert answer.stop_reason == stop
