"""Records of sessions and jobs for tests, in a store of the test's own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from dragoman.paths import Paths
from dragoman.store import JobRecord, SessionRecord, Store, store_path

ROOT = "/project"


def paths_in(folder: Path) -> Paths:
    names = ("config", "data", "cache", "state", "runtime")
    return Paths(**{name: folder / name for name in names})


def store_in(folder: Path) -> Store:
    """The store that `paths_in` leads to."""
    return Store.open(store_path(paths_in(folder).state))


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold an SQLite file locked, so that other connections can neither read nor write it."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        yield


def session(key: str = "s-0000000001", **fields: Any) -> SessionRecord:
    chosen: dict[str, Any] = {
        "key": key,
        "peer": "scout",
        "root": ROOT,
        "peer_session_id": f"peer-{key}",
        "cwd": ROOT,
        "created_at": 100.0,
        "updated_at": 200.0,
    }
    return SessionRecord(**{**chosen, **fields})


def job(id: str = "j-0000000001", **fields: Any) -> JobRecord:
    chosen: dict[str, Any] = {
        "id": id,
        "session_key": "s-0000000001",
        "peer": "scout",
        "root": ROOT,
        "prompt": "do it",
        "state": "ended",
        "outcome": "ok",
        "text": "done",
        "created_at": 100.0,
        "started_at": 101.0,
        "ended_at": 103.0,
    }
    return JobRecord(**{**chosen, **fields})


def said(text: str, session_id: str = "peer-s-0000000001") -> bytes:
    """A stored line in which the agent says something."""
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    return json.dumps({"sessionId": session_id, "update": update}).encode()
