"""Parse inline Markdown into styled pieces, and wrap pieces into terminal rows.

Handles emphasis, code and links within one line. Every piece has its position in the source, so
that a caller can write final rows and keep the rest of the line open. The text must be neutral
(`output.escape`) and without tabs; blocks of lines are in `output.markdown_stream`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from dragoman.cli.output.escape import Neutral, neutral
from dragoman.cli.output.tables import columns
from dragoman.cli.output.terminal import Paint

MARKERS: Final = {
    "**": ("bold",),
    "__": ("bold",),
    "~~": ("dim",),
    "*": ("italic",),
    "_": ("italic",),
}
"""Markdown markers, and the styles of the text between them."""

CODE: Final = ("cyan",)
LINK: Final = ("underline",)

_SPECIAL: Final = re.compile(r"[\\`\[!<]|\*\*?|__?|~~")
_ESCAPED: Final = re.compile(r"\\[!-/:-@\[-`{-~]")
_TICKS: Final = re.compile(r"`+")
_LINK: Final = re.compile(
    r"!?\[([^\[\]]*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?: +\"[^\"]*\")?\)"
)
_OPEN_LINK: Final = re.compile(r"!?\[[^\[\]]*(?:\](?:\([^)]*)?)?$")
_ADDRESS: Final = re.compile(r"<((?:https?://|mailto:)[^<>\s]+)>")

_ATOM: Final = re.compile(r" +|[^ ]+")
_CLOSING: Final = frozenset("、。，．！？）」』】〉》：；")
"""Characters that must not start a row."""


class Piece(Struct, frozen=True, gc=False):
    """Text in one style."""

    text: str
    styles: tuple[str, ...] = ()
    at: int = 0
    """Its position in the source."""
    opened: str = ""
    """Markers open before it: if the source is cut here, the rest must start with them."""


class Row(Struct, frozen=True, gc=False):
    """A row of the screen."""

    text: Neutral
    at: int
    """Where its text starts in the source."""
    opened: str


class Inline(Struct, frozen=True):
    """A parsed line of Markdown."""

    pieces: tuple[Piece, ...]
    unsure_at: int
    """Position of the first unmatched marker, after which the pieces may still change; the end of
    the source if there is none."""


def inline(source: str) -> Inline:
    """Parse emphasis, code and links of a line. Unclosed markup is text."""
    reader = _Inline(source)
    reader.read(0, len(source), (), "")
    return Inline(tuple(reader.pieces), reader.unsure_at)


def plain(source: str) -> str:
    """Return the text of a line without markers."""
    return "".join(piece.text for piece in inline(source).pieces)


class _Inline:
    """Parses one line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.pieces: list[Piece] = []
        self.unsure_at = len(source)

    def read(self, at: int, end: int, styles: tuple[str, ...], opened: str) -> None:
        source = self.source
        begin = at
        while (found := _SPECIAL.search(source, at, end)) is not None:
            here = found.start()
            after = self._special(found, end, styles, opened, begin)
            if after is None:
                at = found.end()
                continue
            begin = at = after
            assert after > here
        self._add(begin, end, styles, opened)

    def _add(self, at: int, end: int, styles: tuple[str, ...], opened: str) -> None:
        if end > at:
            self.pieces.append(Piece(self.source[at:end], styles, at, opened))

    def _special(
        self, found: re.Match[str], end: int, styles: tuple[str, ...], opened: str, begin: int
    ) -> int | None:
        """Parse markup at a special character. Returns the end of the markup; None if it is plain
        text."""
        source, here, mark = self.source, found.start(), found[0]
        if mark == "\\":
            if _ESCAPED.match(source, here, end) is None:
                return None
            self._add(begin, here, styles, opened)
            self.pieces.append(Piece(source[here + 1], styles, here, opened))
            return here + 2
        if mark == "`":
            return self._code(here, end, styles, opened, begin)
        if mark in "![":
            link = _LINK.match(source, here, end)
            if link is None:
                if mark == "[" and _OPEN_LINK.match(source, here) is not None:
                    self._unsure(here)
                return None
            self._add(begin, here, styles, opened)
            self._link(link, styles, opened)
            return link.end()
        if mark == "<":
            address = _ADDRESS.match(source, here, end)
            if address is None:
                return None
            self._add(begin, here, styles, opened)
            self.pieces.append(Piece(address[1], (*styles, *LINK), here + 1, opened + mark))
            return address.end()
        return self._emphasis(mark, here, end, styles, opened, begin)

    def _unsure(self, here: int) -> None:
        self.unsure_at = min(self.unsure_at, here)

    def _code(
        self, here: int, end: int, styles: tuple[str, ...], opened: str, begin: int
    ) -> int | None:
        ticks = _TICKS.match(self.source, here, end)
        assert ticks is not None
        for closing in _TICKS.finditer(self.source, ticks.end(), end):
            if len(closing[0]) == len(ticks[0]):
                self._add(begin, here, styles, opened)
                within = (*styles, *CODE)
                self._add(ticks.end(), closing.start(), within, opened + ticks[0])
                return closing.end()
        self._unsure(here)
        # All backticks here are text: the next one must not start a new search.
        self._add(begin, ticks.end(), styles, opened)
        return ticks.end()

    def _link(self, link: re.Match[str], styles: tuple[str, ...], opened: str) -> None:
        text, address = link[1], link[2]
        begin = link.start(1)
        self.read(begin, link.end(1), (*styles, *LINK), opened + "[")
        if address and address != text:
            # The address is shown: the link text may be misleading.
            shown = f" ({address})" if text else address
            at = link.start(2) - (2 if text else 0)
            self.pieces.append(Piece(shown, (*styles, "dim"), at, opened))

    def _emphasis(
        self, mark: str, here: int, end: int, styles: tuple[str, ...], opened: str, begin: int
    ) -> int | None:
        source, after = self.source, here + len(mark)
        before = source[here - 1] if here else " "
        if after >= end or source[after].isspace() or _is_word(before, mark):
            return None
        at = after
        while (at := source.find(mark, at + 1, end)) > 0:
            behind = source[at + len(mark)] if at + len(mark) < len(source) else " "
            doubled = len(mark) == 1 and mark in (source[at - 1], behind)
            if doubled:
                at += 1
            elif not source[at - 1].isspace() and not ("_" in mark and behind.isalnum()):
                self._add(begin, here, styles, opened)
                self.read(after, at, (*styles, *MARKERS[mark]), opened + mark)
                return at + len(mark)
        self._unsure(here)
        return None


