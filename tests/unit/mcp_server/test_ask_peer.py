"""Asking one peer. With a real one it is tried in tests/integration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.delegation import DelegationListener
from dragoman.errors import ConfigInvalid, NoPeer, UnknownPeer
from dragoman.mcp_server.ask_peer import PeerLead, PeerQuestion, ask
from dragoman.runs.context import load_context
from dragoman.runs.lineage import Lineage
from tests.aio import aio


class Line:
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


async def asked(work: Path, peer: str, depth: int = 0) -> None:
    await ask(
        PeerQuestion(peer=peer, prompt="x", workspace=work),
        place=load_context(work),
        lineage=Lineage(depth=depth),
        audience=DelegationListener(),
        lead=PeerLead(),
    )


@aio
async def test_a_question_from_too_deep_is_refused_before_anything_is_started(work: Path) -> None:
    with pytest.raises(NoPeer, match="at depth 1, and 1 is the limit"):
        await asked(work, "scout", depth=1)


@aio
async def test_an_unknown_name_is_reported(work: Path) -> None:
    with pytest.raises(UnknownPeer, match="did you mean scout"):
        await asked(work, "scot")


@aio
async def test_a_broken_file_of_prices_is_reported_before_the_question(work: Path) -> None:
    prices = load_context(work).paths.config / "prices.toml"
    prices.parent.mkdir(parents=True)
    prices.write_text("not toml")
    with pytest.raises(ConfigInvalid):
        await asked(work, "scout")


@aio
async def test_reins_are_dropped_only_where_a_broker_has_a_turn() -> None:
    lead, line = PeerLead(), Line()
    assert await lead.drop() is False
    lead.reached(cast(Any, line))
    assert await lead.drop() is False, "there is no turn yet"
    lead.hold(cast(Any, line))
    assert await lead.drop() is True
    assert line.closed == 1
    lead.reached(None)
    assert await lead.drop() is False
