"""A bridge in memory: our client on one side, an agent of the test on the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dragoman.agent import Agent
from dragoman.agent.server import Server
from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.peer import AcpPeer, open_peer
from dragoman.client.permissions import Permit, deny_all
from dragoman.gateway import Gateway
from dragoman.rpc import Connection, End
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports import memory_pair
from tests.unit.rpc.other_side import OtherSide, soon

WORKSPACE = Path("/w")

CONNECTIONS: dict[str, Connection] = {}
"""The agents' own ends, by the names of the agents, for what no handler can do."""


@asynccontextmanager
async def far(agent: Agent) -> AsyncIterator[AcpPeer]:
    """A peer whose agent is in this process."""
    ours, theirs = memory_pair()
    connection = CONNECTIONS[agent.info.name] = Connection(theirs, End.AGENT, Server(agent))
    async with connection:
        async with await soon(open_peer(ours, WORKSPACE)) as peer:
            yield peer


@asynccontextmanager
async def bridged(
    agent: Agent, permit: Permit = deny_all
) -> AsyncIterator[tuple[AcpPeer, Gateway]]:
    """A client of ours, and the bridge between it and the agent."""
    tasks = TaskOwner("near")
    async with far(agent) as peer:
        bridge = Gateway(peer)
        ours, theirs = memory_pair()
        tasks.start(bridge.serve(theirs), "bridge")
        try:
            near = await soon(open_peer(ours, WORKSPACE, ClientOptions(permit=permit)))
            async with near:
                yield near, bridge
        finally:
            await tasks.aclose()


class PlainClient(OtherSide):
    """A client written with plain `json`."""

    ids = 0

    async def call(self, method: str, params: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The answer, and what came before it."""
        self.ids += 1
        self.say({"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params})
        before: list[Any] = []
        while True:
            message = await self.next()
            if "method" not in message and message["id"] == self.ids:
                return message, before
            before.append(message)


@asynccontextmanager
async def plain(agent: Agent, capabilities: dict[str, Any]) -> AsyncIterator[PlainClient]:
    """A client that has shaken hands with a bridge."""
    tasks = TaskOwner("near")
    async with far(agent) as peer:
        ours, theirs = memory_pair()
        client = PlainClient(ours)
        ours.start(client)
        tasks.start(Gateway(peer).serve(theirs), "bridge")
        try:
            hello = {"protocolVersion": 1, "clientCapabilities": capabilities}
            await client.call("initialize", hello)
            yield client
        finally:
            await ours.aclose()
            await tasks.aclose()
