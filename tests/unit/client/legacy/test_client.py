"""The connection: handshakes, chains of names, and the way of messages to conversations."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman.client.conversation import Opening
from dragoman.client.legacy import DocumentOptions, DocumentPeer
from dragoman.dialects.discovery import MemoryCache, Program
from dragoman.errors import (
    CallTimeout,
    ConnectionEnded,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    PeerBusy,
    ProtocolMismatch,
    RemoteError,
    Unsupported,
)
from dragoman.events import model
from dragoman.events.words import Outcome
from tests.aio import aio
from tests.unit.client.legacy.far_end import (
    QUICK,
    SILENCE,
    HostAgent,
    examples,
    garbage,
    hanging_up,
    meet,
    refusing,
)
from tests.unit.rpc.other_side import turns, until

PROGRAM = Program("/bin/agent", 1, 2)


@aio
async def test_a_handshake_that_fails_is_raised() -> None:
    with pytest.raises(ProtocolMismatch):
        async with meet("oneshot", {"initialize": {"protocolVersion": "2024-11-05"}}):
            pass
    with pytest.raises(InvalidAnswer):
        async with meet("tagged", {"initialize": garbage}):
            pass
    with pytest.raises(ConnectionEnded):
        async with meet("keyed", {"initialize": hanging_up}):
            pass


@aio
async def test_names_are_tried_one_after_another_until_one_is_known() -> None:
    body = examples("chained")
    replies = {
        "session/list": refusing(-32601),
        "session/create": refusing(-32601),
        "listSessions": body["sessions"],
        "startSession": body["created"],
    }
    async with meet("chained", replies) as (peer, agent), peer.session():
        # The family of the harmless call comes first when the session is made.
        assert agent.methods == [
            "session/list",
            "sessions/list",
            "list_sessions",
            "listSessions",
            "startSession",
        ]


@aio
async def test_what_was_learnt_is_used_by_the_next_connection_to_the_same_program() -> None:
    cache = MemoryCache()
    replies = {
        "session/list": refusing(-32601),
        "session/create": refusing(-32601),
        "list_sessions": {"sessions": []},
        "create_session": examples("chained")["created"],
    }
    for expected in (5, 1):
        async with meet("chained", replies, cache=cache, program=PROGRAM) as (peer, agent):
            async with peer.session():
                pass
            assert len(agent.methods) == expected - (1 if expected == 5 else 0)
            assert agent.methods[-1] == "create_session"


@aio
async def test_a_dead_concept_is_remembered_and_nothing_is_sent_for_it() -> None:
    cache = MemoryCache()
    replies = {"session/list": refusing(-32601), "session/create": refusing(-32601)}
    async with meet("chained", replies, cache=cache, program=PROGRAM) as (peer, agent):
        names = "session/create, session/start, create_session, startSession"
        with pytest.raises(RemoteError, match=f"supports none of the methods {names}"):
            async with peer.session():
                pass
        assert len(agent.methods) == 8
        assert peer.capabilities.list is False
    async with meet("chained", replies, cache=cache, program=PROGRAM) as (peer, agent):
        assert peer.capabilities.list is False
        with pytest.raises(Unsupported):
            async with peer.session():
                pass
        with pytest.raises(Unsupported):
            async for _ in peer.list_sessions():
                pass
        assert agent.methods == []


@aio
async def test_a_refusal_that_proves_nothing_stops_the_chain() -> None:
    replies = {"session/create": refusing(-32603, "broken")}
    async with meet("chained", replies) as (peer, agent):
        with pytest.raises(RemoteError) as caught:
            async with peer.session():
                pass
        assert caught.value.code == -32603
        assert agent.methods == ["session/list", "session/create"]


@aio
async def test_a_refused_list_still_shows_the_family() -> None:
    replies = {"session/list": refusing(-32000, "who are you?")}
    async with meet("chained", replies) as (peer, agent), peer.session():
        assert agent.methods == ["session/list", "session/create"]
        assert peer.capabilities.list is True


@aio
async def test_silence_stops_the_chain_too() -> None:
    options = DocumentOptions(budgets=QUICK.__class__(request=0.05, session=0.05))
    async with meet("chained", {"session/list": SILENCE}, options=options) as (peer, agent):
        with pytest.raises(CallTimeout):
            async with peer.session():
                pass
        assert agent.methods == ["session/list"]


@aio
async def test_a_cached_name_that_is_gone_is_replaced() -> None:
    cache = MemoryCache()
    cache.put(PROGRAM, "chained.list", "listSessions")
    async with meet("chained", cache=cache, program=PROGRAM) as (peer, agent):
        assert [s.id async for s in peer.list_sessions()] == ["session-uuid-123"]
        assert agent.methods == ["listSessions", "session/list"]
    assert cache.get(PROGRAM, "chained.list") == "session/list"


@aio
async def test_a_request_waits_for_the_running_turn_if_the_dialect_allows_one_at_a_time() -> None:
    async with (
        meet("threads", {"turn": SILENCE}) as (peer, agent),
        peer.session() as session,
        asyncio.TaskGroup() as group,
        session.prompt("x") as turn,
    ):
        await until(lambda: agent.prompts == 1)
        opening = group.create_task(peer.open(Opening(cwd=Path("/project"))))
        await turns()
        assert agent.methods == ["threadStart", "turn"]
        agent.replies["threadStart"] = {"threadId": "another"}
        agent.answer(agent.heard[-1], examples("threads")["complete"])
        assert (await turn.wait()).ok
        assert (await opening).id == "another"
        assert agent.methods == ["threadStart", "turn", "threadStart"]


@aio
async def test_a_request_that_waits_fails_with_the_connection() -> None:
    async with (
        meet("threads", {"turn": SILENCE}) as (peer, agent),
        peer.session() as session,
        asyncio.TaskGroup() as group,
        session.prompt("x") as turn,
    ):
        await until(lambda: agent.prompts == 1)
        opening = group.create_task(refused(peer))
        await turns()
        hanging_up(agent, None)
        assert (await turn.wait()).outcome is Outcome.CRASHED
        error = await opening
        assert isinstance(error, ConnectionLost) and not error.may_have_run


@aio
async def test_an_agent_that_still_works_on_a_request_that_timed_out_is_busy() -> None:
    options = DocumentOptions(budgets=QUICK.__class__(request=0.05, session=0.05))
    async with meet("threads", {"threadStart": SILENCE}, options=options) as (peer, agent):
        assert isinstance(await refused(peer), CallTimeout)
        busy = await refused(peer)
        assert isinstance(busy, PeerBusy)
        assert (busy.method, busy.earlier) == ("threadStart", "threadStart")
        late = agent.heard[-1]
        agent.replies["threadStart"] = {"threadId": "another"}
        agent.answer(late, {"threadId": "late"})
        await turns()
        assert (await peer.open(Opening(cwd=Path("/project")))).id == "another"
        assert agent.methods == ["threadStart", "threadStart"]


async def refused(peer: DocumentPeer) -> DragomanError:
    with pytest.raises(DragomanError) as failed:
        await peer.open(Opening(cwd=Path("/project")))
    return failed.value


@aio
async def test_updates_before_the_answer_that_opens_their_session_are_not_lost() -> None:
    def talkative(agent: HostAgent, request: object) -> None:
        agent.tell("session/update", examples("keyed")["mode"])
        agent.answer(request, examples("keyed")["opened"])

    async with meet("keyed", {"session/new": talkative}) as (peer, _):
        seen: list[model.Event] = []
        peer.on_event = seen.append
        async with peer.session():
            pass
        kinds = [type(event) for event in seen]
        assert kinds == [model.SettingsChanged, model.SessionOpened, model.SettingsChanged]


@aio
async def test_every_line_that_is_not_an_event_by_itself_is_kept_for_observers() -> None:
    seen: list[model.Event] = []
    options = DocumentOptions(on_event=seen.append, budgets=QUICK)
    async with meet("keyed", options=options) as (peer, agent):
        agent.raw(b"starting up...\n")
        async with peer.session():
            pass
        await until(lambda: len(seen) >= 3)
    ready, *_, over = seen
    assert isinstance(ready, model.ConnectionReady) and isinstance(over, model.ConnectionOver)
    assert b"agentInfo" in (ready.raw or b"")
    assert [e.raw for e in seen if isinstance(e, model.Unknown)] == [b"starting up..."]
    (opened,) = [event for event in seen if isinstance(event, model.SessionOpened)]
    (told,) = [event for event in seen if isinstance(event, model.SettingsChanged)]
    assert b"sessionId" in (opened.raw or b"") and b"jsonrpc" in (opened.raw or b"")
    assert opened.raw == told.raw


@aio
async def test_a_request_of_the_agent_that_is_not_a_method_is_refused() -> None:
    async with meet("tagged") as (_, agent):
        params = {"sessionId": "session-1", "path": "/x"}
        agent.say({"jsonrpc": "2.0", "id": 1, "method": "fs/read_text_file", "params": params})
        await until(lambda: any("error" in message for message in agent.heard))
        assert agent.heard[-1]["error"]["code"] == -32601


@aio
async def test_a_request_that_is_refused_is_an_event_with_its_line() -> None:
    seen: list[model.Event] = []
    options = DocumentOptions(on_event=seen.append, budgets=QUICK)
    asked = [("nonesuch", {}), ("fs/read_text_file", {"path": 1}), ("terminal/create", {})]
    async with meet("keyed", options=options) as (_, agent):
        for number, (method, params) in enumerate(asked, 100):
            agent.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        await until(lambda: sum("error" in message for message in agent.heard) == len(asked))
    told = [event for event in seen if isinstance(event, model.Unknown)]
    assert [event.native for event in told] == [method for method, _ in asked]
    assert all(event.native.encode() in (event.raw or b"") for event in told)


@aio
async def test_a_version_that_differs_is_an_event_with_the_line_that_tells_it() -> None:
    seen: list[model.Event] = []
    options = DocumentOptions(on_event=seen.append, budgets=QUICK)
    with pytest.raises(ProtocolMismatch):
        async with meet("oneshot", {"initialize": {"protocolVersion": "1999"}}, options=options):
            pass
    told, over = seen
    assert isinstance(told, model.ErrorReported) and isinstance(over, model.ConnectionOver)
    assert (told.scope, told.failure.code) == ("connection", "protocol_mismatch")
    assert b"1999" in (told.raw or b"")


@aio
async def test_an_observer_that_fails_keeps_no_event_from_the_turn() -> None:
    def fail(event: model.Event) -> None:
        raise RuntimeError("no")

    async with meet("oneshot", {"prompt": examples("oneshot")["answer"]}) as (peer, _):
        peer.on_event = fail
        async with peer.session() as session:
            assert (await session.ask("x")).ok


@aio
async def test_noise_reaches_the_noise_callback() -> None:
    noises: list[object] = []
    options = DocumentOptions(on_noise=noises.append, budgets=QUICK)
    async with meet("keyed", options=options) as (_, agent):
        agent.raw(b"starting up...\n")
        await until(lambda: len(noises) == 1)
