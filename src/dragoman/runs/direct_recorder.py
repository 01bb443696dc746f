"""Record the session and jobs of a peer that runs without a broker in the store.

The session is stored with its first prompt, and closed at the end unless it is kept open. A failing
store is reported once and stops nothing. With a broker, `broker.server.recorder` does this.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.client.results import failure_record
from dragoman.errors import DragomanError, StoreError
from dragoman.events.parts import Text
from dragoman.paths import find_paths
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.cancel_by_file import note_reader, obey_note
from dragoman.runs.sessions import RESTORED
from dragoman.store import (
    JobRecord,
    SessionEventsWriter,
    SessionRecord,
    Store,
    StoreWriter,
    root_of,
)
from dragoman.store.open import open_store
from dragoman.store.records import counted
from dragoman.transports.process.identity import own_identity

if TYPE_CHECKING:
    from dragoman.client.results import Result
    from dragoman.events.model import Event
    from dragoman.events.parts import Block
    from dragoman.paths import Paths
    from dragoman.runs.sessions import OpenedSession

MAX_EARLY: Final = 256
"""Events that are kept until there is a prompt: what an agent says when its session opens."""


STORED_TIMEOUT: Final = 2.0
"""Seconds to wait until something is stored; it takes a few milliseconds."""


class DirectRecorder:
    """Records one session of one peer."""

    def __init__(
        self,
        store: Store | None,
        *,
        peer: str,
        workspace: Path,
        on_trouble: Callable[[str], None],
        on_stop: Callable[[], object] | None = None,
        paths: Paths | None = None,
    ) -> None:
        self._store = store
        self._on_stop = on_stop
        self._paths = paths
        self._tasks = TaskOwner("a keeper")
        self._peer = peer
        self._workspace = workspace
        self._on_trouble = on_trouble
        self._writer: StoreWriter | None = None
        self._recorder: SessionEventsWriter | None = None
        self._job: JobRecord | None = None
        self._watching: asyncio.Task[None] | None = None
        self._early: list[Event] = []
        self._opened: OpenedSession | None = None
        self._record: SessionRecord | None = None
        self._name: str | None = None
        self._keep_open = False

    def opened(
        self,
        opened: OpenedSession,
        record: SessionRecord | None,
        *,
        name: str | None,
        keep_open: bool = False,
    ) -> None:
        """The session is open: a new one, or the stored one that `record` is."""
        self._opened = opened
        self._record = record
        self._name = name
        self._keep_open = keep_open

    def event(self, event: Event) -> None:
        """Something happened."""
        if self._recorder is not None:
            self._recorder.record(event)
        elif self._store is not None and len(self._early) < MAX_EARLY:
            self._early.append(event)

    def began(self, job: str, blocks: Sequence[Block]) -> None:
        """A prompt is about to be sent, as this job."""
        if self._store is None or self._opened is None:
            return
        self.begin()
        assert self._recorder is not None
        now = time.time()
        stop = self._on_stop
        self._job = self._recorder.begin(
            JobRecord(
                id=job,
                session_key=self._recorder.session.key,
                peer=self._peer,
                root=self._recorder.session.root,
                prompt=_text_of(blocks),
                created_at=now,
                runner=dataclasses.asdict(own_identity()) if stop is None else note_reader(),
            )
        )
        if stop is not None:
            note = obey_note(job, self._paths or find_paths(), stop)
            self._watching = self._tasks.start(note, f"look whether {job} shall stop")

    def begin(self) -> None:
        """Write the session down, which the first prompt does otherwise."""
        if self._recorder is None and self._store is not None and self._opened is not None:
            self._begin(self._store, self._opened)

    def ended(self, result: Result) -> None:
        """The turn is over, and this is what came of it."""
        job, self._job = self._job, None
        if self._watching is not None:
            self._watching.cancel()
        if job is None or self._recorder is None or self._writer is None:
            return
        self._recorder.end(result.outcome)
        fields: dict[str, Any] = {"outcome": result.outcome.value, "text": result.text}
        if result.failure is not None:
            fields["failure"] = failure_record(result.failure, result.error)
        if result.usage is not None:
            fields["usage"] = _plain(result.usage)
        self._writer.put(lambda store: store.update_job(job.id, **fields))

    async def end_session(self) -> None:
        """Write what is left, and store the session as closed."""
        self._keep_open = False
        await self.aclose()

    async def flush(self) -> None:
        """Wait until what happened so far is stored, if the disk takes it."""
        if self._writer is not None:
            # A disk that hangs must not keep the caller waiting.
            with suppress(TimeoutError):
                async with asyncio.timeout(STORED_TIMEOUT):
                    await self._writer.flush()

    async def aclose(self) -> None:
        """Write what is left. May be called again."""
        await self._tasks.aclose()
        recorder, self._recorder = self._recorder, None
        store, self._store = self._store, None
        if recorder is not None and self._writer is not None:
            await recorder.close()
            if not self._keep_open:
                key = recorder.session.key
                self._writer.put(lambda store: store.update_session(key, closed_at=time.time()))
            await self._writer.close()
        if store is not None and (self._writer is None or self._writer.is_open):
            store.close()
            from dragoman.store.daily_retention import retain

            paths = self._paths or find_paths()
            await asyncio.to_thread(retain, paths.state, paths.config)

    def _begin(self, store: Store, opened: OpenedSession) -> None:
        self._writer = writer = StoreWriter(
            store, on_trouble=self._trouble, on_recovery=self._recovered
        )
        writer.start()
        now = time.time()
        before = self._record
        # Read again: another command may have had a turn in it since this one opened it.
        stored = None if before is None else store.session(before.key)
        if stored is not None and opened.context == RESTORED:
            session, key = stored, stored.key
            writer.put(lambda store: store.update_session(key, updated_at=now, closed_at=None))
        else:
            session = SessionRecord(
                key=opened.key,
                peer=self._peer,
                root=str(root_of(self._workspace)),
                name=self._name,
                peer_session_id=opened.conversation.id,
                cwd=str(self._workspace),
                created_at=now,
                updated_at=now,
            )
            writer.put(lambda store: store.create_session(session))
        self._recorder = SessionEventsWriter(writer, session)
        early, self._early = self._early, []
        for event in early:
            self._recorder.record(event)

    def _trouble(self, error: DragomanError) -> None:
        self._on_trouble(f"this is not stored: {error}")

    def _recovered(self, left_out: int) -> None:
        but = f", but for {counted(left_out)}" if left_out else ""
        self._on_trouble(f"this is stored again{but}")


def keeper_for(
    peer: str,
    *,
    workspace: Path,
    on_trouble: Callable[[str], None],
    credentials: Iterable[str] = (),
    handed: Iterable[str] = (),
    paths: Paths | None = None,
    on_stop: Callable[[], object] | None = None,
) -> DirectRecorder:
    """A recorder for a peer without a broker. `credentials` names variables whose values are never
    stored, and `handed` those that a user gives to the agent (`open_store`); `on_trouble` is called
    with a message about what is not stored and why. `on_stop` is called when the running job is
    cancelled; without it the whole process is interrupted."""
    store: Store | None = None
    try:
        store = open_store(paths=paths, credentials=credentials, handed=handed, workspace=workspace)
        if store.replaced:
            on_trouble(f"{store.path}: {store.replaced}")
    except StoreError as error:
        on_trouble(f"this is not stored: {error}")
    return DirectRecorder(
        store,
        peer=peer,
        workspace=workspace,
        on_trouble=on_trouble,
        on_stop=on_stop,
        paths=paths,
    )


def _text_of(blocks: Sequence[Block]) -> str:
    """A prompt in words; what is no text is named."""
    return "\n".join(
        block.text if isinstance(block, Text) else f"[{type(block).__name__.lower()}]"
        for block in blocks
    )


def _plain(value: Any) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(value, enc_hook=str)
    return {name: each for name, each in told.items() if each is not None}
