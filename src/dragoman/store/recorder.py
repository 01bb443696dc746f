"""Record sessions, lines, jobs and notes in the store, with or without a broker.

Lines are redacted (`stream_redaction`), numbered, and passed to the writer's thread in batches. The
lines of a batch share a row. They are not joined into one line per message: an attached reader has
counted each line, and a kill would lose all of an unfinished message. `broker.server.recorder`
supplies the lines of a broker's sessions, `runs.direct_recorder` those of a run without a broker.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from dragoman.decoders import typed_decoder
from dragoman.errors import DragomanError, StoreConflict, StoreError
from dragoman.redaction.redactor import Redactor
from dragoman.store.jobs import TEXT_SIZE
from dragoman.store.records import JobRecord, Note, SessionRecord
from dragoman.store.store import Store
from dragoman.store.stream_redaction import LineForm, LineRedactor
from dragoman.store.writer import StoreWriter
from dragoman.wire.messages import UNDECODABLE

log: Final = logging.getLogger("dragoman.store")

SAVE_INTERVAL: Final = 0.1
"""Seconds between two batches. A process that is killed during a turn loses what arrived in that
time, and the end of a growing text (`stream_redaction`)."""

QUESTION_INTERVAL: Final = 0.01
"""Seconds from a permission request until everything before it is written. Writing at once would
mean a write for each of many requests."""

STORED_TIMEOUT: Final = 2.0
"""Seconds that a caller waits for its job or session to be stored; it takes a few milliseconds."""

NOTE_SIZE: Final = 512
"""Number of bytes that a queued note counts for."""

HALF_SIZE: Final = TEXT_SIZE // 2 - 64
"""Number of characters to keep at each end of an answer that is too long for its job. Together with
the line between them they stay within the job's limit."""

_MESSAGE: Final = "agent_message_chunk"
_SAID: Final = b'"agent_message_chunk"'
_ACTED: Final = b'"tool_call'

_ENDS: Final = (
    "state", "outcome", "stop", "text", "failure", "usage", "started_at", "ended_at", "first_event",
    "next_event",
)  # fmt: skip


class _Content(Struct):
    text: str = ""


class _Update(Struct):
    content: _Content
    sessionUpdate: str = ""


class _Params(Struct):
    update: _Update


_decode_chunks: Final = typed_decoder(list[_Params])
_string: Final = msgspec.json.Decoder(str).decode


class JobAnswer:
    """The agent's answer in a job, collected from its lines as they are stored."""

    __slots__ = ("_end", "_end_size", "_head", "_size", "acted", "id")

    def __init__(self, id: str) -> None:
        self.id = id
        """The id of the job."""
        self.acted = False
        """Whether the agent said or did anything."""
        self._head = ""
        self._end: list[str] = []
        self._end_size = self._size = 0

    @property
    def text(self) -> str:
        """The answer so far, redacted. Of a long answer, only the start and the end."""
        if self._size <= TEXT_SIZE:
            return self._head
        head, end = self._head[:HALF_SIZE], "".join((self._head, *self._end))[-HALF_SIZE:]
        return f"{head}\n[… {self._size - 2 * HALF_SIZE} characters …]\n{end}"

    def add(self, lines: Sequence[bytes], form: LineForm | None = None) -> None:
        """Add the agent's text in these lines. Lines with the usual `form` around their text are
        not decoded one by one."""
        text = b",".join(lines)
        if text.count(_SAID) >= len(lines):
            # Nearly always each line contains it exactly once, so no line needs to be left out.
            chunks = lines
        else:
            chunks = [line for line in lines if _SAID in line]
        if chunks:
            self.acted = True
            found = None if form is None else _text_within(chunks, form)
            self._add("".join(_texts(chunks)) if found is None else found)
        elif not self.acted:
            self.acted = any(_ACTED in line for line in lines)

    def _add(self, said: str) -> None:
        self._size += len(said)
        room = TEXT_SIZE - len(self._head)
        if room:
            self._head += said[:room]
            said = said[room:]
        if said:
            self._end.append(said)
            self._end_size += len(said)
            if self._end_size > 2 * TEXT_SIZE:
                self._end = ["".join(self._end)[-HALF_SIZE:]]
                self._end_size = HALF_SIZE


