"""Persist the sessions of ACP clients in the SQLite store, so that another process can load them.

A session is a record whose peer is `EDITOR_PEER`, with notes: the chosen peer and role, the stored
session of each peer in it, and the job of each turn. What peers said is stored by their brokers or
recorders, not here. A session that a peer began elsewhere, such as in a terminal, can be loaded
too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dragoman.errors import DragomanError, FileFailed, StoreCorrupt, StoreError, UnknownSession
from dragoman.rpc.tasks import in_thread
from dragoman.store.open import open_store
from dragoman.store.recorder import STORED_TIMEOUT
from dragoman.store.records import EDITOR_PEER, JobRecord, SessionRecord, root_of
from dragoman.store.writer import StoreWriter

if TYPE_CHECKING:
    from dragoman.paths import Paths
    from dragoman.store.store import Store

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.acp_server")

CHOICE: Final = "door-choice"
THREAD: Final = "door-thread"
TURN: Final = "door-turn"
ANSWER: Final = "door-answer"
"""Kinds of notes, as spelled in stored sessions."""

MAX_LISTED: Final = 200
"""Maximum number of sessions in one list, most recently used first."""

MAX_KEPT_TEXT: Final = 64 * 1024
"""Maximum number of characters of a prompt, or of our own text, to store in a note."""

TITLE_SIZE: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurnNote:
    """A stored turn: its prompt, and either our own answer or the peer's output."""

    job: str
    peer: str
    prompt: str
    said: str = ""
    """Our own text: the answer of a delegation, or why it failed."""
    lines: tuple[bytes, ...] = ()
    """The peer's output, as params of ``session/update``."""


@dataclass(slots=True, kw_only=True)
class StoredConversation:
    """A stored session of a client."""

    record: SessionRecord
    peer: str | None = None
    """The chosen peer, or else the one that began the session; None if there is neither."""
    role: str | None = None
    threads: dict[str, str] = field(default_factory=dict)
    """The keys of the stored sessions that this one continues, by peer."""
    turns: list[StoredTurnNote] = field(default_factory=list)


