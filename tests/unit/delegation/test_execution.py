"""The course of a delegation before anybody is asked. The rest is tested with real processes: in
tests/integration/test_delegating.py and tests/faults/test_delegation_once.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.delegation.execution import DelegationListener, delegate
from dragoman.delegation.request import DelegationRequest
from dragoman.errors import NoPeer, UnknownPeer
from tests.aio import aio
from tests.unit.runs.contexts import place_in


@aio
async def test_a_peer_that_does_not_exist_is_an_error_before_anything(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    heard = DelegationListener()
    with pytest.raises(UnknownPeer):
        await delegate(
            DelegationRequest(role="review", prompt="x", workspace=place.cwd, peer="nonesuch"),
            place=place,
            listener=heard,
        )
    with pytest.raises(NoPeer):
        wish = DelegationRequest(role="review", prompt="x", workspace=place.cwd, fallback="peers")
        await delegate(wish, place=place)