class SessionLines:
    """Redacts and numbers the lines of one session.

    Works on many lines at once, in the loop's thread: a second Python thread would block the loop
    for far longer than the work takes.
    """

    def __init__(self, next: int, redact: Redactor) -> None:
        self.next = self._first = next
        """The number of the next line in the store."""
        self._lines = LineRedactor(redact)
        self._seen = self._lines.form
        self._form: LineForm | None = None
        """The text around the content of the agent's messages."""

    @property
    def numbers(self) -> range:
        """The numbers of the lines so far."""
        return range(self._first, self.next)

    def prepare(
        self, lines: Sequence[bytes], answer: JobAnswer | None, *, end: bool
    ) -> tuple[int, list[bytes]]:
        """Take further lines. Returns the number of the first line that may be stored now, and
        those lines, beginning with any that were held back; at the `end` of a turn, none stay held
        back. Adds the agent's text in them to the answer."""
        safe = self._lines.feed_all(lines)
        if end:
            safe += self._lines.flush()
        first = self.next
        self.next += len(safe)
        if answer is not None and safe:
            self._look_at_form()
            answer.add(safe, self._form)
        return first, safe

    def _look_at_form(self) -> None:
        form = self._lines.form
        if form is not self._seen:
            self._seen = form
            if _texts([b"%b?%b" % form]) == ["?"]:
                self._form = form


class StoreRecorder:
    """Records the sessions of this process.

    `on_beat` is called before a batch is written, to pass on lines that arrived since the last one
    (`mark`).
    """

    def __init__(self, redact: Redactor, *, on_beat: Callable[[], None]) -> None:
        self.redact = redact
        self.writer: StoreWriter | None = None
        """Writes to the store; None before `start` and after `close`."""
        self._on_beat = on_beat
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._hurrying: asyncio.TimerHandle | None = None
        self._lines: dict[str, SessionLines] = {}
        self._settings: dict[str, dict[str, Any]] = {}
        """Title, mode and model of sessions as last stored."""
        self._notes: dict[str, list[Note]] = {}
        """Notes by session that were not yet passed to the writer."""
        self._jobs: set[str] = set()
        """Jobs that are stored and have not ended."""

    def start(
        self,
        store: Store | Callable[[], Store],
        *,
        on_trouble: Callable[[DragomanError], None],
        on_recovery: Callable[[int], None],
        trouble: StoreError | None = None,
    ) -> None:
        """Start the writer. The arguments are those of `StoreWriter`."""
        self.writer = StoreWriter(
            store, on_trouble=on_trouble, on_recovery=on_recovery, trouble=trouble
        )
        self.writer.start()

    async def close(self) -> StoreWriter | None:
        """Write everything queued, and stop. Returns the writer, whose store stays open."""
        self.stop_timers()
        self._put_notes()
        writer, self.writer = self.writer, None
        if writer is not None:
            await writer.close()
        return writer

    def stop_timers(self) -> None:
        """Stop the timers. `close` still writes what is queued."""
        for timer in (self._timer, self._hurrying):
            if timer is not None:
                timer.cancel()

    @property
    def works(self) -> StoreWriter | None:
        """The writer, or None if the disk does not accept writes now."""
        writer = self.writer
        return writer if writer is not None and writer.trouble is None else None

    async def flush(self) -> bool:
        """Wait until everything queued is on disk. Returns whether it is; False at once if the
        disk does not accept writes now."""
        self._put_notes()
        writer = self.works
        return writer is not None and await writer.flush()

    # -- timers

    def mark(self) -> None:
        """Schedule the next batch, `SAVE_INTERVAL` from now, unless one is already scheduled."""
        if self._timer is None:
            self._timer = self._loop.call_later(SAVE_INTERVAL, self._beat)

    def hasten(self) -> None:
        """Schedule the writing of everything queued, `QUESTION_INTERVAL` from now."""
        if self._hurrying is None:
            self._hurrying = self._loop.call_later(QUESTION_INTERVAL, self._hurry)

    def _beat(self) -> None:
        self._timer = None
        self._on_beat()
        self._hurry()

    def _hurry(self) -> None:
        self._hurrying = None
        self._put_notes()
        if self.writer is not None:
            self.writer.hurry()

    # -- sessions

    def create(self, record: SessionRecord) -> None:
        """Store a new session, without its name if that is taken by now. If its caller has already
        stored it, only add the peer's id and the directory."""
        self._put(functools.partial(_create_session, record=record))

    def take_up(self, key: str, next_event: int) -> None:
        """Reopen a stored session, unless its name is taken by now, and raise the number of its
        next event to `next_event`."""
        self._put(functools.partial(_reopen, key=key))
        self._put(lambda store: store.go_on_at(key, next_event))

    def change(self, key: str, **fields: Any) -> None:
        self._put(lambda store: store.update_session(key, **fields))

    def settings(self, key: str, **told: Any) -> None:
        """Store those of a session's title, mode and model that have changed."""
        before = self._settings.setdefault(key, {})
        fields = {name: value for name, value in told.items() if before.get(name) != value}
        if fields:
            before.update(fields)
            self.change(key, **fields)

    def leave(self, key: str) -> range | None:
        """Forget a session whose lines were all added. Returns their numbers, or None if none were
        added."""
        self._put_notes()
        self._settings.pop(key, None)
        lines = self._lines.pop(key, None)
        return None if lines is None else lines.numbers

    def numbers(self) -> dict[str, range]:
        """Return the numbers of the added lines by session."""
        return {key: lines.numbers for key, lines in self._lines.items()}

    # -- lines

    def add(
        self,
        key: str,
        first: int,
        lines: Sequence[bytes],
        answer: JobAnswer | None,
        *,
        end: bool = False,
    ) -> bool:
        """Store lines of a session soon, for the job of this answer. `first` is the number of the
        first line, and is ignored if lines of the session were added before. Text that may be the
        start of a secret is held back, but not beyond the `end` of a turn. Returns whether anything
        was queued."""
        known = self._lines.get(key)
        if known is None:
            known = self._lines[key] = SessionLines(first, self.redact)
        number, safe = known.prepare(lines, answer, end=end)
        if not safe or self.writer is None:
            return False
        self.writer.append(key, number, safe, None if answer is None else answer.id)
        return True

    def next_line(self, key: str) -> int:
        """Return the number of the next line of a session in the store; 0 if no line was added in
        this process."""
        known = self._lines.get(key)
        return 0 if known is None else known.next

    def note(self, key: str, at_event: int, kind: str, data: dict[str, Any]) -> None:
        noted = Note(at_event=at_event, kind=kind, data=data, at=time.time())
        # One write for the notes of many requests: a write per note costs more than its request.
        self._notes.setdefault(key, []).append(noted)
        self.mark()

    def _put_notes(self) -> None:
        notes, self._notes = self._notes, {}
        for key, noted in notes.items():
            self._put(
                functools.partial(Store.add_notes, key=key, notes=noted),
                size=len(noted) * NOTE_SIZE,
            )

    # -- jobs

    def job_changed(self, record: JobRecord) -> None:
        """Store a new job, or the current state of one that is stored already."""
        if self.writer is not None:
            self.writer.retry()
        if record.id not in self._jobs:
            self._jobs.add(record.id)
            self._put(lambda store: store.create_job(record))
        else:
            self._put(
                lambda store: store.update_job(
                    record.id,
                    state=record.state,
                    started_at=record.started_at,
                    first_event=record.first_event,
                    next_event=record.next_event,
                )
            )

    def job_ended(self, record: JobRecord) -> None:
        """Store the end and the result of a job, after its lines and notes."""
        self._put_notes()
        if record.id in self._jobs:
            self._jobs.discard(record.id)
            fields = {name: getattr(record, name) for name in _ENDS}
            self._put(lambda store: store.update_job(record.id, **fields), size=len(record.text))
        else:
            self._put(lambda store: store.create_job(record), size=len(record.text))

    def _put(self, operation: Callable[[Store], object], *, size: int = 0) -> None:
        if self.writer is not None:
            self.writer.put(operation, size=size)


