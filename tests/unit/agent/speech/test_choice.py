"""A client's first request decides what is spoken."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from dragoman.agent.speech.base import DocumentSpeech
from dragoman.agent.speech.choice import SPEECHES
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.agent.speech.client_of_document import served


@pytest.mark.parametrize("dialect", SPEECHES)
def test_every_dialect_has_its_speech(dialect: str) -> None:
    home = importlib.import_module(f"dragoman.agent.speech.{dialect}")
    speech = getattr(home, SPEECHES[dialect])
    assert issubclass(speech, DocumentSpeech)
    assert speech.dialect == dialect


@pytest.mark.parametrize(
    ("dialect", "name", "key"),
    [
        ("oneshot", "initialize", "serverCapabilities"),
        ("threads", "initialize", "threadId"),
        ("threads", "start", "threadId"),
        ("tagged", "initialize", "capabilities"),
        ("keyed", "initialize", "agentCapabilities"),
        ("chained", "list", "sessions"),
        ("chained", "create", "sessionId"),
    ],
)
def test_the_first_request_of_a_document_is_answered_in_its_dialect(
    dialect: str, name: str, key: str
) -> None:
    @aio
    async def run() -> None:
        async with served() as client:
            assert key in await client.play(load(dialect)[name])

    run()


@aio
async def test_a_client_that_lists_before_it_shakes_hands_is_not_taken_for_another() -> None:
    hello: dict[str, Any] = {"protocolVersion": 1, "clientCapabilities": {}}
    async with served() as client:
        assert await client.call("session/list", {}) == {"sessions": []}
        answer = await client.call("initialize", hello)
        assert "sessionCapabilities" in answer["agentCapabilities"]
        new = await client.call("session/new", {"cwd": "/", "mcpServers": []})
        assert "modes" in new


@aio
async def test_nothing_we_know_is_answered_as_acp_would() -> None:
    async with served() as client:
        assert (await client.refused("session/prompt", {}))["code"] == -32600
        assert (await client.refused("dance", {}))["code"] == -32601
        client.say({"jsonrpc": "2.0", "id": 77, "method": "initialize"})
        assert (await client.answered(77))["error"]["code"] == -32602
