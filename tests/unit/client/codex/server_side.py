"""An app-server in memory that does what a test tells it, for the tests of our client.

It is no model of Codex: what Codex really does is in the recordings and in tests/peers. It answers
each method with what the test put there, and says what the test lets it say.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dragoman.client.budgets import Budgets
from dragoman.client.codex import CodexConversation, CodexOptions, CodexPeer
from dragoman.events import model
from dragoman.rpc import Connection, ConnectionSettings, End
from dragoman.transports import memory_pair
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

WAIT = 10.0
"""Seconds for anything in memory, on a machine that is busy."""

BUDGETS = Budgets(cancel_grace=0.2, request=5.0)


def thread(id: str = "t1", **changes: Any) -> dict[str, Any]:
    """The answer to opening a thread."""
    return {
        "thread": {"id": id, "turns": [], **changes.pop("thread", {})},
        "model": "m",
        "cwd": "/w",
        "approvalPolicy": "on-request",
        "sandbox": {"type": "readOnly"},
        "modelProvider": "openai",
        **changes,
    }


@dataclass
class Server:
    """The other side. `answers` holds a value, an exception or a function for each method."""

    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    noises: list[Noise | Stray] = field(default_factory=list)
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.answers = {
            "initialize": {"userAgent": "dragoman/0.166.0 (x)"},
            "account/read": {"account": None, "requiresOpenaiAuth": False},
            "model/list": {"data": []},
            "thread/start": thread(),
            "thread/unsubscribe": {},
            "turn/start": {"turn": {"id": "u1", "status": "inProgress"}},
            "turn/interrupt": {},
            **self.answers,
        }

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        self.connection = connection

    def notification(self, notification: Notification) -> None:
        self.connection.tasks.start(self._note(notification.method, notification.params), "note")

    def request(self, request: Request) -> Any:
        return self._answer(request.method, request.params)

    def noise(self, noise: Noise | Stray) -> None:
        self.noises.append(noise)

    async def _note(self, method: str, params: Any) -> Any:
        value = msgspec.json.decode(params) if bytes(params) else None
        async with self._came:
            self.calls.append((method, value))
            self._came.notify_all()
        return value

    async def _answer(self, method: str, params: Any) -> Any:
        value = await self._note(method, params)
        answer = self.answers[method]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            answer = answer(value)
        return await answer if inspect.isawaitable(answer) else answer

    # -- for a test

    def methods(self) -> list[str]:
        return [method for method, _ in self.calls]

    def sent(self, method: str) -> list[Any]:
        return [params for name, params in self.calls if name == method]

    async def wait_for(self, method: str, times: int = 1) -> Any:
        """Wait until a method was called so often, and return the last params."""
        async with asyncio.timeout(WAIT), self._came:
            await self._came.wait_for(lambda: len(self.sent(method)) >= times)
        return self.sent(method)[-1]

    def tell(self, method: str, **params: Any) -> None:
        self.connection.post(method, params)

    def start_turn(self, id: str = "u1", thread_id: str = "t1") -> None:
        self.tell("turn/started", threadId=thread_id, turn={"id": id, "status": "inProgress"})

    def end_turn(
        self, id: str = "u1", status: str = "completed", thread_id: str = "t1", **extra: Any
    ) -> None:
        self.tell("turn/completed", threadId=thread_id, turn={"id": id, "status": status, **extra})

    def say(self, text: str, id: str = "u1", thread_id: str = "t1") -> None:
        params = {"threadId": thread_id, "turnId": id, "itemId": "m", "delta": text}
        self.connection.post("item/agentMessage/delta", params)

    async def ask(self, method: str, **params: Any) -> Any:
        async with asyncio.timeout(WAIT):
            return msgspec.json.decode(await self.connection.call(method, params))


@asynccontextmanager
async def connected(
    server: Server, options: CodexOptions | None = None
) -> AsyncIterator[CodexPeer]:
    """A peer whose server is in this process."""
    ours, theirs = memory_pair()
    settings = ConnectionSettings(jsonrpc=False)
    async with Connection(theirs, End.AGENT, server, settings=settings):
        options = options or CodexOptions(budgets=BUDGETS)
        async with asyncio.timeout(WAIT):
            peer = await CodexPeer.connect(ours, Path("/w"), options)
        async with peer:
            yield peer


@asynccontextmanager
async def talking(
    server: Server, options: CodexOptions | None = None
) -> AsyncIterator[tuple[CodexPeer, CodexConversation]]:
    """A peer with a thread."""
    async with connected(server, options) as peer, peer.session() as talk:
        assert isinstance(talk, CodexConversation)
        yield peer, talk


def watch(peer: CodexPeer) -> list[model.Event]:
    """Every event from now on."""
    events: list[model.Event] = []
    peer.on_event = events.append
    return events
