"""Format answers as Markdown: places, code, lists and plurals.

A place is `path:line` in a code span; code is in a fence that nothing in it can close. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from dragoman.scout.hits import Hit, clean, shown_path
from dragoman.scout.languages import Language

MAX_SHOWN: Final = 160
"""Maximum length of a line in a list, in characters."""

_FENCES: Final = {
    "C++": "cpp", "C#": "csharp", "Objective-C": "objc", "Shell": "sh", "Make": "make",
    "Docker": "dockerfile", "Protocol Buffers": "proto", "Terraform": "hcl", "Text": "",
    "Other": "", "reStructuredText": "rst",
}  # fmt: skip


def code(text: str) -> str:
    """Return a code span for any text."""
    shown = clean(text.replace("\n", " "))
    runs = [len(run) for run in re.findall("`+", shown)]
    ticks = "`" * (max(runs, default=0) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def place(path: str, line: int | None = None) -> str:
    """Return a path, with a line number if there is one, as a code span."""
    shown = shown_path(path)
    return code(shown if line is None else f"{shown}:{line}")


def fence(lines: Sequence[str], language: Language | None = None) -> str:
    """Format lines of code in a fence."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    ticks = "`" * max(3, longest + 1)
    name = "" if language is None else _FENCES.get(language.name, language.name.lower())
    body = "\n".join(clean(line) for line in lines)
    return f"{ticks}{name}\n{body}\n{ticks}"


def bullet(hit: Hit, note: str = "") -> str:
    """Return a hit as a list item: its place, the note if there is one, and its text."""
    text = clip(hit.text.strip())
    parts = [place(hit.path, hit.line), *([note] if note else []), *([code(text)] if text else [])]
    return "- " + " ".join(parts)


def clip(text: str, size: int = MAX_SHOWN) -> str:
    """Return a text, shortened to `size` characters if it is longer."""
    return text if len(text) <= size else f"{text[: size - 1].rstrip()}…"


def count(number: int, one: str, many: str = "") -> str:
    """Format a number of things: "1 file", "1,200 files"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def paragraphs(*parts: str | Iterable[str]) -> str:
    """Join paragraphs with empty lines between them; a list of lines is one paragraph. Empty
    paragraphs are left out."""
    texts = [part if isinstance(part, str) else "\n".join(part) for part in parts]
    return "\n\n".join(text for text in texts if text)


def listed(lines: Sequence[str], total: int) -> list[str]:
    """Return the lines of a list that has `total` items, and a last one with the number of the
    items left out, if any."""
    more = total - len(lines)
    return [*lines, f"- … and {more:,} more"] if more > 0 else list(lines)
