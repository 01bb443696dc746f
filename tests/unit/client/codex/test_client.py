"""The connection to an app-server."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import structs

import dragoman
from dragoman.client import early_messages
from dragoman.client.codex import CodexClient, CodexOptions, CodexPeer
from dragoman.client.codex import client as client_module
from dragoman.client.codex.client import NEVER_USED, OVERLOADED_TRIES, retry_delay
from dragoman.errors import (
    ConnectionEnded,
    ConnectionLost,
    InvalidAnswer,
    ProtocolMismatch,
    RemoteError,
)
from dragoman.events import model
from dragoman.rpc import Connection, ConnectionSettings, End
from dragoman.transports import memory_pair
from tests.aio import aio
from tests.unit.client.codex.server_side import BUDGETS, WAIT, Server, connected, thread, watch

OVERLOADED = RemoteError(-32001, "Server overloaded; retry later.")


@pytest.fixture(autouse=True)
def retries_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "OVERLOADED_DELAY", 0.001)


@aio
async def test_the_handshake_says_who_we_are_and_what_we_do_not_want_to_hear() -> None:
    server = Server()
    seen: list[model.Event] = []
    options = CodexOptions(name="mine", title="Mine", on_event=seen.append)
    async with connected(server, options) as peer:
        await server.wait_for("account/read")
        assert server.methods()[:3] == ["initialize", "initialized", "account/read"]
        (hello,) = server.sent("initialize")
        assert hello["clientInfo"] == {
            "name": "mine",
            "title": "Mine",
            "version": dragoman.__version__,
        }
        assert hello["capabilities"]["optOutNotificationMethods"] == list(NEVER_USED)
        assert hello["capabilities"]["experimentalApi"] is False
        assert peer.info.version == "0.166.0"
        ready = seen[0]
        assert isinstance(ready, model.ConnectionReady)
        assert (ready.peer, ready.capabilities) == (peer.info, peer.capabilities)
        assert ready.raw is not None


@aio
async def test_nothing_on_the_wire_says_jsonrpc() -> None:
    ours, theirs = memory_pair()
    lines: list[bytes] = []

    class Listener:
        def data_received(self, data: bytes) -> None:
            lines.append(data)

        def stream_ended(self, failure: ConnectionLost) -> None:
            pass

    theirs.start(Listener())
    client = CodexClient(ours, CodexOptions(budgets=structs.replace(BUDGETS, initialize=0.05)))
    with pytest.raises(dragoman.errors.CallTimeout):
        await client.start()
    await client.aclose()
    assert b"initialize" in lines[0]
    assert b"jsonrpc" not in lines[0]


@pytest.mark.parametrize("answer", [{"protocolVersion": 1}, 3, "x"])
@aio
async def test_a_server_that_is_not_a_codex_is_refused_and_its_stream_closed(answer: Any) -> None:
    ours, theirs = memory_pair()
    server = Server({"initialize": answer})
    settings = ConnectionSettings(jsonrpc=False)
    async with Connection(theirs, End.AGENT, server, settings=settings) as connection:
        with pytest.raises(ProtocolMismatch, match="not from a Codex app-server"):
            await CodexPeer.connect(ours, "/w", CodexOptions(budgets=BUDGETS))
        async with asyncio.timeout(WAIT):
            assert isinstance(await connection.wait_ended(), ConnectionEnded)


@aio
async def test_what_was_refused_as_overloaded_is_sent_again() -> None:
    server = Server({"model/list": [OVERLOADED, OVERLOADED, {"data": []}]})
    async with connected(server) as peer:
        assert await peer.client.models() == []
        assert server.methods().count("model/list") == 3


@aio
async def test_an_overload_without_end_is_reported() -> None:
    server = Server({"model/list": [OVERLOADED] * OVERLOADED_TRIES})
    async with connected(server) as peer:
        with pytest.raises(RemoteError, match="overloaded"):
            await peer.client.models()
        assert server.methods().count("model/list") == OVERLOADED_TRIES


@aio
async def test_no_other_refusal_is_sent_again() -> None:
    server = Server({"model/list": [RemoteError(-32603, "no"), {"data": []}]})
    async with connected(server) as peer:
        with pytest.raises(RemoteError, match="no"):
            await peer.client.models()
        assert server.methods().count("model/list") == 1


def test_waits_grow_and_are_never_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "OVERLOADED_DELAY", 1.0)
    assert all(2.0 <= retry_delay(3) <= 6.0 for _ in range(100))
    assert len({retry_delay(1) for _ in range(10)}) > 1


@aio
async def test_an_answer_that_is_none_is_reported() -> None:
    async with connected(Server({"model/list": {"data": 3}})) as peer:
        with pytest.raises(InvalidAnswer, match="model/list"):
            await peer.client.models()


@aio
async def test_models_come_in_pages_without_the_hidden_ones() -> None:
    def model_of(name: str, **extra: Any) -> dict[str, Any]:
        return {"id": name, "model": name, "displayName": name, **extra}

    pages: list[Any] = [
        {"data": [model_of("a"), model_of("h", hidden=True)], "nextCursor": "2"},
        {"data": [model_of("b")], "nextCursor": None},
    ]
    server = Server({"model/list": pages})
    async with connected(server) as peer:
        assert [entry.model for entry in await peer.client.models()] == ["a", "b"]
        assert server.sent("model/list") == [{}, {"cursor": "2"}]


@aio
async def test_whether_a_login_is_needed_is_asked_again_when_it_changed() -> None:
    nobody = {"account": None, "requiresOpenaiAuth": True}
    somebody = {"account": {"type": "apiKey"}, "requiresOpenaiAuth": True}
    server = Server({"account/read": [nobody, somebody, {"requiresOpenaiAuth": False}]})
    async with connected(server) as peer:
        await server.wait_for("account/read")
        # The answer is there when a later call is answered.
        server.answers["thread/list"] = {"data": []}
        assert [s async for s in peer.list_sessions()] == []
        assert peer.client.needs_login
        server.tell("account/updated", authMode="apikey")
        await server.wait_for("account/read", 2)
        assert [s async for s in peer.list_sessions()] == []
        assert not peer.client.needs_login
        assert (await peer.client.account()).requires_openai_auth is False


@aio
async def test_events_that_come_before_the_answer_reach_the_thread() -> None:
    server = Server()

    def opened(params: Any) -> Any:
        usage = {
            "totalTokens": 5,
            "inputTokens": 5,
            "cachedInputTokens": 0,
            "outputTokens": 0,
            "reasoningOutputTokens": 0,
        }
        told = {"total": usage, "last": usage}
        server.tell("thread/tokenUsage/updated", threadId="t1", turnId="u0", tokenUsage=told)
        server.tell("warning", threadId="another", message="of an agent that Codex started")
        return thread()

    server.answers["thread/start"] = opened
    async with connected(server) as peer, peer.session() as talk:
        assert talk.used.total_tokens == 5  # type: ignore[attr-defined]
        assert len(peer.client.early) == 0
        server.tell("warning", threadId="another", message="later")
        server.answers["thread/list"] = {"data": []}
        assert [s async for s in peer.list_sessions()] == []
        assert len(peer.client.early) == 0


@aio
async def test_the_events_kept_for_threads_to_come_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(early_messages, "MAX_EARLY", 3)
    async with connected(Server()) as peer:
        with peer.client.early.expecting(), peer.client.early.expecting():
            for _ in range(10):
                place = peer.client.place("unknown")
                peer.client.deliver(model.TurnStarted(*place.base("x", None)), 0)
            assert len(peer.client.early) == 3
        assert len(peer.client.early) == 0


@aio
async def test_an_observer_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()

    def fail(event: model.Event) -> None:
        raise RuntimeError("observer")

    async with connected(server, CodexOptions(budgets=BUDGETS, on_event=fail)) as peer:
        async with peer.session() as talk, talk.prompt("x") as turn:
            server.start_turn()
            server.say("said")
            server.end_turn()
            async with asyncio.timeout(WAIT):
                assert (await turn.wait()).text == "said"
    assert "observer" in caplog.text


@aio
async def test_noise_is_an_event_and_is_passed_to_the_noise_callback() -> None:
    server = Server()
    noises: list[Any] = []
    options = CodexOptions(budgets=BUDGETS, on_noise=noises.append)
    async with connected(server, options) as peer:
        events = watch(peer)
        server.connection._outbox.put(b"not json\n")
        server.answers["thread/list"] = {"data": []}
        assert [s async for s in peer.list_sessions()] == []
        assert len(noises) == 1
        (unknown,) = [e for e in events if isinstance(e, model.Unknown)]
        assert unknown.raw == b"not json"


@aio
async def test_every_answer_is_an_event_and_so_is_the_end() -> None:
    server = Server({"model/list": RemoteError(-32600, "no")})
    async with connected(server) as peer:
        await server.wait_for("account/read")
        events = watch(peer)
        with pytest.raises(RemoteError):
            await peer.client.models()
        await server.connection.aclose()
        async with asyncio.timeout(WAIT):
            await peer.client.connection.wait_ended()
    answered = [e for e in events if isinstance(e, model.Answered) and e.native == "model/list"]
    assert answered[0].failure is not None
    assert answered[0].raw is not None
    over = events[-1]
    assert isinstance(over, model.ConnectionOver)
    assert over.error_class == "ended"


def test_nothing_is_unwanted_twice() -> None:
    assert len(set(NEVER_USED)) == len(NEVER_USED)
    assert list(NEVER_USED) == sorted(NEVER_USED)
    assert msgspec.json.encode(NEVER_USED)


@aio
async def test_what_the_account_may_still_use_can_be_asked_for() -> None:
    one = {"limitId": "codex", "primary": {"usedPercent": 3}}
    two = {"limitId": "other", "primary": {"usedPercent": 4}}
    both = {"rateLimits": one, "rateLimitsByLimitId": {"codex": one, "other": two}}
    server = Server({"account/rateLimits/read": [{"rateLimits": one}, both]})
    async with connected(server) as peer:
        assert [limit.used_percent for limit in await peer.client.limits()] == [3]
        assert [limit.name for limit in await peer.client.limits()] == ["codex", "other"]
        events = watch(peer)
        server.tell("account/rateLimits/updated", rateLimits=one)
        async with asyncio.timeout(WAIT):
            while not events:  # noqa: ASYNC110 - what is waited for is a plain list
                await asyncio.sleep(0)
        assert isinstance(events[0], model.UsageReported) and events[0].scope == "account"
    assert "account/rateLimits/updated" not in NEVER_USED
