"""The redactor: takes secrets out of texts and of lines of JSON.

Owns the search: values of credential variables in every form in which they may stand in a text,
what looks like a secret (`shapes`), and what a name announces (`names`), also where letters are
coloured or escaped (`views`). The quick look spares most texts the long one. It knows one text at
a time; a secret that is streamed in pieces is the business of those who stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec

from dragoman.redaction import names, shapes
from dragoman.redaction.names import REDACTED, SHORTEST, redact_value
from dragoman.redaction.views import DecodedText, decoded, is_encoded, size_before, size_behind

REACH: Final = 512
"""Characters within which a secret shows itself: what it begins with, or the name before it. They
are characters as they read; escapes and colours make the text longer."""

WHOLE_LINE: Final = 20
"""A line of a value that has several, such as a private key, is looked for from this length on."""

NESTED: Final = 3
"""How often a value may have been written as a string of JSON, one within the other."""

LONG: Final = 8192
"""Characters of a text that is searched at once. The slowest pattern takes a few milliseconds."""

LONGEST: Final = 64 * 1024
"""Characters that are cut at once at most, where nothing tells the end of a secret."""

EDGE: Final = 16
"""Characters at the end of a piece that show whether what was cut goes on behind it."""

_SPACE: Final = re.compile(r"\s")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_UNDECODABLE: Final = (msgspec.DecodeError, ValueError, RecursionError)


class Redactor:
    """Takes secrets out: the given values, and what looks like a secret."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values for form in _forms(value)}
        # A value that is part of another one must not leave the rest of it behind.
        self._values = tuple(sorted(forms, key=len, reverse=True))
        self.reach = max(REACH, *(len(form) for form in forms)) if forms else REACH
        """Characters that have to be seen together for a secret to show itself."""

    def suspects(self, text: str) -> bool:
        """Whether a text may hold a secret. Cheap, and never wrong about a text that holds one."""
        if len(text) <= LONG:
            return self._looks(text)
        # The patterns are for the pieces that `text` makes of it.
        return self._touches(text) or (is_encoded(text) and self._touches(decoded(text)))

    def _touches(self, text: str) -> bool:
        return (
            any(value in text for value in self._values)
            or shapes.has_literal(text)
            or names.has_word(text)
        )

    def _looks(self, text: str) -> bool:
        if self._looks_plainly(text):
            return True
        if is_encoded(text):
            view = decoded(text)
            return view != text and self._looks_plainly(view)
        return False

    def _looks_plainly(self, text: str) -> bool:
        for value in self._values:
            if value in text:
                return True
        return shapes.may_hold(text) or names.may_hold(text)

    def text(self, text: str) -> str:
        """The text without secrets."""
        if not self.suspects(text):
            return text
        if len(text) <= LONG:
            return self._clean(text)
        clean = "".join(self._clean_pieces(text))
        return text if clean == text else clean

    def line(self, line: bytes) -> bytes:
        """A line of JSON without secrets. One that has none comes back as it is; in another, what
        JSON may write in several ways may be written in another way."""
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return self.text(line.decode(errors="replace")).encode()
        # With these escapes anything can be written so that no search finds it.
        if "\\u" not in text and "\\/" not in text and not self.suspects(text):
            return line
        try:
            # All of it is written anew: a name that occurs twice is read only once.
            return msgspec.json.encode(self.value(decode(line)))
        except _UNDECODABLE:
            return self.text(text).encode(errors="replace")

    def value(self, value: Any) -> Any:
        """A value of JSON without secrets: those in its texts, and those that a name announces."""
        return redact_value(value, self.text)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where secrets stand in a text, in order and apart from each other."""
        found = list(self._spans(text))
        if is_encoded(text):
            view = DecodedText(text)
            if view.text != text:
                found += [
                    view.origin(start, stop)
                    for start, stop in self._spans(view.text)
                    if start < stop
                ]
        merged: list[tuple[int, int]] = []
        for start, stop in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            elif start < stop:
                merged.append((start, stop))
        return merged

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for value in self._values:
            start = text.find(value)
            while start >= 0:
                yield start, start + len(value)
                start = text.find(value, start + 1)
        yield from shapes.spans(text)
        yield from names.spans(text)

    def before(self, text: str, place: int) -> int:
        """From where on a text has to be seen for a secret that reaches to a place to show
        itself."""
        return max(0, place - size_before(text, place, self.reach, LONGEST))

    def open_from(self, text: str, spans: Iterable[tuple[int, int]]) -> int:
        """From where on a text that goes on may yet turn out to hold a secret; `spans` are those
        that it has."""
        start = self.before(text, len(text))
        tail = text[start:]
        certain = last_word(text)
        if certain < start and not self.suspects(text[certain:]):
            # A word at the end may go on, but it would have shown what it is.
            certain = start
        if self._touches(tail) or (is_encoded(tail) and self._touches(decoded(tail))):
            certain = min(certain, start)
        for value in self._values:
            # The beginning of a value that has spaces in it.
            place = text.rfind(value[:SHORTEST], max(0, len(text) - len(value)))
            if place >= 0:
                certain = min(certain, place)
            for size in range(min(SHORTEST, len(text)), 0, -1):
                if text.endswith(value[:size]):
                    certain = min(certain, len(text) - size)
                    break
        for start, stop in spans:
            if stop > certain:
                # What is cut may go on, and then the name before it has to stay.
                certain = min(certain, self.before(text, start))
        return certain

    def _clean_pieces(self, text: str) -> Iterator[str]:
        """A long text piece by piece: a pattern that is busy lets no other thread run."""
        start = 0
        while start < len(text):
            stop = self._boundary(text, start, start + LONG)
            piece = text[start:stop]
            clean = self._clean(piece) if self._looks(piece) else piece
            while stop < len(text) and len(piece) < LONGEST and clean[-EDGE:] != piece[-EDGE:]:
                # What was cut goes on behind it.
                stop = self._boundary(text, start, stop + len(piece))
                piece = text[start:stop]
                clean = self._clean(piece)
            yield clean
            start = stop

    def _boundary(self, text: str, start: int, place: int) -> int:
        """A place from this one on where no secret of the text from `start` on can be torn
        apart."""
        while place < len(text):
            behind = place + size_behind(text, place, self.reach, LONGEST)
            found = _SPACE.search(text, place, behind)
            if found:
                place = found.end()
                behind = place + size_behind(text, place, self.reach, LONGEST)
                if not self._looks(text[self.before(text, place) : behind]):
                    return place
            else:
                # In a word that may have begun long before and not yet have shown what it is.
                word = last_word(text[start:place])
                if place - start >= LONGEST or not self._looks(text[start + word : behind]):
                    return place
                place += place - start
        return len(text)

    def _clean(self, text: str) -> str:
        spans = self.spans(text)
        return without(text, spans) if spans else text


def without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with a mark in the place of each of the spans."""
    pieces: list[str] = []
    done = 0
    for start, stop in spans:
        pieces += (text[done:start], REDACTED)
        done = stop
    pieces.append(text[done:])
    return "".join(pieces)


def last_word(text: str) -> int:
    """Where the word at the end of a text begins."""
    if not text or text[-1].isspace():
        return len(text)
    return len(text) - len(text.rsplit(None, 1)[-1])


def decode(line: bytes) -> Any:
    """A line of JSON as a value. Half a surrogate pair is the replacement character."""
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        # Slower, and more tolerant.
        return _mended(json.loads(line))


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_SURROGATE.sub("\ufffd", key): _mended(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mended(item) for item in value]
    return value


def _forms(value: str) -> Iterator[str]:
    """The ways in which a value may be written inside a text: as it is, in JSON, in an address,
    and each of its lines."""
    parts = [value, value.strip()]
    lines = value.splitlines()
    if len(lines) > 1:
        parts += [line for line in map(str.strip, lines) if len(line) >= WHOLE_LINE]
    for part in parts:
        if len(part) >= SHORTEST:
            yield part
            for ascii_only in (False, True):
                written = part
                # JSON is often carried in a string of JSON, and that in a line of it.
                for _ in range(NESTED):
                    written = json.dumps(written, ensure_ascii=ascii_only)[1:-1]
                    yield written
                    yield written.replace("/", "\\/")
            yield quote(part, safe="", errors="replace")
            yield quote(part, errors="replace")
