"""The tables in the dialect reference equal those of the code, line by line."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.client.legacy import DIALECTS, DocumentOptions
from dragoman.dialects import discovery
from dragoman.dialects.acp.v1 import translate as acp
from dragoman.dialects.legacy import chained, keyed, oneshot, tagged, threads
from dragoman.events.words import Loss
from tests.docs.markdown import ROOT, section, table

DOCUMENT = ROOT / "docs" / "reference" / "dialects.md"

LOSSES: dict[str, Sequence[Loss]] = {
    "acp": acp.LOSSES,
    "oneshot": oneshot.LOSSES,
    "threads": threads.LOSSES,
    "tagged": tagged.LOSSES,
    "keyed": keyed.LOSSES,
    "chained": chained.LOSSES,
}
CANCELS = {
    "acp": "a notification",
    "codex": "a request",
    "request": "a request",
    "notification": "a notification",
    "end": "ending the process",
}


def summary() -> list[list[str]]:
    rows = []
    for name, what in discovery.DIALECTS.items():
        made = DIALECTS.get(name)
        cancel = CANCELS[name if made is None else made(DocumentOptions()).cancel]
        rows.append([f"`{name}`", what, cancel])
    return rows


def losses(name: str) -> list[list[str]]:
    return [
        [
            loss.what,
            ", ".join(f"`{part.name}`" for part in loss.parts),
            ", ".join(f"`{each}`" for each in loss.cannot),
        ]
        for loss in LOSSES[name]
    ]


def rendered() -> tuple[str, dict[str, str]]:
    """Return the tables as they should be in the document."""
    whole = _table(["name", "what it is", "a turn is cancelled by"], summary())
    head = ["what is lost", "in events", "cannot"]
    return whole, {name: _table(head, losses(name)) for name in LOSSES}


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def test_the_reference_has_every_dialect_with_what_it_is() -> None:
    assert table(section(DOCUMENT, "Dialects")) == summary()


def test_the_reference_has_every_loss_of_every_dialect() -> None:
    for name in LOSSES:
        assert table(section(DOCUMENT, name)) == losses(name), rendered()[1][name]
    assert set(LOSSES) == set(discovery.DIALECTS) - {discovery.CODEX}
