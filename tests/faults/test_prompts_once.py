"""However a prompt fails, it was sent once: over ACP and to Codex.

For the legacy dialects, the same is tested with their turns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.peer import open_peer
from dragoman.client.budgets import Budgets
from dragoman.client.codex import CodexOptions, CodexPeer
from dragoman.client.conversation import Peer
from dragoman.transports import memory_pair
from dragoman.transports.base import Stream
from tests.aio import aio
from tests.unit.client.acp.agent_side import AgentSide, Refusal
from tests.unit.client.codex.server_side import thread
from tests.unit.rpc.other_side import soon, turns

PROMPTS = {"acp": "session/prompt", "codex": "turn/start"}

REPLIES: dict[str, Any] = {
    "session/new": {"sessionId": "t1"},
    "account/read": {"account": None, "requiresOpenaiAuth": False},
    "thread/start": thread(),
    "model/list": {"data": []},
    "thread/unsubscribe": {},
    "turn/interrupt": {},
}

HELLOS: dict[str, Any] = {
    "acp": {"protocolVersion": 1},
    "codex": {"userAgent": "dragoman/0.166.0 (x)"},
}


class Counting(AgentSide):
    """Counts the prompts on the wire, whether they succeed or not."""

    def __init__(self, stream: Stream, dialect: str) -> None:
        super().__init__(stream)
        self.replies |= REPLIES | {"initialize": HELLOS[dialect]}
        self._prompt = PROMPTS[dialect]
        self._bytes = b""

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        super().data_received(data)

    @property
    def prompts(self) -> int:
        messages = [msgspec.json.decode(line) for line in self._bytes.splitlines()]
        return sum(message.get("method") == self._prompt for message in messages)


@asynccontextmanager
async def meeting(dialect: str, budgets: Budgets) -> AsyncIterator[tuple[Peer, Counting]]:
    ours, theirs = memory_pair()
    agent = Counting(theirs, dialect)
    theirs.start(agent)
    here = Path("/w")
    try:
        peer: Peer
        if dialect == "acp":
            peer = await soon(open_peer(ours, here, ClientOptions(budgets=budgets)))
        else:
            peer = await soon(CodexPeer.connect(ours, here, CodexOptions(budgets=budgets)))
            await soon(agent.expect("initialized"))
        async with peer:
            yield peer, agent
    finally:
        await theirs.aclose()


def refusing(code: int, message: str = "no") -> Callable[[Counting, Any], None]:
    return lambda agent, request: agent.reply(request, Refusal(code, message))


def garbage(agent: Counting, request: Any) -> None:
    agent.stream.write(b"not a message\n")
    agent.reply(request, ["no", "answer"])


def nothing(agent: Counting, request: Any) -> None:
    pass


FAILURES: dict[str, Callable[[Counting, Any], None]] = {
    "method not found": refusing(-32601),
    "unknown variant": refusing(-32600, "Invalid request: unknown variant `turn/start`"),
    "invalid params": refusing(-32602),
    "internal error": refusing(-32603),
    "parse error": refusing(-32700),
    "authentication": refusing(-32000),
    "cancelled": refusing(-32800),
    "garbage": garbage,
    "end of stream": nothing,
    "timeout": nothing,
    "cancel": nothing,
    "leaving": nothing,
}


@pytest.mark.parametrize("dialect", PROMPTS)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_prompt_is_never_sent_twice(dialect: str, failure: str) -> None:
    @aio
    async def run() -> None:
        quick = 0.1 if failure == "timeout" else 10.0
        budgets = Budgets(first_event=quick, cancel_grace=0.1)
        async with meeting(dialect, budgets) as (peer, agent), peer.session() as session:
            async with session.prompt("x") as turn:
                request = await soon(agent.expect(PROMPTS[dialect]))
                FAILURES[failure](agent, request)
                if failure == "end of stream":
                    await agent.stream.aclose()
                if failure == "cancel":
                    turn.cancel()
                if failure != "leaving":
                    result = await soon(turn.wait())
                    assert not result.ok
            await turns(10)
            assert agent.prompts == 1

    run()
