"""A place in a file where something was found, whoever found it.

Owns the value and how a line is made fit to be shown: decoded, cut to a window around what was
found, without control characters. `search` and `ripgrep` make them, everybody else reads them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

MAX_BEFORE: Final = 400
MAX_AFTER: Final = 600
"""Bytes of a line that are kept before and behind what was found. Lines of people are shorter;
those of minified files have megabytes."""

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What does things to terminals, or cannot be sent at all."""


class Hit(NamedTuple):
    """One line of one file."""

    path: str
    """From the root on, with slashes; as the operating system names it, so it may hold bytes that
    are no text in the form that Python gives them."""
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for: any of some terms, literally."""

    terms: tuple[str, ...]
    words: bool = True
    """Whether a term counts only where it is no part of a longer word."""
    under: str = ""
    """The folder to look in, from the root on."""

    def pattern(self) -> re.Pattern[str]:
        """Finds the terms in a line."""
        terms = "|".join(re.escape(term) for term in self.terms)
        if not self.words:
            return re.compile(terms)
        starts = r"(?<!\w)" if any(re.match(r"\w", term) for term in self.terms) else ""
        ends = r"(?!\w)" if any(re.search(r"\w\Z", term) for term in self.terms) else ""
        return re.compile(f"{starts}(?:{terms}){ends}")


def window(line: bytes, at: int) -> str:
    """The text of a line around a place in it."""
    start = max(0, at - MAX_BEFORE)
    cut = line[start : at + MAX_AFTER]
    text = cut.decode("utf-8", "replace").rstrip("\r\n")
    # Something stands before it: it must not be taken for the beginning of a line.
    return clean(("… " if start else "") + text)


def clean(text: str) -> str:
    """A text without what would do something to a terminal."""
    return _CONTROLS.sub("\ufffd", text)


def shown_path(path: str) -> str:
    """A path as text: bytes that are no text are replaced, and so are line breaks."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return clean(text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t"))


def is_text_path(path: str) -> bool:
    """Whether a path can be sent to somebody and found again."""
    return shown_path(path) == path
