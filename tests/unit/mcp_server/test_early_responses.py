"""The first answers are those that the SDK would have given, only earlier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from dragoman.mcp_server.early_responses import VERSIONS, EarlyResponder
from tests.aio import aio
from tests.unit.mcp_server.hands import HELLO, asked, served

LIST = asked(2, "tools/list")


def told(greeting: EarlyResponder, message: Any) -> Any:
    answer = greeting.answer(json.dumps(message).encode())
    return None if answer is None else json.loads(answer)


def hello(version: str) -> dict[str, Any]:
    return {**HELLO, "params": {**HELLO["params"], "protocolVersion": version}}


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
@aio
async def test_the_answers_are_those_of_the_sdk(version: str, work: Path) -> None:
    greeting = EarlyResponder()
    async with served(work) as hand:
        for message in (hello(version), LIST, {**LIST, "params": {"_meta": {"progressToken": 1}}}):
            assert told(greeting, message) == await hand.ask(message)
    assert greeting.answered == {1: 1, 2: 2}


def test_every_protocol_with_a_handshake_is_known() -> None:
    assert set(VERSIONS) == set(HANDSHAKE_PROTOCOL_VERSIONS)


@pytest.mark.parametrize(
    "message",
    [
        LIST,
        hello("1999-01-01"),
        {**HELLO, "jsonrpc": "1.0"},
        {**HELLO, "id": True},
        {**HELLO, "params": {"protocolVersion": VERSIONS[0]}},
        {"jsonrpc": "2.0", "method": "initialize"},
        [HELLO],
    ],
)
def test_what_is_no_known_greeting_is_left_to_the_sdk(message: Any) -> None:
    greeting = EarlyResponder()
    assert told(greeting, message) is None
    assert not greeting.answered


def test_garbage_is_left_to_the_sdk() -> None:
    greeting = EarlyResponder()
    for line in (b"", b"no json", b"\xff\xfe", b"[" * 100_000):
        assert greeting.answer(line) is None
    assert told(greeting, HELLO) is not None


def test_only_the_first_request_can_be_a_greeting_and_only_tools_are_listed_behind_it() -> None:
    late = EarlyResponder()
    assert told(late, asked(1, "ping")) is None
    assert told(late, {**HELLO, "id": 2}) is None
    greeting = EarlyResponder()
    assert told(greeting, HELLO)["id"] == 1
    assert told(greeting, {**HELLO, "id": 2}) is None
    assert told(greeting, {"jsonrpc": "2.0", "method": "notifications/initialized"}) is None
    assert told(greeting, asked(3, "tools/list", cursor="x")) is None
    assert told(greeting, asked(4, "tools/call", name="list_peers")) is None
    assert told(greeting, {**LIST, "id": "five"})["id"] == "five"
