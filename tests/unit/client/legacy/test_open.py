"""From a dialect's name to a peer."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client.budgets import Budgets
from dragoman.client.legacy import DIALECTS, DocumentOptions, DocumentPeer, KeyedPeer, use_peer
from dragoman.dialects import discovery
from dragoman.errors import ConnectionClosed, ProtocolMismatch, RemoteError, Unsupported
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.client.legacy.far_end import HELLOS, HostAgent, meet, refusing


def test_every_dialect_of_the_documents_can_be_chosen_by_its_name() -> None:
    assert set(DIALECTS) == set(discovery.DIALECTS) - {discovery.ACP, discovery.CODEX}


@aio
async def test_an_unknown_dialect_is_refused_and_the_stream_is_closed() -> None:
    ours, theirs = memory_pair()
    with pytest.raises(Unsupported):
        await use_peer("esperanto", ours, workspace="/")
    with pytest.raises(ConnectionClosed):
        ours.write(b"x\n")
    await theirs.aclose()


@aio
async def test_the_keyed_peer_can_log_in_and_the_others_cannot() -> None:
    async with meet("keyed") as (peer, _):
        assert isinstance(peer, KeyedPeer)
    async with meet("tagged") as (peer, _):
        assert type(peer) is DocumentPeer
        with pytest.raises(Unsupported):
            await peer.authenticate("password")


@aio
async def test_the_threads_dialect_takes_its_name_and_handshake_from_the_options() -> None:
    options = DocumentOptions(service_name="mine", handshake=True, budgets=Budgets())
    async with meet("threads", options=options) as (peer, agent):
        async with peer.session() as session:
            assert session.id == "thread-abc123"
        assert agent.methods == ["initialize"]
        assert agent.params("initialize")["service_name"] == "mine"


@aio
async def test_a_thread_that_shows_the_dialect_is_the_first_session() -> None:
    async with meet("threads", prove=True) as (peer, agent):
        assert agent.methods == ["threadStart"]
        async with peer.session() as session:
            assert session.id == "thread-abc123"
        assert agent.methods == ["threadStart"]


@aio
async def test_an_agent_of_threads_that_wants_the_handshake_first_gets_it() -> None:
    replies = {"threadStart": refusing(-32600, "initialize first")}
    async with meet("threads", replies, prove=True) as (peer, agent):
        async with peer.session() as session:
            assert session.id == "thread-abc123"
        assert agent.methods == ["threadStart", "initialize"]
    async with meet("threads", replies) as (peer, agent), peer.session():
        assert agent.methods == ["threadStart", "initialize"]


@aio
async def test_a_new_session_shows_the_chained_dialect_and_is_the_first() -> None:
    async with meet("chained", prove=True) as (peer, agent):
        assert agent.methods == ["session/list", "session/create"]
        assert peer.capabilities.list is True
        async with peer.session() as session:
            assert session.id == "session-uuid-456"
        assert agent.methods == ["session/list", "session/create"]
        async with peer.session():
            assert agent.methods[2:] == ["session/create"]
    async with meet("chained", prove=True) as (peer, agent), peer.session(cwd="/other"):
        assert agent.methods == ["session/list", "session/create", "session/create"]
    replies = {"session/list": refusing(-32601), "create_session": {"sessionId": "s"}}
    replies["session/create"] = refusing(-32601)
    async with meet("chained", replies, prove=True) as (peer, agent):
        assert agent.methods[-1] == "create_session"
        assert peer.capabilities.list is False


@pytest.mark.parametrize("dialect", ["threads", "chained"])
def test_an_agent_that_shows_nothing_of_the_dialect_is_refused(dialect: str) -> None:
    @aio
    async def run() -> None:
        silent = dict.fromkeys(HELLOS[dialect], refusing(-32601))
        with pytest.raises(RemoteError):
            async with meet(dialect, silent, prove=True):
                pass

    run()


@aio
async def test_an_answer_that_shows_no_dialect_is_refused_where_it_has_to_be_proved() -> None:
    replies = {"initialize": {"hello": "world"}}
    async with meet("tagged", replies):
        pass
    with pytest.raises(ProtocolMismatch):
        async with meet("tagged", replies, prove=True):
            pass


@aio
async def test_a_tagged_agent_that_refuses_a_version_is_greeted_with_the_other_spelling() -> None:
    def validate(agent: HostAgent, request: Any) -> None:
        if request["params"]["protocolVersion"] == "1.0":
            agent.answer(request, HELLOS["tagged"]["initialize"])
        else:
            agent.refuse(request, -32602, "unsupported version")

    async with meet("tagged", {"initialize": validate}) as (_, agent):
        assert agent.methods == ["initialize", "initialize"]
    with pytest.raises(RemoteError, match="unsupported"):
        async with meet("tagged", {"initialize": refusing(-32602, "unsupported")}):
            pass


@pytest.mark.parametrize("dialect", ["oneshot", "tagged"])
def test_the_version_of_the_handshake_can_be_set(dialect: str) -> None:
    @aio
    async def run() -> None:
        options = DocumentOptions(protocol_version="7")
        answer = {**HELLOS[dialect]["initialize"], "protocolVersion": "7"}
        async with meet(dialect, {"initialize": answer}, options=options) as (_, agent):
            assert agent.params("initialize")["protocolVersion"] == "7"

    run()


@aio
async def test_a_peer_says_who_its_client_is() -> None:
    options = DocumentOptions(name="me", version="7")
    async with meet("tagged", options=options) as (_, agent):
        assert agent.params("initialize")["clientInfo"] == {"name": "me", "version": "7"}


@aio
async def test_a_handshake_asks_for_the_version_of_the_options() -> None:
    async with meet("tagged", options=DocumentOptions(protocol_version="1.0")) as (_, agent):
        assert agent.params("initialize")["protocolVersion"] == "1.0"
    async with meet("tagged") as (_, agent):
        assert agent.params("initialize")["protocolVersion"] == "1"
    mismatch = "'2025-06-18' of the oneshot dialect, but dragoman speaks version '2026-01-01'"
    with pytest.raises(ProtocolMismatch, match=mismatch):
        async with meet("oneshot", options=DocumentOptions(protocol_version="2026-01-01")):
            pass