def _is_word(character: str, mark: str) -> bool:
    """Return whether a marker beside this character is part of a word, as in 2**3 or snake_case."""
    return character.isalnum() and (character.isascii() or "_" in mark)


# -- rows


def rows_of(
    pieces: Iterable[Piece], width: int, paint: Paint, *, first: str = "", others: str = ""
) -> list[Row]:
    """Wrap pieces into rows of at most `width` columns at spaces; a longer word is broken
    anywhere. `first` is put before the first row, `others` before the others; both may have
    styles, which take no columns."""
    made: list[Row] = []
    room = max(width - _shown_columns(first), 1)
    room_below = max(width - _shown_columns(others), 1)
    row: list[Piece] = []
    used = 0
    for word in _words(pieces):
        if word[0].text[:1] == " ":
            # Spaces between words; dropped at the end of a row.
            size = columns(word[0].text)
            if row and used + size <= room:
                row += word
                used += size
            elif not row and not made:
                row += word
                used = min(size, room - 1)
            continue
        size = sum(columns(piece.text) for piece in word)
        if used + size > room and row:
            made.append(_row(row, paint, others if made else first))
            row, used, room = [], 0, room_below
        while size > room:
            head, word = _split(word, room)
            made.append(_row(head, paint, others if made else first))
            room = room_below
            size = sum(columns(piece.text) for piece in word)
        row += word
        used += size
    if row or not made:
        made.append(_row(row, paint, others if made else first))
    return made


def _shown_columns(text: str) -> int:
    return columns(re.sub(r"\x1b\[[0-9;]*m", "", text))


def _words(pieces: Iterable[Piece]) -> Iterable[list[Piece]]:
    """Yield the words, each as the list of its pieces, which stay on one row if they fit. Spaces
    and wide characters are yielded on their own."""
    word: list[Piece] = []
    for piece in pieces:
        for at, text in _atoms(piece.text):
            atom = Piece(text, piece.styles, piece.at + at, piece.opened)
            if text[0] == " " or _is_wide(text[0]):
                if word:
                    yield word
                    word = []
                yield [atom]
            else:
                word.append(atom)
    if word:
        yield word


def _atoms(text: str) -> Iterator[tuple[int, str]]:
    """Yield spaces, breakable characters and parts of words, with their positions."""
    for found in _ATOM.finditer(text):
        begin, part = found.start(), found[0]
        if not part.isascii():
            for at in range(begin + 1, found.end()):
                here = text[at]
                joined = here in _CLOSING or text[at - 1] == "\u200d" or not columns(here)
                if not joined and (_is_wide(text[begin]) or _is_wide(here)):
                    yield begin, text[begin:at]
                    begin = at
        yield begin, text[begin : found.end()]


def _is_wide(character: str) -> bool:
    return not character.isascii() and columns(character) > 1


def _split(word: Sequence[Piece], room: int) -> tuple[list[Piece], list[Piece]]:
    """Split a word into the part that fits into a row and the rest."""
    head: list[Piece] = []
    used = 0
    for number, piece in enumerate(word):
        taken = 0
        for character in piece.text:
            size = columns(character)
            if used + size > room and (head or taken):
                break
            used += size
            taken += 1
        cut = Piece(piece.text[:taken], piece.styles, piece.at, piece.opened)
        if taken == len(piece.text):
            head.append(cut)
            continue
        if taken:
            head.append(cut)
        rest = Piece(piece.text[taken:], piece.styles, piece.at + taken, piece.opened)
        return head, [rest, *word[number + 1 :]]
    return head, []


def _row(pieces: Sequence[Piece], paint: Paint, prefix: str) -> Row:
    kept = list(pieces)
    while len(kept) > 1 and kept[-1].text.isspace():
        kept.pop()
    text = neutral(prefix)
    for styles, run in _runs(kept):
        text = text + paint(run, *styles)
    first = pieces[0] if pieces else Piece("")
    return Row(text, first.at, first.opened)


def _runs(pieces: Iterable[Piece]) -> Iterable[tuple[tuple[str, ...], str]]:
    """Merge adjacent pieces of the same style: less output, and the text can be searched."""
    styles: tuple[str, ...] = ()
    text = ""
    for piece in pieces:
        if piece.styles != styles and text:
            yield styles, text
            text = ""
        styles = piece.styles
        text += piece.text
    if text:
        yield styles, text
