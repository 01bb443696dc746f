"""A bridge between an agent and clients that a test plays with plain `json`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.peer import AcpPeer, open_peer
from dragoman.errors import ConnectionLost
from dragoman.events import model
from dragoman.gateway import Gateway
from dragoman.transports.memory import memory_pair
from tests.unit.client.acp.agent_side import CWD, EVERYTHING, AgentSide
from tests.unit.rpc.other_side import WAIT_TIMEOUT, OtherSide, soon


class ClientEnd(OtherSide):
    """A client of a bridge."""

    _ids = 100
    served: asyncio.Task[ConnectionLost]
    """The bridge's work for this client; its result says why it ended."""

    def begin(self, method: str, params: Any) -> int:
        """Send a request; `result` waits for its answer."""
        self._ids += 1
        self.say({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        return self._ids

    async def answered(self, id: int) -> Any:
        """The next message, which must be the answer to this request."""
        message = await self.next()
        assert message.get("id") == id and "method" not in message, message
        return message

    async def call(self, method: str, params: Any) -> Any:
        """The result of a request."""
        message = await self.answered(self.begin(method, params))
        assert "result" in message, message
        return message["result"]

    async def refused(self, method: str, params: Any) -> Any:
        """The error of a request."""
        message = await self.answered(self.begin(method, params))
        assert "error" in message, message
        return message["error"]

    async def hello(self, **capabilities: Any) -> Any:
        params = {"protocolVersion": 1, "clientCapabilities": capabilities}
        return await self.call("initialize", params)

    async def open(self) -> str:
        """A new session."""
        params = {"cwd": str(CWD), "mcpServers": []}
        answer = await self.call("session/new", params)
        return str(answer["sessionId"])

    def prompt(self, text: str, session_id: str = "s1") -> int:
        prompt = [{"type": "text", "text": text}]
        return self.begin("session/prompt", {"sessionId": session_id, "prompt": prompt})

    async def told(self, method: str) -> Any:
        """The params of the next message, which must have this method."""
        message = await self.next()
        assert message.get("method") == method, message
        return message["params"]


class Scene:
    """An agent, a bridge to it, and as many clients as a test wants."""

    def __init__(self, agent: AgentSide, peer: AcpPeer, bridge: Gateway) -> None:
        self.agent = agent
        self.peer = peer
        self.bridge = bridge
        self.stack = AsyncExitStack()

    async def client(self, **capabilities: Any) -> ClientEnd:
        """A client that has shaken hands."""
        client = await self.stranger()
        await client.hello(**capabilities)
        return client

    async def stranger(self) -> ClientEnd:
        """A client that has said nothing yet."""
        ours, theirs = memory_pair()
        client = ClientEnd(theirs)
        theirs.start(client)
        group = await self.stack.enter_async_context(asyncio.TaskGroup())
        self.stack.push_async_callback(theirs.aclose)
        client.served = group.create_task(self.bridge.serve(ours))
        return client


@asynccontextmanager
async def scene(
    *,
    capabilities: dict[str, Any] | None = None,
    replies: dict[str, Any] | None = None,
    on_event: Callable[[model.Event], None] | None = None,
    raw: bool = False,
    dialect: str | None = None,
    **options: Any,
) -> AsyncIterator[Scene]:
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    agent.replies["initialize"]["agentCapabilities"] = (
        EVERYTHING if capabilities is None else capabilities
    )
    agent.replies["session/close"] = {}
    agent.replies |= replies or {}
    theirs.start(agent)
    peer = await soon(open_peer(ours, CWD, ClientOptions(on_event=on_event, **options)))
    try:
        async with asyncio.timeout(WAIT_TIMEOUT):
            here = Scene(agent, peer, Gateway(peer, raw=raw, dialect=dialect))
            async with here.stack:
                yield here
    finally:
        await peer.aclose()
        await theirs.aclose()
