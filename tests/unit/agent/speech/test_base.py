"""What the documents' dialects share when they serve."""

from __future__ import annotations

from dragoman.agent import Agent, Turn
from dragoman.agent.speech.base import ReplayedMessages, outcome_of, tokens_of, usage_of
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.legacy.base import TokenUsage
from dragoman.errors import RemoteError, Unsupported
from dragoman.events import model
from dragoman.events.words import Role
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.agent.speech.client_of_document import served
from tests.unit.dialects.document_reading import base


@aio
async def test_what_is_not_a_method_or_no_params_is_refused() -> None:
    async with served() as client:
        await client.play(load("tagged")["initialize"])
        assert (await client.refused("session/dance", {}))["code"] == -32601
        assert (await client.refused("session/prompt", {"sessionId": 7}))["code"] == -32602
        missing = {"sessionId": "session-9", "prompt": []}
        assert (await client.refused("session/prompt", missing))["code"] == -32002


@aio
async def test_a_client_that_cannot_be_asked_is_not_asked() -> None:
    agent = Agent("asker")
    refusals: list[str] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        for work in (turn.ask_permission("May I?"), turn.read_file("/x"), turn.terminal("ls")):
            try:
                await work
            except Unsupported as error:
                refusals.append(str(error))

    async with served(agent) as client:
        await client.play(load("oneshot")["initialize"])
        await client.call("prompt", {"text": "x"})
        assert all("id" not in m or "method" not in m for m in client.heard)
    assert len(refusals) == 3


@aio
async def test_an_end_is_a_response_or_an_error_and_never_tells_secrets() -> None:
    async def good() -> acp.PromptResponse:
        return acp.PromptResponse(stop_reason="end_turn")

    async def bad() -> acp.PromptResponse:
        raise ValueError("a secret detail")

    ended = await outcome_of(good())
    assert isinstance(ended, acp.PromptResponse)
    failed = await outcome_of(bad())
    assert isinstance(failed, RemoteError)
    assert failed.code == -32603 and "secret" not in str(failed)


def test_tokens_are_known_if_they_were_reported() -> None:
    assert tokens_of(acp.PromptResponse(stop_reason="end_turn")) == (None, None)
    usage = {"usage": {"inputTokens": 1, "outputTokens": 2}}
    assert tokens_of(acp.PromptResponse(stop_reason="x", extra=usage)) == (1, 2)


def test_usage_is_left_out_of_a_result_where_it_is_not_known() -> None:
    assert usage_of(acp.PromptResponse(stop_reason="end_turn")) is None
    usage = {"usage": {"inputTokens": 1, "outputTokens": 2}}
    assert usage_of(acp.PromptResponse(stop_reason="x", extra=usage)) == TokenUsage(1, 2)


def test_a_replayed_history_has_a_message_for_each_change_of_the_speaker() -> None:
    replay = ReplayedMessages()
    for role, text in (
        (Role.USER, "a"),
        (Role.USER, "b"),
        (Role.THOUGHT, "hm"),
        (Role.AGENT, "c"),
        (Role.AGENT, "d"),
        (Role.USER, "e"),
    ):
        assert replay.tell(model.MessageDelta(*base(), role, text)) == []
    assert replay.messages == [(Role.USER, "ab"), (Role.AGENT, "cd"), (Role.USER, "e")]
