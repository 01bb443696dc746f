"""Stores, sessions and lines for the tests of this package."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.store import JobRecord, Redactor, SessionRecord, Store
from dragoman.store.records import new_job_id, new_session_key
from dragoman.store.writer import StoreWriter

SECRET = "sk-" + "a1B2" * 6


PATIENCE = 20.0
"""Seconds for a thread to write a few lines, on a machine that is busy."""


class WrittenBatches:
    """Waits for what the threads of writers write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop, written = asyncio.get_running_loop(), asyncio.Event()
        write = StoreWriter._write

        def tell(writer: StoreWriter, *args: Any, **options: Any) -> Any:
            rest = write(writer, *args, **options)
            loop.call_soon_threadsafe(written.set)
            return rest

        monkeypatch.setattr(StoreWriter, "_write", tell)
        self._written = written

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, which is checked after each batch."""
        async with asyncio.timeout(PATIENCE):
            self._written.clear()
            while not condition():
                await self._written.wait()
                self._written.clear()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The file of a store that another process is writing to."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def open_store(folder: Path, *values: str) -> Store:
    return Store.open(folder / "state" / "sessions.db", Redactor(values))


def session(**fields: Any) -> SessionRecord:
    told: dict[str, Any] = {
        "key": new_session_key(),
        "peer": "codex",
        "root": "/home/anna/project",
        "peer_session_id": "theirs",
        "cwd": "/home/anna/project",
        "created_at": 100.0,
        "updated_at": 100.0,
    }
    return SessionRecord(**told | fields)


def job(session_key: str = "", **fields: Any) -> JobRecord:
    told: dict[str, Any] = {
        "id": new_job_id(),
        "session_key": session_key,
        "peer": "codex",
        "root": "/home/anna/project",
        "prompt": "say hello",
        "created_at": 100.0,
    }
    return JobRecord(**told | fields)


def update(kind: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"sessionId": "theirs", "update": {"sessionUpdate": kind, **fields}})


def chunk(text: str, kind: str = "agent_message_chunk") -> bytes:
    return update(kind, content={"type": "text", "text": text})
