"""One conversation with an agent that speaks ACP v1.

Keeps the state of a session: its settings as last reported, the running turn, and the updates that
arrive outside turns. It does not decode messages (`inbound` and `client` do) or follow a turn
(`turn` does).

A session of the conversation API has a `record` (`event_source`): its updates become events. One of
the typed client has none and yields the updates themselves. An update goes to the running turn; to
`replayed` while history is being replayed; otherwise to `outside`, which keeps the newest.
`on_update` is called immediately with every update.

History ends with a short quiet period after the response to the load, not with the response: one
real agent sends the first message of its history before the response and the others after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from dragoman.client.acp.calls import Calls
from dragoman.client.acp.settings import AcpSettings
from dragoman.client.acp.turn import Turn
from dragoman.client.conversation import Conversation, require_unicode, wrong_prompt
from dragoman.client.open_questions import OpenQuestions
from dragoman.client.permissions import Answer, Decision, Question
from dragoman.client.results import Result
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.errors import ConnectionLost, DragomanError
from dragoman.events import model
from dragoman.events.parts import Block

if TYPE_CHECKING:
    from dragoman.client.acp.client import AcpClient
    from dragoman.client.acp.event_source import EventSource
    from dragoman.client.services.terminals import Terminals
    from dragoman.wire.messages import Notification

log: Final = logging.getLogger("dragoman.client")

_CHUNK: Final = acp.AgentMessageChunk

Prompt: TypeAlias = str | Block | acp.ContentBlock | Sequence[Block | acp.ContentBlock]
"""Text, or blocks in the types of events or of the protocol."""

CLOSE_TIMEOUT: Final = 5.0
"""Timeout for the agent's response to closing a session. The session is forgotten here in any
case."""

KEPT_OUTSIDE: Final = 256
"""Maximum number of updates kept outside turns; older ones are dropped and counted."""


class Session(AcpSettings, Conversation):
    """A session of an agent. Created by the client's methods that open one, such as `new_session`,
    and by `Peer.session`."""

    __slots__ = (
        *("_heard_at", "_load_answered_at", "_replaying", "_turns"),
        *("answer_meta", "began_here"),
        *("calls", "commands", "info", "on_update", "outside", "outside_dropped", "place"),
        *("questions", "record", "replayed", "serving", "turn", "unusable", "usage"),
    )

    def __init__(
        self,
        client: AcpClient,
        id: str,
        cwd: Path,
        additional_directories: Sequence[Path] = (),
        record: EventSource | None = None,
    ) -> None:
        super().__init__(client, id, cwd, additional_directories)
        self.commands: Sequence[acp.AvailableCommand] = ()
        """The agent's slash commands, as last reported."""
        self.info: acp.SessionInfoUpdate | None = None
        """The session's title and the time of its last change, as last reported."""
        self.usage: acp.UsageUpdate | None = None
        """Context usage and cost, as last reported."""
        # For questions that say less than earlier updates.
        self.calls = Calls()
        self.answer_meta: dict[str, Any] | None = None
        """The `_meta` of the response that opened the session."""
        self.turn: Turn | None = None
        """The running turn, if any."""
        self.unusable = False
        """Whether the session was closed, or abandoned because the agent did not respond to a
        cancellation."""
        self.on_update: Callable[[acp.SessionUpdate], None] | None = None
        """Called with every update on arrival, inside and outside turns."""
        # Not a deque: an empty one takes 700 bytes, and most stay empty.
        self.outside: list[acp.SessionUpdate] = []
        """The newest updates received outside turns, at most 256."""
        self.outside_dropped = 0
        """Number of updates dropped from `outside`."""
        self.replayed: list[Any] = []
        """The history that the agent replayed when the session was loaded: updates, or events in
        a session of `dragoman.connect`."""
        # Whether the session is new; then its cost so far is zero.
        self.began_here = False
        self._replaying = False
        self._load_answered_at: float | None = None
        self._heard_at = 0.0
        self.questions = OpenQuestions()
        self.serving = 0
        """Number of the agent's file and terminal requests that are being served."""
        self.record = record
        # Without events the envelope only fills the fields that a turn counts.
        self.place = client.feed.no_session if record is None else record.place(id)
        self._turns = 0

    # -- prompting

    def prompt(self, prompt: Prompt, *, meta: dict[str, Any] | None = None) -> Turn:
        """Return a turn with this prompt; it begins when its ``async with`` block is entered.

        `meta` is sent as its `_meta`. Raises `Unsupported` for content that the agent did not
        advertise.
        """
        if isinstance(prompt, str):
            if not prompt.isascii():
                require_unicode(prompt)
            text = (acp.TextContent(text=prompt),)
            return Turn(self, text, text, meta)
        given: Sequence[Any]
        if isinstance(prompt, Struct):
            given = (prompt,)
        elif isinstance(prompt, list | tuple) and all(isinstance(each, Struct) for each in prompt):
            given = tuple(prompt)
        else:
            raise wrong_prompt(prompt, "dragoman.events.parts.Text")
        wire = [translate.to_block(each) if isinstance(each, Block) else each for each in given]
        self.client.require_content(wire)
        return Turn(self, given, wire, meta)

    async def ask(self, prompt: Prompt) -> Result:
        """Send a prompt, wait until the turn ends, and return its outcome and the whole text."""
        turn = self.prompt(prompt)
        turn.max_text_size = None
        async with turn:
            return await turn.wait()

    # -- the end

    async def close(self) -> None:
        """Cancel the running turn, close the session at the agent if that is supported, and forget
        the session here."""
        if self.turn is not None:
            self.turn.cancel()
        client = self.client
        try:
            if client.connection.failure is None and client.can("sessionCapabilities.close"):
                await self._close_there()
        finally:
            await self.release()

    async def _close_there(self) -> None:
        request = acp.CloseSessionRequest(session_id=self.id)
        if self.unusable:
            # The agent did not answer a cancel, so it may not answer this either.
            self.client.connection.begin(
                acp.SESSION_CLOSE.name, request, settle=_ignore, timeout=CLOSE_TIMEOUT
            )
            return
        timeout = min(CLOSE_TIMEOUT, self.client.budgets.request)
        # An agent that disconnects has ended the session too.
        with suppress(ConnectionLost):
            await self.client.ask(acp.SESSION_CLOSE, request, timeout=timeout)

    async def release(self) -> None:
        """Forget the session here without notifying the agent."""
        terminals = self.let_go()
        if terminals is not None:
            await terminals.aclose()

    def let_go(self) -> Terminals | None:
        """Forget the session at once, and return its terminals, if any, for the caller to close."""
        self.client.forget(self)
        self.unusable = True
        self.cancel_questions()
        return self._terminals

    # -- for the client: opening

    def opened(self, modes: Any, models: Any, config_options: Any) -> None:
        super().opened(modes, models, config_options)
        if self.record is not None:
            self.record.opened = self

    def announce(self, how: str, line: bytes | None) -> None:
        """Emit `SessionOpened`, and then the session's settings. `how` is the name of the method
        that opened it, without ``session/``, and `line` the response."""
        native = f"session/{how}"
        model_id = self.models.current_model_id if self.models else None
        base = self.place.base(native, line)
        self._hand_over(model.SessionOpened(*base, how, str(self.cwd), None, model_id), 0)
        self.settings_changed(native, line)

    def settings_changed(self, native: str = "", line: bytes | None = None) -> None:
        if self.record is not None:
            fields = translate.settings(self.modes, self.config_options, self.models)
            if fields:
                self._hand_over(model.SettingsChanged(*self.place.base(native, line), **fields), 0)

    # -- for the client: what arrives

    def new_turn(self) -> None:
        """Count a new turn, to which the events from now on belong. Does nothing if the session
        makes no events."""
        if self.record is not None:
            self._turns += 1
            self.place.turn = f"t{self._turns}"
            self.place.replay = False

    def deliver(self, update: acp.SessionUpdate, line: bytes) -> None:
        """Deliver an update of this session, received in this line."""
        # The most common update has no lasting state.
        if type(update) is not _CHUNK:
            apply = APPLY.get(type(update))
            if apply is not None:
                apply(self, update)
        if self.on_update is not None:
            self._observe(update)
        turn = self.turn
        if turn is None:
            self._deliver_outside(update, line)
            return
        record = self.record
        if record is None:
            turn.update(update, len(line))
            return
        size = len(line)
        on_event = record.on_event
        for event in translate.of_update(update, self.place, line):
            if on_event is not None:
                record.emit(event)
            turn.event(event, size)
            # The line counts once, even if it makes several events.
            size = 0

    def _deliver_outside(self, update: acp.SessionUpdate, line: bytes) -> None:
        if self.record is not None:
            place = self.place
            place.turn = None
            place.replay = self.replaying
            for event in translate.of_update(update, place, line):
                self.record.emit(event)
                if place.replay:
                    self.replayed.append(event)
        self.keep(update)

    def deliver_early(self, update: acp.SessionUpdate) -> None:
        """Deliver an update that came before the session was open. Its events were emitted when it
        arrived."""
        apply = APPLY.get(type(update))
        if apply is not None:
            apply(self, update)
        if self.on_update is not None:
            self._observe(update)
        self.keep(update)

    def _observe(self, update: acp.SessionUpdate) -> None:
        assert self.on_update is not None
        try:
            self.on_update(update)
        except Exception:
            # An observer that raises must not stop the others.
            log.exception("the on_update callback of a session failed")

    def keep(self, update: acp.SessionUpdate) -> None:
        """Keep an update that arrived outside a turn: in `outside`, or in `replayed` during a
        replay. If the session makes events, `replayed` has those instead of the updates."""
        if self.replaying:
            self._heard_at = asyncio.get_running_loop().time()
            if self.record is None:
                self.replayed.append(update)
        else:
            if len(self.outside) == KEPT_OUTSIDE:
                del self.outside[0]
                self.outside_dropped += 1
            self.outside.append(update)

    def heard(self, message: Notification, reason: str) -> bool:
        """Emit an `Unknown` event for a message about this session that cannot be decoded. Returns
        False, and emits nothing, if the session makes no events."""
        if self.record is None:
            return False
        if self.turn is None:
            self.place.turn = None
        unknown = model.Unknown(*self.place.base(message.method, message.line), reason)
        self._hand_over(unknown, len(message.line))
        return True

    def _hand_over(self, event: model.Event, size: int) -> None:
        """Deliver an event that was not made from an update. It goes to the observer and to the
        running turn, if any."""
        assert self.record is not None
        self.record.emit(event)
        if self.turn is not None:
            self.turn.event(event, size)

    # -- for the client: the replay of history

    @property
    def replaying(self) -> bool:
        """Whether an update that arrives now, outside a turn, belongs to the replayed history."""
        if self._replaying and self._replay_left() <= 0:
            self._replaying = False
        return self._replaying

    @replaying.setter
    def replaying(self, replaying: bool) -> None:
        self._replaying = replaying

    def _replay_left(self) -> float:
        """Return how many seconds are left until the replay counts as over, if nothing more
        arrives."""
        if self._load_answered_at is None:
            return self.client.budgets.replay_total
        budgets = self.client.budgets
        over_at = min(
            self._heard_at + budgets.replay_quiet, self._load_answered_at + budgets.replay_total
        )
        return over_at - asyncio.get_running_loop().time()

    def replay_answered(self) -> None:
        """Called when the response to a load arrives: history ends with the first quiet period from
        now on."""
        self._load_answered_at = self._heard_at = asyncio.get_running_loop().time()

    async def wait_replayed(self) -> None:
        """Wait for the end of a replay. Usually there is none, and this returns at once."""
        while self.replaying and self.client.connection.failure is None:  # noqa: ASYNC110 - below
            # This waits for the absence of updates.
            await asyncio.sleep(self._replay_left())
        self._replaying = False

    # -- services

    @property
    def missing_file_is_empty(self) -> bool:
        return self.client.options.missing_file_is_empty

    # -- inside: open questions of the agent

    def asked(self, request: acp.RequestPermissionRequest, line: bytes) -> str:
        """Report a permission request to the consumers of the session, with its tool call, which
        may be new: two real agents announce it nowhere else. Returns the question's id, or an empty
        string if the session makes no events."""
        if self.record is not None:
            return self._asked(self.record, request, line)
        call = request.tool_call
        # Written out: a loop over names takes five times as long.
        update = acp.ToolCallProgress(
            tool_call_id=call.tool_call_id,
            title=call.title,
            name=call.name,
            kind=call.kind,
            status=call.status,
            content=call.content,
            locations=call.locations,
            raw_input=call.raw_input,
            raw_output=call.raw_output,
            meta=call.meta,
            extra=call.extra,
        )
        if self.on_update is not None:
            self._observe(update)
        if self.turn is not None:
            self.turn.asked(update, len(line))
        else:
            self.keep(update)
        return ""

    def _asked(
        self, record: EventSource, request: acp.RequestPermissionRequest, line: bytes
    ) -> str:
        request_id = record.new_request_id()
        if self.turn is None:
            self.place.turn = None
        size = len(line)
        for event in translate.of_permission(request, request_id, self.place, line):
            self._hand_over(event, size)
            size = 0
        return request_id

    def answered(
        self, record: EventSource, question: Question, answer: Decision, option_id: str | None
    ) -> None:
        """Emit the event for the answer to a question, and deliver it to the running turn."""
        turn = self.turn
        if turn is None:
            # The question may be of a turn that has ended.
            self.place.turn = None
        event = model.PermissionAnswered(
            *self.place.base(acp.SESSION_REQUEST_PERMISSION.name, None),
            question.request_id,
            answer.allows,
            option_id,
            "cancel" if answer is Answer.CANCEL else "caller",
        )
        record.emit(event)
        if turn is not None:
            # Not urgent: the agent already has its answer.
            turn.put_unhurried(event, 0)

    def cancel_questions(self) -> None:
        """Answer every open question as cancelled."""
        self.questions.call_off()


def _ignore(result: Raw | None, error: DragomanError | None) -> None:
    """Ignore the outcome of a call."""


def _set_mode(session: Session, update: Any) -> None:
    if session.modes is not None:
        session.modes = replace(session.modes, current_mode_id=update.current_mode_id)


def _set_config(session: Session, update: Any) -> None:
    session.config_options = update.config_options


def _set_commands(session: Session, update: Any) -> None:
    session.commands = update.available_commands


def _set_info(session: Session, update: Any) -> None:
    session.info = update


def _hear_call(session: Session, update: Any) -> None:
    session.calls.heard(update)


def _set_usage(session: Session, update: Any) -> None:
    session.usage = update


APPLY: Final[dict[type, Callable[[Session, Any], None]]] = {
    acp.CurrentModeUpdate: _set_mode,
    acp.ConfigOptionUpdate: _set_config,
    acp.AvailableCommandsUpdate: _set_commands,
    acp.SessionInfoUpdate: _set_info,
    acp.UsageUpdate: _set_usage,
    acp.ToolCall: _hear_call,
    acp.ToolCallProgress: _hear_call,
}
"""Functions that apply an update to the session, by type, for updates that change its lasting
state."""
