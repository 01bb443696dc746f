"""Parses the project's documents as far as the tests need: code blocks, links, headings, tables.

Supports only the Markdown that the project uses. The test files beside it use the pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced code block. `info` is the text after the opening fence."""

    document: Path
    line: int
    info: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def documents() -> list[Path]:
    """Every document of the project, for users and developers."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(document: Path) -> Iterator[Block]:
    opened: int | None = None
    info = ""
    lines: list[str] = []
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if opened is None:
            if line.startswith("```"):
                opened, info, lines = number, line[3:].strip(), []
        elif line.rstrip() == "```":
            yield Block(document, opened, info, "".join(f"{item}\n" for item in lines))
            opened = None
        else:
            lines.append(line)
    assert opened is None, f"{document}:{opened}: the code block is never closed"


def prose(document: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines outside of code blocks."""
    inside = False
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            yield number, line


def links(document: Path) -> Iterator[tuple[int, str]]:
    for number, line in prose(document):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            yield number, target


def anchors(document: Path) -> set[str]:
    """Return the fragments of a document's headings."""
    found = set()
    for _, line in prose(document):
        heading = re.match(r"#+ +(.*)", line)
        if heading:
            words = re.sub(r"[^\w\- ]", "", heading[1].lower())
            found.add(words.replace(" ", "-"))
    return found


def section(document: Path, heading: str) -> list[str]:
    """Return the lines of prose under one heading, up to the next heading of any level."""
    taken: list[str] | None = None
    for _, line in prose(document):
        if line.startswith("#"):
            if taken is not None:
                break
            if line.lstrip("#").strip() == heading:
                taken = []
        elif taken is not None:
            taken.append(line)
    assert taken is not None, f"{document} has no heading {heading!r}"
    return taken


def table(lines: list[str]) -> list[list[str]]:
    """Return the cells of the first table in some lines, without its header."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in lines
        if line.lstrip().startswith("|")
    ]
    return rows[2:]
