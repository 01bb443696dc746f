"""Prepare session lines for the store: redact secrets, number them, collect the agent's text.

Writes nothing; `recorder` does. `store.stream_redaction` finds secrets that span several lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from dragoman.broker.server.jobs import Job
from dragoman.redaction.redactor import Redactor
from dragoman.store.stream_redaction import LineForm, LineRedactor

TEXT_SIZE: Final = 1024 * 1024
"""Characters of an answer that a job keeps; the events have all of it."""

_MESSAGE: Final = "agent_message_chunk"
_SAID: Final = b'"agent_message_chunk"'
_ACTED: Final = b'"tool_call'


class _Content(Struct):
    text: str = ""


class _Update(Struct):
    content: _Content
    sessionUpdate: str = ""


class _Params(Struct):
    update: _Update


_decode_chunks: Final = msgspec.json.Decoder(list[_Params]).decode
_string: Final = msgspec.json.Decoder(str).decode
_UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class LinePreparer:
    """Prepares the lines of one session for the store.

    This is done for many lines at once, and in the thread of the loop: a second thread that works
    in Python would hold the loop up for far longer than the work takes.
    """

    def __init__(self, key: str, next: int, redact: Redactor) -> None:
        self.key = key
        self.next = next
        """The number that the next line gets in the store."""
        self._lines = LineRedactor(redact)
        self._seen = self._lines.form
        self._form: LineForm | None = None
        """What stands around the text in the agent's messages."""

    def prepare(
        self, lines: Sequence[bytes], job: Job | None, *, end: bool
    ) -> tuple[int, list[bytes]]:
        """The lines that may be stored now, at the `end` of a turn all of them, and the number of
        the first. The job gets what the agent said in them."""
        safe = self._lines.feed_all(lines)
        if end:
            safe += self._lines.flush()
        first = self.next
        self.next += len(safe)
        if job is not None and safe:
            self._look_at_form()
            collect(job, safe, self._form)
        return first, safe

    def _look_at_form(self) -> None:
        form = self._lines.form
        if form is not self._seen:
            self._seen = form
            if _texts([b"%b?%b" % form]) == ["?"]:
                self._form = form


def collect(job: Job, lines: Sequence[bytes], form: LineForm | None = None) -> None:
    """Add to a job what the agent said. Lines of this form are not decoded."""
    text = b",".join(lines)
    if text.count(_SAID) >= len(lines):
        # Nearly always it is once in each.
        chunks = lines
    else:
        chunks = [line for line in lines if _SAID in line]
    if chunks:
        job.acted = True
        if len(job.text) < TEXT_SIZE:
            found = None if form is None else _text_within(chunks, form)
            said = "".join(_texts(chunks)) if found is None else found
            job.text = (job.text + said)[:TEXT_SIZE]
    elif not job.acted:
        job.acted = any(_ACTED in line for line in lines)


def said_in(lines: Sequence[bytes]) -> list[str]:
    """What the agent says in these lines, piece by piece."""
    chunks = [line for line in lines if _SAID in line]
    return _texts(chunks) if chunks else []


def _text_within(chunks: Sequence[bytes], form: LineForm) -> str | None:
    """The text of lines that differ in it alone; None if these do not."""
    before, behind = form
    least = len(before) + len(behind)
    parts = [
        line[len(before) : -len(behind)]
        for line in chunks
        if len(line) >= least and line.startswith(before) and line.endswith(behind)
    ]
    if len(parts) < len(chunks):
        return None
    inside = b"".join(parts)
    try:
        if b"\\" in inside or b'"' in inside:
            # Refused where a text ends before the usual end of its line begins.
            return _string(b'"%b"' % inside)
        return inside.decode()
    except _UNDECODABLE:
        return None


def _texts(chunks: Sequence[bytes]) -> list[str]:
    try:
        # All at once: that takes a fifth of the time.
        updates = [each.update for each in _decode_chunks(b"[%b]" % b",".join(chunks))]
        return [each.content.text for each in updates if each.sessionUpdate == _MESSAGE]
    except _UNDECODABLE:
        if len(chunks) == 1:
            # No message of the agent, although its name stands somewhere in it.
            return []
        half = len(chunks) // 2
        return _texts(chunks[:half]) + _texts(chunks[half:])
