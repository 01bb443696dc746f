"""Redact secrets in the streamed lines of a session, including secrets split across chunks.

Searches consecutive chunks of one kind, and the output of a tool, as one text. Holds lines back
until their end cannot be the start of a secret. One line in gives one line out, in order, so that
event numbers stay valid. `redaction` defines what a secret is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.decoders import typed_decoder
from dragoman.redaction.messages import MessageRedactor, NotJson
from dragoman.redaction.redactor import REACH, Redactor, decode, last_word
from dragoman.wire.messages import UNDECODABLE, mend

CHUNKS: Final = frozenset({"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"})

ENDS: Final = frozenset({"tool_call", "tool_call_update"})
"""Updates that end a run of chunks. Others may come between two pieces of one word."""

OUTPUT: Final = "tool_call_update"
"""Updates that may carry the next piece of a tool's output."""

OVER: Final = ("completed", "failed")
"""States of a tool call that has no more output."""

WINDOW: Final = 4096
"""Number of characters to search at once, so that many lines share the cost of a search."""

TOGETHER: Final = 64
"""Number of lines to examine together. A larger group would too often contain a suspicious word."""

MANY_LINES: Final = 1024
"""Number of lines after which a search is due, however little text they have."""

MAX_LINES: Final = 16 * 1024
"""Maximum number of lines held back. Only lines without any text reach it."""

MAX_SIZE: Final = 64 * 1024
"""Maximum number of characters held back as a possible start of a secret. No secret is that long,
and a complete one is already redacted."""


class _Update(Struct, rename="camel"):
    session_update: str = ""
    content: Any = None
    tool_call_id: Any = None
    status: Any = None


class _Params(Struct):
    update: _Update


_MARKS: Final = (b'"text":"', b'"text": "')
"""What precedes the text in a line, as almost every agent writes it."""

_params = typed_decoder(_Params)
_string = msgspec.json.Decoder(str).decode
_strings = msgspec.json.Decoder(list[str]).decode


class LineForm(NamedTuple):
    """The parts of a line before and after its text. They contain no secret."""

    before: bytes
    behind: bytes


_Held: TypeAlias = tuple[bytes, str | None, LineForm | None]
"""A line, its text, and what surrounds the text. A line without text is already redacted, and is
held only to keep the order."""

_NO_FORM: Final = LineForm(b"\0", b"\0")


