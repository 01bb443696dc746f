"""Who may come in over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from dragoman.mcp_server.http_guard import HttpGuard, default_path
from dragoman.paths import find_paths
from tests.aio import aio

TOKEN = "a-token-of-some-length"
GOOD = {"host": "127.0.0.1:80", "authorization": f"Bearer {TOKEN}"}


class Inner:
    """Stands for the server behind the door."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def ask(
    headers: dict[str, str] | list[tuple[str, str]],
    body: list[bytes] | None = None,
    *,
    path: str = "/mcp",
    inner: Inner | None = None,
    hang: bool = False,
    **limits: Any,
) -> int:
    """The status that a request gets."""
    door = HttpGuard(inner or Inner(), token=TOKEN, **limits)
    door.hosts = frozenset({b"127.0.0.1:80", b"localhost:80"})
    parts = list(body or [b"{}"])
    status: list[int] = []

    async def receive() -> Message:
        if not parts and hang:
            await asyncio.Event().wait()
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts) or hang}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    given = headers.items() if isinstance(headers, dict) else headers
    raw = [(name.encode(), value.encode()) for name, value in given]
    scope = {"type": "http", "path": path, "headers": raw}
    await door(scope, receive, send)
    (only,) = status
    return only


@aio
async def test_a_request_with_the_token_is_let_in_with_its_whole_body() -> None:
    inner = Inner()
    assert await ask(GOOD, [b'{"a":', b"1}"], inner=inner) == 200
    assert inner.bodies == [b'{"a":1}']
    assert await ask({**GOOD, "authorization": f"bearer {TOKEN}"}) == 200
    assert await ask({**GOOD, "host": "localhost:80", "origin": "http://localhost:80"}) == 200


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": ""}, 401),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:80"}, 421),
        ({"host": "127.0.0.1:81"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "https://127.0.0.1:80"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:80.evil.example"}, 403),
        ({"content-length": str(10**7)}, 413),
        ({"content-length": "9" * 5000}, 413),
        ({"content-length": "-1"}, 413),
    ],
)
@aio
async def test_everybody_else_is_refused(changed: dict[str, str], status: int) -> None:
    inner = Inner()
    assert await ask({**GOOD, **changed}, inner=inner) == status
    assert inner.bodies == []


@aio
async def test_a_header_that_is_missing_or_double_is_wrong() -> None:
    assert await ask({"host": GOOD["host"]}) == 401
    assert await ask({"authorization": GOOD["authorization"]}) == 421
    twice = [*GOOD.items(), ("authorization", "Bearer wrong")]
    assert await ask(twice) == 401
    assert await ask([*GOOD.items(), ("host", "evil.example")]) == 421
    assert await ask([*GOOD.items(), ("origin", "http://evil.example")]) == 403


@aio
async def test_there_is_one_path() -> None:
    assert await ask(GOOD, path="/") == 404


@aio
async def test_a_body_that_is_longer_than_it_said_is_refused() -> None:
    inner = Inner()
    assert await ask(GOOD, [b"x" * 8, b"x" * 8], inner=inner, max_body_size=15) == 413
    assert await ask(GOOD, [b"x" * 8, b"x" * 7], inner=inner, max_body_size=15) == 200
    assert inner.bodies == [b"x" * 15]


@aio
async def test_a_body_that_is_too_long_is_taken_in_part_so_that_its_sender_sees_why() -> None:
    body = [b"x" * 10] * 5
    assert await ask({**GOOD, "content-length": "50"}, body, max_body_size=15) == 413
    status = await ask(GOOD, body, hang=True, max_body_size=15, body_timeout=0.05)
    assert status == 413, "and not forever"


@aio
async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    inner = Inner()
    assert await ask(GOOD, [b"{"], inner=inner, hang=True, body_timeout=0.01) == 408
    assert inner.bodies == []


@aio
async def test_a_sender_that_goes_away_is_not_answered() -> None:
    inner = Inner()
    door = HttpGuard(inner, token=TOKEN)
    door.hosts = frozenset({b"127.0.0.1:80"})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    raw = [(name.encode(), value.encode()) for name, value in GOOD.items()]
    await door({"type": "http", "path": "/mcp", "headers": raw}, receive, send)
    assert inner.bodies == []


@aio
async def test_a_web_socket_is_closed_at_once() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    await HttpGuard(Inner(), token=TOKEN)({"type": "websocket", "headers": []}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


def test_the_token_is_in_the_state_folder(tmp_path: Path) -> None:
    paths = find_paths({"HOME": str(tmp_path), "DRAGOMAN_STATE_HOME": str(tmp_path / "state")})
    assert default_path(paths) == paths.state / "mcp-token"
