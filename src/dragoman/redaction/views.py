"""Remove colours from a text and decode its percent and backslash escapes, to find secrets in it.

Provides one decoded view of a text and maps positions in it back to the original. A secret whose
letters are coloured or escaped is found in the view and removed from the original. Also converts
lengths in the view to lengths in the text.
"""

from __future__ import annotations

import bisect
import re
from typing import Final

from dragoman.redaction.shapes import compiled

# Backslashes before an escape are doubled each time a text is written as a JSON string. The first
# one of a run is tried with all that follow it, the others with a few: trying each of them with all
# is quadratic.
_MORE: Final = r"(?:(?<!\\\\)\\*+|\\{0,8}+)"

_ENCODED: Final = (
    # A character class first, so that the search jumps from one of them to the next.
    r"[%\\\x1b\x9b](?:"
    # A URL within a URL has its percent signs encoded as well.
    r"(?<=%)(?:25)*(?P<percent>[0-9A-Fa-f]{2})"
    # Colours and other control sequences, even with their first character escaped.
    r"|(?<=\x9b)[0-9;:?]*[@-~]"
    rf"|(?:(?<=\x1b)|(?<=\\){_MORE}(?:u001[bB]|x1[bB]|033|e))"
    r"(?:\[[0-9;:?]*[@-~]|[@-Z\\^_])"
    rf"|(?<=\\){_MORE}"
    r"(?:u009[bB][0-9;:?]*[@-~]|u(?P<unicode>[0-9A-Fa-f]{4})|x(?P<hex>[0-9A-Fa-f]{2})"
    # What JSON escapes, and the characters of keys that Markdown escapes.
    r"|(?P<letter>[nrtbf/\"'_.~=+:-]))"
    r")"
)

_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " "}


def is_encoded(text: str) -> bool:
    """Return whether the decoded text may differ from the text. Cheap."""
    return "\\" in text or "%" in text or "\x1b" in text or "\x9b" in text


def decoded(text: str) -> str:
    """Return the decoded text, without the mapping to the original."""
    return compiled(_ENCODED).sub(_plain, text)


def size_before(text: str, place: int, size: int, most: int) -> int:
    """Return how many characters before `place` to take so that they decode to at least `size`
    characters. An escape that begins before them does not count.

    The result is less than twice as many as necessary. It is at most `most`, or `size` if that is
    larger, even if that is not enough; it may be more than there are before `place`.
    """
    written = size
    while written < min(place, most):
        part = text[max(0, place - written) : place]
        if not is_encoded(part) or len(decoded(part)) >= size:
            break
        written *= 2
    return min(written, max(size, most))


def size_behind(text: str, place: int, size: int, most: int) -> int:
    """Like `size_before`, for the characters after a position."""
    written = size
    while written < min(len(text) - place, most):
        part = text[place : place + written]
        if not is_encoded(part) or len(decoded(part)) >= size:
            break
        written *= 2
    return min(written, max(size, most))


def _plain(found: re.Match[str]) -> str:
    kind = found.lastgroup
    if kind is None:
        return ""
    if kind == "letter":
        return _LETTERS.get(found[kind], found[kind])
    return chr(int(found[kind], 16))


class DecodedText:
    """A decoded text, with a mapping of its positions to the original."""

    def __init__(self, text: str) -> None:
        pieces: list[str] = []
        self._starts: list[int] = []
        """Where each piece begins in the view. `_places` has its span in the text, and whether it
        is unchanged."""
        self._places: list[tuple[int, int, bool]] = []
        size = done = 0

        def add(piece: str, start: int, stop: int, *, same: bool) -> None:
            nonlocal size
            if piece:
                pieces.append(piece)
                self._starts.append(size)
                self._places.append((start, stop, same))
                size += len(piece)

        for found in compiled(_ENCODED).finditer(text):
            add(text[done : found.start()], done, found.start(), same=True)
            add(_plain(found), found.start(), found.end(), same=False)
            done = found.end()
        add(text[done:], done, len(text), same=True)
        self.text = "".join(pieces)

    def origin(self, start: int, stop: int) -> tuple[int, int]:
        """Return the span of the original text that a span of the decoded text comes from. The span
        must not be empty."""
        first = self._place(start)[0]
        return first, self._place(stop - 1)[1]

    def _place(self, at: int) -> tuple[int, int]:
        index = bisect.bisect_right(self._starts, at) - 1
        start, stop, same = self._places[index]
        if not same:
            return start, stop
        place = start + at - self._starts[index]
        return place, place + 1
