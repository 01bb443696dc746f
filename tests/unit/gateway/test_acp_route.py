"""The messages of an ACP agent about one session, on their way to the client that opened it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.client.budgets import Budgets
from dragoman.rpc import outbox
from dragoman.transports.base import HIGH_WATER_SIZE
from tests.aio import aio
from tests.unit.client.acp.agent_side import AgentSide
from tests.unit.gateway.both_sides import scene

KNOWS_ALL: dict[str, Any] = {
    "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}}
}


def chunk(text: str) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": "agent_message_chunk", "content": content, "unheardOf": [1, None]}


@aio
async def test_an_update_passes_as_it_is_whatever_it_holds() -> None:
    async with scene() as here:
        client = await here.client(**KNOWS_ALL)
        await client.open()
        here.agent.update({"sessionUpdate": "of_no_known_kind", "x": {"y": 1}}, chunk("a"))
        assert (await client.told("session/update"))["update"]["x"] == {"y": 1}
        assert (await client.told("session/update"))["update"] == chunk("a")


def compact(*updates: dict[str, Any]) -> bytes:
    """Updates without spaces, as most agents send them: these are forwarded together."""
    messages = map(AgentSide.updating, updates)
    return b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in messages)


@pytest.mark.parametrize(
    ("capabilities", "kind"), [(KNOWS_ALL, "notice"), ({}, "agent_thought_chunk")]
)
@pytest.mark.parametrize("long", ["chunk", "notice"])
@aio
async def test_an_update_too_long_for_the_client_is_reported_and_later_ones_arrive(
    long: str, capabilities: dict[str, Any], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = "x" * 3000
    notice = {"sessionUpdate": "notice", "severity": "info", "title": text}
    async with scene() as here:
        here.bridge.settings = replace(here.bridge.settings, max_line_size=1500)
        client = await here.client(**capabilities)
        await client.open()
        here.agent.raw(compact(chunk("first")))
        assert (await client.told("session/update"))["update"] == chunk("first")
        too_long = chunk(text) if long == "chunk" else notice
        here.agent.raw(compact(chunk("one"), too_long, chunk("two"), chunk("three")))
        assert (await client.told("session/update"))["update"] == chunk("one")
        told = (await client.told("session/update"))["update"]
        assert told["sessionUpdate"] == kind
        assert "was left out: the message is 3" in json.dumps(told)
        assert (await client.told("session/update"))["update"] == chunk("two")
        assert (await client.told("session/update"))["update"] == chunk("three")
    assert "an update of session s1 was left out" in caplog.text
    assert "ERROR" not in caplog.text


@aio
async def test_a_cancel_that_is_never_answered_ends_the_turn_and_gives_the_session_up() -> None:
    async with scene(budgets=Budgets(cancel_grace=0.02)) as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("one")
        await here.agent.expect("session/prompt")
        client.say({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}})
        assert (await client.answered(prompting))["result"]["stopReason"] == "cancelled"
        again = await client.answered(client.prompt("two"))
        assert "was abandoned" in again["error"]["message"]
        assert again["error"]["data"]["errorClass"] == "session_unusable"
        assert len(here.agent.told("session/prompt")) == 1


@aio
async def test_a_question_is_answered_as_cancelled_when_its_turn_is() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("one")
        prompt = await here.agent.expect("session/prompt")
        here.agent.ask("q", "session/request_permission", here.agent.permission())
        assert (await client.next())["method"] == "session/request_permission"
        client.say({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}})
        await here.agent.expect("session/cancel")
        answer = await here.agent.heard_answer("q")
        assert answer["result"]["outcome"] == {"outcome": "cancelled"}
        here.agent.answer(prompt, {"stopReason": "cancelled"})
        # The question is called off, and then the turn is over.
        assert (await client.next())["method"] == "$/cancel_request"
        assert (await client.answered(prompting))["result"]["stopReason"] == "cancelled"


@aio
async def test_a_question_of_a_cancelled_turn_is_answered_once_and_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("one")
        prompt = await here.agent.expect("session/prompt")
        here.agent.ask("q", "session/request_permission", here.agent.permission())
        await client.next()
        client.say({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}})
        await here.agent.expect("session/cancel")
        await here.agent.heard_answer("q")
        here.agent.answer(prompt, {"stopReason": "cancelled"})
        assert (await client.next())["method"] == "$/cancel_request"
        await client.answered(prompting)
        assert len([each for each in here.agent.heard if each.get("id") == "q"]) == 1
        assert [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")] == []


@aio
async def test_a_question_that_the_peer_calls_off_is_called_off_at_the_client() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        client.prompt("one")
        await here.agent.expect("session/prompt")
        here.agent.ask("q", "session/request_permission", here.agent.permission())
        asked = await client.next()
        here.agent.say(
            {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "q"}}
        )
        off = await client.told("$/cancel_request")
        assert off["requestId"] == asked["id"]
        assert (await here.agent.heard_answer("q"))["error"]["code"] == -32800


@aio
async def test_a_client_that_leaves_while_it_is_asked_has_allowed_nothing() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        client.prompt("one")
        await here.agent.expect("session/prompt")
        here.agent.ask("q", "session/request_permission", here.agent.permission())
        await client.next()
        await client.stream.aclose()
        answer = await here.agent.heard_answer("q")
        assert answer["result"]["outcome"] == {"outcome": "selected", "optionId": "cancel"}
        await here.agent.expect("session/cancel")


@aio
async def test_a_question_that_ends_the_connection_to_its_client_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "MAX_UNSENT_SIZE", HIGH_WATER_SIZE)
    async with scene() as here:
        client = await here.client(fs={"writeTextFile": True})
        await client.open()
        client.stream.pause_reading()
        file = {"sessionId": "s1", "path": "/elsewhere/x", "content": "x" * HIGH_WATER_SIZE}
        here.agent.say(
            here.agent.updating(chunk("x" * 2 * HIGH_WATER_SIZE)),
            here.agent.asking("w", "fs/write_text_file", file),
        )
        assert "error" in await here.agent.heard_answer("w")
        assert not here.bridge._upstream.asked  # type: ignore[union-attr]
