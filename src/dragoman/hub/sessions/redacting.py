"""What may not reach the disk, taken out of texts and of lines of JSON.

Owns the search for secrets: values of credential variables in every form in which they may stand
in a text, and what looks like a secret. What looks like one is decided elsewhere, in
`dragoman.hub.config.checking` and `dragoman.rpc.trace`; here is only the quick look that spares
most texts the long one. It knows one text at a time; a secret that comes in pieces is the business
of `runs`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec

from dragoman.hub.config.checking import SECRET_VALUE
from dragoman.hub.redaction import REDACTED, SHORTEST
from dragoman.rpc.trace import mask
from dragoman.wire.messages import mend

REACH: Final = 512
"""Characters within which a secret shows itself: what it begins with, or the name before it."""

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

APART: Final = 256
"""Characters from which on a text is not searched again for names."""

_APART: Final = re.compile(r"\0[0-9]+")
_SPACE: Final = re.compile(r"\s")

_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# The quick look, at a text in lower case: a few searches for a word, each many times as fast as a
# pattern, and a pattern only where the word was found. It may see a secret where none is, and
# never the other way round. A text may also be a line of JSON, where `\n` is written out, and
# every letter that is not of ASCII may be.
_START: Final = r"(?:(?<![a-z0-9_])|(?<=\\[nrtbf])|(?<=\\u[0-9a-f]{4}))"
_SHAPES: Final = (
    *((f"{word}-", rf"{_START}{word}-[\w-]{{8}}") for word in ("sk", "pk", "rk", "xai")),
    ("glpat-", rf"{_START}glpat-[\w-]{{8}}"),
    *((f"{word}_", rf"{_START}{word}_[a-z0-9]{{16}}") for word in ("gsk", "hf", "npm")),
    *((f"gh{kind}_", rf"{_START}gh{kind}_[a-z0-9]{{16}}") for kind in "pousr"),
    ("github_pat_", rf"{_START}github_pat_\w{{16}}"),
    ("xox", rf"{_START}xox[abprs]-[a-z0-9-]{{8}}"),
    ("akia", rf"{_START}akia[a-z0-9]{{12}}"),
    ("aiza", rf"{_START}aiza[\w-]{{20}}"),
    ("ya29.", rf"{_START}ya29\.[\w-]{{16}}"),
    ("eyj", r"eyj[\w-]{8}"),
    ("bearer ", r"bearer [a-z0-9._~+/=-]{8}"),
    ("-----begin ", r"-----begin [a-z ]{0,32}private key"),
    ("://", r"://[^/\s]*@"),
)

_WORDS: Final = (
    *("token", "secret", "passw", "passphrase", "key", "authorization", "credential", "cookie"),
    "bearer",
)
_NAME: Final = (
    r"(?:token|secret|passw|passphrase|(?:api|access|private)[_-]?key|-key|authorization"
    r"|credential|cookie|bearer)"
)
_BLANK: Final = r"(?:\s|\\[nrtf])"
_NAMED: Final = (
    # A variable, a header or a setting; a key of an object.
    rf"{_NAME}(?:[a-z0-9_]{{0,64}}=|[a-z]{{0,4}}{_BLANK}*:|[^\"\\]{{0,64}}\\*\"{_BLANK}*:)"
    # An option of a command, in a text and in a list; the name beside a value.
    rf"|-[a-z0-9_-]{{0,64}}{_NAME}[a-z]{{0,4}}{_BLANK}"
    rf'|"-[^"]{{0,64}}{_NAME}[^"]{{0,64}}"\s*,'
    rf'|name\\*"{_BLANK}*:{_BLANK}*\\*"[^"]{{0,400}}?{_NAME}'
)


_RARER: Final = " .etaoinshrdlucmfwypvbgk:/-_0123456789jqxz"
"""Characters as they stand in texts, the commonest first."""


def _by_rarest(words: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The words by the rarest character of each: a text that has not even that need not be searched
    for the word, and a search for one character takes a small part of the time."""
    found: dict[str, list[str]] = {}
    for word in words:
        found.setdefault(max(word, key=_RARER.index), []).append(word)
    return tuple((rarest, tuple(each)) for rarest, each in found.items())


