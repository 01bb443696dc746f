"""The redactor: removes secrets from texts and from lines of JSON.

Searches for the values of credential variables in every form in which they may be written, for what
looks like a secret (`shapes`), and for what a name announces (`names`), even if letters are
coloured or escaped (`views`). A quick check spares most texts the full search. It handles one text
at a time; secrets that are streamed in chunks are handled by its callers.
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
"""Number of characters that are enough to recognise a secret: its beginning, or the name before it.
Counted after decoding: with escapes and colours, the text itself is longer."""

WHOLE_LINE: Final = 20
"""Minimum length at which a single line of a multi-line value, such as a private key, is
searched for."""

NESTED: Final = 3
"""Number of times that a value may have been encoded as a JSON string and is still found."""

LONG: Final = 8192
"""Number of characters of a text to search at once. The slowest pattern takes a few
milliseconds."""

LONGEST: Final = 64 * 1024
"""Maximum number of characters redacted at once if the end of a secret is unknown."""

EDGE: Final = 16
"""Number of characters at the end of a chunk that show whether a redacted secret continues after
it."""

_SPACE: Final = re.compile(r"\s")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_UNDECODABLE: Final = (msgspec.DecodeError, ValueError, RecursionError)


class Redactor:
    """Redacts the given values, everything in the shape of a secret, and what a name announces as
    one. Values shorter than `SHORTEST` are ignored."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values for form in _forms(value)}
        # The longest first: if a value is part of another one, the whole of the longer one must go.
        self._values = tuple(sorted(forms, key=len, reverse=True))
        self.reach = max(REACH, *(len(form) for form in forms)) if forms else REACH
        """Number of characters that must be seen together to recognise a secret."""

    def suspects(self, text: str) -> bool:
        """Return whether a text may contain a secret. Cheap, and never misses one."""
        if len(text) <= LONG:
            return self._looks(text)
        # Only the fast checks here: `text` runs the patterns on a long text chunk by chunk.
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
        """Return the text, redacted."""
        if not self.suspects(text):
            return text
        if len(text) <= LONG:
            return self._clean(text)
        clean = "".join(self._clean_pieces(text))
        return text if clean == text else clean

    def line(self, line: bytes) -> bytes:
        """Return a line of JSON, redacted. It is returned unchanged if it contains no suspected
        secret and no escape with ``u`` or ``/``; otherwise it may be formatted differently. A line
        that is not JSON is redacted as plain text."""
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return self.text(line.decode(errors="replace")).encode()
        # With these escapes any text can be hidden from a search.
        if "\\u" not in text and "\\/" not in text and not self.suspects(text):
            return line
        try:
            # The whole line is encoded again: of a duplicate key, only one value was decoded.
            return msgspec.json.encode(self.value(decode(line)))
        except _UNDECODABLE:
            return self.text(text).encode(errors="replace")

    def value(self, value: Any) -> Any:
        """Return a redacted copy of a JSON value, as `names.redact_value` does."""
        return redact_value(value, self.text)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of secrets in a text, in order and without overlap."""
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
        """Return the position from which the text has to be searched to recognise a secret that
        extends to `place`."""
        return max(0, place - size_before(text, place, self.reach, LONGEST))

    def open_from(self, text: str, spans: Iterable[tuple[int, int]]) -> int:
        """Return the position from which a growing text may still turn out to contain a secret. The
        text before that position is final.

        `spans` are the secrets already found.
        """
        start = self.before(text, len(text))
        tail = text[start:]
        certain = last_word(text)
        if certain < start and not self.suspects(text[certain:]):
            # A word at the end may continue, but would already have been recognised.
            certain = start
        if self._touches(tail) or (is_encoded(tail) and self._touches(decoded(tail))):
            certain = min(certain, start)
        for value in self._values:
            # The beginning of a value that contains spaces.
            place = text.rfind(value[:SHORTEST], max(0, len(text) - len(value)))
            if place >= 0:
                certain = min(certain, place)
            for size in range(min(SHORTEST, len(text)), 0, -1):
                if text.endswith(value[:size]):
                    certain = min(certain, len(text) - size)
                    break
        for start, stop in spans:
            if stop > certain:
                # The secret may continue: keep what identifies it, such as the name before it.
                certain = min(certain, self.before(text, start))
        return certain

    def _clean_pieces(self, text: str) -> Iterator[str]:
        """Redact a long text chunk by chunk, because a running pattern blocks all other threads."""
        start = 0
        while start < len(text):
            stop = self._boundary(text, start, start + LONG)
            piece = text[start:stop]
            clean = self._clean(piece) if self._looks(piece) else piece
            while stop < len(text) and len(piece) < LONGEST and clean[-EDGE:] != piece[-EDGE:]:
                # The chunk ends in a redacted secret, which may continue after the chunk.
                stop = self._boundary(text, start, stop + len(piece))
                piece = text[start:stop]
                clean = self._clean(piece)
            yield clean
            start = stop

    def _boundary(self, text: str, start: int, place: int) -> int:
        """Return the next position, from `place` on, at which the text can be cut without splitting
        a secret. The chunk begins at `start`. A chunk longer than `LONGEST` may be cut inside a
        word."""
        while place < len(text):
            behind = place + size_behind(text, place, self.reach, LONGEST)
            found = _SPACE.search(text, place, behind)
            if found:
                place = found.end()
                behind = place + size_behind(text, place, self.reach, LONGEST)
                if not self._looks(text[self.before(text, place) : behind]):
                    return place
            else:
                # Inside a word that may have begun long before and is not recognised yet.
                word = last_word(text[start:place])
                if place - start >= LONGEST or not self._looks(text[start + word : behind]):
                    return place
                place += place - start
        return len(text)

    def _clean(self, text: str) -> str:
        spans = self.spans(text)
        return without(text, spans) if spans else text


class ReportRedactor:
    """Makes a text safe to show to strangers: removes secrets, replaces home directories by ``~``,
    and the user's name in other paths by ``USER``."""

    def __init__(
        self, values: Iterable[str] = (), *, homes: Iterable[str] = (), user: str = ""
    ) -> None:
        self._redact = Redactor(values)
        kept = {home.rstrip("/\\") for home in homes}
        self._homes = sorted((home for home in kept if len(home) > 1), key=len, reverse=True)
        self._user = user

    def __call__(self, text: str) -> str:
        text = self._redact.text(text)
        for home in self._homes:
            text = re.sub(rf"{re.escape(home)}(?=[/\\:;,'\"\s)]|$)", "~", text)
        if len(self._user) > 2 and self._user != "root":
            # Directories of the same user elsewhere, such as /var/folders or a mounted home.
            text = re.sub(rf"(?<=[/\\]){re.escape(self._user)}(?=[/\\]|$)", "USER", text)
        return text


