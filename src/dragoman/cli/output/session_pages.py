"""Render stored sessions as table rows, pages and JSON lines.

The records come from `store` and `runs.sessions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dragoman.cli.output.escape import Neutral, one_line
from dragoman.cli.output.tables import facts
from dragoman.cli.output.times import ago, iso

if TYPE_CHECKING:
    from dragoman.runs.sessions import ListedSession
    from dragoman.store import SessionRecord

HEAD: Final = ("session", "name", "peer", "state", "events", "last used", "title")
DROP: Final = ("events", "state", "last used", "title")
"""Columns that a narrow terminal drops, least important first."""


TITLE_WIDTH: Final = 60
"""Maximum number of characters of a prompt that is shown in place of a title."""


def as_cells(
    listed: ListedSession, now: float, prompts: Mapping[str, str] | None = None
) -> list[str]:
    """Return a session as a row under `HEAD`. `prompts` has the first prompt of sessions by their
    keys: it is shown if a session has no title."""
    record = listed.record
    if record is None:
        return [
            listed.peer_session_id,
            "",
            listed.peer,
            "peer's own" + (f", {listed.status}" if listed.status else ""),
            "",
            listed.updated or "",
            listed.title or "",
        ]
    return [
        record.key,
        record.name or "",
        record.peer,
        "closed" if record.closed_at is not None else "open",
        str(record.events),
        ago(record.updated_at, now),
        listed.title or one_line((prompts or {}).get(record.key, ""), width=TITLE_WIDTH),
    ]


def as_json(listed: ListedSession) -> dict[str, Any]:
    """Return a session as a JSON object. A session that only the peer remembers has no key."""
    record = listed.record
    if record is not None:
        return {
            **record_as_json(record),
            "title": listed.title,
            "at_peer": listed.at_peer,
            "status": listed.status,
        }
    return {
        "type": "Session",
        "key": None,
        "name": None,
        "peer": listed.peer,
        "root": None,
        "peer_session_id": listed.peer_session_id,
        "cwd": listed.cwd,
        "title": listed.title,
        "mode": None,
        "model": None,
        "events": None,
        "created_at": listed.created,
        "updated_at": listed.updated,
        "closed_at": None,
        "at_peer": True,
        "status": listed.status,
    }


def record_as_json(record: SessionRecord) -> dict[str, Any]:
    """Return a stored session as a JSON object. The peer is not asked whether it still has it."""
    return {
        "type": "Session",
        "key": record.key,
        "name": record.name,
        "peer": record.peer,
        "root": record.root,
        "peer_session_id": record.peer_session_id,
        "cwd": record.cwd,
        "title": record.title,
        "mode": record.mode,
        "model": record.model,
        "events": record.events,
        "created_at": iso(record.created_at),
        "updated_at": iso(record.updated_at),
        "closed_at": iso(record.closed_at),
        "at_peer": None,
        "status": None,
    }


def page(record: SessionRecord, now: float) -> Neutral:
    """Return the known facts of a session, one per line."""
    known = {
        "session": record.key,
        "name": record.name,
        "peer": record.peer,
        "peer's id": record.peer_session_id,
        "project": record.root,
        "directory": record.cwd if record.cwd != record.root else None,
        "title": record.title,
        "model": record.model,
        "mode": record.mode,
        "begun": ago(record.created_at, now),
        "last used": ago(record.updated_at, now),
        "closed": ago(record.closed_at, now),
        "events": str(record.events),
    }
    return facts(known.items())
