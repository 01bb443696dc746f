"""Escape control characters in untrusted text before it reaches a terminal.

Agent output, file names, errors and variables may contain escape sequences that set the window
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
        # DEL, and C1 controls: some terminals interpret 0x9B as ESC [.
        range(0x7F, 0xA0),
        # Characters that change the text direction: a command could read differently from what it
        # runs.
        (0x61C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
        # Zero-width characters, which can hide something in a name or a command.
        (0xAD, 0x34F, 0x180E, *range(0x200B, 0x2010), 0xFEFF),
        (*range(0x2060, 0x2066), *range(0x206A, 0x2070)),
        (*range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE1000)),
        (0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810)),
        (0x3164, 0xFFA0, *range(0xFE00, 0xFE0F)),
        (*range(0x13430, 0x13440), *range(0x1BCA0, 0x1BCA4)),
        range(0x1D173, 0x1D17B),
    )
)
"""Code points of characters that terminals hide or interpret, but JSON does not escape."""

# Built without a Python loop: there are thousands, and every command loads them.
_POWERLESS: Final[dict[int, str]] = {
    **dict.fromkeys(HIDDEN, "\ufffd"),
    # Lone surrogates, which no encoder accepts.
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
    # Control characters become their Unicode pictures: ESC is visible, and nothing is lost
    # silently.
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT},
    0x7F: "\u2421",
    0x2028: "\n",
    0x2029: "\n",
}

_JOINED: Final = re.compile(
    "(?<=[\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d(?=[\u2600-\u27bf\U0001f000-\U0001faff])"
)
"""A zero-width joiner between two emoji combines them and hides nothing."""


class Neutral(str):
    """Text that is safe to write to a terminal: made by `neutral`, or our own literal.

    Appending a text with ``+`` escapes that text and gives another `Neutral`. Every other operation
    returns a plain `str`.
    """

    __slots__ = ()

    def __add__(self, other: str) -> Neutral:
        return Neutral(str.__add__(self, neutral(other)))


def neutral(text: str) -> Neutral:
    """Escape everything in the text that a terminal would interpret or hide, except newlines and
    tabs. A text that is already `Neutral` is returned unchanged.

    A carriage return before a newline is dropped; a lone one is made visible, because it could
    overwrite its line.
    """
    if isinstance(text, Neutral):
        return text
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if "\u200d" in text:
        return Neutral("\u200d".join(part.translate(_POWERLESS) for part in _JOINED.split(text)))
    return Neutral(text.translate(_POWERLESS))


def one_line(text: str, *, width: int = 0) -> Neutral:
    """Escape a text as `neutral` does, put it on one line, and cut it to `width` characters unless
    that is 0."""
    flat = " ".join(str(neutral(text)).split())
    return Neutral(flat if not width or len(flat) <= width else flat[: max(width - 1, 0)] + "…")


def joined(separator: str, parts: Iterable[str]) -> Neutral:
    """Join texts, escaping those that are not `Neutral`."""
    return Neutral(neutral(separator).join(map(neutral, parts)))
