"""Redact secrets that are streamed in chunks, in a record of JSON messages of any protocol.

A run is one streamed text: the strings at the same place in messages of the same kind and session.
A message is held back while the end of its text may be the beginning of a secret, together with all
later messages, so that the order is kept. A request, a response or a line that is not a JSON object
ends every run. Protocols are not known here: chunks of text are recognised by the names of their
fields.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Generic, TypeVar

from dragoman.redaction.names import REDACTED, names_a_secret
from dragoman.redaction.redactor import LONGEST, Redactor, decode

PIECES: Final = frozenset(
    {
        *("text", "delta", "content", "chunk", "data", "output", "thinking", "partial_json"),
        *("rawOutput", "stdout", "stderr"),
    }
)
"""Fields whose strings may be chunks of a longer text."""

KINDS: Final = frozenset(
    {
        *("method", "type", "sessionUpdate", "sessionId", "session_id", "threadId", "thread_id"),
        *("index", "toolCallId", "itemId", "callId", "terminal_id", "terminalId"),
    }
)
"""Fields whose values determine to which run a chunk belongs."""

MAX_HELD: Final = 4096
"""Maximum number of messages held back."""

MAX_HELD_SIZE: Final = 1024 * 1024
"""Maximum total size of the lines held back, in bytes."""

STEP: Final = 64
"""If more than this many characters of a run are held back, the run is searched again only when
they have become as many more, or a quarter more if that is larger: otherwise the cost of an endless
word would be quadratic."""

MAX_DEPTH: Final = 6
"""Maximum depth of nested objects to search for a chunk of text."""

T = TypeVar("T")

_UNDECODABLE: Final = (ValueError, RecursionError)


class NotJson(str):
    """A redacted line that is not JSON, or is nested too deeply to redact its values one by one."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class _Held(Generic[T]):
    tag: T
    message: Any
    """The redacted message, without its chunk until `_search` has redacted that too."""
    size: int
    """The size of its line in bytes."""
    run: tuple[object, ...] | None = None
    holder: Any = None
    field: str = ""
    text: str = ""


class MessageRedactor(Generic[T]):
    """Redacts messages. Each message is passed in with a tag and comes out with the same tag, in
    the same order. A line that is not JSON, or is nested too deeply, comes out as `NotJson`."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self._held: deque[_Held[T]] = deque()
        self._held_size = 0
        self._open: dict[tuple[object, ...], list[_Held[T]]] = {}
        self._due: dict[tuple[object, ...], int] = {}

    @property
    def is_holding(self) -> bool:
        """Whether messages are held back."""
        return bool(self._held)

    def feed(self, line: bytes, tag: T, *, stream: object = None) -> Iterator[tuple[T, Any]]:
        """Add a message. Yields the messages that need not be held back any longer, each as its tag
        and the redacted JSON value or `NotJson`. Chunks with different values of `stream`, such as
        those of different connections, belong to different runs."""
        text = ""
        try:
            message = decode(line)
            is_notification = isinstance(message, dict) and message.get("id") is None
            run, holder, field = _piece(message) if is_notification else (None, None, "")
            if run is not None and holder is not None:
                # Separate from the rest, which needs no later message.
                text, holder[field] = holder[field], ""
            clean = self._redact.value(message)
        except _UNDECODABLE:
            # Not JSON, or nested too deeply to search each value.
            yield from self.flush()
            yield tag, NotJson(self._redact.text(line.decode(errors="replace")))
            return
        if not is_notification:
            yield from self.flush()
            yield tag, clean
            return
        if run is None:
            held = _Held(tag, clean, len(line))
        else:
            _, holder, field = _piece(clean)
            run = (stream, *run)
            held = _Held(tag, clean, len(line), run, holder, field, text)
            self._open.setdefault(run, []).append(held)
        self._held.append(held)
        self._held_size += held.size
        if held.run is not None:
            self._search(held.run, final=False)
        yield from self._certain()
        while len(self._held) > MAX_HELD or self._held_size > MAX_HELD_SIZE:
            # Only the oldest run ends: another one may be in the middle of a secret.
            oldest = self._held[0].run
            assert oldest is not None
            self._search(oldest, final=True)
            yield from self._certain()

    def end(self, kind: object) -> Iterator[tuple[T, Any]]:
        """End the runs whose messages have the value `kind`, such as a session id, in one of the
        fields in `KINDS`. Yields the messages that this releases; one that follows a message held
        back for another run is not released yet."""
        for run in [run for run in self._open if kind in run]:
            self._search(run, final=True)
            self._due.pop(run, None)
        yield from self._certain()

    def flush(self) -> Iterator[tuple[T, Any]]:
        """End all runs. Yields everything that was held back."""
        for run in list(self._open):
            self._search(run, final=True)
        self._due.clear()
        yield from self._certain()

    def _certain(self) -> Iterator[tuple[T, Any]]:
        while self._held and self._held[0].run is None:
            held = self._held.popleft()
            self._held_size -= held.size
            yield held.tag, held.message

    def _search(self, run: tuple[object, ...], *, final: bool) -> None:
        """Redact the first chunks of a run, up to where later text may still complete a secret; all
        of them if `final`, or if they are longer than `LONGEST`."""
        pieces = self._open[run]
        text = "".join(piece.text for piece in pieces)
        if not final and len(text) < self._due.get(run, 0):
            return
        spans = self._redact.spans(text) if self._redact.suspects(text) else []
        if final or len(text) > LONGEST:
            certain = len(text)
        else:
            certain = self._redact.open_from(text, spans)
        ends = list(accumulate(len(piece.text) for piece in pieces))
        count = bisect.bisect_right(ends, certain)
        place = 0
        for piece, end in zip(pieces[:count], ends, strict=False):
            piece.holder[piece.field] = _part(text, place, end, spans)
            piece.run = None
            place = end
        del pieces[:count]
        # A secret may continue in chunks that are still held back: remove that part as well.
        rest = next((last - place for first, last in spans if first < place < last), 0)
        for piece in pieces:
            cut = min(rest, len(piece.text))
            piece.text = piece.text[cut:]
            rest -= cut
        if not pieces:
            del self._open[run]
        # A longer text that is held back is not searched again after every chunk.
        kept = sum(len(piece.text) for piece in pieces)
        self._due[run] = kept + max(STEP, kept // 4) if kept > STEP else 0


def _part(text: str, start: int, stop: int, spans: list[tuple[int, int]]) -> str:
    """Return a part of a text, redacted. `REDACTED` is inserted only in the part in which a secret
    begins."""
    pieces: list[str] = []
    place = start
    for first, last in spans:
        if last <= place:
            continue
        if first >= stop:
            break
        pieces.append(text[place : max(place, first)])
        if first >= start:
            pieces.append(REDACTED)
        place = min(last, stop)
    pieces.append(text[place:stop])
    return "".join(pieces)


def _piece(message: dict[str, Any]) -> tuple[tuple[object, ...] | None, Any, str]:
    """Return the run that a message belongs to, and the object and the field of its chunk of text.
    The run and the object are None if the message has no chunk."""
    kinds: list[object] = []
    found: list[tuple[dict[str, Any], str]] = []

    def walk(value: dict[str, Any], depth: int) -> None:
        for name, item in value.items():
            if isinstance(item, dict):
                if depth and not names_a_secret(name):
                    walk(item, depth - 1)
            elif name in KINDS:
                if isinstance(item, str | int):
                    kinds.append(item)
            elif name in PIECES and isinstance(item, str):
                found.append((value, name))

    walk(message, MAX_DEPTH)
    if not found:
        return None, None, ""
    holder, field = found[0]
    return (*kinds, field), holder, field
