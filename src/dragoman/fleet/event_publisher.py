"""Publish the events of an attempt: redacted, numbered, in batches, stored in order.

The worker's secrets are redacted before anything leaves the worker, including secrets that are
split across chunks. A batch is resent for up to `STORE_TIMEOUT`; readers drop duplicates. Events
that a full server rejects are dropped and counted. The fact that the agent acted outside its
worktree is never dropped: if the event stream is full, it is sent to the coordinator's inbox, which
is another stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.delegation.worktree.outside_writes import outside_writes
from dragoman.errors import FleetError, FleetFull
from dragoman.events.fold import apply_outline
from dragoman.events.model import Event, ToolChanged
from dragoman.events.view import View
from dragoman.events.words import ToolKind
from dragoman.fleet import subjects
from dragoman.fleet.connection import RETRY_INTERVAL, FleetConnection
from dragoman.fleet.objects import put_object
from dragoman.fleet.records import NOTICE, AttemptActed, EventBatch, FleetLimits, encode
from dragoman.redaction.messages import MessageRedactor
from dragoman.redaction.redactor import Redactor

FLUSH_INTERVAL: Final = 0.05
"""Seconds for which events are collected into one message."""

MAX_BATCH_SIZE: Final = 256 * 1024
"""Maximum bytes of events in one message. A larger single event is stored as an object."""

MAX_WAITING_SIZE: Final = 32 * 1024 * 1024
"""Maximum bytes queued while the server does not answer. Later events are dropped and counted."""

STORE_TIMEOUT: Final = 30.0
"""Seconds to store a message. If there is no answer by then, `run` fails and the worker ends the
agent, because its actions could not be recorded."""

MAX_ACT_SIZE: Final = 80
"""Maximum number of characters of a command or path that is sent to the coordinator. The server
rejects a message that is too large, and the agent would be ended."""

_TOLD: Final = msgspec.json.Encoder(enc_hook=str)


class EventPublisher:
    """Publishes the events of one attempt. `add` never blocks; `run` does the sending."""

    def __init__(
        self,
        connection: FleetConnection,
        redact: Redactor,
        *,
        job: str,
        attempt: int,
        may_publish: Callable[[], bool],
        limits: FleetLimits,
    ) -> None:
        """`may_publish` is called before each message and returns whether the lease still holds."""
        self._connection = connection
        self._redact = MessageRedactor[int](redact)
        self._text = redact.text
        self._may_publish = may_publish
        self._limits = limits
        self._job = job
        self._attempt = attempt
        self._subject = subjects.events(connection.name, job, attempt)
        self._ready: list[tuple[int, bytes]] = []
        self._size = 0
        self._taken = 0
        """Total bytes of the events queued so far."""
        self._next = 1
        self._wake = asyncio.Event()
        self._over = False
        self._view = View()
        self._acted = ""
        self._told_acted = False
        self.heard = False
        """Whether the delegation produced an event. A notice does not count, because there may be
        one before any peer is prompted."""
        self.count = 0
        """Number of events stored."""
        self._dropped = 0
        """Number of events dropped because of a limit or a full server."""

    @property
    def unstored(self) -> int:
        """Number of events that are not stored: dropped, or still queued."""
        return self._dropped + len(self._ready)

    async def started(self) -> None:
        """Store that peers may be prompted from now on. Raises `FleetError`; `FleetFull` if the
        server is full."""
        await self._store(EventBatch(first=0, started=True))

    # -- events

    def add(self, event: Event, workspace: Path) -> None:
        """Queue an event without its raw message, and note whether it shows an action outside
        `workspace`."""
        self._look(event, workspace)
        told: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
        told.pop("raw", None)
        self.tell(told, stream=event.session)

    def tell(self, told: dict[str, Any], *, stream: object = None) -> None:
        """Queue a value to be published like an event, or count it as dropped if a limit is
        reached. `stream` is the session that it belongs to: redaction looks for secrets that
        continue in later values of the same stream."""
        self.heard = self.heard or told.get("type") != NOTICE
        number, self._next = self._next, self._next + 1
        # Also what is dropped is redacted: the rest of a secret may follow in an event that is not.
        for done, value in self._redact.feed(_TOLD.encode(told), number, stream=stream):
            self._queue(done, value)

    def _queue(self, number: int, value: Any) -> None:
        data = _TOLD.encode(value)
        over = self._taken + len(data) > self._limits.events_size
        if over or self._size + len(data) > MAX_WAITING_SIZE:
            self._dropped += 1
            return
        self._taken += len(data)
        self._ready.append((number, data))
        self._size += len(data)
        self._wake.set()

    def _look(self, event: Event, workspace: Path) -> None:
        """Remember the first action that may have had an effect outside the worktree."""
        if self._acted:
            return
        apply_outline(self._view, event)
        if not isinstance(event, ToolChanged):
            return
        tool = self._view.tools.get(event.tool_id)
        if tool is None:
            return
        if tool.kind is ToolKind.EXECUTE:
            self._acted = f"it ran a command ({self._short(tool.title)})"
        elif outside := outside_writes([tool], [workspace]):
            self._acted = f"it wrote outside its worktree ({self._short(outside[0])})"
        if self._acted:
            # Wake `run` here, because the event itself may be dropped or held back for redaction.
            self._wake.set()

    def _short(self, text: str) -> str:
        # Redacted first, because a part of a secret would not be recognized.
        return self._text(text)[:MAX_ACT_SIZE]

    # -- sending

    async def run(self) -> None:
        """Send what is queued. Returns when `finish` was called and everything is sent, or when the
        lease has expired. Raises `FleetError` if something cannot be stored, except for events that
        a full server rejects."""
        while self._may_publish():
            await self._wake.wait()
            if not self._over:
                await asyncio.sleep(FLUSH_INTERVAL)
            self._wake.clear()
            await self._tell_acted()
            while self._ready and self._may_publish():
                await self._send_some()
                await self._tell_acted()
            if self._over:
                return

    async def _tell_acted(self) -> None:
        if not self._acted or self._told_acted:
            return
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + STORE_TIMEOUT
        while not self._told_acted:
            try:
                await self._store_acted()
            except FleetFull:
                if loop.time() >= give_up_at:
                    raise
                await asyncio.sleep(RETRY_INTERVAL)

    async def _store_acted(self) -> None:
        try:
            await self._store(EventBatch(first=0, acted=self._acted))
        except FleetFull:
            await self._store(
                AttemptActed(acted=self._acted),
                subject=subjects.acted(self._connection.name, self._job, self._attempt),
            )
        self._told_acted = True

    async def _send_some(self) -> None:
        first = self._ready[0][0]
        taken: list[dict[str, Any]] = []
        size = 0
        for number, data in self._ready:
            if taken and (size + len(data) > MAX_BATCH_SIZE or number != first + len(taken)):
                break
            taken.append(msgspec.json.decode(data))
            size += len(data)
        batch = EventBatch(first=first, events=tuple(taken))
        try:
            if size > MAX_BATCH_SIZE:
                ref = await put_object(self._connection, encode(batch))
                batch = EventBatch(first=first, large=ref)
            await self._store(batch)
            self.count += len(taken)
        except FleetFull:
            self._dropped += len(taken)
        del self._ready[: len(taken)]
        self._size -= size
        await asyncio.sleep(size / self._limits.events_rate)

    async def _store(self, value: EventBatch | AttemptActed, *, subject: str = "") -> None:
        if not self._may_publish():
            raise FleetError("the lease of the job has ended")
        await self._connection.store(subject or self._subject, encode(value), timeout=STORE_TIMEOUT)

    def finish(self) -> None:
        """Queue what redaction has held back, and let `run` return when nothing is left to send."""
        for number, value in self._redact.flush():
            self._queue(number, value)
        self._over = True
        self._wake.set()
