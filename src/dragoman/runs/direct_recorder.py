"""Record a run without a broker: pass its session, job and events to the store's recorder.

`store.recorder` redacts, numbers and writes, as for a broker. Here the events of the run become
lines: updates of ACP peers unchanged, events of other dialects translated
(`gateway.events_to_acp`). Replayed events are skipped, because they are already stored. The session
is stored with its first prompt, and closed at the end unless it is kept open. A failing store is
reported once and stops nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from dragoman.client.results import explain, failure_record, usage_record
from dragoman.config.secrets import redactor
from dragoman.decoders import decode_typed
from dragoman.dialects.acp.v1 import codec, methods, updates
from dragoman.errors import DragomanError, FileFailed, StoreError
from dragoman.events import model
from dragoman.events.parts import Text
from dragoman.events.words import Outcome
from dragoman.gateway.events_to_acp import AcpTranslator
from dragoman.paths import find_paths
from dragoman.rpc.tasks import TaskOwner, in_thread
from dragoman.runs.cancel_by_file import note_reader, obey_note
from dragoman.runs.sessions import RESTORED
from dragoman.store.open import open_store
from dragoman.store.recorder import STORED_TIMEOUT, JobAnswer, StoreRecorder, permission_note
from dragoman.store.records import JobRecord, SessionRecord, counted, new_session_key, root_of
from dragoman.store.store import Store, store_path
from dragoman.transports.process.identity import own_identity
from dragoman.wire.messages import mend

if TYPE_CHECKING:
    from dragoman.client.results import Result
    from dragoman.events.parts import Block
    from dragoman.paths import Paths
    from dragoman.redaction.redactor import Redactor
    from dragoman.runs.sessions import OpenedSession
    from dragoman.store import StoreWriter

log: Final = logging.getLogger("dragoman.runs")

SAVE_SIZE: Final = 256 * 1024
"""Number of bytes of waiting lines at which they are handed to the store's recorder without waiting
for the next batch. A fast agent sends 20 MB between two batches."""

MAX_EARLY: Final = 256
"""Maximum number of events to keep before the first prompt: an agent sends some when its session
opens."""

NOT_YET: Final = (
    "this conversation is not stored yet: another process is using the store, or the disk is slow."
    " This command keeps trying until it ends"
)

ACP: Final = "acp"
UPDATE: Final = f"{methods.SESSION_UPDATE.name}:"


class _Message(Struct):
    params: Raw = Raw()


class _Opened(Struct, frozen=True, kw_only=True):
    """The recorded fields of an open session."""

    key: str
    session_id: str
    context: str


class DirectRecorder:
    """Stores one session of a peer that runs without a broker."""

    def __init__(
        self,
        open: Callable[[], Store],
        redact: Redactor,
        *,
        peer: str,
        workspace: Path,
        on_trouble: Callable[[str], None],
        on_stop: Callable[[], object] | None = None,
        paths: Paths | None = None,
    ) -> None:
        self._open = open
        self._redact = redact
        self._closed = False
        self._on_stop = on_stop
        self._paths = paths
        self._tasks = TaskOwner("a recorder")
        self._peer = peer
        self._workspace = workspace
        self._on_trouble = on_trouble
        self._recorder: StoreRecorder | None = None
        self._watching: asyncio.Task[None] | None = None
        self._early: list[model.Event] = []
        """Events before the first prompt."""
        self._early_dropped = False
        self._opened: _Opened | None = None
        self._record: SessionRecord | None = None
        """The stored session to continue; later the one being recorded."""
        self._name: str | None = None
        self._keep_open = False
        self._translator = AcpTranslator()
        self._raw: bytes | None = None
        self._lines: list[bytes] = []
        """Lines waiting for the next batch."""
        self._next_event = 0
        """The number of the next line."""
        self._asked: dict[str, model.PermissionAsked] = {}
        self._job: JobRecord | None = None
        self._answer: JobAnswer | None = None
        """The agent's answer in the running job."""
        self._size = 0
        """Size in bytes of the lines waiting to be handed over."""
        self._in_turn = False
        """Whether the peer's output belongs to the job."""
        self._told_slow = False

    def opened(
        self,
        opened: OpenedSession,
        record: SessionRecord | None,
        *,
        name: str | None,
        keep_open: bool = False,
    ) -> None:
        """Called when the session is open: a new one, or the stored one in `record`."""
        self._opened = _Opened(
            key=opened.key, session_id=opened.conversation.id, context=opened.context
        )
        self._record = record
        self._name = name
        self._keep_open = keep_open

    def opened_elsewhere(self, session_id: str) -> None:
        """Called instead of `opened` for a peer on another machine. Records its events here."""
        self._opened = _Opened(key=new_session_key(), session_id=session_id, context="")

    def event(self, event: model.Event) -> None:
        """Record an event of the session. Replayed events are ignored. Events before the first
        prompt are kept in memory until then, at most `MAX_EARLY`."""
        if self._recorder is not None:
            self._take(self._recorder, event)
        elif not self._closed and not event.replay:
            if len(self._early) < MAX_EARLY:
                self._early.append(event)
            elif not self._early_dropped:
                self._early_dropped = True
                log.warning(
                    "the agent sent more than %d events before the first prompt; the others "
                    "are not stored, beginning with %s",
                    MAX_EARLY,
                    event.native,
                )

    def began(self, job: str, blocks: Sequence[Block]) -> None:
        """Called before a prompt is sent as this job; in a stored session, after `begin`."""
        if self._recorder is None:
            self._start(None)
        recorder, session = self._recorder, self._record
        if recorder is None or session is None:
            return
        # Earlier output of the peer is not an answer to this prompt.
        self._save(end=True)
        now = time.time()
        stop = self._on_stop
        self._answer = JobAnswer(job)
        self._job = JobRecord(
            id=job,
            session_key=session.key,
            peer=self._peer,
            root=session.root,
            prompt=_text_of(blocks),
            state="running",
            created_at=now,
            started_at=now,
            first_event=self._next_event,
            next_event=self._next_event,
            runner=dataclasses.asdict(own_identity()) if stop is None else note_reader(),
        )
        self._in_turn = True
        recorder.job_changed(self._job)
        if stop is not None:
            note = obey_note(job, self._paths or find_paths(), stop)
            self._watching = self._tasks.start(note, f"watch for a stop request for {job}")

    async def begin(self) -> None:
        """Start recording: store a new session, or continue the stored one in its current state.
        For a new session, `began` does this if it was not done before."""
        if self._recorder is not None or self._closed:
            return
        record = self._record
        if record is not None:
            key = record.key
            # Read again: another command may have run a turn in it since it was opened here. If it
            # cannot be read, nothing can be written either, which the writer reports.
            with suppress(StoreError, FileFailed):
                record = await in_thread(key, lambda _: self._stored(key))
        self._start(record)

    def _stored(self, key: str) -> SessionRecord | None:
        with open_store(read_only=True, paths=self._paths) as store:
            return store.session(key)

    def _start(self, stored: SessionRecord | None) -> None:
        if self._closed or self._opened is None:
            return
        self._recorder = self._begin(self._opened, stored)
        early, self._early = self._early, []
        for event in early:
            self._take(self._recorder, event)

    def ended(self, result: Result) -> None:
        """Called when the turn has ended with this result."""
        failure = result.failure
        self._end(
            outcome=result.outcome.value,
            stop=result.stop or None,
            failure=None if failure is None else failure_record(failure, result.error),
            usage=usage_record(result.usage),
            text=result.text,
        )

    def not_sent(self, error: BaseException) -> None:
        """Called instead of `ended` if the prompt was not sent, because of this error."""
        outcome, failed = Outcome.CANCELLED, None
        if isinstance(error, DragomanError):
            outcome, failure = explain(error)
            failed = failure_record(failure, error)
            if outcome is Outcome.UNKNOWN:
                # Nothing ran, so nothing is unknown.
                outcome = Outcome.FAILED
        self._end(outcome=outcome.value, failure=failed, text="")

    async def end_session(self) -> None:
        """Write the rest, and store the session as closed."""
        self._keep_open = False
        await self.aclose()

    async def flush(self) -> None:
        """Wait until everything so far is stored, if the disk accepts it, but at most
        `STORED_TIMEOUT`. Informs the user the first time that it takes longer."""
        if self._recorder is None:
            return
        try:
            # A hanging disk must not keep the caller waiting.
            async with asyncio.timeout(STORED_TIMEOUT):
                await self._recorder.flush()
        except TimeoutError:
            if not self._told_slow:
                self._told_slow = True
                self._on_trouble(NOT_YET)

    async def aclose(self) -> None:
        """Store what is left, mark the session as closed unless it is kept open, close the store
        and apply the user's retention. May be called again."""
        await self._tasks.aclose()
        recorder, closed = self._recorder, self._closed
        writer: StoreWriter | None = None
        if recorder is not None and self._record is not None:
            recorder.stop_timers()
            try:
                self._end(outcome=Outcome.UNKNOWN.value, text="")
                self._save(end=True)
                if not self._keep_open:
                    recorder.change(self._record.key, closed_at=time.time())
            finally:
                self._recorder = None
                writer = await recorder.close()
        self._closed = True
        if not closed and (writer is None or writer.is_open):
            from dragoman.store.daily_retention import RETENTION_TIMEOUT, retain

            paths = self._paths or find_paths()

            def end(_: object) -> None:
                if writer is not None:
                    writer.store.close()
                retain(paths.state, paths.config)

            try:
                await in_thread(
                    str(paths.state),
                    end,
                    changes_disk=True,
                    timeout=RETENTION_TIMEOUT,
                )
            except FileFailed as error:
                log.warning("retention did not finish: %s", error)

    # -- the session

    def _begin(self, opened: _Opened, stored: SessionRecord | None) -> StoreRecorder:
        recorder = StoreRecorder(self._redact, on_beat=self._save)
        recorder.start(self._open, on_trouble=self._trouble, on_recovery=self._recovered)
        if stored is not None and opened.context == RESTORED:
            self._record = msgspec.structs.replace(stored, next_event=stored.resumed_event)
            recorder.take_up(stored.key, stored.resumed_event)
        else:
            now = time.time()
            self._record = SessionRecord(
                key=opened.key,
                peer=self._peer,
                root=str(root_of(self._workspace)),
                name=self._name,
                peer_session_id=opened.session_id,
                cwd=str(self._workspace),
                created_at=now,
                updated_at=now,
            )
            recorder.create(self._record)
        self._next_event = self._record.next_event
        return recorder

    # -- events

    def _take(self, recorder: StoreRecorder, event: model.Event) -> None:
        if event.replay or self._record is None:
            return
        key = self._record.key
        lines = self._lines_of(event, self._record.peer_session_id)
        if lines:
            self._lines += lines
            self._next_event += len(lines)
            self._size += sum(map(len, lines))
            if self._size < SAVE_SIZE:
                recorder.mark()
            else:
                self._save()
        match event:
            case model.SessionChanged(title=title) if title is not UNSET:
                recorder.settings(key, title=title)
            case model.SettingsChanged(mode=mode, model=model_id):
                told = {"mode": mode, "model": model_id}
                recorder.settings(key, **{name: v for name, v in told.items() if v is not UNSET})
            case model.TurnEnded():
                self._end_turn()
            case _:
                self.question(event)

    def question(self, event: model.Event) -> None:
        """Record a permission request or its answer, of any session of the peer. Ignores other
        events."""
        recorder, record = self._recorder, self._record
        if recorder is None or record is None:
            return
        if isinstance(event, model.PermissionAsked):
            self._asked[event.request_id] = event
            # Stored first, so that the request is known whatever is decided and whatever crashes
            # because of it.
            self._save()
            recorder.hasten()
        elif isinstance(event, model.PermissionAnswered):
            asked = self._asked.pop(event.request_id, None)
            title, tool = (None, None) if asked is None else (asked.title, asked.tool_id)
            noted = permission_note(event.by, title, tool, event.option_id)
            recorder.note(record.key, self._next_event, "permission", noted)

    def _lines_of(self, event: model.Event, session_id: str) -> list[bytes]:
        if event.source.spoken == ACP:
            raw = event.raw
            # One message may produce several events.
            if raw is None or raw is self._raw or not event.native.startswith(UPDATE):
                return []
            self._raw = raw
            return [bytes(decode_typed(mend(raw), _Message).params)]
        return [
            codec.encode(updates.SessionNotification(session_id=session_id, update=update))
            for update in self._translator.updates(event)
        ]

    def _save(self, *, end: bool = False) -> None:
        """Hand the waiting lines over to the store's recorder.

        At the `end` of a turn, include those that were held back.
        """
        if self._recorder is None or self._record is None or not (self._lines or end):
            return
        lines, self._lines, self._size = self._lines, [], 0
        first = self._next_event - len(lines)
        answer = self._answer if self._in_turn else None
        self._recorder.add(self._record.key, first, lines, answer, end=end)

    def _end_turn(self) -> None:
        """End the turn: later output of the peer is not part of it."""
        if self._in_turn and self._job is not None:
            self._save(end=True)
            self._in_turn = False
            self._job = msgspec.structs.replace(self._job, next_event=self._next_event)

    def _end(self, *, outcome: str, text: str, **fields: Any) -> None:
        """Record the end of the running job, if any. `text` is stored if no answer was recorded."""
        if self._watching is not None:
            self._watching.cancel()
        self._end_turn()
        if self._job is None or self._answer is None or self._recorder is None:
            return
        self._recorder.job_ended(
            msgspec.structs.replace(
                self._job,
                state="ended",
                outcome=outcome,
                text=self._answer.text or text,
                ended_at=time.time(),
                **fields,
            )
        )
        self._job = self._answer = None

    # -- store failures

    def _trouble(self, error: DragomanError) -> None:
        self._on_trouble(f"this conversation is not stored: {error}")

    def _recovered(self, left_out: int) -> None:
        but = f", except for {counted(left_out)}" if left_out else ""
        self._on_trouble(f"this conversation is stored again{but}")