class SessionStore:
    """Reads and writes stored sessions, in threads. Always call `aclose` at the end.

    Methods that are not coroutines only queue what they write; `flush` waits until it is stored. A
    failure to write is reported with `on_trouble`, and the writes are tried again until the process
    ends.
    """

    def __init__(
        self, paths: Paths, *, on_trouble: Callable[[str], None], credentials: Iterable[str] = ()
    ) -> None:
        self._paths = paths
        self._on_trouble = on_trouble
        self._credentials = tuple(credentials)
        self._writer: StoreWriter | None = None

    async def flush(self) -> None:
        """Wait until everything queued so far is stored, but at most `STORED_TIMEOUT`, after which
        it may still not be stored."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STORED_TIMEOUT):
                await self._flushed()

    async def _flushed(self) -> None:
        # A flush writes, so it would wait for another process that writes.
        if self._writer is not None and not self._writer.is_empty:
            await self._writer.flush()

    async def aclose(self) -> None:
        """Store what is queued, and close the store. A failure to close it is only logged."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        await writer.close()
        if writer.is_open:
            try:
                await in_thread(str(writer.store.path), lambda _: writer.store.close())
            except (StoreError, FileFailed) as error:
                log.warning("could not close the store: %s", error)

    # -- writing

    def create(self, id: str, *, cwd: Path) -> None:
        """Store a new, empty session."""
        now = time.time()

        def write(store: Store) -> None:
            store.create_session(
                SessionRecord(
                    key=id,
                    peer=EDITOR_PEER,
                    # Not before, on the event loop: it looks for a repository on the disk.
                    root=str(root_of(cwd)),
                    peer_session_id=id,
                    cwd=str(cwd),
                    created_at=now,
                    updated_at=now,
                )
            )

        self._write(write)

    def choose(self, id: str, *, peer: str, role: str) -> None:
        """Store the chosen peer and role."""
        self._note(id, CHOICE, {"peer": peer, "role": role})

    def thread(self, id: str, *, peer: str, key: str) -> None:
        """Store which session of a peer belongs to this one."""
        self._note(id, THREAD, {"peer": peer, "session": key})

    def turn(self, id: str, *, job: str, peer: str, prompt: str, title: str | None = None) -> None:
        """Store the start of a turn."""
        told = {"job": job, "peer": peer, "prompt": prompt[:MAX_KEPT_TEXT]}
        self._note(id, TURN, told, title=title)

    def answer(self, id: str, *, job: str, said: str) -> None:
        """Store the answer of a delegation, or why it failed."""
        self._note(id, ANSWER, {"job": job, "said": said[-MAX_KEPT_TEXT:]})

    def title(self, id: str, title: str | None) -> None:
        self._write(lambda store: store.update_session(id, title=title))

    def close(self, id: str) -> None:
        """Mark the session as closed by the client. It can be resumed."""
        self._write(lambda store: store.update_session(id, closed_at=time.time()))

    async def delete(self, id: str) -> None:
        """Delete a session and the stored sessions of its peers. An unknown id is ignored. Raises
        `StoreError`, and `FileFailed` if the disk does not answer."""
        await self._flushed()

        def run(_: object) -> None:
            # Not by the writer: its transaction would keep the space of what is deleted.
            with open_store(paths=self._paths, credentials=self._credentials) as store:
                _delete(store, id)

        await in_thread(str(self._paths.state), run, changes_disk=True)

    def discard(self, id: str) -> None:
        """Queue the deletion of a new, unused session."""
        self._write(lambda store: store.delete_session(id))

    def _note(self, id: str, kind: str, data: dict[str, Any], *, title: str | None = None) -> None:
        def write(store: Store) -> None:
            # All at event 0, so that they are read in the order in which they were written.
            store.note(id, 0, kind, data)
            fields: dict[str, Any] = {"updated_at": time.time(), "closed_at": None}
            store.update_session(id, **fields | ({} if title is None else {"title": title}))

        self._write(write)

    def _write(self, write: Callable[[Store], None]) -> None:
        def run(store: Store) -> None:
            # Another process may have deleted it; the session continues without being stored.
            with suppress(UnknownSession):
                write(store)

        writer = self._started()
        writer.put(run)
        writer.hurry()
        writer.retry()

    def _started(self) -> StoreWriter:
        if self._writer is None:
            self._writer = StoreWriter(self._opener(), on_trouble=self._trouble)
            self._writer.start()
        return self._writer

    def _opener(self) -> Callable[[], Store]:
        loop = asyncio.get_running_loop()

        def opened() -> Store:
            store = open_store(paths=self._paths, credentials=self._credentials)
            if store.replaced:
                loop.call_soon_threadsafe(self._on_trouble, f"{store.path}: {store.replaced}")
            return store

        return opened

    def _trouble(self, error: DragomanError) -> None:
        replaced = isinstance(error, StoreCorrupt) and error.replaced
        self._on_trouble(str(error) if replaced else f"sessions are not stored: {error}")

    # -- reading

    async def sessions(self, cwd: Path | None) -> list[SessionRecord]:
        """Return up to `MAX_LISTED` sessions that can be loaded, most recently used first. `cwd`
        limits them to one directory.

        A session of a peer is left out if it belongs to one of ours, or if it is empty or closed,
        like the sessions of a delegation.
        """

        def read(store: Store) -> list[SessionRecord]:
            root = None if cwd is None else str(root_of(cwd))
            found = store.sessions(root=root, limit=MAX_LISTED)
            used: set[str] = set()
            for record in found:
                if record.peer == EDITOR_PEER:
                    used |= {
                        str(note.data.get("session"))
                        for note in store.notes(record.key)
                        if note.kind == THREAD
                    }
            return [
                record
                for record in found
                if record.key not in used
                and (record.peer == EDITOR_PEER or (record.events and record.closed_at is None))
                and (cwd is None or Path(record.cwd) == cwd)
            ]

        return await self._read(read)

    async def take(self, id: str) -> StoredConversation:
        """Return a stored session with its turns. Raises `UnknownSession` if there is none with
        this id, `StoreError`, and `FileFailed` if the disk does not answer."""

        def read(store: Store) -> StoredConversation | None:
            kept = _load(store, id)
            if kept is not None:
                kept.turns = [_complete(store, turn) for turn in kept.turns]
            return kept

        kept = await self._read(read)
        if kept is None:
            raise UnknownSession(f"there is no session {id!r}")
        return kept

    async def threads(self, id: str) -> dict[str, str]:
        """Return the keys of the stored sessions that a session continues, by peer; empty if the
        session is unknown."""
        kept = await self._read(lambda store: _load(store, id))
        return {} if kept is None else kept.threads

    async def thread_record(self, key: str) -> SessionRecord | None:
        """Return the stored session with this key, or None if there is none."""
        return await self._read(lambda store: store.session(key))

    async def _read(self, read: Callable[[Store], T]) -> T:
        """Return the result of `read`, called in a thread after everything queued so far was
        written. Raises `StoreError`, and `FileFailed` if the disk does not answer."""
        await self._flushed()

        def run(_: object) -> T:
            with open_store(read_only=True, paths=self._paths) as store:
                return read(store)

        return await in_thread(str(self._paths.state), run)


