"""The server on a stream of lines, with a client that writes them by hand."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from dragoman.mcp_server import lines, stdio
from dragoman.mcp_server.lines import Lines
from dragoman.mcp_server.stdio import PendingAnswers, serve_lines
from dragoman.mcp_server.tool_handlers import ToolHandlers
from dragoman.mcp_server.tool_results import ToolAnswer
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports import duplex
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.duplex import DuplexStream
from dragoman.transports.memory import MemoryStream, memory_pair
from tests.aio import aio
from tests.unit.mcp_server.hands import HELLO, Hand, served


@aio
async def test_lines_are_understood_in_any_cut_and_answered_as_lines(work: Path) -> None:
    async with served(work) as hand:
        text = json.dumps(HELLO).encode()
        hand.stream.write(b"\n  \r\n")
        hand.stream.write(text[:20])
        hand.stream.write(text[20:] + b"\r\n")
        async with asyncio.timeout(10):
            answer = await hand.lines.get()
        assert answer["result"]["serverInfo"]["name"] == "dragoman"
        pong = await hand.ask({"jsonrpc": "2.0", "id": 2, "method": "ping"})
        assert (pong["id"], pong["result"]) == (2, {})


@aio
async def test_the_signal_to_stop_ends_it_and_gives_the_stream_back(work: Path) -> None:
    stop = asyncio.Event()
    async with served(work, stop) as hand:
        await hand.ask(HELLO)
        stop.set()
        async with asyncio.timeout(10):
            await hand.ended.wait()


@aio
async def test_what_is_not_a_message_does_not_end_the_connection(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(work) as hand:
        await hand.ask(HELLO)
        lines = (b"this is no JSON", b"[]", b'{"id":true,"method":"ping"}', b"\xff", b"[" * 10_000)
        hand.stream.write(b"\n".join(lines) + b"\n")
        assert (await hand.ask({"jsonrpc": "2.0", "id": 3, "method": "ping"}))["id"] == 3
        assert len(caplog.messages) == len(lines)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":[1]}',
        b'{"id":"x","method":"ping"}',
        b'{"jsonrpc":"2.0","id":"x","method":"ping","params":{"text":"\\ud800"}}',
    ],
    ids=["params", "version", "text"],
)
@aio
async def test_a_malformed_request_is_answered(line: bytes, work: Path) -> None:
    async with served(work) as hand:
        await hand.ask(HELLO)
        hand.stream.write(line + b"\n")
        async with asyncio.timeout(10):
            answer = await hand.lines.get()
        assert (answer["id"], answer["error"]["code"]) == ("x", -32600)


@aio
async def test_a_client_that_does_not_read_is_sent_only_some_answers_to_malformed_requests(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = memory_pair()
    drain, held = far.drain, 0

    async def resuming(stream: MemoryStream) -> None:
        nonlocal held
        if stream is far and far.unsent_size > HIGH_WATER_SIZE:
            held = max(held, far.unsent_size)
            near.resume_reading()
        await drain()

    monkeypatch.setattr(MemoryStream, "drain", resuming)
    serving = TaskOwner("test").start(
        serve_lines(ToolHandlers(cwd=work), Lines(far), stop=asyncio.Event()), "serve"
    )
    hand = Hand(near)
    await hand.ask(HELLO)
    near.pause_reading()
    # The answer repeats the id.
    ids = [f"{number:0{HIGH_WATER_SIZE // 4}}" for number in range(40)]
    for id in ids:
        near.write(json.dumps({"id": id, "method": "ping"}).encode() + b"\n")
    async with asyncio.timeout(10):
        assert [(await hand.lines.get())["id"] for _ in ids] == ids
        await near.aclose()
        await serving
    assert HIGH_WATER_SIZE < held < 2 * HIGH_WATER_SIZE


@aio
async def test_the_stream_is_closed_even_if_the_work_cannot_be_stopped(work: Path) -> None:
    class Unstoppable(ToolHandlers):
        async def aclose(self) -> None:
            raise RuntimeError("cannot stop")

    near, far = memory_pair()
    hand, stop = Hand(near), asyncio.Event()
    serving = TaskOwner("test").start(
        serve_lines(Unstoppable(cwd=work), Lines(far), stop=stop), "serve"
    )
    await hand.ask(HELLO)
    stop.set()
    async with asyncio.timeout(10):
        await hand.ended.wait()
        with pytest.raises(RuntimeError, match="cannot stop"):
            await serving


@aio
async def test_a_fault_of_ours_is_reported_without_what_it_says(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(ToolHandlers):
        async def _carry_out(self, arguments: Any, call: Any) -> ToolAnswer:
            raise RuntimeError("a secret")

    piped = Piped(call(2, "list_peers"))
    async with asyncio.timeout(10):
        await serve_lines(Faulty(cwd=work), Lines(piped.stream), stop=asyncio.Event())
    error = piped.answers()[2]["error"]
    assert error == {
        "code": -32603,
        "message": "list_peers failed inside dragoman: see the log of the MCP server",
    }
    assert caplog.messages == ["list_peers failed"]


@aio
async def test_a_failure_of_the_sdk_is_raised(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(read: Any, write: Any, _: Any) -> None:
        with read, write:
            raise RuntimeError("on purpose")

    near, far = memory_pair()
    front = ToolHandlers(cwd=work)
    monkeypatch.setattr(front.server, "run", fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        async with asyncio.timeout(10):
            await serve_lines(front, Lines(far), stop=asyncio.Event())
    await near.aclose()


@aio
async def test_a_client_that_asks_and_leaves_at_once_is_not_a_failure(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    near, far = memory_pair()
    Hand(near)
    for message in (HELLO, *({**HELLO, "id": number, "method": "ping"} for number in range(2, 9))):
        near.write(json.dumps(message).encode() + b"\n")
    await near.aclose()
    async with asyncio.timeout(10):
        await serve_lines(ToolHandlers(cwd=work), Lines(far), stop=asyncio.Event())
    assert caplog.records == []


@aio
async def test_a_line_without_an_end_ends_the_connection(
    work: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_SIZE", 1000)
    async with served(work) as hand:
        hand.stream.write(b"x" * 2000)
        async with asyncio.timeout(10):
            await hand.ended.wait()
    assert caplog.messages == ["a message is larger than 1000 bytes: closing the connection"]


@aio
async def test_a_host_that_sends_much_is_held_back(work: Path) -> None:
    async with served(work) as hand:
        await hand.ask(HELLO)
        for number in range(10, 210):
            hand.stream.write(
                json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}).encode() + b"\n"
            )
        async with asyncio.timeout(20):
            seen = {(await hand.lines.get())["id"] for _ in range(200)}
        assert seen == set(range(10, 210))


class Piped:
    """A client that writes everything, closes its output and then reads."""

    def __init__(self, *messages: Any, roots: bool = False) -> None:
        read_fd, in_fd = os.pipe()
        self.out_fd, write_fd = os.pipe()
        self.stream = DuplexStream(read_fd, write_fd)
        hello = json.loads(json.dumps(HELLO))
        if roots:
            hello["params"]["capabilities"] = {"roots": {}}
        # The last line has no end.
        os.write(in_fd, "\n".join(json.dumps(one) for one in (hello, *messages)).encode())
        os.close(in_fd)

    def answers(self) -> dict[Any, dict[str, Any]]:
        """What was answered, by the ids; for when the stream has ended."""
        with open(self.out_fd, "rb") as file:
            told = [json.loads(line) for line in file]
        return {one["id"]: one for one in told if "method" not in one}


def call(id: int, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


class Stuck(ToolHandlers):
    """Never answers a call of a tool."""

    async def _carry_out(self, arguments: Any, call: Any) -> ToolAnswer:
        self.reached = True
        await asyncio.Event().wait()
        raise AssertionError


@aio
async def test_a_client_that_closes_its_output_and_then_reads_gets_every_answer(work: Path) -> None:
    piped = Piped(*(call(number, "list_peers") for number in range(2, 30)))
    async with asyncio.timeout(10):
        await serve_lines(ToolHandlers(cwd=work), Lines(piped.stream), stop=asyncio.Event())
    answers = piped.answers()
    assert set(answers) == set(range(1, 30))
    assert all("result" in answer for answer in answers.values())


@aio
async def test_a_request_to_a_client_that_no_longer_answers_fails_at_once(work: Path) -> None:
    piped = Piped(call(2, "list_peers"), roots=True)
    async with asyncio.timeout(5):
        await serve_lines(ToolHandlers(cwd=work), Lines(piped.stream), stop=asyncio.Event())
    told = piped.answers()[2]["result"]
    assert told["isError"] and "could not get the roots of the client" in told["content"][0]["text"]


@aio
async def test_what_takes_too_long_after_the_end_of_the_input_is_given_up(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdio, "LAST_ANSWERS_TIMEOUT", 0.1)
    piped = Piped(call(2, "list_peers"))
    front = Stuck(cwd=work)
    async with asyncio.timeout(5):
        await serve_lines(front, Lines(piped.stream), stop=asyncio.Event())
    assert front.reached
    assert caplog.messages == ["the input has ended; dropping 1 responses that took too long"]
    assert "error" in piped.answers()[2]


@aio
async def test_nothing_is_awaited_when_the_responses_are_not_read(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(duplex, "BROKEN_TIMEOUT", 0.01)
    piped = Piped(call(2, "list_peers"))
    os.close(piped.out_fd)
    async with asyncio.timeout(5):
        await serve_lines(Stuck(cwd=work), Lines(piped.stream), stop=asyncio.Event())
    assert caplog.messages == []


# -- what is still unanswered


def message(**members: Any) -> SessionMessage:
    return SessionMessage(
        types.jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **members})
    )


def test_an_answer_is_owed_from_the_request_until_its_answer_or_its_error() -> None:
    owed = PendingAnswers()
    owed.received(message(id=1, method="ping"))
    owed.received(message(id="2", method="ping"))
    assert len(owed) == 2
    owed.sent(message(id=1, result={}))
    assert len(owed) == 1
    owed.sent(message(method="notifications/message", params={}))
    owed.sent(message(id="2", error={"code": -1, "message": "no"}))
    assert not owed


def test_an_id_that_is_used_twice_is_owed_two_answers() -> None:
    owed = PendingAnswers()
    owed.received(message(id=1, method="ping"))
    owed.received(message(id=1, method="ping"))
    owed.sent(message(id=1, result={}))
    assert len(owed) == 1


def test_an_unrequested_response_settles_no_other() -> None:
    owed = PendingAnswers()
    owed.sent(message(id=1, result={}))
    owed.received(message(id=1, method="ping"))
    assert len(owed) == 1


def test_a_cancelled_request_is_not_owed_a_response() -> None:
    owed = PendingAnswers()
    owed.received(message(id=1, method="ping"))
    owed.received(message(id=2, method="ping"))
    owed.changed.clear()
    owed.received(message(method="notifications/cancelled", params={"requestId": "1"}))
    assert len(owed) == 1 and owed.changed.is_set()


def test_what_we_asked_is_answered_for_a_client_that_cannot() -> None:
    owed = PendingAnswers()
    owed.sent(message(id=7, method="roots/list"))
    owed.sent(message(id=8, method="roots/list"))
    owed.received(message(id=8, result={}))
    (answer,) = owed.unanswerable()
    assert isinstance(answer.message, types.JSONRPCError)
    assert (answer.message.id, answer.message.error.code) == (7, types.CONNECTION_CLOSED)
    assert list(owed.unanswerable()) == []
