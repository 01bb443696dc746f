"""The shape of a descriptor: nothing that a file could say is accepted unread."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.catalogue import descriptor
from dragoman.catalogue.descriptor import Descriptor, Launch, load_delay

STRUCTS = [
    thing
    for thing in vars(descriptor).values()
    if isinstance(thing, type)
    and issubclass(thing, msgspec.Struct)
    and thing.__module__ == descriptor.__name__
]


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_table_refuses_keys_that_it_does_not_have_and_stays_as_it_is(
    kind: type[msgspec.Struct],
) -> None:
    assert kind.__struct_config__.forbid_unknown_fields
    assert kind.__struct_config__.frozen


def test_a_name_a_title_and_a_launch_are_enough() -> None:
    peer = msgspec.convert({"name": "x", "title": "X", "launch": [{"command": ["x"]}]}, Descriptor)
    assert peer == Descriptor(name="x", title="X", launch=(Launch(command=("x",)),))
    assert (peer.protocol, peer.roles, peer.verified) == ("auto", (), False)


@pytest.mark.parametrize("missing", ["name", "title", "launch"])
def test_none_of_the_three_may_be_missing(missing: str) -> None:
    table = {"name": "x", "title": "X", "launch": [{"command": ["x"]}]}
    del table[missing]
    with pytest.raises(msgspec.ValidationError, match=missing):
        msgspec.convert(table, Descriptor)


def test_the_rest_of_the_minute_is_counted_by_the_clock_and_not_from_the_beginning() -> None:
    assert load_delay(120.0, 130.0) == 50.5
    assert load_delay(179.0, 179.5) == 1.0
    assert load_delay(120.0, 181.0) == 0.0


def test_a_session_that_began_at_the_very_end_of_a_minute_may_be_of_the_next_for_its_peer() -> None:
    assert load_delay(179.8, 180.0) == 60.5


def test_a_clock_that_was_set_back_causes_no_wait() -> None:
    assert load_delay(200.0, 190.0) == 0.0