def permission_note(
    by: str, title: str | None, tool_call_id: str | None, option_id: str | None
) -> dict[str, Any]:
    """Return the note for the answer to a permission request: which option was chosen, who chose it
    (`by`), and for which tool call."""
    return {"by": by, "title": title, "toolCallId": tool_call_id, "optionId": option_id}


def said_in(lines: Sequence[bytes]) -> str:
    """Return the agent's text in these lines."""
    chunks = [line for line in lines if _SAID in line]
    return "".join(_texts(chunks)) if chunks else ""


def _text_within(chunks: Sequence[bytes], form: LineForm) -> str | None:
    """Return the texts of these lines, joined, if all have this form around their text; otherwise
    None."""
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
            # Slower path if a text ends before the usual end of its line begins.
            return _string(b'"%b"' % inside)
        return inside.decode()
    except UNDECODABLE:
        return None


def _texts(chunks: Sequence[bytes]) -> list[str]:
    try:
        # All at once, which takes a fifth of the time.
        updates = [each.update for each in _decode_chunks(b"[%b]" % b",".join(chunks))]
        return [each.content.text for each in updates if each.sessionUpdate == _MESSAGE]
    except UNDECODABLE:
        if len(chunks) == 1:
            # Not a message from the agent, although the name occurs in it.
            return []
        half = len(chunks) // 2
        return _texts(chunks[:half]) + _texts(chunks[half:])


def _reopen(store: Store, key: str) -> None:
    record = store.session(key)
    if record is None or record.closed_at is None:
        return
    if record.name is not None and store.find_session(record.peer, record.root, record.name):
        # Another session has its name by now, so it stays among the closed ones.
        return
    store.update_session(key, closed_at=None)


def _create_session(store: Store, *, record: SessionRecord) -> None:
    if store.session(record.key) is not None:
        # The caller stored it before the peer had an id for it.
        store.update_session(record.key, peer_session_id=record.peer_session_id, cwd=record.cwd)
        return
    try:
        store.create_session(record)
    except StoreConflict:
        if record.name is None:
            raise
        # The name was taken in the meantime; the session can still be found by its key.
        text = "the name %r is taken; session %s is stored without a name"
        log.warning(text, record.name, record.key)
        store.create_session(msgspec.structs.replace(record, name=None))
