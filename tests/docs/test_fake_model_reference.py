"""The table of triggers is the same in the reference and in the package."""

from __future__ import annotations

from dragoman.testing import fake_model
from tests.docs.markdown import ROOT


def rows(text: str) -> list[str]:
    """Return the rows of the table of triggers, without backquotes."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| trigger |"))
    table = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        table.append(line.replace("`", ""))
    return table


def test_the_reference_has_the_triggers_of_the_package() -> None:
    reference = (ROOT / "docs" / "reference" / "fake-model.md").read_text(encoding="utf-8")
    assert fake_model.__doc__ is not None
    assert len(rows(reference)) > 10
    assert rows(reference) == rows(fake_model.__doc__)
