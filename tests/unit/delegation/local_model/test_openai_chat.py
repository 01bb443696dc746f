"""Servers that speak chat completions in their own ways: what is tolerated, and what is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.client.results import Result
from dragoman.delegation.local_model import LocalModel, ask
from dragoman.delegation.local_model.model import Api, ModelChunk
from dragoman.delegation.local_model.openai_chat import MAX_LINE_SIZE, read_chunk
from dragoman.errors import InvalidAnswer, RemoteError
from dragoman.events.parts import Usage
from dragoman.events.words import ErrorKind, Outcome
from tests.aio import aio

CLOSE_TIMEOUT = 5.0


@asynccontextmanager
async def serving(answer: bytes) -> AsyncIterator[str]:
    """A server that says the same to everybody and hangs up."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await server.wait_closed()
            for writer in writers:
                # A side that hung up first is no concern of this test.
                await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def said(answer: bytes) -> Result:
    async with serving(answer) as url:
        model = LocalModel(api="openai", model="m", base_url=url)
        return (await ask(model, "hello", environ={})).result


def stream(*chunks: Any, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    text = "".join(lines) + ("data: [DONE]\n\n" if done else "")
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + text.encode()


def chunk(text: str | None = None, stop: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": stop}]}


@pytest.mark.parametrize(
    ("chunks", "outcome"),
    [
        ([chunk("hi"), chunk(stop="stop")], Outcome.OK),
        ([chunk("hi", "stop")], Outcome.OK),
        ([chunk("hi"), chunk(stop="length")], Outcome.TRUNCATED),
        ([chunk("hi"), chunk(stop="content_filter")], Outcome.REFUSED),
        ([chunk("hi"), chunk(stop="tool_calls")], Outcome.UNKNOWN),
        ([chunk(stop="stop")], Outcome.EMPTY),
        ([chunk(" \n"), chunk(stop="stop")], Outcome.EMPTY),
        ([chunk("hi")], Outcome.PROTOCOL_ERROR),
        ([], Outcome.PROTOCOL_ERROR),
        ([chunk("hi"), [1]], Outcome.PROTOCOL_ERROR),
        ([chunk("hi"), {"error": {"message": "boom"}}], Outcome.FAILED),
    ],
)
@aio
async def test_only_words_and_a_known_end_are_a_good_answer(
    chunks: list[Any], outcome: Outcome
) -> None:
    result = await said(stream(*chunks))
    assert result.outcome is outcome
    assert result.ok is (outcome is Outcome.OK)
    # What came before a failure is not thrown away.
    if chunks and chunks[0]["choices"][0]["delta"]["content"] == "hi":
        assert result.text == "hi"


@aio
async def test_an_end_that_is_reported_counts_without_the_closing_word() -> None:
    assert (await said(stream(chunk("hi", "stop"), done=False))).ok


@aio
async def test_comments_and_other_lines_of_a_stream_are_passed_over() -> None:
    head, _, body = stream(chunk("hi", "stop")).partition(b"\r\n\r\n")
    result = await said(head + b"\r\n\r\n: ping\r\nevent: x\nid: 3\n\n" + body)
    assert result.text == "hi"


@aio
async def test_a_chunk_without_end_does_not_fill_the_memory() -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\ndata: "
    result = await said(head + b"x" * (MAX_LINE_SIZE + 10))
    assert result.outcome is Outcome.PROTOCOL_ERROR
    assert "larger than" in str(result.error)


@aio
async def test_something_that_is_not_http_is_a_broken_connection() -> None:
    result = await said(b"220 mail.example.org ESMTP\r\n")
    assert result.outcome is Outcome.CRASHED


@aio
async def test_a_page_instead_of_an_error_is_shown_in_part() -> None:
    page = b"<html>" + b"proxy error " * 20_000
    head = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: " + str(len(page)).encode() + b"\r\n\r\n"
    result = await said(head + page)
    assert result.outcome is Outcome.FAILED
    assert result.failure is not None
    assert result.failure.message.startswith("<html>proxy error")
    assert len(result.failure.message) < 600


@aio
async def test_a_redirect_is_not_followed_with_the_prompt() -> None:
    result = await said(b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\n\r\n")
    assert result.outcome is Outcome.FAILED
    assert result.failure is not None
    assert result.failure.code == 307


@aio
async def test_a_passing_limit_says_when_to_come_again() -> None:
    body = b'{"error": {"message": "slow down"}}'
    head = b"HTTP/1.1 429 X\r\nRetry-After: 7\r\nContent-Length: %d\r\n\r\n" % len(body)
    result = await said(head + body)
    assert result.failure is not None
    assert result.failure.kind is ErrorKind.RATE_LIMITED
    assert result.failure.data["retryAfter"] == 7.0


def test_numbers_that_are_none_are_not_counted() -> None:
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": True,
        "total_tokens": -1,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    data = json.dumps({"model": "m-2", "choices": [], "usage": usage}).encode()
    told = read_chunk(data, variable="")
    counted = Usage(input_tokens=3, cache_read_tokens=2, thought_tokens=1)
    assert told == ModelChunk(model="m-2", usage=counted)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff", b'"\xff"', b"[" * 100_000])
def test_a_chunk_that_is_none_is_an_invalid_answer(payload: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        read_chunk(payload, variable="")


def test_an_error_in_the_stream_is_the_servers_error() -> None:
    with pytest.raises(RemoteError, match="out of memory"):
        read_chunk(b'{"error": {"message": "out of memory"}}', variable="")


@aio
async def test_a_proxy_that_refuses_the_connection_was_sent_no_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n") as url:
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, url.removesuffix("/v1"))
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        apis: tuple[Api, ...] = ("openai", "anthropic")
        for api in apis:
            model = LocalModel(api=api, model="m", base_url="https://model.invalid/v1")
            result = (await ask(model, "hello", environ={"ANTHROPIC_API_KEY": "k"})).result
            assert result.error is not None
            assert str(result.error) == "https://model.invalid/v1 cannot be reached: 403 Forbidden"
            assert not result.error.may_have_run
