"""One command at a time begins a session of a name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman.broker import lock as broker_lock
from dragoman.broker.lock import HeldLock, try_lock
from dragoman.errors import FileFailed
from dragoman.runs import session_lock
from dragoman.runs.session_lock import begun_once
from tests.aio import aio


@aio
async def test_a_name_is_held_while_its_session_begins_and_free_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_RUNTIME_DIR", str(tmp_path / "run"))
    order: list[str] = []
    began, waits = asyncio.Event(), asyncio.Event()

    def try_to_lock(path: Path) -> HeldLock | None:
        found = try_lock(path)
        if found is None:
            waits.set()
        return found

    monkeypatch.setattr(broker_lock, "try_lock", try_to_lock)

    async def first() -> None:
        async with begun_once("talk", peer="scout", folder=tmp_path):
            began.set()
            await waits.wait()
            order.append("first")

    async def second() -> None:
        await began.wait()
        async with begun_once("other", peer="scout", folder=tmp_path):
            order.append("other")
        async with begun_once("talk", peer="scout", folder=tmp_path):
            order.append("second")

    async with asyncio.timeout(5):
        await asyncio.gather(first(), second())
    assert order == ["other", "first", "second"]
    assert list((tmp_path / "run" / "names").iterdir()) == []


@aio
async def test_without_locks_a_session_still_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAGOMAN_RUNTIME_DIR", str(tmp_path / "file"))
    async with begun_once("talk", peer="scout", folder=tmp_path):
        pass
    monkeypatch.setenv("DRAGOMAN_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(session_lock, "BEGIN_TIMEOUT", 0.01)
    async with begun_once("talk", peer="scout", folder=tmp_path):
        async with begun_once("talk", peer="scout", folder=tmp_path):
            assert len(list((tmp_path / "run" / "names").iterdir())) == 1
    assert ["the name talk is not locked" in record.message for record in caplog.records] == [
        True,
        True,
    ]


@aio
async def test_a_session_starts_although_the_disk_of_its_lock_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def unanswered(path: str, *work: object, **options: object) -> None:
        raise FileFailed(path, "the file system did not answer")

    monkeypatch.setenv("DRAGOMAN_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(session_lock, "in_thread", unanswered)
    async with begun_once("talk", peer="scout", folder=tmp_path):
        pass
    assert "the file system did not answer" in caplog.text
