"""Browsers are notified when peers or the ledger change, and when a peer is no longer parked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.console.live_state import LiveState
from dragoman.console.peer_watch import PeerWatch
from dragoman.paths import VARIABLES, Paths
from dragoman.store.ledger import Ledger, ledger_path
from tests.aio import aio
from tests.unit.console.place import TIMEOUT, short_paths


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    with short_paths() as paths:
        for name, variable in VARIABLES.items():
            monkeypatch.setenv(variable, str(getattr(paths, name)))
        yield paths


@aio
async def test_settings_cards_and_the_ledger_are_followed_and_reading_is_not_a_change(
    paths: Paths,
) -> None:
    state = LiveState(paths, answers=True)
    end = time.time() + 60.0
    now = end - 0.1
    watch = PeerWatch(state, clock=lambda: now)
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    state.subscribe(lambda message: told.put_nowait(message))
    await state.start()
    await watch.start()
    try:
        async with asyncio.timeout(TIMEOUT):
            paths.config_file.write_text('enabled_peers = ["codex"]\n')
            assert (await told.get())["type"] == "peers"
            folder = paths.data / "cards" / "codex"
            folder.mkdir()
            assert (await told.get())["type"] == "peers"
            (folder / "card.json").write_text("{}")
            assert (await told.get())["type"] == "peers"
            with Ledger.open(ledger_path(paths.state)) as ledger:
                ledger.park("scout", end, "its quota is used up")
            while not state.parked:
                assert (await told.get())["type"] == "peers"
            assert state.parked["scout"].why == "its quota is used up"
            # The parking ends on time, without any file change.
            now = end
            while state.parked:
                assert (await told.get())["type"] == "peers"
            while not told.empty():
                told.get_nowait()
            mark = watch._ledger_mark()
            with Ledger.open(ledger_path(paths.state), read_only=True) as ledger:
                ledger.healths()
            assert watch._ledger_mark() == mark
    finally:
        await watch.aclose()
        await state.aclose()
