"""The peer behind a broker as a connection that speaks ACP v1."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.broker.protocol import TracedLine
from dragoman.broker.server import peer as server_peer
from dragoman.broker.server.peer import PeerLink, PeerTrace, reach
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionEnded, ProgramNotFound
from dragoman.wire.peer import Noise
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
async def test_a_peer_that_is_not_read_is_not_taken_for_a_silent_one() -> None:
    async with near(NearAgent()) as far:
        assert not far.is_held
        far.connection.flow.hold()
        assert far.is_held
        far.connection.flow.release()
        assert not far.is_held


@aio
async def test_behind_a_bridge_the_death_of_the_peer_is_known_first() -> None:
    async with near(NearAgent()) as far:
        died = ConnectionEnded()
        peer: Any = SimpleNamespace(
            client=SimpleNamespace(connection=SimpleNamespace(failure=died, trace=None))
        )
        assert PeerLink(far.upstream, peer, 1).failure is died


@aio
async def test_a_start_fails_as_a_direct_one_does(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFound):
        async with reach(spec_of(tmp_path, command=("/no/such/program",)), 1):
            pass


def test_an_agent_learns_that_its_user_can_be_asked(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, missing_file_is_empty=True, details={"login_hint": "x"})
    details = server_peer._details(spec)
    assert details["missing_file_is_empty"] is True
    assert details["login_hint"] == "x"
    assert details["elicit"](None) == acp.ElicitationDeclined()
    assert "elicit" not in server_peer._details(spec_of(tmp_path, protocol="codex"))
    options = server_peer._options(spec_of(tmp_path, mode_after_open="code", terminals=True))
    assert (options.starting_mode, options.terminals, options.visits) == ("code", True, True)


class Reading:
    """A caller's connection that has read everything but so many bytes."""

    failure = None

    def __init__(self, unsent_size: int = 0) -> None:
        self.stream = SimpleNamespace(unsent_size=unsent_size)
        self.told: list[tuple[str, Any]] = []

    def post(self, method: str, params: Any) -> None:
        self.told.append((method, params))


def test_a_trace_goes_to_callers_that_read_it_without_the_secrets_of_a_login() -> None:
    link: Any = SimpleNamespace(secrets=[b"open sesame"])
    reading, slow = Reading(), Reading(server_peer.MAX_UNREAD_TRACE)
    callers: list[Any] = [reading, slow]
    trace = PeerTrace(link, callers)
    trace.record("c", "send", b'{"password":"open sesame"}')
    line = b"x" * (server_peer.MAX_TRACED_SIZE + 1)
    trace.record_received("c", [Noise(line, "not JSON")])
    trace.close()
    assert reading.told == [
        ("_dragoman/trace", TracedLine("send", '{"password":"***"}')),
        ("_dragoman/trace", TracedLine("recv", f"a message of {len(line)} bytes, left out")),
    ]
    assert slow.told == []
