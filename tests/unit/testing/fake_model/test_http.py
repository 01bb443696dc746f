"""As much HTTP as agents need, asked over a real socket."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest

from dragoman.testing.fake_model import FakeModel, http
from tests.aio import aio
from tests.unit.testing.fake_model.asking import TIMEOUT, ask, connect, read_answer, request

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hello"}]}


async def raw(model: FakeModel, data: bytes) -> tuple[int, bytes]:
    """The status of the answer to these bytes, and everything that follows."""
    reader, writer = await connect(model)
    try:
        writer.write(data)
        got = await read_answer(reader)
        async with asyncio.timeout(TIMEOUT):
            rest = await reader.read() if got.headers["connection"] == "close" else b""
        return got.status, rest
    finally:
        writer.close()
        await writer.wait_closed()


@aio
async def test_several_requests_share_a_connection() -> None:
    async with FakeModel() as model:
        reader, writer = await connect(model)
        for text in ("one", "two"):
            body = {"stream": text == "two", "messages": [{"role": "user", "content": text}]}
            writer.write(request("POST", CHAT, body))
            got = await read_answer(reader)
            assert (got.status, got.headers["connection"]) == (200, "keep-alive")
        writer.close()
        await writer.wait_closed()
        assert [asked.text for asked in model.questions] == ["one", "two"]


@aio
async def test_a_body_may_come_in_chunks() -> None:
    data = json.dumps(BODY).encode()
    half = len(data) // 2
    head = f"POST {CHAT} HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    chunks = b"".join(b"%x;x=y\r\n%b\r\n" % (len(p), p) for p in (data[:half], data[half:]))
    async with FakeModel() as model:
        assert await raw(model, head.encode() + chunks + b"0\r\ntrailer: x\r\n\r\n") == (200, b"")
        assert model.questions[0].text == "hello"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@aio
async def test_a_body_may_be_packed(encoding: str) -> None:
    data = json.dumps(BODY).encode()
    packed = gzip.compress(data) if encoding == "gzip" else zlib.compress(data)
    async with FakeModel() as model:
        got = await ask(model, CHAT, packed, content_encoding=encoding)
        assert got.status == 200
        assert model.questions[0].text == "hello"


@aio
async def test_an_agent_that_waits_for_leave_to_send_gets_it() -> None:
    async with FakeModel() as model:
        reader, writer = await connect(model)
        head, _, body = request("POST", CHAT, BODY, expect="100-continue").partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        async with asyncio.timeout(TIMEOUT):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(body)
        assert (await read_answer(reader)).status == 200
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2.0 x\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\ncontent-length: many\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", 400),
        (b"POST /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nfffffffff\r\n", 413),
        (b"POST /x HTTP/1.1\r\ncontent-encoding: br\r\ncontent-length: 1\r\n\r\nx", 415),
        (b"POST /x HTTP/1.1\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx", 400),
        (b"POST /x HTTP/1.1\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nxyz", 400),
        (b"POST /x HTTP/1.1\r\ncontent-length: 1\r\n\r\nx", 400),
        (b"POST /x HTTP/1.1\r\ncontent-length: 2\r\n\r\n[]", 400),
        (b"POST /x HTTP/1.1\r\na: " + b"x" * http.MAX_HEAD_SIZE + b"\r\n\r\n", 431),
    ],
)
@aio
async def test_what_is_not_a_request_gets_an_error_and_no_second_chance(
    data: bytes, status: int
) -> None:
    async with FakeModel() as model:
        assert await raw(model, data) == (status, b"")
        assert model.requests == []


@aio
async def test_an_old_client_gets_its_connection_closed() -> None:
    async with FakeModel() as model:
        assert await raw(model, b"GET /v1/models HTTP/1.0\r\n\r\n") == (200, b"")


@aio
async def test_the_path_is_known_without_its_query() -> None:
    request = http.Request("GET", "/a?b=c")
    assert (request.path, request.query) == ("/a", "b=c")
