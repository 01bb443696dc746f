"""What is spoken: the agent names it, or a client's requests show it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from dragoman.agent import Agent, Turn
from dragoman.agent.speech.base import DocumentSpeech
from dragoman.agent.speech.choice import SPEECHES, served_dialect
from dragoman.errors import UsageError
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


# -- a dialect that the agent names


@pytest.mark.parametrize("dialect", ["codex", "asked", ""])
def test_an_agent_cannot_be_served_in_a_dialect_that_it_does_not_speak(dialect: str) -> None:
    with pytest.raises(UsageError, match="acp, oneshot, threads, tagged, keyed"):
        Agent("a", dialect=dialect)


def echoing(dialect: str | None) -> Agent:
    agent = Agent("a", dialect=dialect)

    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.say(f"You said: {turn.text}")

    return agent


@aio
async def test_a_named_dialect_counts_from_the_first_request_on() -> None:
    async with served(echoing("keyed")) as client:
        hello = await client.play(load("keyed")["initialize_bare"])
        assert hello["agentCapabilities"] == {"modes": False, "plan": True}
        session = (await client.call("session/new", {"cwd": "/"}))["sessionId"]
        content = [{"type": "text", "text": "hi"}]
        prompt = {"sessionId": session, "content": content}
        assert await client.call("session/prompt", prompt) == {"stopReason": "end_turn"}
        assert client.told[-1][1]["contentChunk"]["delta"] == "You said: hi"
    async with served(echoing("threads")) as client:
        # Another agent takes this for the dialect oneshot.
        error = await client.refused("prompt", {"text": "hi"})
        assert error["code"] == -32601
        assert "threadId" in await client.call("threadStart", {})


@aio
async def test_an_agent_for_acp_takes_nothing_for_another_dialect() -> None:
    async with served(echoing("acp")) as client:
        assert (await client.refused("session/create", {}))["code"] == -32601
        await client.call("initialize", {"protocolVersion": 1})
        error = await client.refused("session/new", {"cwd": "/"})
        assert (error["code"], "mcpServers" in str(error["data"])) == (-32602, True)


# -- the keyed dialect after a handshake that could be one of ACP


HELLO: dict[str, Any] = {"protocolVersion": 1, "clientInfo": {"name": "zed", "version": "1"}}


@pytest.mark.parametrize(
    "new",
    [
        {"cwd": "/project"},
        {"cwd": "/project", "mcpServers": [], "modeId": "plan"},
        {
            "cwd": "/project",
            "mcpServers": [],
            "model": {"providerID": "anthropic", "modelID": "large"},
        },
        {"cwd": "/project", "mcpServers": [{"type": "local", "command": "true"}]},
        {"cwd": "/project", "mcpServers": []},
    ],
)
@aio
async def test_a_keyed_client_without_capabilities_is_recognised_by_what_it_asks(
    new: dict[str, Any],
) -> None:
    async with served() as client:
        await client.call("initialize", HELLO)
        opened = await client.call("session/new", new)
        if new != {"cwd": "/project", "mcpServers": []}:
            # That one could be a request of ACP, and is answered so.
            assert [mode["id"] for mode in opened["modes"]] == ["code", "plan"]
            assert opened["currentModeId"] == new.get("modeId", "code")
        content = [{"type": "text", "text": "hi"}]
        prompt = {"sessionId": opened["sessionId"], "content": content}
        assert await client.call("session/prompt", prompt) == {"stopReason": "end_turn"}
        assert client.told[-1][1]["contentChunk"]["delta"] == "You said: hi"


@aio
async def test_a_client_of_acp_that_left_out_its_servers_is_still_one() -> None:
    async with served() as client:
        await client.call("initialize", HELLO)
        session = (await client.call("session/new", {"cwd": "/"}))["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]}
        answer = await client.call("session/prompt", prompt)
        assert answer["stopReason"] == "end_turn"
        assert client.told[-1][1]["update"]["content"]["text"] == "You said: hi"
        assert "configOptions" in await client.call("session/new", {"cwd": "/", "mcpServers": []})


@aio
async def test_what_proves_nothing_is_refused_as_in_acp() -> None:
    async with served() as client:
        await client.call("initialize", HELLO)
        bodies: list[dict[str, Any]] = [{}, {"mcpServers": []}, {"cwd": 1, "mcpServers": []}]
        for body in bodies:
            assert (await client.refused("session/new", body))["code"] == -32602
        assert (await client.refused("session/prompt", {}))["code"] == -32602


@pytest.mark.parametrize(
    ("word", "dialect"), [("acp", "acp"), ("ASP", "threads"), ("app-server", "threads")]
)
def test_a_dialect_of_clients_is_named_by_the_words_of_its_document(
    word: str, dialect: str
) -> None:
    assert served_dialect(word) == dialect


@pytest.mark.parametrize(
    ("word", "words"), [("codex", "name one of acp, oneshot"), ("kyed", "did you mean 'keyed'?")]
)
def test_a_dialect_in_which_no_client_is_served_is_refused(word: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        served_dialect(word)
    assert words in str(caught.value)
