"""A client of any of the documents' dialects, written with plain `json`, and an agent to serve it.

The client sends the documents' own examples and shares no code with the dialects. The agent does a
bit of everything, so that each dialect shows what it can say and what it loses.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.transports.base import Stream
from dragoman.transports.memory import memory_pair
from tests.fixtures.documents import Example
from tests.unit.rpc.other_side import OtherSide, until


def make_agent() -> Agent:
    """An agent whose prompts are commands: fail, refuse, long, wait, tools, or anything to echo."""
    agent = Agent(
        "my-coding-agent",
        version="1.0.0",
        image=True,
        embedded_context=True,
        modes=[
            acp.SessionMode(id="code", name="Code"),
            acp.SessionMode(id="plan", name="Plan"),
        ],
    )

    @agent.prompt
    async def answer(turn: Turn) -> Any:
        match turn.text:
            case "fail":
                raise ValueError("a secret detail")
            case "refuse":
                raise acp_error(-32000, "Authentication required")
            case "long":
                return "max_tokens"
            case "wait":
                await turn.say("waiting")
                await asyncio.Event().wait()
            case "tools":
                await turn.think("hm")
                await turn.plan(["Look", "Edit"])
                async with turn.tool("Edit c.py", kind="edit", raw_input={"path": "c"}) as tool:
                    await tool.diff("/project/c.py", "return\n", "pass\n")
                    await tool.add("done")
                await turn.say("edited")
            case _:
                images = len(turn.blocks(acp.ImageContent))
                await turn.say(f"You said: {turn.text}" + (f" and {images}" if images else ""))
        usage = {"usage": {"inputTokens": 1234, "outputTokens": 5678}}
        return acp.PromptResponse(stop_reason="end_turn", extra=usage)

    @agent.command("search", "Search")
    async def search(turn: Turn, input: str) -> None:
        await turn.say(f"searching {input}")

    return agent


def acp_error(code: int, message: str) -> Exception:
    from dragoman.errors import RemoteError

    return RemoteError(code, message)


class DocumentClient(OtherSide):
    """Sends requests and sorts what comes back."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._ids = itertools.count(1000)

    def send(self, method: str, params: Any) -> int:
        id = next(self._ids)
        self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def answer_of(self, id: int) -> Any:
        return next((m for m in self.heard if "method" not in m and m.get("id") == id), None)

    async def answered(self, id: int) -> Any:
        await until(lambda: self.answer_of(id) is not None)
        return self.answer_of(id)

    async def call(self, method: str, params: Any) -> Any:
        answer = await self.answered(self.send(method, params))
        assert "result" in answer, answer
        return answer["result"]

    async def refused(self, method: str, params: Any) -> Any:
        answer = await self.answered(self.send(method, params))
        assert "error" in answer, answer
        return answer["error"]

    async def play(self, example: Example) -> Any:
        """Send a document's example as it is written."""
        self.say(example.message)
        return (await self.answered(example.message["id"]))["result"]

    async def asked(self, method: str) -> Any:
        """The next request from the agent."""

        def found() -> Any:
            return next(
                (m for m in self.heard if m.get("method") == method and not m.get("taken")), None
            )

        await until(lambda: found() is not None)
        request = found()
        request["taken"] = True
        return request

    @property
    def told(self) -> list[tuple[str, Any]]:
        """Every notification so far."""
        return [(m["method"], m["params"]) for m in self.heard if "id" not in m]


@asynccontextmanager
async def served(agent: Agent | None = None) -> AsyncIterator[DocumentClient]:
    """A client, and an agent that serves it."""
    ours, theirs = memory_pair()
    client = DocumentClient(theirs)
    theirs.start(client)
    serving = asyncio.get_running_loop().create_task((agent or make_agent()).serve(ours))
    try:
        yield client
    finally:
        await theirs.aclose()
        await serving
