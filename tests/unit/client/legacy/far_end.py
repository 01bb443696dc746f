"""An agent of any of the documents' dialects, written with plain `json`.

It answers what a test tells it to, counts the prompts it got, and shares no code with the dialects:
what it says are the documents' own examples.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from dragoman.client.budgets import Budgets
from dragoman.client.legacy import DocumentOptions, DocumentPeer, use_peer
from dragoman.dialects.discovery import Cache, Program
from dragoman.transports.base import Stream
from dragoman.transports.memory import memory_pair
from tests.fixtures.documents import load
from tests.unit.rpc.other_side import OtherSide

PROMPTS = frozenset(
    {"prompt", "turn", "session/prompt", "prompt/send", "message/send", "chat/send", "sendMessage"}
)
QUICK = Budgets(cancel_grace=0.2, first_event=5.0, silence=5.0, request=2.0, session=2.0)

Reply: TypeAlias = Any
"""A result; a callable that is given the agent and the request; or `SILENCE`."""

SILENCE = object()


def examples(dialect: str) -> dict[str, Any]:
    return {name: example.body for name, example in load(dialect).items()}


HELLOS: dict[str, dict[str, Any]] = {
    "oneshot": {"initialize": examples("oneshot")["initialized"]},
    "threads": {
        "initialize": examples("threads")["initialized"],
        "threadStart": examples("threads")["started"],
        "threadResume": examples("threads")["resumed"],
    },
    "tagged": {
        "initialize": examples("tagged")["initialized"],
        "session/new": examples("tagged")["opened"],
    },
    "keyed": {
        "initialize": examples("keyed")["initialized"],
        "session/new": examples("keyed")["opened"],
    },
    "chained": {
        "session/list": examples("chained")["sessions"],
        "session/create": examples("chained")["created"],
    },
}
"""What an agent answers before the first prompt, in the documents' words."""

SESSIONS = {
    "threads": "thread-abc123",
    "tagged": "session-1",
    "keyed": "ses_1",
    "chained": "session-uuid-456",
}
PROMPT_NAMES = {
    "oneshot": "prompt",
    "threads": "turn",
    "tagged": "session/prompt",
    "keyed": "session/prompt",
    "chained": "prompt/send",
}


class HostAgent(OtherSide):
    """Answers by a table; what is not in it is no method."""

    def __init__(self, stream: Stream, replies: Mapping[str, Reply]) -> None:
        super().__init__(stream)
        self.replies = dict(replies)

    def data_received(self, data: bytes) -> None:
        known = len(self.heard)
        super().data_received(data)
        for message in self.heard[known:]:
            if "id" in message and "method" in message:
                self._reply(message)

    def _reply(self, request: Any) -> None:
        reply = self.replies.get(request["method"], _no_method)
        if reply is SILENCE:
            return
        if callable(reply):
            reply(self, request)
        else:
            self.answer(request, reply)

    def refuse(self, request: Any, code: int, message: str = "no") -> None:
        error = {"code": code, "message": message}
        self.say({"jsonrpc": "2.0", "id": request["id"], "error": error})

    def tell(self, method: str, params: Any) -> None:
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.heard if "method" in message]

    @property
    def prompts(self) -> int:
        """How many prompts came, under whatever name."""
        return sum(method in PROMPTS for method in self.methods)

    def params(self, method: str) -> Any:
        return next(m["params"] for m in self.heard if m.get("method") == method)


def _no_method(agent: HostAgent, request: Any) -> None:
    agent.refuse(request, -32601, "Method not found")


def refusing(code: int, message: str = "no") -> Callable[[HostAgent, Any], None]:
    """A reply that is an error."""
    return lambda agent, request: agent.refuse(request, code, message)


def garbage(agent: HostAgent, request: Any) -> None:
    """A reply that is JSON and no answer to a prompt."""
    agent.raw(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": 7}).encode() + b"\n")


def hanging_up(agent: HostAgent, request: Any) -> None:
    """No reply: the other side is gone."""
    agent.stream.close()  # type: ignore[attr-defined]


@asynccontextmanager
async def meet(
    dialect: str,
    replies: Mapping[str, Reply] | None = None,
    *,
    options: DocumentOptions | None = None,
    cache: Cache | None = None,
    program: Program | None = None,
    prove: bool = False,
    workspace: str = "/project",
) -> AsyncIterator[tuple[DocumentPeer, HostAgent]]:
    """A peer and the agent at its other end."""
    ours, theirs = memory_pair()
    agent = HostAgent(theirs, {**HELLOS.get(dialect, {}), **(replies or {})})
    theirs.start(agent)
    try:
        async with asyncio.timeout(20):
            peer = await use_peer(
                dialect,
                ours,
                workspace=workspace,
                options=options or DocumentOptions(budgets=QUICK),
                cache=cache,
                program=program,
                prove=prove,
            )
        async with peer:
            yield peer, agent
    finally:
        await theirs.aclose()