class LineRedactor:
    """Redacts the lines of one session, including secrets split across lines.

    A line without a secret costs about a microsecond: almost every chunk differs from the previous
    one only in its text, so only the text is examined, and many texts are searched together.
    """

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self._held: list[_Held] = []
        # Tool output in pieces. At most one of the two is non-empty.
        self._outputs: MessageRedactor[bytes] = MessageRedactor(redact)
        self._size = 0
        self._due_size = WINDOW + REACH
        self._due_lines = MANY_LINES
        self._kind = ""
        self._forget_form()

    def feed(self, line: bytes) -> list[bytes]:
        """Add a line. Returns the lines that may be stored now, redacted; they may include earlier
        ones."""
        if (
            line.startswith(self._before)
            and line.endswith(self._behind)
            and len(line) >= self._least
        ):
            inside = line[self._cut]
            try:
                if b"\\" in inside or b'"' in inside:
                    # Slower path if the text ends before the line's usual end begins.
                    text = _string(b'"%b"' % inside)
                else:
                    text = inside.decode()
            except UNDECODABLE:
                return self._feed_other(line)
            # Inlined, because this is by far the most common line.
            self._held.append((line, text, self._form))
            self._size += len(text)
            if self._size < self._due_size and len(self._held) < self._due_lines:
                return []
            return self._search(final=False)
        return self._feed_other(line)

    def feed_all(self, lines: Sequence[bytes]) -> list[bytes]:
        """Like `feed`, for many lines, after which no more is held back than necessary.

        Those that differ only in their texts are examined together.
        """
        out: list[bytes] = []
        done: list[bytes] | None = out
        for start in range(0, len(lines), TOGETHER):
            some = lines[start : start + TOGETHER]
            done = self._feed_together(some)
            if done is None:
                for line in some:
                    out += self.feed(line)
            else:
                out += done
        # More than that is held back only for a secret, which may be long: it is searched less
        # often.
        if done is None and self._redact.reach < self._size <= self._redact.reach + WINDOW:
            out += self._search(final=False)
        return out

    def _feed_together(self, lines: Sequence[bytes]) -> list[bytes] | None:
        """Return the lines that may be stored now, if they are all alike and contain nothing that
        looks like a secret.

        Otherwise return None and change nothing.
        """
        before, behind, cut, least = self._before, self._behind, self._cut, self._least
        parts = [
            line[cut]
            for line in lines
            if line.startswith(before) and line.endswith(behind) and len(line) >= least
        ]
        held = self._held
        if len(parts) < len(lines) or len(held) >= MANY_LINES:
            return None
        inside = b"".join(parts)
        pieces: list[str] | None = None
        try:
            if b"\\" in inside or b'"' in inside:
                # No text can reach beyond a line break, so each is decoded on its own.
                pieces = _strings(b'["%b"]' % b'",\n"'.join(parts))
                if len(pieces) != len(parts):
                    return None
                text = "".join(pieces)
            else:
                text = inside.decode()
        except UNDECODABLE:
            return None
        text = "".join([text for _, text, _ in held if text]) + text
        if self._redact.suspects(text):
            return None
        # Search from the end, which is nearer, for what must stay because it may continue.
        form, rest, kept = self._form, len(text) - self._redact.before(text, len(text)), 0
        staying: list[_Held] = []
        at = len(parts)
        while at and kept < rest:
            at -= 1
            piece = parts[at].decode() if pieces is None else pieces[at]
            kept += len(piece)
            staying.append((lines[at], piece, form))
        staying.reverse()
        count, more = _within(held, rest - kept)
        self._held = held[count:] + staying
        self._size = kept + more
        self._due_size = self._size + WINDOW
        self._due_lines = len(self._held) + MANY_LINES
        return [*self._certain(held[:count]), *lines[:at]]

    @property
    def form(self) -> LineForm:
        """The bytes before and after the text in a chunk's line, taken from the most recent line
        from which a form was learned. Both are a zero byte if no form is known now."""
        return self._form

    def flush(self) -> list[bytes]:
        """End the run of chunks. Returns all lines that were held back."""
        if self._outputs.is_holding:
            return self._unchanged(self._outputs.flush())
        return self._search(final=True) if self._held else []

    def _feed_other(self, line: bytes) -> list[bytes]:
        try:
            update = _params(line).update
        except UNDECODABLE:
            try:
                update = _params(mend(line)).update
            except UNDECODABLE:
                update = _Update()
        kind = update.session_update
        text = _text(update.content) if kind in CHUNKS else None
        if text is not None:
            out = self.flush() if kind != self._kind or self._outputs.is_holding else []
            self._kind = kind
            form = self._learn(line, text)
            return out + self._hold((line, text, form), len(text))
        if kind == OUTPUT or self._outputs.is_holding:
            out = [] if self._outputs.is_holding else self.flush()
            out += self._unchanged(self._outputs.feed(line, line))
            if update.status in OVER:
                out += self._unchanged(self._outputs.end(update.tool_call_id))
            if self._outputs.is_holding:
                # Then this method also handles the next chunk, which must not overtake the lines
                # that are held back.
                self._forget_form()
            return out
        clean = self._redact.line(line)
        if kind in ENDS or not self._held:
            return [*self.flush(), clean]
        return self._hold((clean, None, None), 0)

    def _unchanged(self, entries: Iterator[tuple[bytes, Any]]) -> list[bytes]:
        """Return messages as redacted lines: the original line, or the message encoded again if a
        piece of a secret was cut out of it."""
        out = []
        for line, message in entries:
            if isinstance(message, NotJson) or message == decode(line):
                out.append(self._redact.line(line))
            else:
                out.append(msgspec.json.encode(message))
        return out

    def _forget_form(self) -> None:
        self._form = _NO_FORM
        self._before, self._behind = _NO_FORM
        self._cut = slice(0, 0)
        self._least = 0

    def _hold(self, held: _Held, size: int) -> list[bytes]:
        self._held.append(held)
        self._size += size
        if self._size < self._due_size and len(self._held) < self._due_lines:
            return []
        return self._search(final=False)

    def _learn(self, line: bytes, text: str) -> LineForm | None:
        """Return what surrounds the text in this line, or None if it is unclear or contains a
        secret.

        The next line will probably have the same form.
        """
        try:
            written = msgspec.json.encode(text)[1:-1]
        except UnicodeEncodeError:
            return None
        for mark in _MARKS:
            place = line.find(mark) + len(mark)
            if place >= len(mark) and line.startswith(written + b'"', place):
                break
        else:
            return None
        form = LineForm(line[:place], line[place + len(written) :])
        # Proof that this is the text, and not another field of the same name.
        probe = form.before + b"?" + form.behind
        try:
            if _text(_params(probe).update.content) != "?" or self._redact.line(probe) != probe:
                return None
        except UNDECODABLE:
            return None
        self._form = form
        self._before, self._behind = form
        self._cut = slice(len(form.before), -len(form.behind))
        self._least = len(form.before) + len(form.behind)
        return form

    # -- the search

    def _search(self, *, final: bool) -> list[bytes]:
        """Search the lines that are held back for secrets. Returns, with secrets removed, the first
        lines that cannot be part of a secret that continues later; with `final`, or above
        `MAX_LINES`, all of them."""
        held = self._held
        text = "".join([text for _, text, _ in held if text])
        start = stop = len(text)
        instead = ""
        suspicious = self._redact.suspects(text)
        if suspicious:
            clean = self._redact.text(text)
            if clean != text:
                start, stop, instead = _difference(text, clean)
        if final or len(held) > MAX_LINES:
            limit = len(text)
        else:
            limit = self._redact.before(text, len(text))
            if suspicious:
                limit = self._limit(text, limit, start, stop)
        count, kept = _within(held, len(text) - limit)
        if start < len(text) - kept < stop:
            count, kept = _within(held, len(text) - self._redact.before(text, start))
        self._held = held[count:]
        self._size = kept
        # Measured from what stays, so that a run that is held back for long is not searched every
        # time.
        self._due_size = self._size + WINDOW
        self._due_lines = len(self._held) + MANY_LINES
        done = held[:count]
        if start == len(text):
            return self._certain(done)
        return list(self._cut_out(done, start, stop, instead))

    def _limit(self, text: str, limit: int, start: int, stop: int) -> int:
        """Return how many characters at the start of a text may be released, although the text
        contains a secret or the start of one.

        The span from `start` to `stop` is removed.
        """
        # A word at the end may continue, and so may a removed span at the end. Then the name before
        # it, which marks it as a secret, has to stay.
        certain = min(limit, last_word(text))
        if stop > certain:
            certain = min(certain, self._redact.before(text, start))
        if len(text) <= MAX_SIZE:
            return certain
        return len(text) if start < stop and stop > limit else limit

    def _certain(self, done: list[_Held]) -> list[bytes]:
        """Return these lines, whose texts contain no secret, with secrets elsewhere in them
        removed."""
        return [
            line if form is not None or text is None else self._redact.line(line)
            for line, text, form in done
        ]

    def _cut_out(self, done: list[_Held], start: int, stop: int, instead: str) -> Iterator[bytes]:
        place = 0
        for line, text, form in done:
            if text is None:
                yield line
                continue
            new, instead = _changed(text, place, start, stop, instead)
            place += len(text)
            yield self._written(line, text, form, new)

    def _written(self, line: bytes, text: str, form: LineForm | None, new: str) -> bytes:
        if form is None:
            if new != text:
                params = msgspec.json.decode(mend(line))
                params["update"]["content"]["text"] = new
                line = msgspec.json.encode(params)
            return self._redact.line(line)
        if new == text:
            return line
        return b"%b%b%b" % (form.before, msgspec.json.encode(new)[1:-1], form.behind)


