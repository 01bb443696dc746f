"""From a command line to a client: what is started is ended, whatever goes wrong.

With real agents this is in tests/integration/test_acp_processes.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import transports
from dragoman.client.acp import ClientOptions, open_agent, use_agent
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionLost, ProgramNotFound, ProtocolMismatch
from dragoman.transports.memory import MemoryStream, memory_pair
from tests.aio import aio
from tests.unit.client.acp.agent_side import AgentSide
from tests.unit.rpc.other_side import until

ARGV = ["agent", "--acp"]


class Spawned:
    """Takes the place of `spawn`: an agent in memory, and what it was started with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Any, dict[str, Any]]] = []
        self.agent: AgentSide | None = None
        self.theirs: MemoryStream | None = None
        monkeypatch.setattr(transports, "spawn", self)

    async def __call__(self, argv: Any, **how: Any) -> MemoryStream:
        self.calls.append((argv, how))
        ours, self.theirs = memory_pair()
        self.agent = AgentSide(self.theirs)
        self.theirs.start(self.agent)
        return ours

    async def ended(self) -> None:
        assert self.agent is not None and self.theirs is not None
        agent = self.agent
        await until(lambda: agent.ended is not None)
        await self.theirs.aclose()


@aio
async def test_an_agent_is_started_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    spawned = Spawned(monkeypatch)
    async with open_agent(ARGV, cwd="/w", env={"A": "b"}, inherit=["KEY"]) as client:
        assert (await client.new_session("/w")).id == "s1"
    (call,) = spawned.calls
    assert call[0] == ARGV
    assert call[1] | {"cwd": "/w", "env": {"A": "b"}, "inherit": ["KEY"]} == call[1]
    await spawned.ended()


@aio
async def test_the_command_of_a_login_is_the_one_the_agent_was_started_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spawned = Spawned(monkeypatch)
    async with open_agent(ARGV) as client:
        method = acp.AuthMethodTerminal(id="m", name="M", args=["login"])
        assert client.login_command(method) == "agent --acp login"
    await spawned.ended()


@aio
async def test_an_exception_in_the_block_ends_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    spawned = Spawned(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        async with open_agent(ARGV):
            raise ZeroDivisionError
    await spawned.ended()


@aio
async def test_a_handshake_that_fails_ends_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentSide, "__init__", _with_reply("initialize", {"protocolVersion": 2}))
    spawned = Spawned(monkeypatch)
    with pytest.raises(ProtocolMismatch):
        async with open_agent(ARGV):
            pytest.fail("the client must not be usable")
    await spawned.ended()


def _with_reply(method: str, reply: Any) -> Any:
    original = AgentSide.__init__

    def init(self: AgentSide, stream: Any) -> None:
        original(self, stream)
        self.replies[method] = reply

    return init


@aio
async def test_a_client_that_cannot_be_made_ends_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spawned = Spawned(monkeypatch)
    impossible = ClientOptions(max_line_size=0)
    with pytest.raises(ValueError, match="max_line_size"):
        async with open_agent(ARGV, options=impossible):
            pytest.fail("the client must not be usable")
    await spawned.ended()
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    theirs.start(agent)
    with pytest.raises(ValueError, match="max_line_size"):
        async with use_agent(ours, options=impossible):
            pytest.fail("the client must not be usable")
    await until(lambda: agent.ended is not None)
    await theirs.aclose()


@aio
async def test_a_program_that_does_not_exist_is_said_to_be_missing() -> None:
    with pytest.raises(ProgramNotFound):
        async with open_agent(["no-such-agent-anywhere"]):
            pytest.fail("there is no agent")


@aio
async def test_a_stream_that_is_open_already_is_closed_at_the_end() -> None:
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    theirs.start(agent)
    async with use_agent(ours) as client:
        assert client.agent.protocol_version == 1
    await until(lambda: agent.ended is not None)
    with pytest.raises(ConnectionLost):
        theirs.write(b"x\n")
    await theirs.aclose()
