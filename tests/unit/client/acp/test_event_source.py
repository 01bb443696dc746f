"""What belongs to no session, as events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.client.acp import AcpClient, ClientOptions
from dragoman.client.acp.event_source import EventSource
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError
from dragoman.events import model
from dragoman.events.parts import PeerInfo
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.client.acp.agent_side import AgentSide, Refusal
from tests.unit.rpc.other_side import soon, turns


@asynccontextmanager
async def recorded(
    options: ClientOptions | None = None, **replies: Any
) -> AsyncIterator[tuple[AcpClient, AgentSide, list[Any]]]:
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    agent.replies.update(replies)
    theirs.start(agent)
    client = AcpClient(ours, options)
    record = EventSource(client)
    events: list[Any] = []
    record.on_event = events.append
    try:
        await soon(client.start())
        yield client, agent, events
    finally:
        await client.aclose()
        await theirs.aclose()


HELLO = {
    "protocolVersion": 1,
    "agentInfo": {"name": "a", "version": "2", "title": "A"},
    "agentCapabilities": {"loadSession": True},
    "authMethods": [{"id": "l", "name": "Log in"}],
}


@aio
async def test_the_handshake_is_reported_with_its_line() -> None:
    async with recorded(initialize=HELLO) as (_, _agent, events):
        (ready,) = events
    assert type(ready) is model.ConnectionReady
    assert ready.peer == PeerInfo("a", "A", "2")
    assert ready.capabilities.load
    assert (ready.protocol_version, ready.auth_methods[0].id) == ("1", "l")
    assert b'"loadSession": true' in (ready.raw or b"")
    assert type(events[-1]) is model.ConnectionOver
    assert events[-1].error_class == "closed"


@aio
async def test_an_answer_that_nothing_else_tells_is_reported_with_its_failure() -> None:
    refusal = Refusal(-32603, "no")
    async with recorded(authenticate=refusal, initialize=HELLO) as (client, _, events):
        with pytest.raises(RemoteError):
            await soon(client.authenticate("l"))
        answered = events[-1]
    assert type(answered) is model.Answered
    assert answered.failure is not None
    assert (answered.native, answered.failure.message) == ("authenticate", "no (-32603)")


@aio
async def test_an_unsupported_message_is_unknown_and_says_why() -> None:
    async with recorded() as (_, agent, events):
        agent.raw(b"not json\n")
        agent.say({"jsonrpc": "2.0", "method": "_own/news", "params": {}})
        agent.ask(1, "_own/question", {})
        agent.ask(2, "session/request_permission", {"sessionId": "nonesuch"})
        agent.ask(3, "fs/read_text_file", {"sessionId": 7})
        agent.say({"jsonrpc": "2.0", "id": 99, "result": {}})
        agent.update({"sessionUpdate": "x"}, session_id="nonesuch")
        await turns(20)
        unknown = [event for event in events if isinstance(event, model.Unknown)]
    assert [event.native for event in unknown] == [
        "",
        "_own/news",
        "_own/question",
        "session/request_permission",
        "fs/read_text_file",
        "",
        "",
    ]
    assert all(event.reason for event in unknown)
    assert unknown[0].raw == b"not json"


@aio
async def test_a_service_that_is_used_is_reported() -> None:
    async with recorded() as (_, agent, events):
        agent.ask(1, "fs/read_text_file", {"sessionId": "s", "path": "/a"})
        await turns(20)
        called = [event for event in events if isinstance(event, model.ServiceCalled)]
    assert [(e.service, e.operation, e.session) for e in called] == [("fs", "read_text_file", "s")]


@aio
async def test_a_question_to_the_user_and_its_answer_are_events() -> None:
    def elicit(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        return acp.ElicitationDeclined()

    async with recorded(ClientOptions(elicit=elicit, visits=True)) as (_, agent, events):
        form = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object"}}
        url = {"mode": "url", "message": "Go", "elicitationId": "e", "url": "https://example.com"}
        agent.ask(1, "elicitation/create", {**form, "requestId": 1})
        agent.ask(2, "elicitation/create", {**url, "requestId": 1})
        agent.say(
            {"jsonrpc": "2.0", "method": "elicitation/complete", "params": {"elicitationId": "e"}}
        )
        await turns(20)
        asked = [event for event in events if isinstance(event, model.InputAsked)]
        answers = [event for event in events if isinstance(event, model.InputAnswered)]
    assert [(event.mode, event.message) for event in asked] == [("form", "Who?"), ("url", "Go")]
    assert len({event.request_id for event in asked}) == 2
    assert sorted((a.request_id, a.action) for a in answers) == sorted(
        [(asked[0].request_id, "decline"), ("e", "decline"), ("e", "completed")]
    )


@aio
async def test_an_observer_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: model.Event) -> None:
        raise RuntimeError("broken")

    async with recorded() as (client, agent, _):
        assert client.connection.on_answer is not None
        record = client.connection.on_answer.__self__  # type: ignore[attr-defined]
        record.on_event = fail
        agent.raw(b"noise\n")
        session = await soon(client.new_session("/w"))
        assert session.id == "s1"
    assert "on_event callback" in caplog.text


@pytest.mark.parametrize("fails", [False, True])
@aio
async def test_a_question_whose_answer_never_comes_is_reported_as_cancelled(fails: bool) -> None:
    asked = asyncio.Event()

    async def elicit(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        asked.set()
        if fails:
            raise RuntimeError("broken")
        await asyncio.Event().wait()
        raise AssertionError

    async with recorded(ClientOptions(elicit=elicit)) as (_, agent, events):
        form = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object"}}
        agent.ask(1, "elicitation/create", {**form, "requestId": 1})
        await soon(asked.wait())
        if not fails:
            params = {"requestId": 1}
            agent.say({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params})
        assert "error" in await agent.heard_answer(1)
        (question,) = [event for event in events if isinstance(event, model.InputAsked)]
        (answer,) = [event for event in events if isinstance(event, model.InputAnswered)]
    assert (answer.request_id, answer.action) == (question.request_id, "cancel")