def recorder_for(
    peer: str,
    *,
    workspace: Path,
    on_trouble: Callable[[str], None],
    credentials: Iterable[str] = (),
    handed: Iterable[str] = (),
    paths: Paths | None = None,
    on_stop: Callable[[], object] | None = None,
) -> DirectRecorder:
    """Return a recorder for a peer without a broker. `credentials` names variables whose values are
    never stored, and `handed` those that the user passes to the agent (`config.secrets.redactor`).
    `on_trouble` is called with a message that says what is not stored and why. `on_stop` is called
    when the running job is cancelled; without it the whole process is interrupted."""
    redact = redactor(credentials, handed=handed, workspace=workspace)
    path = store_path((paths or find_paths()).state)
    loop = asyncio.get_running_loop()

    def opened() -> Store:
        # In the thread of the writer: another process may hold the store.
        store = Store.open(path, redact)
        if store.replaced:
            loop.call_soon_threadsafe(on_trouble, f"{store.path}: {store.replaced}")
        return store

    return DirectRecorder(
        opened,
        redact,
        peer=peer,
        workspace=workspace,
        on_trouble=on_trouble,
        on_stop=on_stop,
        paths=paths,
    )


def _text_of(blocks: Sequence[Block]) -> str:
    """Return a prompt as text, with the type of a block that is not text in its place, such as
    ``[image]``."""
    return "\n".join(
        block.text if isinstance(block, Text) else f"[{type(block).__name__.lower()}]"
        for block in blocks
    )
