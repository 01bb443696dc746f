"""Browsers are notified when peers or the ledger change, and when a peer is no longer parked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.console import peer_watch, retry
from dragoman.console.live_state import LiveState
from dragoman.console.peer_watch import PeerWatch
from dragoman.errors import StoreBusy
from dragoman.paths import VARIABLES, Paths
from dragoman.store.ledger import Ledger, ledger_path
from dragoman.store.values import Park
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


@aio
async def test_parked_peers_that_could_not_be_read_are_read_again_without_a_change(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(peer_watch, "READ_INTERVAL", 0.0)
    monkeypatch.setattr(retry, "backoff", lambda failed, rng: 0.01 * failed)
    park = Park(time.time() + 60.0, "its quota is used up")
    state = LiveState(paths, answers=True)
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    state.subscribe(lambda message: told.put_nowait(message))
    watch = PeerWatch(state)
    await watch.start()
    failures = [StoreBusy("ledger.db", "it is locked") for _ in range(2)]

    def fail_twice(watch: PeerWatch) -> dict[str, Park]:
        if failures:
            raise failures.pop()
        return {"scout": park}

    monkeypatch.setattr(PeerWatch, "_parked", fail_twice)
    try:
        async with asyncio.timeout(TIMEOUT):
            watch._changed.set()
            while not state.parked:
                await told.get()
    finally:
        await watch.aclose()
    assert len(caplog.messages) == 1 and "cannot follow" in caplog.messages[0]