def _text(content: Any) -> str | None:
    if isinstance(content, dict) and content.get("type") == "text":
        text = content.get("text")
        return text if isinstance(text, str) else None
    return None


def _difference(old: str, new: str) -> tuple[int, int, str]:
    """Return where two texts differ: the span in the old one, and its replacement in the new
    one."""
    most = min(len(old), len(new))
    start = _common(old, new, most)
    rest = most - start
    tail = _common(old[::-1], new[::-1], rest)
    return start, len(old) - tail, new[start : len(new) - tail]


def _common(one: str, other: str, most: int) -> int:
    """Return the length of the common prefix of two texts, by bisection: slices compare fast."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _within(held: list[_Held], rest: int) -> tuple[int, int]:
    """Return how many lines may be released if the last `rest` characters must stay, and how many
    characters stay then. Searches from the end, which is nearer."""
    kept = 0
    count = len(held)
    while count and kept < rest:
        count -= 1
        kept += len(held[count][1] or "")
    return count, kept


def _changed(text: str, place: int, start: int, stop: int, instead: str) -> tuple[str, str]:
    """Return one piece of a text without the removed span, and the rest of the replacement, which
    is inserted where the span begins."""
    end = place + len(text)
    if end <= start and end != stop:
        return text, instead
    if place >= stop:
        return text, instead
    kept = text[: max(0, start - place)]
    return kept + instead + text[max(0, stop - place) :], ""
