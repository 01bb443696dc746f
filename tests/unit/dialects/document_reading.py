"""What the tests of the documents' dialects share: places for events, and the round trip.

A shape that reads a document's example and writes it back unchanged speaks the dialect at both
ends: what the one end sends, the other reads.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from dragoman.dialects.legacy.base import ClientEnd, SessionOptions
from dragoman.events.model import Event, EventEnvelope, Source
from tests.fixtures.documents import Example


class Places:
    """Where events belong, made when they are asked for."""

    def __init__(self, dialect: str) -> None:
        self._source = Source(dialect, "test")
        self._numbers = itertools.count(1)
        self._known: dict[str | None, EventEnvelope] = {}

    def __call__(self, session_id: str | None) -> EventEnvelope:
        return self._known.setdefault(
            session_id, EventEnvelope(self._source, self._numbers, session_id)
        )


def round_trip(example: Example, shape: Any) -> Any:
    """The body as it is after it was read and written."""
    value = msgspec.json.decode(example.raw, type=shape)
    return json.loads(msgspec.json.encode(value))


def includes(whole: Any, part: Any) -> bool:
    """Whether nothing of `part` is missing in `whole`, which may say more: what may be left out may
    also be written with the value that it has anyway."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and includes(whole[name], part[name]) for name in part)
    if isinstance(part, list) and isinstance(whole, list) and len(part) == len(whole):
        return all(map(includes, whole, part))
    return bool(whole == part)


def tell(end: ClientEnd, example: Example, places: Places | None = None) -> Sequence[Event]:
    """The events of a notification."""
    return end.notified(example.method, Raw(example.raw), example.line, places or Places(end.name))


def tell_raw(end: ClientEnd, method: str, params: Any, places: Places | None = None) -> Any:
    line = json.dumps({"method": method, "params": params}).encode()
    body = json.dumps(params).encode()
    return end.notified(method, Raw(body), line, places or Places(end.name))


def answer(end: ClientEnd, example: Example, places: Places | None = None) -> list[Event]:
    """The events of a prompt's answer."""
    return end.answered(Raw(example.raw), (places or Places(end.name))("s"))


def opening(end: ClientEnd, session_id: str | None = None, **wishes: Any) -> Any:
    """How a session is opened, as plain JSON."""
    return plain(end.opening(session_id, SessionOptions("/project", **wishes)))


def plain(messages: Any) -> list[tuple[str, Any]]:
    """Messages as they would stand on the wire."""
    return [(method, json.loads(msgspec.json.encode(params))) for method, params in messages]


def base() -> tuple[Source, int, str | None, str | None, str, bytes | None, bool]:
    """What an event of an agent begins with."""
    return EventEnvelope(Source("acp", "test"), itertools.count(), "s").base("x", None)
