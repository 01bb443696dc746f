"""The guard of a local HTTP server: Host, Origin and who is let in."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from dragoman.transports.http_guard import AddressGuard
from tests.aio import aio


class Guard(AddressGuard):
    takes_websockets = True

    def __init__(self) -> None:
        super().__init__(self.inner)
        self.hosts = frozenset({b"localhost:80"})
        self.asked = 0
        self.seen: list[int] = []

    async def inner(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "inside"})

    def authorize(self, scope: Scope) -> None:
        self.asked += 1
        if scope["path"] == "/private":
            raise HTTPException(401, "no")
        self.admit(scope)

    def refused(self, scope: Scope, error: HTTPException) -> None:
        self.seen.append(error.status_code)


async def ask(guard: Guard, kind: str = "http", path: str = "/", **headers: str) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    given = {"host": "localhost:80", **headers}
    lines = [(name.encode(), value.encode()) for name, value in given.items()]
    await guard({"type": kind, "path": path, "headers": lines}, receive, send)
    return sent


@aio
@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_request_of_our_own_page_is_let_in(kind: str) -> None:
    guard = Guard()
    assert await ask(guard, kind, origin="http://localhost:80") == [{"type": "inside"}]
    assert guard.asked == 1 and guard.seen == []


@aio
@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "example.org"}, 421),
        ({"origin": "http://example.org"}, 403),
        ({"origin": "https://localhost:80"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "localhost:80"}, 403),
    ],
)
async def test_other_names_and_origins_are_refused_before_anything_is_looked_at(
    kind: str, headers: dict[str, str], status: int
) -> None:
    guard = Guard()
    sent = await ask(guard, kind, **headers)
    assert guard.asked == 0 and guard.seen == [status]
    if kind == "http":
        assert sent[0]["status"] == status
    else:
        assert sent == [{"type": "websocket.close", "code": 1008}]


@aio
async def test_who_may_not_come_in_is_refused() -> None:
    guard = Guard()
    assert (await ask(guard, path="/private"))[0]["status"] == 401
    assert await ask(guard, "websocket", path="/private") == [
        {"type": "websocket.close", "code": 1008}
    ]
    assert guard.seen == [401, 401]
