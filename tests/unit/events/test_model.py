"""The closed set of events: what all of them have in common."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import msgspec
import pytest

from dragoman.events import model
from dragoman.events.model import EventEnvelope
from tests.unit.events.sayings import SOURCE, make

KINDS: tuple[Any, ...] = get_args(model.Event)


def test_the_union_holds_every_event_of_the_module_and_nothing_else() -> None:
    defined = {
        value
        for value in vars(model).values()
        if isinstance(value, type) and issubclass(value, model.Base) and value is not model.Base
    }
    assert set(KINDS) == defined


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_begins_with_where_it_came_from_and_says_what_it_means(kind: Any) -> None:
    names = [field.name for field in msgspec.structs.fields(kind)]
    assert names[:7] == ["source", "seq", "session", "turn", "native", "raw", "replay"]
    assert (kind.__doc__ or "").strip().endswith(".")
    assert kind.__struct_config__.frozen


def test_no_two_kinds_are_written_under_the_same_name() -> None:
    assert len({kind.__struct_config__.tag for kind in KINDS}) == len(KINDS)


def test_an_event_is_read_back_as_it_was_written() -> None:
    event = make(model.ToolChanged, "t", title="x", content=None)
    again = msgspec.json.decode(msgspec.json.encode(event), type=model.Event)
    assert again == event
    assert again.content is None
    assert again.status is msgspec.UNSET


def test_the_raw_message_is_kept_byte_for_byte_through_storage() -> None:
    event = model.Unknown(SOURCE, 1, None, None, "x", b'{"odd":\xff}', False)
    again = msgspec.json.decode(msgspec.json.encode(event), type=model.Event)
    assert again.raw == event.raw


def test_places_of_one_connection_count_together() -> None:
    numbers = itertools.count(1)
    one, two = EventEnvelope(SOURCE, numbers, "a"), EventEnvelope(SOURCE, numbers, "b")
    seqs = [place.base("x", None)[1] for place in (one, two, one)]
    assert seqs == [1, 2, 3]


def test_the_envelope_has_the_session_the_turn_and_the_message() -> None:
    place = EventEnvelope(SOURCE, itertools.count(7), "s")
    place.turn = "t"
    place.replay = True
    assert place.base("method", b"{}") == (SOURCE, 7, "s", "t", "method", b"{}", True)