_SHAPE_OF: Final = dict(_SHAPES)
_SHAPES_BY_RAREST: Final = _by_rarest(_SHAPE_OF)
_WORDS_BY_RAREST: Final = _by_rarest(_WORDS)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern at its first use: a command that only looks a session up needs none of them."""
    return re.compile(pattern)


class Redactor:
    """Takes secrets out: the given values, and what looks like a secret."""

    def __init__(self, environ_values: Iterable[str] = ()) -> None:
        forms = {form for value in environ_values for form in _forms(value)}
        # A value that is part of another one must not leave the rest of it behind.
        self._values = tuple(sorted(forms, key=len, reverse=True))
        self.reach = max(REACH, *(len(form) for form in forms)) if forms else REACH
        """Characters that have to be seen together for a secret to show itself."""

    def suspects(self, text: str) -> bool:
        """Whether a text may hold a secret. Cheap, and never wrong about a text that holds one."""
        if len(text) <= LONG:
            return self._looks(text)
        # The patterns are for the pieces that `text` makes of it.
        if any(value in text for value in self._values):
            return True
        low = text.lower()
        return any(
            rarest in low and any(word in low for word in words)
            for rarest, words in (*_SHAPES_BY_RAREST, *_WORDS_BY_RAREST)
        )

    def _looks(self, text: str) -> bool:
        for value in self._values:
            if value in text:
                return True
        low = text.lower()
        for rarest, words in _SHAPES_BY_RAREST:
            if rarest in low:
                for word in words:
                    if word in low and _compiled(_SHAPE_OF[word]).search(low):
                        return True
        for rarest, words in _WORDS_BY_RAREST:
            if rarest in low:
                for word in words:
                    if word in low:
                        return _compiled(_NAMED).search(low) is not None
        return False

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
            value = msgspec.json.decode(mend(line))
            # All of it is written anew: a name that occurs twice is read only once.
            return msgspec.json.encode(self._value(value))
        except _UNDECODABLE:
            return self.text(text).encode(errors="replace")

    def _value(self, value: Any) -> Any:
        """A value of JSON without secrets: those in its texts, and those that a name tells."""
        apart: list[str] = []

        def walk(item: Any) -> Any:
            if isinstance(item, str):
                clean = self.text(item)
                if len(clean) < APART and not _APART.fullmatch(clean):
                    return clean
                # The search for names would go through all of it a second time.
                apart.append(clean)
                return f"\0{len(apart) - 1}"
            if isinstance(item, dict):
                return {self.text(key): walk(inner) for key, inner in item.items()}
            if isinstance(item, list):
                return [walk(inner) for inner in item]
            return item

        def restore(item: Any) -> Any:
            if isinstance(item, str):
                return apart[int(item[1:])] if _APART.fullmatch(item) else item
            if isinstance(item, dict):
                return {key: restore(inner) for key, inner in item.items()}
            if isinstance(item, list):
                return [restore(inner) for inner in item]
            return item

        masked = mask(walk(value))
        return restore(masked) if apart else masked

    def _clean_pieces(self, text: str) -> Iterator[str]:
        """A long text piece by piece: a pattern that is busy lets no other thread run."""
        start = 0
        while start < len(text):
            stop = self._boundary(text, start + LONG)
            piece = text[start:stop]
            clean = self._clean(piece) if self._looks(piece) else piece
            while stop < len(text) and len(piece) < LONGEST and clean[-EDGE:] != piece[-EDGE:]:
                # What was cut goes on behind it.
                stop = self._boundary(text, stop + len(piece))
                piece = text[start:stop]
                clean = self._clean(piece)
            yield clean
            start = stop

    def _boundary(self, text: str, place: int) -> int:
        """A place from this one on where no secret can be torn apart."""
        reach = self.reach
        while place < len(text):
            found = _SPACE.search(text, place, place + reach)
            place = found.end() if found else place + reach
            if not self._looks(text[max(0, place - reach) : place + reach]):
                return place
        return len(text)

    def _clean(self, text: str) -> str:
        # Both are looked for in the text as it is: what one finds may be a part of the other.
        spans = sorted(self._spans(text))
        if spans:
            pieces: list[str] = []
            done = 0
            for start, stop, mark in spans:
                if start >= done:
                    pieces += (text[done:start], mark)
                done = max(done, stop)
            pieces.append(text[done:])
            text = "".join(pieces)
        masked: str = mask(text)
        return masked

    def _spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        for value in self._values:
            start = text.find(value)
            while start >= 0:
                yield start, start + len(value), REDACTED
                start = text.find(value, start + 1)
        for found in SECRET_VALUE.finditer(text):
            # An address keeps its shape.
            mark = f"://{REDACTED}@" if found[0].startswith("://") else REDACTED
            yield found.start(), found.end(), mark


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
