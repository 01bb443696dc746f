"""The carriers of the door, and who is let in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dragoman.acp_server.listener import OpenConnections, serve_unix, serve_websocket
from dragoman.acp_server.server import ServerContext
from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions
from dragoman.config.token_file import new_token
from dragoman.errors import UsageError
from dragoman.transports import connect_unix, connect_websocket
from dragoman.transports.memory import memory_pair
from tests.aio import aio

TOKEN = new_token()
HELLO = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
WAIT_TIMEOUT = 10.0


def door(**options: Any) -> Any:
    return serve_websocket(ServerContext(), "127.0.0.1", 0, token=TOKEN, **options)


def headers(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@aio
async def test_a_client_with_the_token_is_served() -> None:
    async with await door() as listener:
        stream = await connect_websocket(listener.address, headers=headers())
        async with AcpClient(stream, ClientOptions()) as client:
            assert client.agent.agent_info is not None
            assert client.agent.agent_info.name == "dragoman"


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
@aio
async def test_the_case_of_the_scheme_does_not_matter(scheme: str) -> None:
    async with await door() as listener:
        given = {"Authorization": f"{scheme} {TOKEN}"}
        client = await connect(listener.address, additional_headers=given, proxy=None)
        await client.close()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Cookie": f"token={TOKEN}"},
    ],
)
@aio
async def test_a_client_without_the_token_is_refused(given: dict[str, str]) -> None:
    async with await door() as listener:
        with pytest.raises(InvalidStatus) as refused:
            await connect(listener.address, additional_headers=given, proxy=None)
        assert refused.value.response.status_code == 401


@aio
async def test_the_token_counts_in_no_address_and_not_twice() -> None:
    async with await door() as listener:
        twice = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer other")]
        for address, given in (
            (f"{listener.address}?token={TOKEN}", []),
            (listener.address, twice),
        ):
            with pytest.raises(InvalidStatus):
                await connect(address, additional_headers=given, proxy=None)


@aio
async def test_a_web_page_is_refused_although_it_has_the_token() -> None:
    async with await door() as listener:
        with pytest.raises(InvalidStatus) as refused:
            await connect(
                listener.address,
                additional_headers=headers(),
                origin="https://evil.example",  # type: ignore[arg-type]
                proxy=None,
            )
        assert refused.value.response.status_code == 403


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "[::2]", "[broken"])
@aio
async def test_a_foreign_host_is_refused_although_it_has_the_token(name: str) -> None:
    async with await door() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        request = (
            f"GET / HTTP/1.1\r\nHost: {name}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {TOKEN}\r\n\r\n"
        )
        writer.write(request.encode())
        async with asyncio.timeout(WAIT_TIMEOUT):
            line = await reader.readline()
        assert line.split()[1] == b"401"
        writer.close()
        await writer.wait_closed()


@aio
async def test_a_frame_that_is_too_long_ends_the_connection() -> None:
    async with (
        await door(max_message_size=4096) as listener,
        connect(listener.address, additional_headers=headers(), proxy=None) as client,
    ):
        await client.send("x" * 5000)
        with pytest.raises(ConnectionClosed) as closed:
            async with asyncio.timeout(WAIT_TIMEOUT):
                while True:
                    await client.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


@aio
async def test_a_client_that_is_slow_to_shake_hands_is_sent_away() -> None:
    async with await door(open_timeout=0.05) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET / HTTP/1.1\r\n")
        async with asyncio.timeout(WAIT_TIMEOUT):
            await reader.read()
        assert reader.at_eof()
        writer.close()
        await writer.wait_closed()


@aio
async def test_a_client_that_asks_for_nothing_is_sent_away_and_one_that_does_stays() -> None:
    async with await door(greeting_timeout=0.05) as listener:
        async with (
            connect(listener.address, additional_headers=headers(), proxy=None) as busy,
            connect(listener.address, additional_headers=headers(), proxy=None) as silent,
        ):
            await busy.send(HELLO)
            async with asyncio.timeout(WAIT_TIMEOUT):
                await busy.recv()
                with pytest.raises(ConnectionClosed):
                    await silent.recv()
                await busy.send(HELLO)
                await busy.recv()


@aio
async def test_a_client_that_gives_no_sign_of_life_is_given_up() -> None:
    async with await door(ping_interval=0.05) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        request = (
            "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {TOKEN}\r\n\r\n"
        )
        writer.write(request.encode())
        async with asyncio.timeout(WAIT_TIMEOUT):
            line = await reader.readline()
            assert line.split()[1] == b"101"
            # Pings come, and nobody answers them.
            with pytest.raises(ConnectionResetError):
                while await reader.read(1024):
                    pass
                raise ConnectionResetError
        writer.close()


@aio
async def test_more_clients_than_there_is_room_for_are_turned_away_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crowd = OpenConnections(ServerContext(), max_clients=1)
    one, far = memory_pair()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(crowd.serve(far))
        async with AcpClient(one, ClientOptions()):
            _, other = memory_pair()
            await crowd.serve(other)
            assert not serving.done()
    (record,) = caplog.records
    assert record.getMessage() == "refusing a client: 1 are connected, the maximum"


@pytest.mark.parametrize(
    ("host", "token"),
    [("0.0.0.0", TOKEN), ("example.org", TOKEN), ("127.0.0.1", "short")],
    ids=["every address", "another machine", "a short token"],
)
@aio
async def test_an_address_of_all_machines_and_a_short_token_are_refused(
    host: str, token: str
) -> None:
    with pytest.raises(UsageError):
        await serve_websocket(ServerContext(), host, 0, token=token)


@aio
async def test_a_unix_socket_serves_its_owner_without_a_token(tmp_path: Path) -> None:
    path = tmp_path / "door.sock"
    async with await serve_unix(ServerContext(), path):
        assert path.stat().st_mode & 0o077 == 0
        async with AcpClient(await connect_unix(path), ClientOptions()) as client:
            assert client.can("loadSession")
