"""The server over HTTP: its listening and its connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dragoman.errors import AddressInUse
from dragoman.mcp_server.front import Front
from dragoman.mcp_server.http import serve_http
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio

TOKEN = "a-token-of-some-length"


@asynccontextmanager
async def listening(work: Path, **limits: Any) -> AsyncIterator[int]:
    """The port of a server that runs in this process."""
    stop = asyncio.Event()
    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    tasks = TaskOwner("test")
    serving = tasks.start(
        serve_http(
            Front(cwd=work),
            port=0,
            token=TOKEN,
            stop=stop,
            on_listening=heard.set_result,
            **limits,
        ),
        "serve",
    )
    async with asyncio.timeout(10):
        port = urlsplit(await heard).port
    assert port is not None
    try:
        yield port
    finally:
        stop.set()
        async with asyncio.timeout(10):
            await serving


async def talk(port: int, data: bytes) -> bytes:
    """Everything that comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def head(port: int, *more: str, token: str = TOKEN, length: int = 2) -> bytes:
    lines = (
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {length}",
        *more,
    )
    return "\r\n".join([*lines, "", ""]).encode()


@aio
async def test_a_wrong_token_is_refused_and_the_connection_closed(work: Path) -> None:
    async with listening(work) as port:
        answer = await talk(port, head(port, token="wrong") + b"{}")
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"www-authenticate: Bearer" in answer


@aio
async def test_a_client_that_sends_no_request_is_closed(work: Path) -> None:
    async with listening(work, head_timeout=0.05) as port:
        assert await talk(port, b"") == b""
        assert await talk(port, b"POST /mcp HTTP/1.1\r\nHost: x\r\n") == b""


@aio
async def test_a_second_request_that_never_comes_whole_is_not_waited_for(work: Path) -> None:
    async with listening(work, head_timeout=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(port, length=2) + b"{}")
        async with asyncio.timeout(10):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"POST /mcp HTTP/1.1\r\n")
            try:
                await reader.read()
            except ConnectionResetError:
                pass
        writer.close()


@aio
async def test_a_body_that_does_not_arrive_is_told_so(work: Path) -> None:
    async with listening(work, body_timeout=0.05) as port:
        answer = await talk(port, head(port, length=100) + b"{")
        assert answer.startswith(b"HTTP/1.1 408 ")


@aio
async def test_a_body_that_is_too_long_is_refused(work: Path) -> None:
    async with listening(work, max_body_size=50, body_timeout=0.05) as port:
        assert (await talk(port, head(port, length=51))).startswith(b"HTTP/1.1 413 ")
        chunked = head(port).replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")
        answer = await talk(port, chunked + b"40\r\n" + b"x" * 64 + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ")


@aio
async def test_what_is_no_http_is_refused(work: Path) -> None:
    async with listening(work) as port:
        assert (await talk(port, b"hello\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        huge = b"GET /mcp HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"
        assert not (await talk(port, huge)).startswith(b"HTTP/1.1 2")


@aio
async def test_a_port_that_is_taken_is_told(work: Path) -> None:
    async with listening(work) as port:
        with pytest.raises(AddressInUse, match=str(port)):
            await serve_http(
                Front(cwd=work),
                port=port,
                token=TOKEN,
                stop=asyncio.Event(),
                on_listening=lambda url: None,
            )


@aio
async def test_it_ends_although_connections_are_open(work: Path) -> None:
    async with listening(work) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(port, length=100))
        await writer.drain()
    async with asyncio.timeout(10):
        try:
            await reader.read()
        except ConnectionResetError:
            pass
    writer.close()
