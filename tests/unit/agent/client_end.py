"""A client for tests of the agent kit, written with plain `json`.

It sends what a test tells it to and sorts what comes back into answers, updates and questions. It
shares no code with `dragoman.dialects`, so that it is a witness of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from dragoman.agent import Agent, Turn
from dragoman.errors import ConnectionLost
from dragoman.transports.base import Stream
from dragoman.transports.memory import memory_pair
from tests.unit.rpc.other_side import WAIT_TIMEOUT, OtherSide

EVERYTHING: dict[str, Any] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
    "auth": {"terminal": True},
    "elicitation": {"form": {}, "url": {}},
}

NEW: dict[str, Any] = {"cwd": "/workspace", "mcpServers": []}
OLD: dict[str, Any] = {"sessionId": "old", "cwd": "/workspace", "mcpServers": []}
CANCELLED = {"stopReason": "cancelled"}


class ClientEnd(OtherSide):
    """The client's end of a stream."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._ids = itertools.count(1)
        self._taken: set[int] = set()
        self.served: asyncio.Task[ConnectionLost] | None = None

    # -- sending

    @staticmethod
    def noting(method: str, params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": method, "params": params}

    def asking(self, method: str, params: Any) -> dict[str, Any]:
        return {"id": next(self._ids), **self.noting(method, params)}

    def send(self, method: str, params: Any) -> int:
        """Send a request and return its id."""
        request = self.asking(method, params)
        self.say(request)
        id: int = request["id"]
        return id

    def tell(self, method: str, params: Any) -> None:
        self.say(self.noting(method, params))

    # -- receiving

    async def _find(self, wanted: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(WAIT_TIMEOUT):
            while True:
                for message in self.heard:
                    if wanted(message):
                        return message
                assert self.ended is None, f"the agent ended: {self.ended}; heard {self.heard}"
                self._news.clear()
                await self._news.wait()

    async def answer_to(self, id: int) -> Any:
        return await self._find(lambda m: "method" not in m and m.get("id") == id)

    async def call(self, method: str, params: Any) -> Any:
        """Send a request and return its result."""
        answer = await self.answer_to(self.send(method, params))
        assert "result" in answer, answer
        return answer["result"]

    async def refused(self, method: str, params: Any) -> Any:
        """Send a request and return the error it is answered with."""
        answer = await self.answer_to(self.send(method, params))
        assert "error" in answer, answer
        return answer["error"]

    async def asked(self, method: str) -> Any:
        """The next request from the agent with this method."""

        def is_new(message: Any) -> bool:
            return (
                "id" in message and message.get("method") == method and not self._is_taken(message)
            )

        message = await self._find(is_new)
        self._taken.add(id(message))
        return message

    def _is_taken(self, message: Any) -> bool:
        return id(message) in self._taken

    def updates(self, session_id: str | None = None) -> list[Any]:
        """Every update so far."""
        return [
            message["params"]["update"]
            for message in self.heard
            if message.get("method") == "session/update"
            and session_id in (None, message["params"]["sessionId"])
        ]

    def texts(self, session_id: str | None = None) -> list[str]:
        """What the agent said so far."""
        return [
            update["content"]["text"]
            for update in self.updates(session_id)
            if update["sessionUpdate"] == "agent_message_chunk"
        ]

    async def update(self, wanted: Callable[[Any], bool] = lambda update: True) -> Any:
        """The first update like that."""
        message = await self._find(
            lambda m: m.get("method") == "session/update" and wanted(m["params"]["update"])
        )
        return message["params"]["update"]

    # -- the usual beginning

    async def shake_hands(self, capabilities: dict[str, Any] | None = None) -> Any:
        params = {
            "protocolVersion": 1,
            "clientCapabilities": EVERYTHING if capabilities is None else capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        }
        return await self.call("initialize", params)

    async def new_session(self, cwd: str = "/workspace") -> str:
        result = await self.call("session/new", {"cwd": cwd, "mcpServers": []})
        session_id: str = result["sessionId"]
        return session_id

    @staticmethod
    def prompt_of(session_id: str, text: str) -> dict[str, Any]:
        return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}

    def prompt(self, session_id: str, text: str = "hello") -> int:
        return self.send("session/prompt", self.prompt_of(session_id, text))

    async def ask(self, session_id: str, text: str = "hello") -> str:
        """Send a prompt, wait for its end and return the stop reason."""
        result = await self.call("session/prompt", self.prompt_of(session_id, text))
        stop_reason: str = result["stopReason"]
        return stop_reason

    def cancel(self, session_id: str) -> None:
        self.tell("session/cancel", {"sessionId": session_id})


@asynccontextmanager
async def served(agent: Agent) -> AsyncIterator[ClientEnd]:
    """A client of an agent, before the handshake."""
    ours, theirs = memory_pair()
    client = ClientEnd(ours)
    ours.start(client)
    async with asyncio.TaskGroup() as tasks:
        client.served = tasks.create_task(agent.serve(theirs))
        try:
            yield client
        finally:
            await ours.aclose()


@asynccontextmanager
async def in_session(
    agent: Agent, capabilities: dict[str, Any] | None = None
) -> AsyncIterator[tuple[ClientEnd, str]]:
    """A client of an agent with a session, and the session's id."""
    async with served(agent) as client:
        await client.shake_hands(capabilities)
        yield client, await client.new_session()


def simple_agent(**options: Any) -> Agent:
    """An agent that repeats what it hears."""
    agent = Agent("echo", **options)

    @agent.prompt
    async def echo(turn: Any) -> None:
        await turn.say(turn.text)

    return agent


def agent_with(handler: Callable[..., Any], **options: Any) -> Agent:
    agent = Agent("test", **options)
    agent.prompt(handler)
    return agent


class Hanging:
    """A prompt handler that waits forever, and what became of it."""

    def __init__(self, then: Callable[[Turn], Any] | None = None) -> None:
        self.states: list[str] = []
        self.then = then

    async def __call__(self, turn: Turn) -> Any:
        await turn.say("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.states.append("cancelled")
            if self.then is None:
                raise
            return await self.then(turn)
        finally:
            self.states.append("ended")
