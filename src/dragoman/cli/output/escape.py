"""Escape control characters in untrusted text before it reaches a terminal.

Text of agents, file names, errors and variables may contain escape sequences that set the window
title, hide output or type into the shell. `Neutral` marks text that is safe; `output.terminal`
escapes everything else when writing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Final

_KEPT: Final = "\n\t"

HIDDEN: Final = frozenset(
    chain(
        # DEL, and C1 controls: some terminals take 0x9B for ESC [.
        range(0x7F, 0xA0),
        # Characters that turn the direction of writing, so that a command reads otherwise than it
        # runs.
        (0x61C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
        # Characters that take no place, in which a name or a command can hide something.
        (0xAD, 0x34F, 0x180E, *range(0x200B, 0x2010), 0xFEFF),
        (*range(0x2060, 0x2066), *range(0x206A, 0x2070)),
        (*range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE1000)),
        (0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810)),
        (0x3164, 0xFFA0, *range(0xFE00, 0xFE0F)),
        (*range(0x13430, 0x13440), *range(0x1BCA0, 0x1BCA4)),
        range(0x1D173, 0x1D17B),
    )
)
"""Characters that JSON leaves as they are and that are not shown or are obeyed."""

# Made without a loop in Python: these are thousands, and every command loads them.
_POWERLESS: Final[dict[int, str]] = {
    **dict.fromkeys(HIDDEN, "\ufffd"),
    # Half of a pair, which no encoder takes.
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
    # Control characters become their pictures: ESC is shown as such, and nothing is lost silently.
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT},
    0x7F: "\u2421",
    0x2028: "\n",
    0x2029: "\n",
}

_JOINED: Final = re.compile(
    "(?<=[\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d(?=[\u2600-\u27bf\U0001f000-\U0001faff])"
)
"""A joiner between two pictures makes one of them, and hides nothing."""


class Neutral(str):
    """Text that can be written to a terminal: made by `neutral`, or of our own making.

    Adding to it gives such a text again. Whatever else is made of it is a plain `str`.
    """

    __slots__ = ()

    def __add__(self, other: str) -> Neutral:
        return Neutral(str.__add__(self, neutral(other)))


def neutral(text: str) -> Neutral:
    """The text without anything that a terminal would obey, beside newlines and tabs.

    A carriage return before a newline is dropped; alone it is shown, because it could overwrite the
    line that it ends.
    """
    if isinstance(text, Neutral):
        return text
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if "\u200d" in text:
        return Neutral("\u200d".join(part.translate(_POWERLESS) for part in _JOINED.split(text)))
    return Neutral(text.translate(_POWERLESS))


def one_line(text: str, *, width: int = 0) -> Neutral:
    """The same on one line, cut to `width` characters where that is not 0."""
    flat = " ".join(str(neutral(text)).split())
    return Neutral(flat if not width or len(flat) <= width else flat[: max(width - 1, 0)] + "…")


def joined(separator: str, parts: Iterable[str]) -> Neutral:
    """Several texts as one, each made neutral that is not."""
    return Neutral(neutral(separator).join(map(neutral, parts)))
