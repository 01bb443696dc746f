"""From a dialect's name to a peer."""

from __future__ import annotations

import pytest

from dragoman.client.budgets import Budgets
from dragoman.client.legacy import DIALECTS, DocumentOptions, DocumentPeer, KeyedPeer, use_peer
from dragoman.dialects import discovery
from dragoman.errors import ConnectionClosed, ProtocolMismatch, Unsupported
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.client.legacy.far_end import meet


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
    with pytest.raises(ProtocolMismatch, match="'2025-06-18', and this client '2026-01-01'"):
        async with meet("oneshot", options=DocumentOptions(protocol_version="2026-01-01")):
            pass