def without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with each span replaced by `REDACTED`. The spans must be in order and without
    overlap."""
    pieces: list[str] = []
    done = 0
    for start, stop in spans:
        pieces += (text[done:start], REDACTED)
        done = stop
    pieces.append(text[done:])
    return "".join(pieces)


def last_word(text: str) -> int:
    """Return the position of the last word of a text, or the text's length if it ends with
    whitespace."""
    if not text or text[-1].isspace():
        return len(text)
    return len(text) - len(text.rsplit(None, 1)[-1])


def decode(line: bytes) -> Any:
    """Decode a line of JSON. Half a surrogate pair becomes the replacement character. Raises
    `ValueError` if the line is not JSON, and `RecursionError` if it is nested too deeply."""
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        # Slower, but more tolerant.
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
    """Yield the forms in which a value, and each long line of it, may be written in a text:
    unchanged, as a JSON string (also nested), and in a URL. Nothing shorter than `SHORTEST`."""
    parts = [value, value.strip()]
    lines = value.splitlines()
    if len(lines) > 1:
        parts += [line for line in map(str.strip, lines) if len(line) >= WHOLE_LINE]
    for part in parts:
        if len(part) >= SHORTEST:
            yield part
            for ascii_only in (False, True):
                written = part
                # JSON is often nested in a JSON string, and that in a line of JSON.
                for _ in range(NESTED):
                    written = json.dumps(written, ensure_ascii=ascii_only)[1:-1]
                    yield written
                    yield written.replace("/", "\\/")
            yield quote(part, safe="", errors="replace")
            yield quote(part, errors="replace")
