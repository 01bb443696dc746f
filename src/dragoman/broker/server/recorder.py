"""Record a broker's sessions, jobs and decisions with the store's recorder.

`store.recorder` redacts, numbers and writes. This module adds what only a broker has: its event log
in memory, callers that wait for the end of a job, and reading back from the store. A failing disk
never delays a turn: the failure is reported once, and the broker works in memory until the store
accepts writes again. `gap_notes` records what was lost for the next broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.broker.server import gap_notes
from dragoman.broker.server.jobs import Job
from dragoman.broker.server.live_session import LiveSession
from dragoman.broker.spec import BrokerSpec, endpoint_name
from dragoman.client.results import Result, failure_record
from dragoman.errors import (
    DragomanError,
    FileFailed,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreRefused,
    UnknownSession,
)
from dragoman.events.words import Outcome
from dragoman.redaction.redactor import Redactor
from dragoman.rpc.tasks import TaskOwner, in_thread
from dragoman.store.jobs import TEXT_SIZE
from dragoman.store.peer_recovery import unpark_after_success
from dragoman.store.recorder import STORED_TIMEOUT, StoreRecorder, said_in
from dragoman.store.records import JobRecord, SessionRecord
from dragoman.store.store import Store, store_path
from dragoman.store.writer import StoreWriter

log: Final = logging.getLogger("dragoman.broker")

FETCH_COUNT: Final = 5000
FETCH_SIZE: Final = 1024 * 1024
"""Maximum number of lines, and of bytes, read from disk at once for a reader that catches up."""


class BrokerRecorder:
    """Stores the events and jobs of a broker."""

    def __init__(self, spec: BrokerSpec, *, runner: dict[str, Any] | None = None) -> None:
        self._spec = spec
        self._endpoint = endpoint_name(spec)
        self._runner = runner or {}
        self._loop = asyncio.get_running_loop()
        self._recorder = StoreRecorder(Redactor(spec.secret_values), on_beat=self._save_marked)
        self._marked: dict[LiveSession, None] = {}
        """Sessions with something to store. Each is here once, however often it is marked."""
        self._sessions: dict[str, LiveSession] = {}
        self._tasks = TaskOwner("broker's recording")
        self._gaps: list[gap_notes.UnstoredNote] = []
        """Notes of earlier brokers that may not be in the store yet."""
        self._left: dict[str, range] = {}
        """Sessions released while nothing could be stored, with their event numbers."""
        self._ended: list[Job] = []
        """Ended jobs that are being written to disk."""
        self._ending: asyncio.Task[None] | None = None
        self._known: set[str] = set()
        """Sessions that are in the store, or will be before any later write."""
        self.trouble = ""
        """Why nothing is stored; empty while the store works."""
        self.notice = ""
        """A notice for the next caller, delivered once."""

    @property
    def _writer(self) -> StoreWriter | None:
        return self._recorder.writer

    async def open(self) -> None:
        """Open the store, and record in it the gaps that earlier brokers noted. If opening fails,
        the broker works without the store until a later attempt succeeds."""
        path = store_path(Path(self._spec.paths.state))
        opening = functools.partial(Store.open, path, self._recorder.redact)
        store: Store | Callable[[], Store] = opening
        trouble: StoreError | None = None
        try:
            store = opened = await in_thread(str(path), lambda _: opening(), changes_disk=True)
            if opened.replaced:
                self.notice = f"{path}: {opened.replaced}"
                log.warning("%s", self.notice)
        except StoreError as error:
            trouble = error
        except FileFailed as error:
            # The disk does not answer. The writer tries again later.
            trouble = StoreBusy(str(path), str(error))
        if trouble is not None:
            self._in_trouble(trouble)
        self._recorder.start(
            store, on_trouble=self._on_trouble, on_recovery=self._on_recovery, trouble=trouble
        )
        assert self._writer is not None
        runtime = Path(self._spec.paths.runtime)
        try:
            gaps = await in_thread(str(runtime), lambda _: gap_notes.take(runtime, path))
        except FileFailed as error:
            log.warning("the notes of lost events cannot be read: %s", error)
            return
        for gap in gaps:
            self._writer.put(functools.partial(gap_notes.note, slip=gap))
        if gaps:
            self._gaps = gaps
            await self.flush()

    async def close(self) -> None:
        """Store the remaining events, and close the store."""
        # The last step added runs first, and a step that fails does not skip the others.
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(self._close_store)
            closing.push_async_callback(self.ends_stored)
            self._recorder.stop_timers()
            marked, self._marked = self._marked, {}
            for session in {*marked, *self._sessions.values()}:
                if session.key in self._known:
                    self._save(session, None, end=True)

    async def _close_store(self) -> None:
        writer = await self._recorder.close()
        if writer is not None:
            try:
                await in_thread(self._spec.paths.state, lambda _: self._end(writer))
            except FileFailed as error:
                log.warning("could not close the store: %s", error)

    def _end(self, writer: StoreWriter) -> None:
        try:
            if writer.trouble is not None:
                runtime = Path(self._spec.paths.runtime)
                for gap in self._gaps:
                    gap_notes.leave(runtime, Path(gap.store), gap.lost, why=gap.why)
                if writer.is_open:
                    self._leave_note(writer)
        finally:
            if writer.is_open:
                writer.store.close()

    def _leave_note(self, writer: StoreWriter) -> None:
        """Note for the next broker which events will never be stored."""
        store = writer.store
        numbers = self._left | self._recorder.numbers()
        try:
            stored = {key: store.session(key) for key in numbers}
        except StoreError as error:
            log.warning("the store cannot be read: %s", error)
            return
        lost = {
            key: numbers[key].stop - max(record.next_event, numbers[key].start)
            for key, record in stored.items()
            if record is not None and record.next_event < numbers[key].stop
        }
        if lost:
            why = "" if writer.trouble is None else writer.trouble.problem
            gap_notes.leave(Path(self._spec.paths.runtime), store.path, lost, why=why)

    # -- events

    def mark(self, session: LiveSession) -> None:
        self._marked[session] = None
        self._recorder.mark()

    def _save_marked(self) -> None:
        marked, self._marked = self._marked, {}
        for session in marked:
            self.save(session)

    def hasten(self, session: LiveSession) -> None:
        """Write queued events soon, because a decision about the next step is about to be made."""
        if session.log.taken != session.log.next:
            self.save(session)
            self._recorder.hasten()

    def save(self, session: LiveSession) -> None:
        if session.key not in self._known:
            # The session is still being opened. Its updates are stored once that has succeeded.
            self.mark(session)
            return
        self._save(session, session.job, end=False)

    def _save(self, session: LiveSession, job: Job | None, *, end: bool) -> None:
        session.marked = False
        if not end and session.log.taken == session.log.next:
            return
        key = session.key
        self._sessions.setdefault(key, session)
        first, events = session.log.take()
        # The lines are views of longer buffers, which they should not keep alive.
        lines = [bytes(event.params) for event in events]
        session.look_through(first, lines)
        answer = None if job is None else job.answer
        begun = self._recorder.add(key, first, lines, answer, end=end)
        self._recorder.settings(key, **session.described())
        writer = self._recorder.works
        if writer is None:
            # The disk may fail for any length of time, so do not keep lines in memory for it.
            session.log.stored = session.log.taken
            session.log.tidy()
        elif begun:
            stored = self._recorder.next_line(key)
            writer.put(lambda store: self._tell(self._stored, session, stored))

    def _stored(self, session: LiveSession, number: int) -> None:
        session.log.stored = max(session.log.stored, number)
        session.log.tidy()

    async def fetch(self, key: str, start: int, stop: int) -> tuple[int, Sequence[bytes]]:
        """Read lines from disk. Returns the number of the first one of the range that is there, and
        the lines from there up to a gap or a limit; `stop` and no lines if there are none."""
        writer = self._writer
        if writer is None:
            return stop, []

        def read(store: Store) -> tuple[int, list[bytes]]:
            found: list[bytes] = []
            first, size = stop, 0
            for number, line in islice(store.lines(key, start, stop), FETCH_COUNT):
                if not found:
                    first = number
                elif number != first + len(found):
                    break
                found.append(line)
                size += len(line)
                if size > FETCH_SIZE:
                    break
            return first, found

        try:
            return await writer.call(read, reads=True)
        except (StoreError, UnknownSession) as error:
            log.warning("session %s cannot be read: %s", key, error)
            return stop, []

    async def settle(self, session: LiveSession) -> bool:
        """Hand over the session's events so far to be stored, then do what `flush` does."""
        self.save(session)
        return await self.flush()

    async def flush(self) -> bool:
        """Wait until everything handed over is on disk, but at most `STORED_TIMEOUT`: a hanging
        disk must not keep callers waiting. Returns False if something is still not on disk."""
        try:
            async with asyncio.timeout(STORED_TIMEOUT):
                stored = await self._recorder.flush()
        except TimeoutError:
            return False
        if stored:
            self._gaps = []
        return stored

    @property
    def why_unstored(self) -> str:
        """Why what was handed over is not on disk, after `flush` returned False."""
        return self.trouble or "the disk has not accepted it yet"

    async def first_event(self, session: LiveSession) -> int:
        """Return the number of the oldest event of a session that can still be read."""
        writer = self._writer
        if writer is None:
            return session.log.first
        key = session.key
        try:
            stored = await writer.call(lambda store: store.first_event(key), reads=True)
        except UnknownSession:
            return session.log.first
        except StoreError as error:
            log.warning("the store cannot be read, older events are left out: %s", error)
            return session.log.first
        return min(stored, session.log.first)

    def note(self, session: LiveSession, kind: str, data: dict[str, Any]) -> None:
        self._recorder.note(session.key, session.log.next, kind, data)

    # -- sessions

    def found(self, session: LiveSession) -> None:
        """Register an open session that was already in the store."""
        self._known.add(session.key)
        self._recorder.take_up(session.key, session.log.began)

    def created(self, session: LiveSession) -> None:
        self._known.add(session.key)
        self._recorder.create(
            SessionRecord(
                key=session.key,
                peer=self._spec.peer,
                root=session.root,
                name=session.name,
                peer_session_id=session.id,
                cwd=str(session.cwd),
                created_at=session.created_at,
                updated_at=time.time(),
            )
        )
        self._recorder.settings(session.key, **session.described())

    def moved(self, session: LiveSession) -> None:
        self._recorder.change(session.key, peer_session_id=session.id)

    def closed(self, session: LiveSession) -> None:
        if self._leave(session):
            self._recorder.change(session.key, closed_at=time.time())

    async def released(self, session: LiveSession) -> None:
        """Hand over the remaining events of a session that another process will continue, and wait
        for `flush`."""
        if self._leave(session):
            await self.flush()

    def _leave(self, session: LiveSession) -> bool:
        """Store the remaining events of a session. Returns False if the session is not in the
        store."""
        self._marked.pop(session, None)
        if session.key not in self._known:
            return False
        self._save(session, None, end=True)
        self._known.discard(session.key)
        numbers = self._recorder.leave(session.key)
        if numbers is not None and self._recorder.works is None:
            self._left[session.key] = numbers
        self._sessions.pop(session.key, None)
        return True

    async def find(self, peer_session_id: str, key: str | None) -> SessionRecord | None:
        """Return the stored session with this key, or with this id of the peer; None if there is
        none, or if the store is damaged or may not be read.

        Raises `StoreError` if the store may be readable later, for example `StoreBusy`: if None
        were returned, the caller would store the session as a new one.
        """
        writer = self._opened_writer()
        peer = self._spec.peer

        def read(store: Store) -> SessionRecord | None:
            found = None if key is None else store.session(key)
            return found or store.find_by_peer_id(peer, peer_session_id)

        try:
            return await writer.call(read, reads=True)
        except (StoreCorrupt, StoreRefused) as error:
            log.warning("the store cannot be read: %s", error)
            return None
        except StoreError as error:
            # It was only read.
            error.may_have_run = False
            raise

    # -- jobs

    def job_changed(self, job: Job) -> None:
        """Store a new job, or that a stored job has begun to run."""
        if job.started_at is not None and job.session.key in self._known:
            # Earlier output of the peer is not an answer to this prompt.
            self._save(job.session, None, end=True)
        self._recorder.job_changed(self.record(job))

    def job_ended(self, job: Job) -> None:
        """Store the end of a job after its events. The job is settled when its end is on disk, or
        could not be stored in time."""
        if job.started_at is not None:
            # Events in the session of a job that never ran belong to another job.
            self._save(job.session, job, end=True)
        job.conclude()
        if job.outcome is Outcome.OK and self._spec.error_texts:
            self._judge_text(job)
        if job.failure is not None:
            # Redacted here and not only when it is stored, because callers get the failure as well.
            line = self._recorder.redact.line(msgspec.json.encode(job.failure))
            job.failure = msgspec.json.decode(line)
        writer = self._writer
        if writer is None:
            job.settled()
            return
        if job.caller is None and job.outcome is not None and job.outcome.good:
            # Only for jobs without a caller: a caller judges the result itself, because it knows
            # more about the peer, and then unparks the peer.
            state, peer, here = (
                Path(self._spec.paths.state),
                self._spec.peer,
                self._spec.surroundings,
            )
            # Before the end of the job: a command that sees the end finds the peer unparked.
            writer.put(lambda store: unpark_after_success(peer, state, here))
        self._recorder.job_ended(msgspec.structs.replace(self.record(job), state="ended"))
        if writer.trouble is not None:
            job.settled()
            return
        self._ended.append(job)
        if self._ending is None:
            self._ending = self._tasks.start(self._end_jobs(), "store the ends of jobs")

    def _judge_text(self, job: Job) -> None:
        """Record a failure if the text of a job is an error message of the peer, by the rules that
        callers apply to a result."""
        from dragoman.catalogue.descriptor import Quirks
        from dragoman.catalogue.open import judge

        spec = self._spec
        quirks = Quirks(error_texts=spec.error_texts, notice_texts=spec.notice_texts)
        judged = judge(Result(Outcome.OK, job.answer.text), quirks)
        if judged.failure is not None:
            job.outcome, job.failure = judged.outcome, failure_record(judged.failure, None)

    async def _end_jobs(self) -> None:
        try:
            while self._ended:
                jobs, self._ended = self._ended, []
                await self.flush()
                for job in jobs:
                    job.settled()
        finally:
            self._ending = None

    async def ends_stored(self) -> None:
        """Wait until the ended jobs are settled."""
        if self._ending is not None:
            await asyncio.wait([self._ending])

    def said_so_far(self, job: Job) -> str:
        """Return the agent's text so far, including what is not stored yet because it may be the
        beginning of a secret."""
        log_ = job.session.log
        start = max(log_.first, job.first_event, self._recorder.next_line(job.session.key))
        lines = [bytes(event.params) for event in log_.lines(start, max_size=TEXT_SIZE)]
        rest = self._recorder.redact.text(said_in(lines))
        return (job.answer.text + rest)[:TEXT_SIZE]

    def record(self, job: Job) -> JobRecord:
        """Return the job in the form that is stored and that callers see."""
        return JobRecord(
            id=job.id,
            session_key=job.session.key,
            peer=self._spec.peer,
            root=job.session.root,
            prompt=job.prompt_text,
            state="ended" if job.state == "ended" else "running" if job.started_at else "queued",
            outcome=None if job.outcome is None else job.outcome.value,
            stop=job.stop,
            text=job.answer.text,
            failure=job.failure,
            usage=job.usage,
            created_at=job.created_at,
            started_at=job.started_at,
            ended_at=job.ended_at,
            first_event=job.first_event,
            next_event=job.next_event,
            endpoint=self._endpoint,
            runner=self._runner,
            notices=tuple(map(self._recorder.redact.text, job.notices)),
        )

    async def find_job(self, id: str) -> JobRecord | None:
        """Return a stored job that is no longer in memory, or None. Raises `StoreError` if the
        store cannot be read or is not open yet, because the job may be there."""
        writer = self._opened_writer()
        return await writer.call(lambda store: store.job(id), reads=True)

    def _opened_writer(self) -> StoreWriter:
        """Return the writer. Raises `StoreBusy` before `open` has created it."""
        if self._writer is None:
            path = store_path(Path(self._spec.paths.state))
            raise StoreBusy(str(path), "the broker has not opened it yet")
        return self._writer

    # -- store failures

    def _on_trouble(self, error: DragomanError) -> None:
        """Called when the store fails, rejects one write, or was replaced by another file."""
        if isinstance(error, StoreCorrupt) and error.replaced:
            self.notice = str(error)
        if self._writer is None or self._writer.trouble is None:
            return
        self._in_trouble(error)
        for session in self._sessions.values():
            session.log.stored = session.log.taken

    def _in_trouble(self, error: DragomanError) -> None:
        if not self.trouble:
            self.trouble = str(error)
            log.error("nothing is stored from now on: %s", error)

    def _on_recovery(self, left_out: int) -> None:
        """Called when pending writes were stored and the store accepts new ones."""
        if self._writer is not None and self._writer.trouble is None:
            self.trouble = ""
            self._left.clear()

    def _tell(self, tell: Any, *values: object) -> None:
        try:
            self._loop.call_soon_threadsafe(tell, *values)
        except RuntimeError:
            log.debug("the event loop ended before the store")
