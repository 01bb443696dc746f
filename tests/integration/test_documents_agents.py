"""Our agent kit as a real program, served to clients of the documents that are plain `json`."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dragoman.client.legacy import DocumentOptions, use_peer
from dragoman.client.permissions import approve_all
from dragoman.events import model
from dragoman.transports import connect_websocket, spawn
from tests.aio import aio
from tests.fixtures.documents import Example, load
from tests.integration.children import Inbox
from tests.integration.document_agent import agent

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
PROGRAM = [sys.executable, "-m", "tests.integration.document_agent"]
ROOT = Path(__file__).resolve().parents[2]


class Client:
    """Writes requests and looks for what came."""

    def __init__(self, stream: Any, inbox: Inbox) -> None:
        self._stream = stream
        self._inbox = inbox
        self._ids = itertools.count(1000)

    @property
    def heard(self) -> list[Any]:
        whole = self._inbox.bytes.rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    @property
    def told(self) -> list[tuple[str, Any]]:
        return [(m["method"], m["params"]) for m in self.heard if "id" not in m]

    def say(self, message: Any) -> None:
        self._stream.write(json.dumps(message).encode() + b"\n")

    def send(self, method: str, params: Any) -> int:
        id = next(self._ids)
        self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def _answer(self, id: int) -> Any:
        return next((m for m in self.heard if "method" not in m and m.get("id") == id), None)

    async def answered(self, id: int) -> Any:
        await self._inbox.until(lambda: self._answer(id) is not None or bool(self._inbox.failures))
        return self._answer(id)

    async def call(self, method: str, params: Any) -> Any:
        return (await self.answered(self.send(method, params)))["result"]

    async def play(self, example: Example) -> Any:
        self.say(example.message)
        return (await self.answered(example.message["id"]))["result"]

    async def until(self, condition: Callable[[], bool]) -> None:
        await self._inbox.until(condition)

    async def hears(self, method: str) -> Any:
        await self._inbox.until(lambda: any(m.get("method") == method for m in self.heard))
        return next(m for m in self.heard if m.get("method") == method)


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    stream = await spawn(PROGRAM, cwd=ROOT, env={"PYTHONPATH": SOURCE})
    inbox = Inbox()
    stream.start(inbox)
    try:
        yield Client(stream, inbox)
    finally:
        await stream.aclose()


@aio
async def test_a_client_of_the_oneshot_document_is_served() -> None:
    examples = load("oneshot")
    async with client() as far:
        assert (await far.play(examples["initialize"]))["protocolVersion"] == "2025-06-18"
        answer = await far.play(examples["prompt"])
        assert answer["finish_reason"] == "stop"
        assert answer["usage"] == {"input_tokens": 12, "output_tokens": 3}
        assert [method for method, _ in far.told] == [
            "tool_call",
            "file_change",
            "agent_message_chunk",
        ]
        failed = await far.answered(far.send("prompt", {"text": "fail"}))
        assert failed["error"]["code"] == -32603 and "secret" not in str(failed)


@aio
async def test_a_client_of_the_threads_document_is_served() -> None:
    examples = load("threads")
    async with client() as far:
        thread = await far.play(examples["start"])
        result = await far.call("turn", {**thread, "text": "hi"})
        assert (result["status"], result["content"]) == ("complete", "You said: hi")
        failed = await far.call("turn", {**thread, "text": "fail"})
        assert (failed["status"], failed["error"]["code"]) == ("error", "internal_error")
        state = await far.play(examples["resume"])
        assert state["turns"][0]["content"] == "It builds."


@aio
async def test_a_client_of_the_tagged_document_is_served() -> None:
    examples = load("tagged")
    async with client() as far:
        await far.play(examples["initialize"])
        assert await far.play(examples["new"]) == examples["opened"].body
        body = {"sessionId": "session-1", "prompt": [{"type": "text", "text": "hi"}]}
        assert await far.call("session/prompt", body) == {"stopReason": "endTurn"}
        kinds = [params["update"]["type"] for _, params in far.told]
        assert kinds[:2] == ["messageChunk", "planUpdate"] and kinds[-1] == "messageChunk"
        assert "toolCall" in kinds
        body["prompt"] = [{"type": "text", "text": "wait"}]
        id = far.send("session/prompt", body)
        await far.until(lambda: "waiting" in str(far.told))
        assert await far.call("session/cancel", {"sessionId": "session-1"}) == {}
        assert (await far.answered(id))["result"] == {"stopReason": "cancelled"}
        body["prompt"] = [{"type": "text", "text": "fail"}]
        assert await far.call("session/prompt", body) == {"stopReason": "error"}


@aio
async def test_a_client_of_the_keyed_document_is_served() -> None:
    examples = load("keyed")
    async with client() as far:
        hello = await far.play(examples["initialize"])
        assert hello["agentCapabilities"] == {"modes": True, "plan": True}
        session = await far.play(examples["new"])
        assert session["currentModeId"] == "plan"
        body: dict[str, Any] = {
            "sessionId": session["sessionId"],
            "content": [{"type": "text", "text": "hi"}],
        }
        assert await far.call("session/prompt", body) == {"stopReason": "end_turn"}
        keys = {key for _, params in far.told for key in params} - {"sessionId"}
        assert keys == {"plan", "toolCall", "contentChunk"}
        body["content"] = [{"type": "text", "text": "ask"}]
        id = far.send("session/prompt", body)
        request = await far.hears("session/request_permission")
        assert request["params"]["kind"] == "edit"
        far.say({"jsonrpc": "2.0", "id": request["id"], "result": examples["once"].body})
        assert (await far.answered(id))["result"] == {"stopReason": "end_turn"}
        assert far.told[-1][1]["contentChunk"]["delta"] == "allowed: True"
        loaded = await far.call("session/load", {"sessionId": "old", "cwd": "/"})
        assert loaded["sessionId"] == "old"


@aio
async def test_a_client_of_the_chained_document_is_served() -> None:
    examples = load("chained")
    async with client() as far:
        page = await far.call("listSessions", {"limit": 2, "offset": 0})
        assert [s["id"] for s in page["sessions"]] == ["s0", "s1"] and page["nextOffset"] == 2
        created = await far.call("startSession", examples["create"].body)
        body = {**examples["prompt"].body, "sessionId": created["sessionId"]}
        sent = await far.call("sendMessage", body)
        assert sent["status"] == "processing"
        await far.hears("completion/status")
        names = [method for method, _ in far.told]
        assert names == [
            "thinking/delta",
            "action/start",
            "action/result",
            "text/delta",
            "completion/status",
        ]


@aio
async def test_a_keyed_client_is_served_over_a_websocket() -> None:
    listener = await agent.serve_websocket("127.0.0.1", 0)
    try:
        stream = await connect_websocket(listener.address)
        options = DocumentOptions(permit=approve_all)
        async with await use_peer("keyed", stream, workspace="/", options=options) as peer:
            async with peer.session(mode="plan") as session:
                async with session.prompt("ask") as turn:
                    events = [event async for event in turn]
                assert turn.result.text == "allowed: True"
                assert any(isinstance(event, model.PermissionAsked) for event in events)
    finally:
        await listener.aclose()
