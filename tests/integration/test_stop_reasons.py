"""Turns of every dialect, ended for a client of the official Python SDK through each door.

The SDK checks what it decodes: a stop reason that ACP does not have is an exception there.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import acp as sdk
import pytest
from acp import schema

from dragoman.testing import scripted
from dragoman.testing.storyteller import End, Say, Story, command
from tests.aio import aio
from tests.integration.cli_shell import Cli, warm_cli
from tests.integration.peers import WAIT_TIMEOUT
from tests.integration.stories import OTHERS
from tests.integration.test_bridge_official_client import Client
from tests.integration.test_codex_replay import steps

ODD = (sys.executable, str(Path(__file__).with_name("odd_stop_agent.py")))
GOOD = Story((Say("said"), End()))
DOORS = ("bridge", "serve acp", "broker attach")


def codex_steps() -> list[scripted.Step]:
    """A recording of Codex, which is in the sandbox that a door asks for."""
    found = steps("text")
    for step in found:
        result = step.message.get("result") if isinstance(step, scripted.Send) else None
        if isinstance(result, dict) and "sandbox" in result:
            result["sandbox"], result["approvalPolicy"] = {"type": "readOnly"}, "on-request"
    return found


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    """A user with one peer for each dialect."""
    with warm_cli() as cli:
        folder = cli.home / "config_home" / "peers"
        folder.mkdir(parents=True)
        script = cli.home / "codex.json"
        script.write_text(scripted.dumps(codex_steps()), encoding="utf-8")
        commands = {dialect: command(GOOD, dialect=dialect) for dialect in OTHERS}
        commands["codex"] = [sys.executable, scripted.__file__, str(script)]
        commands["acp"] = list(ODD)
        for dialect, words in commands.items():
            (folder / f"{dialect}-peer.toml").write_text(
                f'name = "{dialect}-peer"\ntitle = "x"\nprotocol = "{dialect}"\n'
                f'roles = ["review"]\n[[launch]]\ncommand = {json.dumps(words)}\n'
            )
        names = json.dumps([f"{dialect}-peer" for dialect in commands])
        (folder.parent / "config.toml").write_text(f"enabled_peers = {names}\n")
        (cli.home / "commands.json").write_text(json.dumps(commands))
        yield cli


@asynccontextmanager
async def through(
    door: str, dialect: str, cli: Cli
) -> AsyncIterator[tuple[Client, sdk.Agent, str]]:
    """A client of the official SDK, and a session with a peer of this dialect."""
    if door == "bridge":
        peer = json.loads((cli.home / "commands.json").read_text())[dialect]
        words = ["-m", "dragoman.gateway", "--dialect", dialect, "--inherit", "PYTHONPATH", "--"]
        argv = [sys.executable, *words, *peer]
    elif door == "serve acp":
        argv = cli.argv("serve", "acp", "--peer", f"{dialect}-peer")
    else:
        # Some of these peers have one session for each process, and a door before has used it.
        await asyncio.to_thread(cli, "broker", "stop", f"{dialect}-peer")
        argv = cli.argv("broker", "attach", f"{dialect}-peer")
    client = Client()
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        sdk.spawn_agent_process(
            client,  # type: ignore[arg-type]
            argv[0],
            *argv[1:],
            env=cli.env,
            cwd=cli.cwd,
        ) as (agent, _),
    ):
        await agent.initialize(1, client_capabilities=schema.ClientCapabilities())
        session = (await agent.new_session(str(cli.cwd))).session_id
        yield client, agent, session


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("dialect", [*OTHERS, "codex"])
@aio
async def test_a_good_turn_of_any_dialect_ends_for_the_official_client(
    dialect: str, door: str, cli: Cli
) -> None:
    async with through(door, dialect, cli) as (client, agent, session):
        prompt = "THINK please" if dialect == "codex" else "go on"
        answer = await agent.prompt(session, [sdk.text_block(prompt)])
        assert answer.stop_reason == "end_turn"
        assert client.text()


@pytest.mark.parametrize("door", DOORS)
@aio
async def test_a_strange_stop_reason_of_an_acp_agent_is_translated_and_kept(
    door: str, cli: Cli
) -> None:
    async with through(door, "acp", cli) as (_, agent, session):

        async def stop(word: object) -> tuple[str, object]:
            answer = await agent.prompt(session, [sdk.text_block(json.dumps(word))])
            meta = (answer.field_meta or {}).get("dragoman") or {}
            return answer.stop_reason, meta.get("stopReason")

        assert await stop("end_turn") == ("end_turn", None)
        assert await stop("max_turn_requests") == ("max_turn_requests", None)
        assert await stop("endTurn") == ("end_turn", "endTurn")
        assert await stop("length") == ("max_tokens", "length")
        assert await stop("paused") == ("end_turn", "paused")
        for word in ("error", "tool_error"):
            with pytest.raises(sdk.RequestError, match=f"stop reason '{word}'") as failed:
                await stop(word)
            assert (failed.value.data or {})["stopReason"] == word
        with pytest.raises(sdk.RequestError, match="session/prompt"):
            await stop(None)
        assert await stop("end_turn") == ("end_turn", None)


def test_a_failed_turn_is_reported_alike_warm_and_cold(cli: Cli) -> None:
    told = set()
    for how in ((), ("--cold",)):
        done = cli("run", "acp-peer", '"tool_error"', "--format", "json", *how)
        ended = [json.loads(line) for line in done.out.splitlines()][-1]
        told.add((done.code, ended.get("outcome"), ended.get("stop")))
    assert len(told) == 1, told
    assert told.pop()[1:] == ("failed", "tool_error")
