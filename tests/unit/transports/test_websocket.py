"""Opening WebSockets: who is let in, what is refused, and what a failed opening says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as library_connect
from websockets.asyncio.server import ServerConnection, unix_serve
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request

from dragoman.errors import AddressInUse, ConnectError, ConnectionEnded, ConnectionLost, UsageError
from dragoman.transports.base import Stream
from dragoman.transports.websocket import connect_websocket, listen_websocket
from dragoman.transports.websocket_stream import WebSocketStream
from tests.aio import aio


class Recorder:
    def __init__(self) -> None:
        self.data = b""
        self.ended: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ended.set_result(failure)


async def greet(stream: Stream) -> None:
    stream.write(b"hello\n")


async def wait_forever(stream: Stream) -> None:
    await asyncio.get_running_loop().create_future()


async def heard_from(address: str, **options: Any) -> tuple[bytes, ConnectionLost]:
    stream = await connect_websocket(address, **options)
    heard = Recorder()
    stream.start(heard)
    async with asyncio.timeout(10):
        failure = await heard.ended
    await stream.aclose()
    return heard.data, failure


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0)


@aio
async def test_a_connection_reaches_the_handler_and_is_closed_after_it() -> None:
    async with await listen_websocket("127.0.0.1", 0, greet) as listener:
        assert listener.address == f"ws://127.0.0.1:{listener.port}/"
        data, failure = await heard_from(listener.address)
    assert data == b"hello\n"
    assert type(failure) is ConnectionEnded


@aio
async def test_headers_and_subprotocols_are_offered_and_agreed_on() -> None:
    seen: list[str | None] = []

    def authorize(request: Request) -> bool:
        seen.append(request.headers.get("Authorization"))
        return True

    async def handler(stream: Stream) -> None:
        assert isinstance(stream, WebSocketStream)
        stream.write(f"{stream.subprotocol}\n".encode())

    async with await listen_websocket(
        "127.0.0.1", 0, handler, authorize=authorize, subprotocols=["acp.v1"]
    ) as listener:
        stream = await connect_websocket(
            listener.address,
            headers={"Authorization": "Bearer x"},
            subprotocols=["acp.v2", "acp.v1"],
        )
        assert stream.subprotocol == "acp.v1"
        assert stream.response_headers["Sec-WebSocket-Protocol"] == "acp.v1"
        heard = Recorder()
        stream.start(heard)
        await heard.ended
        await stream.aclose()
    assert (heard.data, seen) == (b"acp.v1\n", ["Bearer x"])


@aio
async def test_another_path_is_not_found_and_a_query_does_not_matter() -> None:
    async with await listen_websocket("127.0.0.1", 0, greet, path="/acp") as listener:
        assert listener.address.endswith("/acp")
        assert (await heard_from(listener.address + "?x=1"))[0] == b"hello\n"
        with pytest.raises(ConnectError) as caught:
            await connect_websocket(f"ws://127.0.0.1:{listener.port}/other")
    assert caught.value.status == 404


@aio
async def test_who_is_not_authorized_gets_401_and_no_handler_runs() -> None:
    async with await listen_websocket(
        "127.0.0.1", 0, wait_forever, authorize=lambda request: False
    ) as listener:
        with pytest.raises(ConnectError, match="401") as caught:
            await connect_websocket(listener.address)
    assert caught.value.status == 401


@aio
async def test_an_authorization_that_fails_refuses_the_client_and_is_reported() -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))

    def authorize(request: Request) -> bool:
        raise ValueError("a mistake")

    async with await listen_websocket("127.0.0.1", 0, greet, authorize=authorize) as listener:
        with pytest.raises(ConnectError) as caught:
            await connect_websocket(listener.address)
    assert caught.value.status == 500
    assert [str(report["exception"]) for report in reports] == ["a mistake"]


@aio
async def test_web_pages_are_let_in_only_from_allowed_origins() -> None:
    async with await listen_websocket("127.0.0.1", 0, greet) as listener:
        with pytest.raises(InvalidStatus) as caught:
            await library_connect(listener.address, origin="https://evil.example")  # type: ignore[arg-type]
        assert caught.value.response.status_code == 403
    async with await listen_websocket(
        "127.0.0.1", 0, greet, allowed_origins=["https://good.example"]
    ) as listener:
        async with library_connect(listener.address, origin="https://good.example") as page:  # type: ignore[arg-type]
            assert await page.recv() == "hello"
        assert (await heard_from(listener.address))[0] == b"hello\n"
        with pytest.raises(InvalidStatus):
            await library_connect(listener.address, origin="null")  # type: ignore[arg-type]


@aio
async def test_compression_is_refused_even_if_the_other_side_offers_it() -> None:
    async with (
        await listen_websocket("127.0.0.1", 0, greet) as listener,
        library_connect(listener.address) as theirs,
    ):
        assert theirs.protocol.extensions == []


@aio
async def test_closing_the_listener_ends_handlers_and_half_open_connections_at_once() -> None:
    listener = await listen_websocket("127.0.0.1", 0, wait_forever)
    stream = await connect_websocket(listener.address)
    heard = Recorder()
    stream.start(heard)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"GET / HTTP/1.1\r\n")
    async with asyncio.timeout(5):
        await until(lambda: len(listener._connections) == 2)
        await asyncio.gather(listener.aclose(), listener.aclose())
        assert type(await heard.ended) is ConnectionEnded
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
    await stream.aclose()
    await listener.aclose()
    assert listener._connections == set()


@aio
async def test_what_is_not_a_handshake_is_dropped_and_others_are_served() -> None:
    async with await listen_websocket("127.0.0.1", 0, greet) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        async with asyncio.timeout(5):
            await reader.read()
        writer.close()
        assert (await heard_from(listener.address))[0] == b"hello\n"


@aio
async def test_a_port_in_use_says_so_and_a_bad_host_is_an_error() -> None:
    async with await listen_websocket("127.0.0.1", 0, greet) as listener:
        with pytest.raises(AddressInUse, match=str(listener.port)):
            await listen_websocket("127.0.0.1", listener.port, greet)
    for host in ("192.0.2.1", "agent..invalid"):
        with pytest.raises(UsageError, match=f"cannot listen on {host}:0"):
            await listen_websocket(host, 0, greet)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "127.0.0.1:80", "ws://", "ws://127.0.0.1/#fragment", "ws://[::1"],
)
@aio
async def test_what_is_not_a_websocket_address_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError):
        await connect_websocket(url)


@aio
async def test_a_wrong_address_or_header_is_reported_without_its_secrets() -> None:
    with pytest.raises(UsageError, match="cannot connect to http://agent/: scheme") as caught:
        await connect_websocket("http://user:word@agent/?token=word")
    assert "word" not in str(caught.value)
    with pytest.raises(UsageError, match="the header Authorization") as caught:
        await connect_websocket("ws://127.0.0.1/", headers={"Authorization": "Bearer word\n"})
    assert "word" not in str(caught.value)


@aio
async def test_encryption_settings_for_a_plain_address_are_a_usage_error() -> None:
    with pytest.raises(UsageError):
        await connect_websocket("ws://127.0.0.1/", ssl_context=ssl.create_default_context())


@aio
async def test_a_missing_listener_is_a_connect_error_that_shows_no_secret() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectError) as caught:
        await connect_websocket(f"ws://user:word@127.0.0.1:{port}/path?token=word")
    assert f"ws://127.0.0.1:{port}/path" in str(caught.value)
    assert "word" not in str(caught.value)
    assert (caught.value.status, caught.value.retryable) == (None, True)


def _status(status: int) -> str:
    return f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "retryable"),
    [
        *((_status(status), False) for status in (200, 400, 401, 403, 404)),
        *((_status(status), True) for status in (408, 425, 429, 500, 503)),
        ("220 mail ready\r\n", False),
        # It hangs up: it may be about to restart.
        ("", True),
    ],
)
@aio
async def test_a_refused_connection_is_retryable_only_if_the_refusal_may_pass(
    said: str, retryable: bool
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said.encode())
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectError) as caught:
            await connect_websocket(f"ws://127.0.0.1:{port}/")
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(("status", "retryable"), [(407, False), (502, True)])
@aio
async def test_a_proxy_that_refuses_is_named_with_its_status(
    status: int, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_status(status).encode())
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(ConnectError, match=r"the proxy for ws://agent\.invalid/") as caught:
            await connect_websocket("ws://agent.invalid/")
    assert (caught.value.status, caught.value.retryable) == (status, retryable)


@pytest.mark.parametrize("proxy", ["ftp://user:hunter2@proxy:3128", "http://hunter2@proxy:3128"])
@aio
async def test_an_invalid_proxy_is_a_usage_error_that_shows_no_secret(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(UsageError, match="the proxy in the environment is invalid") as caught:
        await connect_websocket("ws://agent.invalid/")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("said", ["", "220 mail ready\r\n"])
@aio
async def test_a_proxy_that_does_not_answer_like_one_is_named(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said.encode())
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(ConnectError, match=r"the proxy for ws://agent\.invalid/ failed"):
            await connect_websocket("ws://agent.invalid/")


@aio
async def test_a_server_that_never_answers_is_a_connect_error_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectError, match=r"within 0\.01 s"):
            await connect_websocket(f"ws://127.0.0.1:{port}/", open_timeout=0.01)
    # A connection that was accepted late gets its task a few turns of the loop later.
    for _ in range(10):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        await task


@aio
async def test_a_server_that_speaks_something_else_is_a_connect_error() -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        writer.close()

    async with await asyncio.start_server(other, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectError, match="the WebSocket handshake with .* failed"):
            await connect_websocket(f"ws://127.0.0.1:{port}/")


@aio
async def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with await listen_websocket("127.0.0.1", 0, greet) as listener:
        assert (await heard_from(listener.address))[0] == b"hello\n"
    with pytest.raises(ConnectError):
        await connect_websocket("ws://agent.invalid/")


@aio
async def test_a_websocket_on_a_unix_socket_works(tmp_path: Path) -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.send("hello")

    async with unix_serve(handler, str(tmp_path / "s")):
        data, _ = await heard_from("ws://localhost/", unix_path=tmp_path / "s")
    assert data == b"hello\n"
    with pytest.raises(ConnectError, match="No such file"):
        await connect_websocket("ws://localhost/", unix_path=tmp_path / "missing")


@aio
async def test_the_library_logs_nothing_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with await listen_websocket("127.0.0.1", 0, greet) as listener:
        await heard_from(listener.address, headers={"Authorization": "secret"})
    assert [record for record in caplog.records if record.name.startswith("websockets")] == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
@aio
async def test_an_encrypted_connection_works_and_an_unknown_certificate_does_not(
    tmp_path: Path,
) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    make += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", certificate]
    make += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    await asyncio.to_thread(subprocess.run, make, check=True, capture_output=True)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)
    ours = ssl.create_default_context(cafile=certificate)
    async with await listen_websocket("127.0.0.1", 0, greet, ssl_context=theirs) as listener:
        assert listener.address.startswith("wss://")
        data, failure = await heard_from(listener.address, ssl_context=ours)
        assert (data, type(failure)) == (b"hello\n", ConnectionEnded)
        with pytest.raises(ConnectError, match="certificate") as caught:
            await connect_websocket(listener.address)
        assert not caught.value.retryable
        assert listener._connections == set()
