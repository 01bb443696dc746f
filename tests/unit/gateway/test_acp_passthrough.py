"""A client of ACP before an agent of ACP: what passes as it is, and what has to be known of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.client.acp import session
from dragoman.client.budgets import Budgets
from dragoman.events import model
from dragoman.gateway import acp_passthrough
from dragoman.transports.base import HIGH_WATER_SIZE
from tests.aio import aio
from tests.unit.client.acp.agent_side import CWD, Refusal
from tests.unit.gateway.both_sides import scene
from tests.unit.rpc.other_side import turns, until

OPENING = {"cwd": "/workspace", "mcpServers": []}
KNOWS_ALL: dict[str, Any] = {
    "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}}
}


def chunk(text: str) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": "agent_message_chunk", "content": content, "unheardOf": [1, None]}


def cancelling(id: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}}


@aio
async def test_a_request_with_an_unknown_method_is_answered_by_the_peer() -> None:
    async with scene(replies={"_their/own": {"yes": 1}}) as here:
        client = await here.client()
        assert await client.call("_their/own", {"a": 1}) == {"yes": 1}
        client.say({"jsonrpc": "2.0", "method": "_their/note", "params": {"b": 2}})
        assert (await here.agent.expect("_their/note"))["params"] == {"b": 2}


@aio
async def test_a_session_of_another_client_is_not_found() -> None:
    async with scene() as here:
        await (await here.client()).open()
        other = await here.client()
        for method in ("session/prompt", "session/set_mode"):
            error = await other.refused(method, {"sessionId": "s1", "prompt": []})
            assert error["code"] == -32002
        error = await other.refused("session/load", {"sessionId": "s1", **OPENING})
        assert "already open" in error["message"]
        assert here.agent.told("session/load") == []


@aio
async def test_a_second_prompt_while_one_runs_is_refused_and_not_sent() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        first = client.prompt("one")
        prompt = await here.agent.expect("session/prompt")
        refused = await client.answered(client.prompt("two"))
        assert "still running" in refused["error"]["message"]
        assert refused["error"]["data"]["errorClass"] == "turn_in_progress"
        here.agent.answer(prompt, {"stopReason": "end_turn"})
        assert (await client.answered(first))["result"] == {"stopReason": "end_turn"}
        assert len(here.agent.told("session/prompt")) == 1


@pytest.mark.parametrize("can_close", [True, False])
@aio
async def test_closing_a_session_cancels_its_turn_also_at_a_peer_that_cannot_close(
    can_close: bool,
) -> None:
    capabilities: dict[str, Any] = {"sessionCapabilities": {"close": {}} if can_close else {}}
    async with scene(capabilities=capabilities) as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("one")
        prompt = await here.agent.expect("session/prompt")
        assert await client.call("session/close", {"sessionId": "s1"}) == {}
        await here.agent.expect("session/cancel")
        assert len(here.agent.told("session/close")) == can_close
        here.agent.answer(prompt, {"stopReason": "cancelled"})
        assert (await client.answered(prompting))["result"]["stopReason"] == "cancelled"


@aio
async def test_calling_a_prompt_off_cancels_its_turn_and_its_own_answer_comes() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("one")
        prompt = await here.agent.expect("session/prompt")
        off = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": prompting}}
        client.say(off)
        await here.agent.expect("session/cancel")
        here.agent.answer(prompt, {"stopReason": "cancelled"})
        assert (await client.answered(prompting))["result"]["stopReason"] == "cancelled"


@aio
async def test_calling_another_request_off_is_passed_on_and_answered_at_once() -> None:
    async with scene() as here:
        client = await here.client()
        asking = client.begin("_their/own", {})
        asked = await here.agent.expect("_their/own")
        client.say(
            {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": asking}}
        )
        off = await here.agent.expect("$/cancel_request")
        assert off["params"]["requestId"] == asked["id"]
        assert (await client.answered(asking))["error"]["code"] == -32800


@pytest.mark.parametrize("method", ["session/new", "session/fork"])
@aio
async def test_a_session_that_opens_after_its_client_has_left_is_closed_at_the_peer(
    method: str,
) -> None:
    async with scene(replies={"session/load": {}}) as here:
        del here.agent.replies["session/new"]
        client = await here.client()
        client.begin(method, {"sessionId": "s0", **OPENING})
        opening = await here.agent.expect(method)
        await client.stream.aclose()
        await client.served
        here.agent.answer(opening, {"sessionId": "late"})
        await until(lambda: here.agent.told("session/close") == [{"sessionId": "late"}])
        await until(lambda: not here.peer.client.conversations)
        # The session has no owner, so that another client can open it.
        other = await here.client()
        await other.call("session/load", {"sessionId": "late", **OPENING})


@pytest.mark.parametrize("method", ["session/new", "session/fork"])
@aio
async def test_a_session_that_opens_after_its_request_was_cancelled_is_closed_at_the_peer(
    method: str,
) -> None:
    async with scene() as here:
        del here.agent.replies["session/new"]
        client = await here.client()
        asking = client.begin(method, {"sessionId": "s0", **OPENING})
        opening = await here.agent.expect(method)
        client.say(cancelling(asking))
        assert (await client.answered(asking))["error"]["code"] == -32800
        off = await here.agent.expect("$/cancel_request")
        assert off["params"]["requestId"] == opening["id"]
        # It is cancelled once, and the client may use the id again.
        client.say(cancelling(asking))
        client.say({"jsonrpc": "2.0", "id": asking, "method": "_their/own", "params": {}})
        own = await here.agent.expect("_their/own")
        here.agent.answer(opening, {"sessionId": "late"})
        await until(lambda: here.agent.told("session/close") == [{"sessionId": "late"}])
        await until(lambda: not here.peer.client.conversations)
        here.agent.answer(own, {"yes": 1})
        assert (await client.answered(asking))["result"] == {"yes": 1}


@pytest.mark.parametrize("answer", [{"sessionId": "s1"}, [1], Refusal(-32800)])
@aio
async def test_a_cancelled_request_for_a_session_never_closes_a_session_in_use(
    answer: Any,
) -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        del here.agent.replies["session/new"]
        asking = client.begin("session/new", OPENING)
        opening = await here.agent.expect("session/new")
        client.say(cancelling(asking))
        await client.answered(asking)
        await here.agent.expect("$/cancel_request")
        here.agent.reply(opening, answer)
        here.agent.replies["_their/own"] = {}
        await client.call("_their/own", {})
        assert here.agent.told("session/close") == []
        prompting = client.prompt("x")
        await here.agent.end()
        assert (await client.answered(prompting))["result"]["stopReason"] == "end_turn"


@pytest.mark.parametrize("way", ["cancelled", "left"])
@aio
async def test_a_request_for_a_session_that_nothing_needs_is_given_up_after_a_time(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(budgets=Budgets(session=0.05)) as here:
        del here.agent.replies["session/new"]
        client = await here.client()
        asking = client.begin("session/new", OPENING)
        await here.agent.expect("session/new")
        if way == "cancelled":
            client.say(cancelling(asking))
        else:
            await client.stream.aclose()
        await until(lambda: "no answer to session/new within 0.05 s" in caplog.text)
        assert not here.peer.client.connection.is_waiting


@aio
async def test_the_open_requests_of_a_client_that_leaves_are_called_off_at_the_peer() -> None:
    async with scene() as here:
        client = await here.client()
        client.begin("_their/own", {})
        own = await here.agent.expect("_their/own")
        client.begin("session/load", {"sessionId": "old", **OPENING})
        load = await here.agent.expect("session/load")
        await client.stream.aclose()
        await client.served
        await until(lambda: len(here.agent.told("$/cancel_request")) == 2)
        off = [each["requestId"] for each in here.agent.told("$/cancel_request")]
        assert off == [own["id"], load["id"]]
        here.agent.answer(load, {})
        await until(lambda: here.agent.told("session/close") == [{"sessionId": "old"}])
        await until(lambda: not here.peer.client.conversations)


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
@aio
async def test_a_known_session_that_opens_after_its_request_was_cancelled_is_closed_at_the_peer(
    method: str,
) -> None:
    async with scene() as here:
        client = await here.client()
        asking = client.begin(method, {"sessionId": "old", **OPENING})
        opening = await here.agent.expect(method)
        client.say(cancelling(asking))
        assert (await client.answered(asking))["error"]["code"] == -32800
        off = await here.agent.expect("$/cancel_request")
        assert off["params"]["requestId"] == opening["id"]
        # A part of the history comes late.
        here.agent.update(chunk("late"), session_id="old")
        here.agent.answer(opening, {})
        await until(lambda: here.agent.told("session/close") == [{"sessionId": "old"}])
        await until(lambda: not here.peer.client.conversations)
        here.agent.replies[method] = {}
        await client.call(method, {"sessionId": "old", **OPENING})


@aio
async def test_a_session_that_is_loaded_again_is_not_closed_for_the_cancelled_request() -> None:
    async with scene() as here:
        client = await here.client()
        asking = client.begin("session/load", {"sessionId": "old", **OPENING})
        opening = await here.agent.expect("session/load")
        client.say(cancelling(asking))
        await client.answered(asking)
        here.agent.replies["session/load"] = {}
        await client.call("session/load", {"sessionId": "old", **OPENING})
        here.agent.answer(opening, {})
        here.agent.replies["_their/own"] = {}
        await client.call("_their/own", {})
        assert here.agent.told("session/close") == []


@aio
async def test_the_sessions_of_a_client_that_leaves_are_closed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "CLOSE_TIMEOUT", 600.0)
    async with scene(replies={"session/resume": {}}) as here:
        del here.agent.replies["session/close"]
        client = await here.client()
        for name in ("s1", "s2"):
            await client.call("session/resume", {"sessionId": name, **OPENING})
        await client.stream.aclose()
        closing = [await here.agent.expect("session/close") for _ in range(2)]
        for each in closing:
            here.agent.answer(each, {})
        await client.served


@aio
async def test_the_pages_of_a_client_that_leaves_are_forgotten() -> None:
    async with scene() as here:
        client = await here.client(elicitation={"url": {}})
        await client.open()
        page = {"mode": "url", "elicitationId": "p1", "url": "https://x.example", "message": "?"}
        here.agent.ask("q", "elicitation/create", {"sessionId": "s1", **page})
        asked = await client.next()
        client.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}})
        await here.agent.heard_answer("q")
        upstream = here.bridge._upstream
        assert upstream is not None and list(upstream.pages) == ["p1"]
        await client.stream.aclose()
        await client.served
        assert not upstream.pages


@aio
async def test_a_session_that_cannot_be_loaded_has_no_owner() -> None:
    async with scene(replies={"session/load": Refusal(-32002, "gone")}) as here:
        client = await here.client()
        for _ in range(2):
            error = await client.refused("session/load", {"sessionId": "old", **OPENING})
            assert (error["code"], error["message"]) == (-32002, "gone")


@pytest.mark.parametrize("method", ["session/new", "session/load"])
@aio
async def test_an_invalid_answer_that_opens_a_session_is_an_error_and_leaves_no_session(
    method: str,
) -> None:
    async with scene(replies={method: [1]}) as here:
        client = await here.client()
        for _ in range(2):
            error = await client.refused(method, {"sessionId": "s1", **OPENING})
            assert f"invalid response to {method}" in error["message"]
            assert error["data"]["errorClass"] == "invalid_answer"
        assert not here.peer.client.conversations
        # The id is free for a session that opens.
        here.agent.replies[method] = {"sessionId": "s1"}
        await client.call(method, {"sessionId": "s1", **OPENING})


@aio
async def test_a_new_session_without_an_id_is_an_error() -> None:
    async with scene(replies={"session/new": {}}) as here:
        client = await here.client()
        error = await client.refused("session/new", OPENING)
        assert "invalid response to session/new" in error["message"]


@aio
async def test_an_agent_that_opens_a_session_twice_is_not_believed() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        error = await client.refused("session/new", OPENING)
        assert error["message"] == "the agent returned the id of an open session: 's1'"


@aio
async def test_nothing_of_the_peer_is_read_while_a_client_does_not_keep_up() -> None:
    async with scene() as here:
        client = await here.client(**KNOWS_ALL)
        await client.open()
        client.stream.pause_reading()
        text = "x" * (HIGH_WATER_SIZE // 4)
        flow = here.peer.client.connection.flow
        for _ in range(40):
            here.agent.update(chunk(text))
            await turns()
            if flow.paused:
                break
        assert flow.paused
        client.stream.resume_reading()
        await until(lambda: not flow.paused)


@pytest.mark.parametrize("others", [True, False])
@aio
async def test_a_client_that_stops_reading_is_disconnected_only_if_others_wait(
    others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_passthrough, "SLOW_CLIENT_TIMEOUT", 0.01)
    async with scene() as here:
        slow = await here.client(**KNOWS_ALL)
        await slow.open()
        if others:
            here.agent.replies["session/new"] = {"sessionId": "s2"}
            other = await here.client()
            await other.open()
        slow.stream.pause_reading()
        flow = here.peer.client.connection.flow
        for _ in range(40):
            here.agent.update(chunk("x" * (HIGH_WATER_SIZE // 4)))
            await turns()
            if flow.paused:
                break
        assert flow.paused
        if others:
            assert "did not read" in str(await slow.served)
            await until(lambda: not flow.paused)
        else:
            # Several times the limit.
            loop = asyncio.get_running_loop()
            late = loop.time() + 0.05
            await until(lambda: loop.time() > late)
            assert not slow.served.done()
            slow.stream.resume_reading()
            await until(lambda: not flow.paused)


@aio
async def test_a_client_that_does_not_greet_in_acp_is_handed_over() -> None:
    async with scene() as here:
        client = await here.stranger()
        greeting = {"protocolVersion": "2025-01-01", "capabilities": {}}
        answer = await client.call("initialize", greeting)
        assert isinstance(answer["protocolVersion"], str)


@aio
async def test_answers_are_events_once_a_client_is_there_that_lives_on_events() -> None:
    async with scene() as here:
        told: list[str] = []
        happened = here.peer.on_event

        def watch(event: model.Event) -> None:
            told.append(type(event).__name__)
            assert happened is not None
            happened(event)

        here.peer.on_event = watch
        first = await here.client()
        await first.open()
        assert told == []
        other = await here.stranger()
        await other.call("initialize", {"protocolVersion": "2025-01-01", "capabilities": {}})
        here.agent.replies["session/new"] = {"sessionId": "s2"}
        await other.call("session/new", OPENING)
        assert "SessionOpened" in told
        # The first one is served as before.
        prompting = first.prompt("one")
        here.agent.answer(await here.agent.expect("session/prompt"), {"stopReason": "end_turn"})
        assert (await first.answered(prompting))["result"] == {"stopReason": "end_turn"}


@aio
async def test_what_comes_before_the_handshake_is_refused() -> None:
    async with scene() as here:
        client = await here.stranger()
        error = await client.refused("session/prompt", {"sessionId": "s1", "prompt": []})
        assert "initialize" in error["message"]
        assert here.agent.told("session/prompt") == []


@aio
async def test_a_peer_that_dies_answers_what_is_open_and_ends_the_client() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("one")
        await here.agent.expect("session/prompt")
        await here.agent.stream.aclose()
        answer = await client.answered(prompting)
        assert answer["error"]["data"]["errorClass"]
        await until(lambda: client.ended is not None)


# -- a client of the keyed dialect whose handshake looked like one of ACP

CONTENT = [{"type": "text", "text": "hi"}]


@pytest.mark.parametrize("dialect", [None, "keyed"])
@aio
async def test_a_keyed_client_is_served_in_its_dialect_from_its_first_session_on(
    dialect: str | None,
) -> None:
    async with scene(dialect=dialect) as here:
        client = await here.client()
        opened = await client.call("session/new", {"cwd": str(CWD)})
        assert opened["sessionId"] == "s1"
        prompting = client.begin("session/prompt", {"sessionId": "s1", "content": CONTENT})
        prompt = await here.agent.expect("session/prompt")
        assert prompt["params"]["prompt"] == CONTENT
        here.agent.update(chunk("yes"))
        told = await client.told("session/update")
        assert told["contentChunk"] == {"id": "part-1", "index": 0, "delta": "yes"}
        here.agent.answer(prompt, {"stopReason": "end_turn"})
        assert (await client.answered(prompting))["result"] == {"stopReason": "end_turn"}


@aio
async def test_a_keyed_prompt_in_a_session_of_acp_is_refused_with_what_to_do() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        prompting = client.begin("session/prompt", {"sessionId": "s1", "content": CONTENT})
        prompt = await here.agent.expect("session/prompt")
        here.agent.reply(prompt, Refusal(-32602, "missing prompt"))
        error = (await client.answered(prompting))["error"]
        assert (error["code"], "--client-dialect keyed" in error["message"]) == (-32602, True)


@aio
async def test_nothing_is_guessed_of_a_client_whose_dialect_is_named() -> None:
    async with scene(dialect="acp") as here:
        client = await here.client()
        opened = await client.call("session/new", {"cwd": str(CWD)})
        assert opened["sessionId"] == "s1"
        prompting = client.prompt("hi")
        prompt = await here.agent.expect("session/prompt")
        here.agent.answer(prompt, {"stopReason": "end_turn"})
        assert (await client.answered(prompting))["result"] == {"stopReason": "end_turn"}
