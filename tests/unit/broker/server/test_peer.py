"""The peer behind a broker as a connection that speaks ACP v1."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.broker.server import peer as server_peer
from dragoman.broker.server.peer import PeerLink, reach
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionEnded, ProgramNotFound
from tests.aio import aio
from tests.integration.broker_stage import spec_of
from tests.unit.broker.near import NearAgent, near


@aio
async def test_a_far_side_knows_what_its_peer_can_do() -> None:
    can: dict[str, Any] = {"loadSession": True, "sessionCapabilities": {"close": {}}}
    async with near(NearAgent(**can), 3) as far:
        assert far.generation == 3
        assert far.can("loadSession")
        assert far.can("sessionCapabilities.close")
        assert not far.can("sessionCapabilities.resume")
        assert (far.pid, far.failure) == (None, None)


@aio
async def test_behind_a_bridge_the_death_of_the_peer_is_known_first() -> None:
    async with near(NearAgent()) as far:
        died = ConnectionEnded()
        peer: Any = SimpleNamespace(
            client=SimpleNamespace(connection=SimpleNamespace(failure=died))
        )
        assert PeerLink(far.upstream, peer, 1).failure is died


@aio
async def test_a_start_fails_as_a_direct_one_does(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFound):
        async with reach(spec_of(tmp_path, command=("/no/such/program",)), 1):
            pass


def test_an_agent_is_told_that_its_user_can_be_asked(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, missing_file_is_empty=True, details={"login_hint": "x"})
    details = server_peer._details(spec)
    assert details["missing_file_is_empty"] is True
    assert details["login_hint"] == "x"
    assert details["elicit"](None) == acp.ElicitationDeclined()
    assert "elicit" not in server_peer._details(spec_of(tmp_path, protocol="codex"))
    options = server_peer._options(spec_of(tmp_path, mode_after_open="code", terminals=True))
    assert (options.starting_mode, options.terminals, options.visits) == ("code", True, True)
