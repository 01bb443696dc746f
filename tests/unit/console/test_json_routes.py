"""Values and errors of handlers become JSON responses with the right status."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from dragoman.console.json_routes import (
    InvalidRequest,
    body_of,
    failure,
    json_route,
    query_of,
    session_of,
)
from dragoman.errors import (
    BrokerError,
    CallTimeout,
    PatchChanged,
    UnknownJob,
    UnknownSession,
    UsageError,
)
from tests.aio import aio

REQUEST = Request(
    {"type": "http", "method": "GET", "path": "/x", "headers": [], "query_string": b""}
)


@aio
async def test_a_value_is_sent_as_json_that_must_not_be_cached() -> None:
    async def handler(request: Request) -> Any:
        return {"path": request.url.path}

    response = await json_route(handler)(REQUEST)
    assert response.status_code == 200 and json.loads(bytes(response.body)) == {"path": "/x"}
    assert response.headers["cache-control"] == "no-store"


@aio
async def test_a_response_is_sent_as_it_is() -> None:
    async def handler(request: Request) -> Any:
        return failure(409, "taken", "it is taken")

    response = await json_route(handler)(REQUEST)
    assert response.status_code == 409
    assert json.loads(bytes(response.body)) == {
        **{"error": "taken", "message": "it is taken"},
        **{"blame": "us", "retryable": False, "mayHaveRun": False},
    }


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequest("wrong"), 400),
        (UsageError("wrong"), 400),
        (UnknownJob("wrong"), 404),
        (UnknownSession("wrong"), 404),
        (PatchChanged("wrong"), 409),
        (BrokerError("wrong"), 502),
    ],
)
def test_an_error_has_its_status_and_its_message(error: Exception, status: int) -> None:
    async def handler(request: Request) -> Any:
        raise error

    @aio
    async def check() -> None:
        response = await json_route(handler)(REQUEST)
        assert response.status_code == status
        assert json.loads(bytes(response.body))["message"] == "wrong"

    check()


@aio
async def test_an_error_says_whose_fault_it_is_and_whether_to_retry() -> None:
    async def handler(request: Request) -> Any:
        raise CallTimeout("session/new", 2)

    told = json.loads(bytes((await json_route(handler)(REQUEST)).body))
    answers = {name: told[name] for name in ("error", "blame", "retryable", "mayHaveRun")}
    assert answers == {"error": "timeout", "blame": "peer", "retryable": True, "mayHaveRun": True}


class Wanted(msgspec.Struct):
    days: int


def request_with(body: bytes = b"", query: bytes = b"") -> Request:
    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    scope = {"type": "http", "method": "POST", "path": "/x", "headers": [], "query_string": query}
    return Request({**scope, "path_params": {"key": "s-1"}}, receive)


@aio
async def test_only_the_request_itself_can_be_an_invalid_request() -> None:
    assert await body_of(request_with(b'{"days": 3}'), Wanted) == Wanted(3)
    assert query_of(request_with(query=b"days=3"), Wanted) == Wanted(3)
    with pytest.raises(InvalidRequest, match="days"):
        await body_of(request_with(b'{"days": "x"}'), Wanted)
    with pytest.raises(InvalidRequest, match="days"):
        query_of(request_with(query=b"days=x"), Wanted)

    async def handler(request: Request) -> Any:
        raise msgspec.ValidationError("a broker's response")

    # The caller of the API is not to blame for it.
    with pytest.raises(msgspec.ValidationError):
        await json_route(handler)(REQUEST)


@aio
async def test_a_session_is_found_by_the_path() -> None:
    class State:
        found: Any = "the record"

        async def find_session(self, key: str) -> Any:
            assert key == "s-1"
            return self.found

    state: Any = State()
    assert await session_of(request_with(), state) is state.found
    state.found = None
    with pytest.raises(UnknownSession, match="there is no session 's-1'"):
        await session_of(request_with(), state)
