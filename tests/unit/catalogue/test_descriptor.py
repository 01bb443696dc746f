"""The shape of a descriptor: nothing that a file could say is accepted unread."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.catalogue import descriptor
from dragoman.catalogue.descriptor import Descriptor, Launch

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