def _delete(store: Store, id: str) -> None:
    kept = _load(store, id)
    if kept is not None:
        for key in {id, *kept.threads.values()}:
            if store.session(key) is not None:
                store.delete_session(key)


def _load(store: Store, id: str) -> StoredConversation | None:
    record = store.session(id)
    if record is None:
        return None
    kept = StoredConversation(record=record)
    turns: dict[str, StoredTurnNote] = {}
    if record.peer != EDITOR_PEER:
        # A session that a peer began. From now on our turns and those of other peers may be
        # added.
        kept.peer, kept.threads = record.peer, {record.peer: record.key}
        for job in reversed(store.jobs(session_key=id, limit=-1)):
            if job.started_at is not None:
                turns[job.id] = StoredTurnNote(job=job.id, peer=job.peer, prompt=job.prompt)
    for note in store.notes(id):
        data = {name: str(value) for name, value in note.data.items()}
        match note.kind:
            case "door-choice":
                kept.peer, kept.role = data.get("peer"), data.get("role")
            case "door-thread":
                kept.threads[data.get("peer", "")] = data.get("session", "")
            case "door-turn":
                job_id = data.get("job", "")
                # Move the turn to the end: turns are ordered by the time of their notes.
                turns.pop(job_id, None)
                turns[job_id] = StoredTurnNote(
                    job=job_id, peer=data.get("peer", ""), prompt=data.get("prompt", "")
                )
            case "door-answer" if (turn := turns.get(data.get("job", ""))) is not None:
                turns[turn.job] = StoredTurnNote(
                    job=turn.job,
                    peer=turn.peer,
                    prompt=turn.prompt,
                    said=data.get("said", ""),
                )
    kept.turns = list(turns.values())
    return kept


def _complete(store: Store, turn: StoredTurnNote) -> StoredTurnNote:
    """Return a turn with the stored output of its peer, unless it has our own answer."""
    if turn.said:
        return turn
    job = store.job(turn.job)
    lines = () if job is None else _lines(store, job)
    return StoredTurnNote(job=turn.job, peer=turn.peer, prompt=turn.prompt, lines=lines)


def _lines(store: Store, job: JobRecord) -> tuple[bytes, ...]:
    if not job.session_key or job.started_at is None:
        return ()
    stop = job.next_event if job.state == "ended" else None
    return tuple(line for _, line in store.lines(job.session_key, job.first_event, stop))


def title_of(prompt: str) -> str:
    """Return a title for a session that has none: the start of its first prompt."""
    line = " ".join(prompt.split())
    return line if len(line) <= TITLE_SIZE else f"{line[: TITLE_SIZE - 1]}…"


def instant(at: float) -> str:
    """Return a Unix time in the protocol's format, ISO 8601."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
