"""The minute in which some peers cannot load what they began."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dragoman.broker.client import sessions
from dragoman.catalogue import descriptor
from dragoman.runs.wait_before_load import loses_early, wait_over
from tests.aio import aio
from tests.unit.runs.stored import session


def test_only_peers_that_are_known_for_it_lose_sessions(tmp_path: Path) -> None:
    assert loses_early("gemini", tmp_path)
    assert not loses_early("scout", tmp_path)
    assert not loses_early("nobody", tmp_path)


@aio
async def test_the_wait_is_reported_and_only_a_session_that_was_used_here_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptor, "load_delay", lambda began_at, now: 0.01)
    now = time.time()
    told: list[str] = []
    used = session(peer="gemini", cwd=str(tmp_path), created_at=now, updated_at=now + 1)
    await wait_over(used, on_notice=told.append)
    (notice,) = told
    assert notice.startswith("gemini loses a session") and "waiting 0 s" in notice
    unused = session(peer="gemini", cwd=str(tmp_path), created_at=now, updated_at=now)
    other = session(peer="scout", cwd=str(tmp_path), created_at=now, updated_at=now + 1)
    for record in (unused, other):
        await wait_over(record, on_notice=told.append)
    assert len(told) == 1


@aio
async def test_a_broker_that_has_the_session_is_not_waited_for_and_another_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = session(peer="gemini", cwd=str(tmp_path), created_at=1.0, updated_at=2.0)
    known: dict[str, list[dict[str, object]]] = {
        "gemini-1": [{"key": used.key, "live": True}],
        # Its agent was started again, and this one has not loaded it yet.
        "gemini-3": [{"key": used.key, "live": False}],
    }

    async def sessions_in(broker: str, paths: object) -> list[dict[str, object]]:
        return known.get(broker, [])

    monkeypatch.setattr(sessions, "sessions_in", sessions_in)
    monkeypatch.setattr(descriptor, "load_delay", lambda began_at, now: 0.01)
    told: list[str] = []
    await wait_over(used, broker="gemini-1", on_notice=told.append)
    assert told == []
    for number, other in enumerate(("gemini-2", "gemini-3"), 1):
        await wait_over(used, broker=other, on_notice=told.append)
        assert len(told) == number
