"""Events for tests, without the fields that the test does not care about."""

from __future__ import annotations

import itertools
from typing import Any, TypeVar

from dragoman.events import model
from dragoman.events.model import EventEnvelope

E = TypeVar("E", bound=model.Base)

SOURCE = model.Source("test", "c1")


def place(session: str | None = "s") -> EventEnvelope:
    return EventEnvelope(SOURCE, itertools.count(1), session)


_place = place()


def make(kind: type[E], /, *args: Any, **fields: Any) -> E:
    """An event of this kind with these fields of its own."""
    return kind(*_place.base("native", None), *args, **fields)
