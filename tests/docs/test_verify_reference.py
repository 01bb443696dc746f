"""The pages on verification have the fields, rungs and faults of the code, line by line."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dragoman.catalogue.card import Card, MeasuredFacts, RungResult, RungVerdict
from dragoman.testing.chaos import faults
from dragoman.verify.ladder import RUNGS
from scripts.reference.event_values import type_name
from scripts.reference.members import members
from tests.docs.markdown import ROOT, blocks, section, table
from tests.faults.ladder_table import OTHER, TABLE, Row, fields_without

CARD = ROOT / "docs" / "reference" / "peer-card.md"
HOW_TO = ROOT / "docs" / "how-to" / "why-is-my-peer-not-working.md"


def described(kind: type[msgspec.Struct]) -> dict[str, tuple[str, str]]:
    """Return the fields of a class of the card: the type in JSON and the description."""
    told = {member.name: member.what for member in members(kind)}
    return {
        each.name: (type_name(each.type).removesuffix("; may be null"), told[each.name])
        for each in msgspec.structs.fields(kind)
    }


def fact_rows() -> list[list[str]]:
    rungs = {name: rung.name for rung in RUNGS for name in rung.fields}
    return [
        [f"`{name}`", rungs[name], f"{kind}<br>{words}"]
        for name, (kind, words) in described(MeasuredFacts).items()
    ]


def _plain(link: re.Match[str]) -> str:
    return "list of objects" if link[1] else "object"


def rung_rows() -> list[list[str]]:
    return [
        [rung.name, rung.asks, ", ".join(rung.needs) or "nothing", "yes" if rung.turns else "no"]
        for rung in RUNGS
    ]


def fault_rows() -> list[list[str]]:
    return [
        [
            f"`{row.fault}`",
            faults.meaning(row.fault),
            row.rung,
            row.verdict.value,
            row.remedy or "nothing",
            changed(row),
        ]
        for row in TABLE
    ]


def changed(row: Row) -> str:
    """Describe in words what a fault changes in a card."""
    words = [f"`{name}`{_value(value)}" for name, value in row.changes.items()]
    lost = row.unknown
    for rung in ("handshake", "dialect", "session", "echo"):
        without = fields_without(rung)
        if without and set(without) <= set(lost):
            lost = tuple(name for name in lost if name not in without)
            words.append(f"unknown: everything that needs {rung}")
            break
    words += [f"`{name}` unknown" for name in lost]
    return ", ".join(words) or "none"


def _value(value: Any) -> str:
    if value is OTHER:
        return ""
    return {True: " yes", False: " no"}[value] if isinstance(value, bool) else f" {value}"


def rendered(head: list[str], rows: list[list[str]]) -> str:
    """Return a table as it should be in a document."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def test_the_reference_has_every_field_of_a_card_with_its_rung_and_its_meaning() -> None:
    assert all(words for _, words in described(MeasuredFacts).values())
    assert table(section(CARD, "Facts")) == fact_rows()


def test_the_reference_has_every_field_around_the_facts() -> None:
    rows = {row[0].strip("`"): row[1] for row in table(section(CARD, "The card"))}
    assert list(rows) == list(Card.__struct_fields__)
    for name, (kind, _) in described(Card).items():
        shown = rows[name].partition("<br>")[0].partition(";")[0]
        assert shown == re.sub(r"(list of )?\[`\w+`\]\(#\w+\)", _plain, kind), name


def test_the_reference_has_every_field_of_a_rung() -> None:
    named = [row[0].strip("`") for row in table(section(CARD, "A rung on the card"))]
    assert named == list(RungResult.__struct_fields__)


def test_the_card_that_is_shown_is_one() -> None:
    shown, *_ = [block for block in blocks(CARD) if block.info == "json"]
    card = msgspec.json.decode(shown.text, type=Card)
    assert (card.peer, card.reached, card.facts.sessions) == ("mine", "session", True)


def test_the_reference_has_every_rung_in_its_order() -> None:
    assert table(section(CARD, "Rungs")) == rung_rows()


def test_the_reference_has_every_verdict() -> None:
    assert [row[0] for row in table(section(CARD, "Verdicts"))] == [
        f"`{one}`" for one in RungVerdict
    ]


def test_the_how_to_has_every_fault_with_what_the_ladder_finds() -> None:
    assert table(section(HOW_TO, "Faults, and how they look")) == fault_rows()
