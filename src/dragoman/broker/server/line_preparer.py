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
from dragoman.store.stream_redaction import LineRedactor

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
            collect(job, safe)
        return first, safe


def collect(job: Job, lines: Sequence[bytes]) -> None:
    """Add to a job what the agent said."""
    text = b",".join(lines)
    if text.count(_SAID) >= len(lines):
        # Nearly always it is once in each.
        chunks = lines
    else:
        chunks = [line for line in lines if _SAID in line]
    if chunks:
        job.acted = True
        if len(job.text) < TEXT_SIZE:
            job.text = (job.text + "".join(_texts(chunks)))[:TEXT_SIZE]
    elif not job.acted:
        job.acted = any(_ACTED in line for line in lines)


def said_in(lines: Sequence[bytes]) -> list[str]:
    """What the agent says in these lines, piece by piece."""
    chunks = [line for line in lines if _SAID in line]
    return _texts(chunks) if chunks else []


def _texts(chunks: Sequence[bytes]) -> list[str]:
    try:
        # All at once: that takes a fifth of the time.
        updates = [each.update for each in _decode_chunks(b"[%b]" % b",".join(chunks))]
        return [each.content.text for each in updates if each.sessionUpdate == _MESSAGE]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if len(chunks) == 1:
            # No message of the agent, although its name stands somewhere in it.
            return []
        half = len(chunks) // 2
        return _texts(chunks[:half]) + _texts(chunks[half:])
