"""An agent for tests of the client, written with plain `json`.

It answers what a test gave it replies for and leaves the rest to the test, message by message. It
shares no code with `dragoman.dialects`, so that it is a witness of its own; what it says is taken
from the protocol's schema and from transcripts of real agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.client.acp import AcpClient, ClientOptions, Session, use_agent
from dragoman.transports.base import Stream
from dragoman.transports.memory import memory_pair
from dragoman.wire.peer import Noise, Stray
from tests.unit.rpc.other_side import WAIT_TIMEOUT, OtherSide

CWD = Path("/workspace")

EVERYTHING: dict[str, Any] = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {
        "list": {},
        "delete": {},
        "resume": {},
        "close": {},
        "fork": {},
        "additionalDirectories": {},
    },
    "auth": {"logout": {}},
}

OPTIONS = [
    {"optionId": "proceed_always", "name": "Allow for this session", "kind": "allow_always"},
    {"optionId": "proceed_once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "cancel", "name": "Reject", "kind": "reject_once"},
]
"""What a real agent offers: its way to reject is called "cancel"."""


MODES = {
    "currentModeId": "code",
    "availableModes": [{"id": "code", "name": "Code"}, {"id": "plan", "name": "Plan"}],
}
MODELS = {
    "currentModelId": "small",
    "availableModels": [
        {"modelId": "small", "name": "Small"},
        {"modelId": "large", "name": "Large"},
    ],
}


@dataclass(frozen=True)
class Refusal:
    """A reply that is an error."""

    code: int
    message: str = "refused"
    data: Any = None


def select(id: str, category: str, current: str, *values: str) -> dict[str, Any]:
    return {
        "type": "select",
        "id": id,
        "name": id,
        "category": category,
        "currentValue": current,
        "options": [{"value": value, "name": value} for value in values],
    }


def chunk(text: str) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


class AgentSide(OtherSide):
    """The agent's end of a stream."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.replies: dict[str, Any] = {
            "initialize": {"protocolVersion": 1, "agentCapabilities": {}},
            "session/new": {"sessionId": "s1"},
        }
        """What a method is answered with: a result, a `Refusal`, or a function of the params."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        for message in list(self._unread):
            if "id" in message and message.get("method") in self.replies:
                self._unread.remove(message)
                reply = self.replies[message["method"]]
                self.reply(message, reply(message["params"]) if callable(reply) else reply)

    def reply(self, request: Any, reply: Any) -> None:
        if isinstance(reply, Refusal):
            error = {"code": reply.code, "message": reply.message}
            if reply.data is not None:
                error["data"] = reply.data
            self.say({"jsonrpc": "2.0", "id": request["id"], "error": error})
        else:
            self.answer(request, reply)

    async def expect(self, method: str) -> Any:
        """The next message that was not replied to by itself; it must have this method."""
        message = await self.next()
        assert message.get("method") == method, message
        return message

    async def end(self, stop_reason: str = "end_turn") -> None:
        """Take a prompt and end its turn at once."""
        self.answer(await self.expect("session/prompt"), {"stopReason": stop_reason})

    @staticmethod
    def updating(update: dict[str, Any], session_id: str = "s1") -> dict[str, Any]:
        params = {"sessionId": session_id, "update": update}
        return {"jsonrpc": "2.0", "method": "session/update", "params": params}

    def update(self, *updates: dict[str, Any], session_id: str = "s1") -> None:
        self.say(*(self.updating(update, session_id) for update in updates))

    @staticmethod
    def asking(id: int | str, method: str, params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def ask(self, id: int | str, method: str, params: Any) -> None:
        """Send a request; `heard_answer` waits for what comes back."""
        self.say(self.asking(id, method, params))

    @staticmethod
    def permission(
        call: dict[str, Any] | None = None,
        options: list[dict[str, Any]] | None = None,
        session_id: str = "s1",
    ) -> dict[str, Any]:
        return {
            "sessionId": session_id,
            "toolCall": call or {"toolCallId": "c1", "title": "touch x", "kind": "execute"},
            "options": OPTIONS if options is None else options,
        }

    async def heard_answer(self, id: int | str) -> Any:
        """The answer to a request of this side, and nothing else may come before it."""
        message = await self.next()
        assert message.get("id") == id and "method" not in message, message
        return message

    def told(self, method: str) -> list[Any]:
        """The params of every message with this method so far."""
        return [message["params"] for message in self.heard if message.get("method") == method]


@asynccontextmanager
async def driven(
    options: ClientOptions | None = None,
    *,
    capabilities: dict[str, Any] | None = None,
    replies: dict[str, Any] | None = None,
    wrap: Callable[[Stream], Stream] = lambda stream: stream,
) -> AsyncIterator[tuple[AcpClient, AgentSide]]:
    """A client that has shaken hands, and its agent."""
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    agent.replies["initialize"]["agentCapabilities"] = capabilities or {}
    agent.replies |= replies or {}
    theirs.start(agent)
    try:
        async with use_agent(wrap(ours), options=options) as client:
            yield client, agent
    finally:
        await theirs.aclose()


@asynccontextmanager
async def opened(
    options: ClientOptions | None = None,
    *,
    capabilities: dict[str, Any] | None = None,
    replies: dict[str, Any] | None = None,
    cwd: Path = CWD,
) -> AsyncIterator[tuple[Session, AgentSide]]:
    """A session "s1", and its agent."""
    async with driven(options, capabilities=capabilities, replies=replies) as (client, agent):
        yield await client.new_session(cwd), agent


class Noises(list[Noise | Stray]):
    """For `on_noise`: what was no message, and a way to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def __call__(self, noise: Noise | Stray) -> None:
        self.append(noise)
        self._news.set()

    async def first(self) -> Noise | Stray:
        async with asyncio.timeout(WAIT_TIMEOUT):
            await self._news.wait()
        return self[0]
