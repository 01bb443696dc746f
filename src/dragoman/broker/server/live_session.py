"""One open session of the peer, shared by callers: pass updates on to its readers and the log.

Keeps the settings as last reported, and every session id that callers use: a restarted peer may
give the session a new id. `turns` runs its turns, `peer_requests` answers the peer's requests,
`sessions` opens and restores it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from dragoman.broker.server.cancellation import Cancelling, Phase
from dragoman.broker.server.event_log import EventLog, LogLimits
from dragoman.broker.server.event_reader import EventReader, renamed
from dragoman.broker.server.peer_requests import PERMISSION, PeerQuestions
from dragoman.client.acp.session import APPLY, Session
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.codec import decoder
from dragoman.errors import ConnectionLost, DragomanError
from dragoman.events.parts import Cost, Usage
from dragoman.gateway.relay import UPDATE
from dragoman.store.records import root_of
from dragoman.wire.messages import Notification, Request

if TYPE_CHECKING:
    from dragoman.broker.server.caller import Caller
    from dragoman.broker.server.jobs import Job
    from dragoman.broker.server.peer import PeerLink

log: Final = logging.getLogger("dragoman.broker")

FLUSH_SIZE: Final = 256 * 1024
"""Bytes of updates that are handed over to be stored without waiting for the next beat."""

_decode_update: Final = decoder(acp.SessionNotification)
_SETTINGS: Final = (
    *(b'"current_mode_update"', b'"config_option_update"'),
    *(b'"session_info_update"', b'"usage_update"'),
)

_ANY_SETTING: Final = b'_update"'
"""The end of all of them: text of the agent does not have it, so that one search is enough."""

NOTHING_SPENT: Final = Cost(0.0, "")
"""The cost of a session that has just begun, in any currency."""


class Keeping(Protocol):
    """Who stores what happens in sessions."""

    def mark(self, session: LiveSession) -> None:
        """There is something to store, soon."""

    def save(self, session: LiveSession) -> None:
        """Hand everything over that is to be stored, now."""

    def hasten(self, session: LiveSession) -> None:
        """The same, and it is to be on the disk at once."""

    def note(self, session: LiveSession, kind: str, data: dict[str, Any]) -> None: ...
    async def fetch(self, key: str, start: int, stop: int) -> tuple[int, Sequence[bytes]]: ...


class LiveSession:
    """A session that the peer has open, or had before it was started again."""

    def __init__(
        self,
        keeping: Keeping,
        far: PeerLink,
        id: str,
        *,
        key: str,
        name: str | None,
        cwd: Path,
        additional: Sequence[Path] = (),
        mcp_servers: Raw,
        next_event: int = 0,
        room: LogLimits | None = None,
    ) -> None:
        self._keeping = keeping
        self.far = self._before = far
        self.id = id
        """What the peer calls it."""
        self.names = {id}
        """What callers may call it."""
        self.key = key
        self.name = name
        self.cwd = cwd
        self.root = str(root_of(cwd))
        """The folder from which it is found."""
        self.additional = tuple(additional)
        self.mcp_servers = mcp_servers
        self.log = EventLog(next_event, room=room)
        self._looked = next_event
        self.live: list[EventReader] = []
        self.readers: dict[Caller, EventReader] = {}
        self.job: Job | None = None
        """The job whose turn runs."""
        self.cancelling = Cancelling()
        self.questions = PeerQuestions(self)
        self.marked = False
        """Whether something is to be stored with the next beat."""
        self.cost: Cost | None = None
        """What it had cost at the end of the last turn; None if that is not known."""
        self._counted: acp.UsageUpdate | None = None
        self._described: tuple[Any, ...] = (None, None, None, None)
        self.whole = True
        """Whether the log has everything that ever happened in the session."""
        self.created_at = 0.0
        self.once = False
        """Whether it is closed when its jobs have ended and no caller has it."""
        self._holding = False
        self._held: list[Notification] = []
        """Updates that came between the end of a turn and the answer to its caller."""
        self.replaying = False
        """Whether what comes is history."""
        self._replay_for: Caller | None = None
        self.heard_at = 0.0
        self.loaded_at = math.inf
        """When the answer to a load came, by the clock of the loop."""
        self.sheltered: Session = far.client.shelter(id, cwd, self.additional)
        """The session as the peer's client knows it: it serves files and terminals, and keeps the
        settings."""

    # -- what the peer sends

    def update(self, notification: Notification) -> None:
        """An update: to the log, and to everybody who reads. Nothing else is done here, and
        nothing of the update is decoded: this is what a turn consists of."""
        if self.replaying:
            self._replayed(notification.params)
            return
        if self._holding:
            self._held.append(notification)
            return
        log_ = self.log
        number = log_.next
        log_.append(notification)
        if len(self.names) > 1:
            self._tell_renamed(number, notification)
        else:
            slow: list[EventReader] | None = None
            for reader in self.live:
                connection = reader.connection
                if connection.is_full:
                    slow = [reader] if slow is None else [*slow, reader]
                    continue
                try:
                    if reader.takes_all:
                        connection.pass_on(notification.line)
                    else:
                        reader.tell(notification)
                except DragomanError as error:
                    _log_untold(error)
            if slow is not None:
                for reader in slow:
                    reader.fall_behind(number)
        if not self.marked:
            self.marked = True
            self._keeping.mark(self)
        elif log_.untaken_size >= FLUSH_SIZE:
            self._keeping.save(self)

    def update_all(self, notifications: Sequence[Notification]) -> None:
        """Updates that came together. Each costs half as much as by itself."""
        if self.replaying or self._holding or len(self.names) > 1:
            for notification in notifications:
                self.update(notification)
            return
        log_ = self.log
        number = log_.next
        lines = [notification.line for notification in notifications]
        log_.extend(notifications, sum(map(len, lines)))
        for reader in list(self.live):
            if reader.connection.is_full:
                reader.fall_behind(number)
                continue
            try:
                if reader.takes_all:
                    reader.connection.pass_all_on(lines)
                    continue
            except DragomanError:
                # One that is too long is left out, and not the others with it.
                pass
            for notification in notifications:
                try:
                    reader.tell(notification)
                except DragomanError as error:
                    _log_untold(error)
        if not self.marked:
            self.marked = True
            self._keeping.mark(self)
        if log_.untaken_size >= FLUSH_SIZE:
            self._keeping.save(self)

    @property
    def renamed(self) -> bool:
        """Whether some callers know the session by another name than the peer does."""
        return len(self.names) > 1

    def _tell_renamed(self, number: int, event: Notification) -> None:
        for reader in list(self.live):
            if reader.connection.is_full:
                reader.fall_behind(number)
                continue
            try:
                reader.tell(event)
            except DragomanError as error:
                _log_untold(error)

    def request(self, request: Request) -> Any:
        """A question of the peer."""
        if self._holding:
            # A question must not overtake what the peer said before.
            self.pass_held_updates()
        if request.method == PERMISSION:
            # Whatever is decided, and whatever dies of it: it stays known what was asked for.
            self._keeping.hasten(self)
        return self.questions.request(request)

    def answer(self, request: Request, result: Any) -> None:
        self.far.connection.answer(request, result)

    def refuse(self, request: Request, code: int, message: str, data: Any = None) -> None:
        self.far.connection.refuse(request, code, message, data)

    # -- between the end of a turn and the answer to its caller

    def hold_updates(self) -> None:
        """Keep the updates that come from now on back."""
        self._holding = True

    def pass_held_updates(self) -> None:
        """Pass on what was kept back, and keep nothing back any more."""
        self._holding = False
        held, self._held = self._held, []
        for notification in held:
            self.update(notification)

    # -- history that the peer repeats

    def begin_replay(self, caller: Caller | None) -> None:
        """What comes now is history: it goes to a caller that asked for it, and to nobody else."""
        self.replaying = True
        self.loaded_at = math.inf
        self._replay_for = caller
        self.heard_at = asyncio.get_running_loop().time()

    def end_replay(self) -> None:
        self.replaying = False
        self._replay_for = None

    def _replayed(self, line: Raw) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        self._look_at(bytes(line))
        caller = self._replay_for
        if caller is not None and caller.connection.failure is None:
            name = self.name_for(caller)
            caller.connection.post(UPDATE, line if name == self.id else renamed(line, name))

    # -- who reads

    def reader(self, caller: Caller) -> EventReader:
        """A caller's place here, made when it is first needed."""
        reader = self.readers.get(caller)
        if reader is None:
            # One that never shook hands announced nothing: it is ours, and takes everything.
            known = caller.capabilities if caller.greeted else None
            reader = self.readers[caller] = EventReader(self, caller.connection, self.id, known)
        return reader

    def name_for(self, caller: Caller) -> str:
        """What a caller calls the session."""
        reader = self.readers.get(caller)
        return self.id if reader is None else reader.session_id

    def open_for(self, caller: Caller, name: str) -> None:
        """A caller has the session open from now on, under this name."""
        reader = self.reader(caller)
        reader.session_id = name
        reader.opened = True
        caller.sessions[name] = self
        if self.job is None:
            reader.want()

    def close_for(self, caller: Caller) -> None:
        """A caller has nothing to do with the session any more."""
        reader = self.readers.pop(caller, None)
        if reader is not None:
            reader.leave()
        for name in [name for name, each in caller.sessions.items() if each is self]:
            del caller.sessions[name]

    def turn_began(self, caller: Caller | None) -> None:
        """What happens now belongs to a turn: it is for whoever prompted, and for those who follow
        everything."""
        for each, reader in self.readers.items():
            if each is not caller and not reader.attached:
                reader.unwant()
        if caller is not None:
            self.reader(caller).want()

    def turn_ended(self) -> None:
        """What happens now belongs to no turn: it is for all who have the session open."""
        for reader in self.readers.values():
            if reader.opened or reader.attached:
                reader.want()
            else:
                reader.unwant()

    async def fetch(self, start: int, stop: int) -> tuple[int, Sequence[bytes]]:
        """Lines that are not in memory any more, and the number of the first of them."""
        return await self._keeping.fetch(self.key, start, stop)

    # -- what is known

    @property
    def is_cancelling(self) -> bool:
        return self.cancelling.phase is Phase.CANCELLING

    @property
    def quarantined(self) -> bool:
        return self.cancelling.phase is Phase.QUARANTINED

    def note(self, kind: str, data: dict[str, Any]) -> None:
        self._keeping.note(self, kind, data)

    def look(self) -> None:
        """Take over the settings that the updates since the last look tell of."""
        events = self.log.lines(max(self._looked, self.log.first), max_size=sys.maxsize)
        self._looked = self.log.next
        self._look_over([bytes(event.params) for event in events])

    def look_through(self, first: int, lines: Sequence[bytes]) -> None:
        """`look`, at lines that were taken from the log, of which this is the number of the first.
        Those that were looked at before are passed over."""
        seen = self._looked - first
        self._looked = max(self._looked, first + len(lines))
        self._look_over(lines[seen:] if seen > 0 else lines)

    def _look_over(self, lines: Sequence[bytes]) -> None:
        # One search for all of them first: nearly always there is nothing.
        text = b"\n".join(lines)
        if _ANY_SETTING in text and any(word in text for word in _SETTINGS):
            for line in lines:
                self._look_at(line)

    def _look_at(self, line: bytes) -> None:
        if not any(word in line for word in _SETTINGS):
            return
        try:
            update = _decode_update(line).update
        except msgspec.ValidationError:
            return
        apply = APPLY.get(type(update))
        if apply is not None:
            apply(self.sheltered, update)

    def settings(self) -> dict[str, Any]:
        """Modes, models and options as last told, in the words of the answer that opens it."""
        self.look()
        kept = self.sheltered
        response = acp.ResumeSessionResponse(
            modes=kept.modes, models=kept.models, config_options=kept.config_options
        )
        settings: dict[str, Any] = msgspec.json.decode(acp.encode(response))
        return settings

    def described(self) -> dict[str, str | None]:
        """Title, mode and model as last told, if one of them may have changed since this was last
        called; those that are known."""
        kept = self.sheltered
        now = (kept.modes, kept.models, kept.config_options, kept.info)
        if all(each is before for each, before in zip(now, self._described, strict=True)):
            return {}
        self._described = now
        told = translate.settings(kept.modes, kept.config_options, kept.models)
        found: dict[str, str | None] = {
            name: value for name, value in told.items() if name in ("mode", "model")
        }
        if kept.info is not None and kept.info.title is not UNSET:
            found["title"] = kept.info.title
        return found

    def used(self) -> Usage | None:
        """How full the context is, and what the session has cost since this was last called; None
        if the peer does not tell, or has not told since."""
        self.look()
        told = self.sheltered.usage
        if told is None or told is self._counted:
            return None
        self._counted = told
        return Usage(context_used=told.used, context_size=told.size, cost=self._spent(told))

    def _spent(self, told: acp.UsageUpdate) -> Cost | None:
        """What a turn has cost; None if that is not known. An agent tells what the whole session
        has cost."""
        before = self.cost
        if told.cost is None:
            return None
        self.cost = cost = Cost(told.cost.amount, told.cost.currency)
        if before is None:
            return None
        if before.unit == cost.unit and before.amount <= cost.amount:
            return Cost(cost.amount - before.amount, cost.unit)
        # Nothing was spent before, or the agent was started again and counts from nothing.
        return cost

    def was_set(self, method: str, params: Raw, result: Raw) -> None:
        """A caller has changed a setting: whoever opens the session next is to know."""
        self.look()
        kept = self.sheltered
        try:
            if method == acp.SESSION_SET_MODE.name and kept.modes is not None:
                mode = acp.SESSION_SET_MODE.decode_params(params).mode_id
                kept.modes = replace(kept.modes, current_mode_id=mode)
            elif method == acp.SESSION_SET_MODEL.name and kept.models is not None:
                model = acp.SESSION_SET_MODEL.decode_params(params).model_id
                kept.models = replace(kept.models, current_model_id=model)
            elif method == acp.SESSION_SET_CONFIG_OPTION.name:
                response = acp.SESSION_SET_CONFIG_OPTION.decode_result(result)
                kept.config_options = response.config_options
        except msgspec.ValidationError as error:
            log.debug("a setting is not remembered: %s", error)

    # -- when the peer is started again

    def lost(self) -> None:
        """The new process does not have it either, so it still belongs to the one before."""
        self.far = self._before
        self.end_replay()

    def moved(self, far: PeerLink, id: str) -> None:
        """The session lives on in a new process, perhaps under a new name there."""
        settings = self.sheltered
        if self.far is not far:
            self._before = self.far
        self.far = far
        self.id = id
        self.names.add(id)
        self.cancelling = Cancelling()
        self.sheltered = far.client.shelter(id, self.cwd, self.additional)
        self.sheltered.opened(settings.modes, settings.models, settings.config_options)
        far.upstream.route(id, self)


def _log_untold(error: DragomanError) -> None:
    """A caller that has gone needs no update; one that is there misses it."""
    level = logging.DEBUG if isinstance(error, ConnectionLost) else logging.WARNING
    log.log(level, "an update did not reach its caller: %s", error)
