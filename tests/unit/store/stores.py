"""Stores, sessions and lines for the tests of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dragoman.store import JobRecord, Redactor, SessionRecord, Store
from dragoman.store.records import new_job_id, new_session_key

SECRET = "sk-" + "a1B2" * 6


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
