"""The pages on verification have the fields, rungs and faults of the code, line by line."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from dragoman.catalogue import card
from dragoman.catalogue.card import Card, MeasuredFacts, RungVerdict
from dragoman.testing.chaos import faults
from dragoman.verify.ladder import RUNGS, fields_without
from tests.docs.markdown import ROOT, section, table
from tests.faults.ladder_table import OTHER, TABLE, Row

CARD = ROOT / "docs" / "reference" / "peer-card.md"
HOW_TO = ROOT / "docs" / "how-to" / "why-is-my-peer-not-working.md"


def described(name: str) -> dict[str, tuple[str, str]]:
    """Return the fields of a class of the card: the type and the description."""
    module = ast.parse(inspect.getsource(card))
    body = next(n.body for n in module.body if isinstance(n, ast.ClassDef) and n.name == name)
    found: dict[str, tuple[str, str]] = {}
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        words = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            words = " ".join(str(following.value.value).split())
        kind = (
            ast.unparse(node.annotation).removesuffix(" | None").replace("tuple[str, ...]", "texts")
        )
        found[node.target.id] = ({"str": "text"}.get(kind, kind), words.replace("``", "`"))
    return found


def fact_rows() -> list[list[str]]:
    rungs = {name: rung.name for rung in RUNGS for name in rung.fields}
    told = described("MeasuredFacts")
    return [
        [f"`{name}`", told[name][0], rungs[name], told[name][1]]
        for name in MeasuredFacts.__struct_fields__
    ]


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
    assert all(row[3] for row in fact_rows())
    assert table(section(CARD, "Facts")) == fact_rows()


def test_the_reference_has_every_field_around_the_facts() -> None:
    named = [row[0].strip("`") for row in table(section(CARD, "The card"))]
    assert named == list(Card.__struct_fields__)


def test_the_reference_has_every_rung_in_its_order() -> None:
    assert table(section(CARD, "Rungs")) == rung_rows()


def test_the_reference_has_every_verdict() -> None:
    assert [row[0] for row in table(section(CARD, "Verdicts"))] == [
        f"`{one}`" for one in RungVerdict
    ]


def test_the_how_to_has_every_fault_with_what_the_ladder_finds() -> None:
    assert table(section(HOW_TO, "Faults, and how they look")) == fault_rows()
