"""The HTTP server: limits of its connections, TLS and WebSockets."""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.asyncio.client import connect

from dragoman.errors import AddressInUse
from dragoman.transports import http_server
from dragoman.transports.http_guard import ADMIT
from dragoman.transports.http_server import (
    LOOPBACK,
    ConnectionLimits,
    ConnectionTerms,
    HttpServer,
    LimitedConnection,
    http_config,
)
from dragoman.transports.tls import TlsFiles
from tests.aio import aio
from tests.certificates import make_certificate


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await PlainTextResponse("here")(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"].upper()})


async def listening(server: HttpServer) -> int:
    port = await server.bind(LOOPBACK, 0)
    await server.start()
    return port


async def get(port: int, **options: Any) -> bytes:
    reader, writer = await asyncio.open_connection(LOOPBACK, port, **options)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


@aio
async def test_an_application_is_served_until_the_server_is_closed() -> None:
    server = HttpServer(app)
    port = await listening(server)
    assert (await get(port)).endswith(b"here")
    await server.aclose()
    with pytest.raises(OSError):
        await get(port)


@aio
async def test_a_port_that_is_taken_is_named() -> None:
    server, second = HttpServer(app), HttpServer(app)
    port = await listening(server)
    with pytest.raises(AddressInUse, match=str(port)):
        await second.bind(LOOPBACK, port)
    await second.aclose()
    await server.aclose()


@aio
async def test_connections_are_refused_until_the_server_is_started() -> None:
    server, second = HttpServer(app), HttpServer(app)
    port = await server.bind(LOOPBACK, 0)
    with pytest.raises(ConnectionRefusedError):
        await get(port)
    # Another server can bind the same port as long as none is started.
    assert await second.bind(LOOPBACK, port) == port
    await server.start()
    assert (await get(port)).endswith(b"here")
    with pytest.raises(AddressInUse, match=str(port)):
        await second.start()
    await second.aclose()
    assert (await get(port)).endswith(b"here")
    await server.aclose()


@aio
async def test_a_web_socket_outlives_the_timeouts_for_requests() -> None:
    terms = ConnectionTerms(head_timeout=0.5, max_strangers=1)
    server = HttpServer(app, terms, websockets=True)
    port = await listening(server)
    async with connect(f"ws://{LOOPBACK}:{port}/", ping_interval=None) as socket:
        # Both would end a connection without a request: the next stranger, and then the time, which
        # ends this stranger too.
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        async with asyncio.timeout(10):
            await reader.read()
        writer.close()
        await socket.send("again")
        assert await socket.recv() == "AGAIN"
    await server.aclose()


@aio
async def test_with_a_certificate_it_speaks_tls_and_nothing_else(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    server = HttpServer(app, tls=TlsFiles(certificate=certificate, key=key))
    port = await listening(server)
    trusted = ssl.create_default_context(cafile=str(certificate))
    answer = await get(port, ssl=trusted, server_hostname="localhost")
    assert answer.endswith(b"here")
    assert b"here" not in await get(port)
    await server.aclose()


@aio
async def test_a_connection_that_never_begins_tls_is_closed_in_time(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    terms = ConnectionTerms(head_timeout=0.1)
    server = HttpServer(app, terms, tls=TlsFiles(certificate=certificate, key=key))
    reader, writer = await asyncio.open_connection(LOOPBACK, await listening(server))
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
    await server.aclose()


class Narrow(asyncio.Transport):
    """Stands for a connection whose client takes some of what waits for it, and then no more."""

    def __init__(self, waiting: list[int]) -> None:
        super().__init__()
        self.waiting = waiting
        self.aborted = asyncio.Event()

    def get_write_buffer_size(self) -> int:
        return self.waiting.pop(0)

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None: ...


@aio
async def test_a_client_that_takes_its_answer_slowly_is_waited_for() -> None:
    config = http_config(app)
    terms = ConnectionTerms(max_connections=1, max_strangers=1, send_timeout=0.01)
    counted = ConnectionLimits(terms)
    connection = LimitedConnection(config, ServerState(), counted, terms)
    transport = Narrow([300, 200, 200, 100, 100, 100])
    connection.connection_made(transport)
    connection.pause_writing()
    async with asyncio.timeout(10):
        await transport.aborted.wait()
    assert transport.waiting == []
    connection.connection_lost(None)


@aio
async def test_a_websocket_whose_client_does_not_read_is_aborted_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "SEND_TIMEOUT", 0.05)

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": bytes(20_000_000)})

    server = HttpServer(flood, websockets=True)
    port = await listening(server)
    try:
        reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=1)
        head = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        writer.write((head + key).encode())
        assert await reader.read(12) == b"HTTP/1.1 101"
        size = 0
        async with asyncio.timeout(10):
            # Slowly, and longer than the server waits.
            while part := await reader.read(1_000_000):
                size += len(part)
                await asyncio.to_thread(threading.Event().wait, 0.2)
        assert size < 20_000_000
        writer.close()
        await writer.wait_closed()
    finally:
        await server.aclose()


@aio
async def test_open_websockets_are_not_closed_to_make_room_for_connections() -> None:
    async def admitted(scope: Scope, receive: Receive, send: Send) -> None:
        admit = scope.get("state", {}).get(ADMIT)
        if admit is not None and not admit():
            await PlainTextResponse("full", 503)(scope, receive, send)
            return
        await app(scope, receive, send)

    server = HttpServer(admitted, ConnectionTerms(max_connections=1), websockets=True)
    port = await listening(server)
    url = f"ws://{LOOPBACK}:{port}/"
    try:
        async with asyncio.timeout(10), AsyncExitStack() as opened:
            sockets = [await opened.enter_async_context(connect(url, proxy=None)) for _ in range(3)]
            for _ in range(3):
                assert (await get(port)).endswith(b"here")
            for socket in sockets:
                await socket.send("still here")
                assert await socket.recv() == "STILL HERE"
    finally:
        await server.aclose()
