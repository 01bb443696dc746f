"""docs/reference/events.md lists every event and its fields, exactly as the model has them."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from dragoman import events
from dragoman.events import model
from dragoman.events.words import Outcome
from scripts.reference import event_values
from tests.docs.markdown import ROOT, section, table

DOCUMENT = ROOT / "docs" / "reference" / "events.md"


def structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that a type mentions."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for each in typing.get_args(kind):
        yield from structs_in(each)


def test_the_table_of_events_is_the_union_of_the_code() -> None:
    expected = list(event_values.index())
    written = [line for line in section(DOCUMENT, "The events") if line.startswith("|")]
    assert written == expected, "the table should read:\n" + "\n".join(expected)


def test_every_component_of_an_event_is_on_the_page_and_in_the_module() -> None:
    found: set[type[msgspec.Struct]] = set()
    waiting: list[type[msgspec.Struct]] = [model.Base, *get_args(model.Event)]
    while waiting:
        for each in msgspec.structs.fields(waiting.pop()):
            new = set(structs_in(each.type)) - found
            found |= new
            waiting += new
    assert found == set(event_values.COMPONENTS)
    assert [each.__name__ for each in found if not hasattr(events, each.__name__)] == []


def test_every_field_of_every_event_has_a_type_in_json() -> None:
    for kind in get_args(model.Event):
        rows = table(section(DOCUMENT, kind.__name__))
        assert all(type_and_meaning for _, type_and_meaning in rows)
        names = [name.strip("`") for name, _ in rows]
        fields = msgspec.structs.fields(kind)[event_values.SHARED :]
        assert names == [field.name for field in fields]


def test_every_outcome_is_explained() -> None:
    rows = table(section(DOCUMENT, "The end of a turn"))
    told = [name.strip("` ") for row in rows for name in row[0].split(",")]
    assert sorted(told) == sorted(outcome.value for outcome in Outcome)


def test_a_value_that_may_be_left_out_is_left_out_of_the_json() -> None:
    here = (model.Source("acp", "c"), 1, None, None, "n", None, False)
    written = msgspec.json.decode(msgspec.json.encode(model.ToolChanged(*here, "call-1")))
    shown = dict(table(section(DOCUMENT, "ToolChanged")))
    assert "title" not in written and "may be left out" in shown["`title`"]
    assert written["tool_id"] == "call-1" and "left out" not in shown["`tool_id`"]
