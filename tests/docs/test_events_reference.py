"""docs/reference/events.md lists every event and its fields, exactly as the model has them."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import msgspec

from dragoman.events import model
from tests.docs.markdown import ROOT, section

DOCUMENT = ROOT / "docs" / "reference" / "events.md"
HEAD = ["| event | when | fields of its own |", "|---|---|---|"]
SHARED = len(msgspec.structs.fields(model.Base))


def row(kind: Any) -> str:
    when = " ".join((inspect.getdoc(kind) or "").split())
    names = [f"`{field.name}`" for field in msgspec.structs.fields(kind)[SHARED:]]
    return f"| `{kind.__name__}` | {when} | {', '.join(names)} |".replace("|  |", "| |")


def test_the_table_of_events_is_the_union_of_the_code() -> None:
    expected = [*HEAD, *(row(kind) for kind in get_args(model.Event))]
    written = [line for line in section(DOCUMENT, "The events") if line.startswith("|")]
    assert written == expected, "the table should read:\n" + "\n".join(expected)


def test_the_table_of_the_envelope_is_what_every_event_has() -> None:
    lines = [line for line in section(DOCUMENT, "What every event has") if line.startswith("| `")]
    named = [line.split("`")[1] for line in lines]
    assert named == [field.name for field in msgspec.structs.fields(model.Base)]
