"""An open session of the peer, shared by callers. Passes updates on to its readers and the log.

Keeps the settings as last reported, and every session id that callers use: a restarted peer may
give the session a new id. `turns` runs its turns, `peer_requests` answers the peer's requests,
`sessions` opens and restores it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from dragoman.broker.server.cancellation import Cancelling, Phase
from dragoman.broker.server.event_log import EventLog, LogLimits
from dragoman.broker.server.event_reader import EventReader, log_untold, renamed
from dragoman.broker.server.peer_requests import PERMISSION, PeerQuestions
from dragoman.broker.server.replay import Replay
from dragoman.client.acp.session import APPLY, Session
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.codec import decoder
from dragoman.errors import DragomanError
from dragoman.events.parts import Cost, Usage
from dragoman.events.words import ToolStatus, tool_status
from dragoman.store.records import root_of
from dragoman.wire.messages import Notification, Request

if TYPE_CHECKING:
    from dragoman.broker.server.caller import Caller
    from dragoman.broker.server.jobs import Job
    from dragoman.broker.server.peer import PeerLink
    from dragoman.broker.server.recorder import BrokerRecorder

log: Final = logging.getLogger("dragoman.broker")

FLUSH_SIZE: Final = 256 * 1024
"""Size of pending updates, in bytes, at which they are stored without waiting for the next
flush."""

_decode_update: Final = decoder(acp.SessionNotification)
_SETTINGS: Final = (
    *(b'"current_mode_update"', b'"config_option_update"'),
    *(b'"session_info_update"', b'"usage_update"'),
)

_ANY_SETTING: Final = b'_update"'
"""The common suffix of the names in `_SETTINGS`. Agent text cannot contain it, because JSON escapes
the quote. So one quick search rules out most lines."""

NOTHING_SPENT: Final = Cost(0.0, "")
"""The cost of a new session, in any currency."""


class LiveSession:
    """A session that the peer has open, or had before its restart."""

    def __init__(
        self,
        recorder: BrokerRecorder,
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
        self._recorder = recorder
        self.far = self._before = far
        self.id = id
        """The peer's session id."""
        self.first_id = id
        """The peer's session id when the broker opened it."""
        self.names = {id}
        """Session ids that callers may use."""
        self.key = key
        self.name = name
        self.cwd = cwd
        self.root = str(root_of(cwd))
        """The root directory of its project, under which the store finds it."""
        self.additional = tuple(additional)
        self.mcp_servers = mcp_servers
        self.opening: Raw | None = None
        """The parameters that opened the session, and open it again as it is. None for a fork or a
        reopened session, and after the first prompt or setting."""
        self.log = EventLog(next_event, room=room)
        self._looked = next_event
        self.live: list[EventReader] = []
        self.readers: dict[Caller, EventReader] = {}
        self.job: Job | None = None
        """The job whose turn runs."""
        self.cancelling = Cancelling()
        self.questions = PeerQuestions(self)
        self.marked = False
        """Whether something is to be stored at the next flush."""
        self.cost: Cost | None = None
        """Cost at the end of the last turn; None if unknown."""
        self._counted: acp.UsageUpdate | None = None
        self._described: tuple[Any, ...] = (None, None, None, None)
        self.whole = True
        """Whether the log and the store have every event since the session began."""
        self.created_at = 0.0
        self.once = False
        """Whether the session is closed when its jobs have ended and no caller has it open."""
        self._holding = False
        self._held: list[Notification] = []
        """Updates that arrived between the end of a turn and the response to its caller."""
        self.replay: Replay | None = None
        """Set while incoming updates are replayed history."""
        self.sheltered: Session = far.client.shelter(id, cwd, self.additional)
        """The peer client's session object: it serves files and terminals and keeps the
        settings."""

    # -- messages from the peer

    def update(self, notification: Notification) -> None:
        """Append an update to the log and send it to the readers, without decoding it: this is the
        hot path of a turn. A replayed update goes only to the caller of the replay; while updates
        are held back, none is sent."""
        if self.replay is not None:
            self._replayed(self.replay, notification.params)
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
                    log_untold(error)
            if slow is not None:
                for reader in slow:
                    reader.fall_behind(number)
        if not self.marked:
            self.marked = True
            self._recorder.mark(self)
        elif log_.untaken_size >= FLUSH_SIZE:
            self._recorder.save(self)

    def update_all(self, notifications: Sequence[Notification]) -> None:
        """Like `update`, for updates that arrived together: each takes half the time."""
        if self.replay is not None or self._holding or len(self.names) > 1:
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
                # Skip an update that is too long, but not the others.
                pass
            for notification in notifications:
                try:
                    reader.tell(notification)
                except DragomanError as error:
                    log_untold(error)
        if not self.marked:
            self.marked = True
            self._recorder.mark(self)
        if log_.untaken_size >= FLUSH_SIZE:
            self._recorder.save(self)

    @property
    def renamed(self) -> bool:
        """Whether some callers use a session id that differs from the peer's."""
        return len(self.names) > 1

    def _tell_renamed(self, number: int, event: Notification) -> None:
        for reader in list(self.live):
            if reader.connection.is_full:
                reader.fall_behind(number)
                continue
            try:
                reader.tell(event)
            except DragomanError as error:
                log_untold(error)

    def request(self, request: Request) -> Any:
        """Handle a request from the peer. Outside of turns it goes to no caller, so it may overtake
        updates that are held back."""
        if request.method == PERMISSION:
            # Stored first, so that the request is known whatever is decided and whatever crashes
            # because of it.
            self._recorder.hasten(self)
        return self.questions.request(request)

    def answer(self, request: Request, result: Any) -> None:
        self.far.connection.answer(request, result)

    def refuse(self, request: Request, code: int, message: str, data: Any = None) -> None:
        self.far.connection.refuse(request, code, message, data)

    # -- between the end of a turn and the response to its caller

    def hold_updates(self) -> None:
        """Hold back updates from now on."""
        self._holding = True

    def pass_held_updates(self) -> None:
        """Send the held updates and stop holding them back."""
        self._holding = False
        held, self._held = self._held, []
        for notification in held:
            self.update(notification)

    # -- replayed history

    @property
    def replaying(self) -> bool:
        """Whether incoming updates are replayed history."""
        return self.replay is not None

    def begin_replay(self, caller: Caller | None) -> Replay:
        """Treat incoming updates as history, which goes only to `caller`, or is dropped if that is
        None."""
        self.end_replay()
        self.replay = Replay(caller, self.far.connection.flow)
        return self.replay

    def end_replay(self) -> None:
        if self.replay is not None:
            self.replay.end()
            self.replay = None

    def _replayed(self, replay: Replay, line: Raw) -> None:
        replay.heard_at = asyncio.get_running_loop().time()
        self._look_at(bytes(line))
        caller = replay.caller
        if caller is not None and caller.connection.failure is None:
            name = self.name_for(caller)
            replay.send(caller.connection, line if name == self.id else renamed(line, name))

    # -- readers

    def reader(self, caller: Caller) -> EventReader:
        """Return the reader of a caller; create it on first use."""
        reader = self.readers.get(caller)
        if reader is None:
            # A caller without a handshake announced nothing: it is ours, and accepts every update.
            known = caller.capabilities if caller.greeted else None
            reader = self.readers[caller] = EventReader(self, caller.connection, self.id, known)
        return reader

    def name_for(self, caller: Caller) -> str:
        """Return the session id that a caller uses."""
        reader = self.readers.get(caller)
        return self.id if reader is None else reader.session_id

    def open_for(self, caller: Caller, name: str) -> None:
        """Called when a caller opens the session under this id."""
        reader = self.reader(caller)
        reader.session_id = name
        reader.opened = True
        caller.sessions[name] = self
        if self.job is None:
            reader.want()

    def close_for(self, caller: Caller) -> None:
        """Called when a caller no longer uses the session."""
        reader = self.readers.pop(caller, None)
        if reader is not None:
            reader.leave()
        for name in [name for name, each in caller.sessions.items() if each is self]:
            del caller.sessions[name]

    def turn_began(self, caller: Caller | None) -> None:
        """Called when a turn begins.

        Updates now go to the caller that prompted and to those that follow everything.
        """
        for each, reader in self.readers.items():
            if each is not caller and not reader.attached:
                reader.unwant()
        if caller is not None:
            self.reader(caller).want()

    def turn_ended(self) -> None:
        """Called when a turn ends. Updates now go to all callers that have the session open."""
        for reader in self.readers.values():
            if reader.opened or reader.attached:
                reader.want()
            else:
                reader.unwant()

    async def fetch(self, start: int, stop: int) -> tuple[int, Sequence[bytes]]:
        """Read lines that are no longer in memory. Returns the number of the first one that still
        exists, and the lines from there; see `BrokerRecorder.fetch`."""
        return await self._recorder.fetch(self.key, start, stop)

    def tool_reports(self, start: int) -> Iterator[tuple[str, ToolStatus | None]]:
        """Yield the tool calls that the peer reported from event `start` on, as far as these events
        are in memory, with their status; None if the status was not reported."""
        for event in self.log.lines(max(start, self.log.first), max_size=sys.maxsize):
            if b'"tool_call' in event.line:
                with suppress(msgspec.ValidationError):
                    update = _decode_update(event.params).update
                    if isinstance(update, acp.ToolCall | acp.ToolCallProgress):
                        status = None if update.status is None else tool_status(update.status)
                        yield update.tool_call_id, status

    # -- settings and usage

    @property
    def is_cancelling(self) -> bool:
        return self.cancelling.phase is Phase.CANCELLING

    @property
    def quarantined(self) -> bool:
        return self.cancelling.phase is Phase.QUARANTINED

    def note(self, kind: str, data: dict[str, Any]) -> None:
        self._recorder.note(self, kind, data)

    def look(self) -> None:
        """Update the settings from the updates since the last call."""
        events = self.log.lines(max(self._looked, self.log.first), max_size=sys.maxsize)
        self._looked = self.log.next
        self._look_over([bytes(event.params) for event in events])

    def look_through(self, first: int, lines: Sequence[bytes]) -> None:
        """Like `look`, for lines taken from the log, starting at number `first`. Lines already
        inspected are skipped."""
        seen = self._looked - first
        self._looked = max(self._looked, first + len(lines))
        self._look_over(lines[seen:] if seen > 0 else lines)

    def _look_over(self, lines: Sequence[bytes]) -> None:
        # Search all of them at once first: nearly always there is no match.
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
        """Return the modes, models and options as last reported, in the form of the response that
        opens a session."""
        self.look()
        kept = self.sheltered
        response = acp.ResumeSessionResponse(
            modes=kept.modes, models=kept.models, config_options=kept.config_options
        )
        settings: dict[str, Any] = msgspec.json.decode(acp.encode(response))
        return settings

    def described(self) -> dict[str, str | None]:
        """Return the known title, mode and model as last reported; empty if none of them can have
        changed since the last call."""
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
        """Return the context usage, and the session's cost since the last call; None if the peer
        has reported no usage since that call."""
        self.look()
        told = self.sheltered.usage
        if told is None or told is self._counted:
            return None
        self._counted = told
        return Usage(context_used=told.used, context_size=told.size, cost=self._spent(told))

    def _spent(self, told: acp.UsageUpdate) -> Cost | None:
        """Return what was spent since `cost` was last updated, and update it: agents report the
        cost of the whole session. None if unknown."""
        before = self.cost
        if told.cost is None:
            return None
        self.cost = cost = Cost(told.cost.amount, told.cost.currency)
        if before is None:
            return None
        if before.unit == cost.unit and before.amount <= cost.amount:
            return Cost(cost.amount - before.amount, cost.unit)
        # Nothing was spent before, or the agent was restarted and counts from zero.
        return cost

    def was_set(self, method: str, params: Raw, result: Raw) -> None:
        """Record that a caller changed a setting, for the next caller that opens the session."""
        self.opening = None
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
            log.debug("cannot read a session setting: %s", error)

    # -- peer restarts

    def lost(self) -> None:
        """Return the session to the peer process that it had before `moved`, because the new
        process could not open it. The id and the settings stay as `moved` left them."""
        self.far = self._before
        self.end_replay()

    def moved(self, far: PeerLink, id: str) -> None:
        """Continue the session in a new process of the peer, perhaps under a new id, with the
        settings last reported."""
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
