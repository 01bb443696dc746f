"""docs/reference/ledger.md lists exactly the fields that are stored, printed and logged."""

from __future__ import annotations

import re

import msgspec
import pytest

from dragoman.cli.output.stat_pages import FIELDS
from dragoman.store.ledger import AttemptRecord, EventName, LoggedEvent
from dragoman.store.ledger.events_file import KEPT, MAX_SIZE
from dragoman.store.ledger.records import StatRow
from dragoman.store.values import Arm, Health, Posterior, Provenance
from scripts.reference.event_values import type_name
from tests.docs.markdown import ROOT, section, table

DOCUMENT = ROOT / "docs" / "reference" / "ledger.md"


def first_cells(heading: str, head: str) -> list[str]:
    """Return the names in the first column of the table under a heading that begins with `head`."""
    lines = section(DOCUMENT, heading)
    starts = [at for at, line in enumerate(lines) if line.startswith(f"| {head} |")]
    assert len(starts) == 1, f"{heading}: {head}"
    rows = []
    for line in lines[starts[0] :]:
        if not line.startswith("|"):
            break
        rows.append(line)
    return [name for cells in table(rows) for name in re.findall(r"`([\w.]+)`", cells[0])]


@pytest.mark.parametrize(
    ("heading", "head", "names"),
    [
        ("Attempt", "field", AttemptRecord.__struct_fields__),
        ("Attempt", "provenance", [each.value for each in Provenance]),
        ("Posterior", "field", (*Arm.__struct_fields__, *Posterior.__struct_fields__)),
        ("Health", "field", Health.__struct_fields__),
        ("Sums", "field", ("type", "by", *FIELDS)),
        ("events.jsonl", "event", [each.value for each in EventName]),
        ("events.jsonl", "field", LoggedEvent.__struct_fields__),
    ],
)
def test_a_table_is_what_the_code_says(heading: str, head: str, names: tuple[str, ...]) -> None:
    assert first_cells(heading, head) == list(names)


@pytest.mark.parametrize(
    ("heading", "kinds"),
    [
        ("Attempt", [AttemptRecord]),
        ("Posterior", [Arm, Posterior]),
        ("Health", [Health]),
        ("Sums", [StatRow]),
        ("events.jsonl", [LoggedEvent]),
    ],
)
def test_the_type_of_a_field_is_that_of_the_code(
    heading: str, kinds: list[type[msgspec.Struct]]
) -> None:
    lines = section(DOCUMENT, heading)
    start = next(at for at, line in enumerate(lines) if line.startswith("| field |"))
    shown = {
        name: kind.partition("<br>")[0]
        for names, kind in table(lines[start:])
        for name in re.findall(r"`(\w+)`", names)
    }
    for each in (field for kind in kinds for field in msgspec.structs.fields(kind)):
        if each.name in shown:
            # Objects and strings are described in words.
            base, _, null = type_name(each.type).partition("; ")
            base = re.sub(r"\[`\w+`\]\(#\w+\)", "object", base).partition(":")[0]
            base = {"object of object": "object of objects", "object of any value": "object"}.get(
                base, base
            )
            assert shown[each.name] == (f"{base}; {null}" if null else base), each.name


def test_the_files_and_their_size_are_those_of_the_code() -> None:
    named = first_cells("Where it is", "file in the state directory")
    assert {name for name in named if name.endswith(".jsonl")} == {
        "events.jsonl",
        *(f"events.{number}.jsonl" for number in range(1, KEPT + 1)),
    }
    assert f"{MAX_SIZE // 1024 // 1024} MiB" in DOCUMENT.read_text(encoding="utf-8")
