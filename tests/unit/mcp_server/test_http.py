"""The server over HTTP: its listening and its connections."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from dragoman.errors import AddressInUse
from dragoman.mcp_server import tools
from dragoman.mcp_server.http import serve_http
from dragoman.mcp_server.tool_handlers import ToolHandlers
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.http_server import ConnectionTerms
from tests.aio import aio

TOKEN = "a-token-of-some-length"


@asynccontextmanager
async def listening(work: Path, **limits: Any) -> AsyncIterator[int]:
    """The port of a server that runs in this process."""
    stop = asyncio.Event()
    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    tasks = TaskOwner("test")
    names = {field.name for field in fields(ConnectionTerms)}
    terms = ConnectionTerms(**{name: limits.pop(name) for name in names & limits.keys()})
    serving = tasks.start(
        serve_http(
            ToolHandlers(cwd=work),
            port=0,
            token=TOKEN,
            stop=stop,
            on_listening=heard.set_result,
            terms=terms,
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
async def test_sessions_that_cannot_start_end_the_server_with_their_error(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def run(manager: Any) -> AsyncIterator[None]:
        raise RuntimeError("no sessions")
        yield

    monkeypatch.setattr(StreamableHTTPSessionManager, "run", run)
    heard: list[str] = []
    with pytest.raises(RuntimeError, match="no sessions"):
        async with asyncio.timeout(10):
            await serve_http(
                ToolHandlers(cwd=work),
                port=0,
                token=TOKEN,
                stop=asyncio.Event(),
                on_listening=heard.append,
            )
    assert heard == []


@aio
async def test_the_connections_are_closed_even_if_the_work_cannot_be_stopped(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def aclose(front: ToolHandlers) -> None:
        raise RuntimeError("cannot stop")

    with pytest.raises(RuntimeError, match="cannot stop"):
        async with listening(work) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            monkeypatch.setattr(ToolHandlers, "aclose", aclose)
    try:
        async with asyncio.timeout(10):
            assert await reader.read() == b""
    except ConnectionResetError:
        pass
    finally:
        writer.close()


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
async def test_a_body_that_does_not_arrive_gets_an_error(work: Path) -> None:
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


LIST = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{'
    b'"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"by hand","version":"1"},'
    b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
)


@aio
async def test_a_client_that_asks_on_and_on_and_reads_nothing_is_sent_away(
    work: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than the system keeps for somebody who does not read.
    long = replace(tools.TOOLS[0], description="x" * 1_000_000)
    monkeypatch.setattr(tools, "TOOLS", (long,))
    loop = asyncio.get_running_loop()
    async with listening(work, send_timeout=0.05) as port:
        versed = ("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list")
        request = head(port, *versed, length=len(LIST)) + LIST
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            async with asyncio.timeout(10):
                with pytest.raises(ConnectionError):
                    while True:
                        await loop.sock_sendall(client, request)
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


async def answered(reader: asyncio.StreamReader) -> bytes:
    """The head of an answer that is read to its end."""
    async with asyncio.timeout(10):
        told = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", told, re.IGNORECASE)
        await reader.readexactly(0 if size is None else int(size[1]))
        return told


@aio
async def test_idle_connections_of_strangers_take_no_place_of_those_with_the_token(
    work: Path,
) -> None:
    async with listening(work, max_connections=2, max_strangers=3) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        answer = await talk(port, head(port, "Connection: close") + b"{}")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert (await talk(port, head(port, token="wrong") + b"{}")).startswith(b"HTTP/1.1 401 ")
        # The oldest have gone, and not the last.
        async with asyncio.timeout(10):
            for reader, _ in idle[:3]:
                with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
        for _, writer in idle:
            writer.close()


@aio
async def test_a_connection_with_the_token_is_refused_only_if_all_others_are_at_work(
    work: Path,
) -> None:
    async with listening(work, max_connections=2, body_timeout=10.0) as port:
        whole, half = head(port) + b"{}", head(port, "Expect: 100-continue", length=3)
        ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in ends:
            writer.write(whole)
            assert (await answered(reader)).startswith(b"HTTP/1.1 400 ")
        # Both are idle, and so is the third behind its request: the oldest one makes room.
        last, third = await asyncio.open_connection("127.0.0.1", port)
        third.write(whole)
        assert (await answered(last)).startswith(b"HTTP/1.1 400 ")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await ends[0][0].readuntil(b"never")
        # Two that wait for the rest of their requests are at work.
        for reader, writer in ((last, third), ends[1]):
            writer.write(half)
            assert (await answered(reader)).startswith(b"HTTP/1.1 100 ")
        assert (await talk(port, whole)).startswith(b"HTTP/1.1 503 ")
        for _, writer in ends:
            writer.close()
        third.close()


@aio
async def test_what_is_not_http_is_refused(work: Path) -> None:
    async with listening(work) as port:
        assert (await talk(port, b"hello\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        huge = b"GET /mcp HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"
        assert not (await talk(port, huge)).startswith(b"HTTP/1.1 2")


@aio
async def test_a_port_that_is_in_use_is_reported(work: Path) -> None:
    async with listening(work) as port:
        with pytest.raises(AddressInUse, match=str(port)):
            await serve_http(
                ToolHandlers(cwd=work),
                port=port,
                token=TOKEN,
                stop=asyncio.Event(),
                on_listening=lambda url: None,
            )


@aio
async def test_the_server_ends_although_connections_are_open(work: Path) -> None:
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
