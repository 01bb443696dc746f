"""An in-memory agent that gives the answers of a test, written with plain `json`.

It shares no code with the client that it tests. `answers` has a result for each method, or a
function that makes one from the params. Methods that are not in it are refused as unknown.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from dragoman.client.acp import AcpClient, ClientOptions, use_agent
from dragoman.errors import ConnectionLost
from dragoman.transports.memory import MemoryStream, memory_pair

Answers = dict[str, Any]


class Refusal(Exception):
    """Raised by an answer to refuse the request with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class FakeAgent:
    """The agent's end of a connection."""

    def __init__(self, stream: MemoryStream, answers: Answers) -> None:
        self.stream = stream
        self.answers = answers
        self.requests: list[tuple[str, Any]] = []
        self._rest = b""
        stream.start(self)

    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]

    def params(self, method: str) -> list[Any]:
        return [params for name, params in self.requests if name == method]

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for message in map(json.loads, lines):
            if "method" in message:
                self.requests.append((message["method"], message.get("params")))
                if "id" in message:
                    self._answer(message)

    def stream_ended(self, failure: ConnectionLost) -> None:
        pass

    def _answer(self, message: dict[str, Any]) -> None:
        answer = self.answers.get(message["method"], Refusal(-32601))
        try:
            if isinstance(answer, Refusal):
                raise answer
            result = answer(message.get("params")) if callable(answer) else answer
        except Refusal as refusal:
            error = {"code": refusal.code, "message": "No"}
            self.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
        else:
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def send(self, message: dict[str, Any]) -> None:
        self.stream.write(json.dumps(message).encode() + b"\n")

    def update(self, session: str, **update: Any) -> None:
        params = {"sessionId": session, "update": update}
        self.send({"jsonrpc": "2.0", "method": "session/update", "params": params})


Making = Callable[[FakeAgent], Answers]


@asynccontextmanager
async def client_of(
    answers: Answers | Making,
    *,
    capabilities: dict[str, Any] | None = None,
    auth_methods: list[dict[str, Any]] | None = None,
    options: ClientOptions | None = None,
) -> AsyncIterator[tuple[AcpClient, FakeAgent]]:
    """A client connected to an agent with these answers and capabilities."""
    near, far = memory_pair()
    agent = FakeAgent(far, {})
    agent.answers = {
        "initialize": {
            "protocolVersion": 1,
            "agentCapabilities": capabilities or {},
            "authMethods": auth_methods or [],
        },
        "session/new": {"sessionId": "s"},
        **(answers(agent) if callable(answers) else answers),
    }
    async with use_agent(near, options=options) as client:
        yield client, agent
