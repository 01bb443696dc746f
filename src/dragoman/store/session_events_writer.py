"""Record a run without a broker: write its events and jobs to the store while it runs.

Updates from ACP peers are stored as they came; events of other dialects are translated
(`gateway.events_to_acp`). Replayed events are skipped, because they are stored already. A broker
uses `broker.server.recorder`.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from dragoman.dialects.acp.v1 import codec, methods, updates
from dragoman.events import model
from dragoman.events.view import Growing
from dragoman.events.words import Outcome, Role
from dragoman.gateway.events_to_acp import AcpTranslator
from dragoman.redaction.redactor import Redactor
from dragoman.store.jobs import TEXT_SIZE
from dragoman.store.records import JobRecord, SessionRecord
from dragoman.store.stream_redaction import LineRedactor
from dragoman.store.writer import StoreWriter

ACP: Final = "acp"

SAID_SIZE: Final = 2 * TEXT_SIZE
"""Characters of an answer that are kept for its job: more than are stored of it, so that a secret
at the cut is still whole when it is looked for."""

UPDATE: Final = f"{methods.SESSION_UPDATE.name}:"


class _Message(Struct):
    params: Raw = Raw()


class SessionEventsWriter:
    """Stores the events of one session and the fate of its jobs, through a writer.

    The session is in the store already. `begin` and `end` bracket a job; the event of a turn's end
    ends it, too.
    """

    def __init__(
        self, writer: StoreWriter, session: SessionRecord, *, redact: Redactor | None = None
    ) -> None:
        self.session = session
        self.next_event = session.next_event
        """The number that the next event gets."""
        self._writer = writer
        self._redactor = LineRedactor(redact or writer.store.redact)
        self._translator = AcpTranslator()
        self._stored = session.next_event
        self._raw: bytes | None = None
        self._job: JobRecord | None = None
        self._said = Growing(limit=SAID_SIZE)

    def begin(self, job: JobRecord) -> JobRecord:
        """A job begins. It is stored as running, from here on."""
        self._job = job = structs.replace(
            job,
            session_key=self.session.key,
            state="running",
            started_at=job.started_at or time.time(),
            first_event=self.next_event,
            next_event=self.next_event,
        )
        self._said = Growing(limit=SAID_SIZE)
        self._writer.put(lambda store: store.create_job(job))
        return job

    def record(self, event: model.Event) -> None:
        """Take down what happened."""
        if event.replay:
            return
        for line in self._lines(event):
            self.next_event += 1
            self._store(self._redactor.feed(line))
        match event:
            case model.MessageDelta(role=Role.AGENT, text=text):
                self._said.add(text)
            case model.SessionChanged(title=title) if title is not UNSET:
                self._change(title=title)
            case model.SettingsChanged(mode=mode, model=model_id):
                changed = {"mode": mode, "model": model_id}
                self._change(**{name: v for name, v in changed.items() if v is not UNSET})
            case model.PermissionAnswered():
                self._note_permission(event)
            case model.TurnEnded():
                self.end(
                    event.outcome,
                    stop=event.stop,
                    text=event.text,
                    failure=None if event.failure is None else _plain(event.failure),
                    usage=None if event.usage is None else _plain(event.usage),
                )

    def end(
        self,
        outcome: Outcome | str,
        *,
        stop: str | None = None,
        text: str | None = None,
        failure: dict[str, Any] | None = None,
        usage: dict[str, Any] | None = None,
    ) -> None:
        """The job is over. Without a `text` it is what the agent has said so far. Does nothing
        where no job runs."""
        self._store(self._redactor.flush())
        job, self._job = self._job, None
        if job is None:
            return
        fields: dict[str, Any] = {
            "state": "ended",
            "outcome": str(outcome),
            "stop": stop,
            "text": str(self._said) if text is None else text,
            "failure": failure,
            "usage": usage,
            "ended_at": time.time(),
            "next_event": self.next_event,
        }
        self._writer.put(lambda store: store.update_job(job.id, **fields))

    async def close(self) -> bool:
        """Store what is left. A job that still runs ends as unknown. False: see the writer's
        `trouble`."""
        self.end(Outcome.UNKNOWN)
        return await self._writer.flush()

    def _lines(self, event: model.Event) -> list[bytes]:
        if event.source.spoken == ACP:
            raw = event.raw
            # One message may make several events.
            if raw is None or raw is self._raw or not event.native.startswith(UPDATE):
                return []
            self._raw = raw
            return [bytes(msgspec.json.decode(raw, type=_Message).params)]
        session_id = self.session.peer_session_id
        return [
            codec.encode(updates.SessionNotification(session_id=session_id, update=update))
            for update in self._translator.updates(event)
        ]

    def _store(self, lines: list[bytes]) -> None:
        if lines:
            job = None if self._job is None else self._job.id
            self._writer.append(self.session.key, self._stored, lines, job)
            self._stored += len(lines)

    def _change(self, **fields: Any) -> None:
        if fields:
            key = self.session.key
            self._writer.put(lambda store: store.update_session(key, **fields))

    def _note_permission(self, event: model.PermissionAnswered) -> None:
        key, number = self.session.key, self.next_event
        data = {
            "requestId": event.request_id,
            "allowed": event.allowed,
            "optionId": event.option_id,
            "by": event.by,
        }
        self._writer.put(lambda store: store.note(key, number, "permission", data))


def _plain(value: Any) -> dict[str, Any]:
    """A value of the events as plain data, without what was not told."""
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return {name: item for name, item in plain.items() if item not in (None, [], ())}
