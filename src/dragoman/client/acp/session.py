"""One conversation with an agent that speaks ACP v1.

Owns what is known of a session: its settings as last reported, the turn that runs, and what came
outside of turns. It does not decode (`client` does) and does not follow a turn (`turn` does).

A session of the conversation API has a `record` (`event_source`): its updates become events. One of
the typed client has none, and gives the updates themselves. Where one of them goes: to the running
turn; to `replayed` while history is being replayed; else an update is kept in `outside`, which has
the newest ones. `on_update` sees all updates, at once.

History ends with a short quiet after the answer to the load, and not with the answer: one real
agent sends the first message of its history before the answer and the others after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
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
from dragoman.errors import ConnectionLost
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
"""Text, or blocks in the words of events or of the protocol."""

KEPT_OUTSIDE: Final = 256
"""Updates outside of turns that are kept; older ones are dropped and counted."""


class Session(AcpSettings, Conversation):
    """A session of an agent. Made by the client's `new_session`, `load_session` and the like, and
    by `Peer.session`."""

    __slots__ = (
        *("_early", "_heard_at", "_load_answered_at", "_replaying", "_turns"),
        *("answer_meta", "began_here"),
        *("calls", "commands", "info", "on_update", "outside", "outside_dropped", "place"),
        *("questions", "record", "replayed", "turn", "unusable", "usage"),
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
        """The slash commands."""
        self.info: acp.SessionInfoUpdate | None = None
        """The title and the time of the last change, as last told."""
        self.usage: acp.UsageUpdate | None = None
        """How full the context is and what it cost, as last told."""
        # For questions that tell less than was told before.
        self.calls = Calls()
        self.answer_meta: dict[str, Any] | None = None
        """The `_meta` of the answer that opened the session."""
        self.turn: Turn | None = None
        """The turn that is running, if one is."""
        self.unusable = False
        """Whether the session was closed, or given up after a cancel that was never answered."""
        self.on_update: Callable[[acp.SessionUpdate], None] | None = None
        """Called with every update when it arrives, in a turn and outside."""
        # Not a deque: one takes 700 bytes as long as it is empty, and most stay empty.
        self.outside: list[acp.SessionUpdate] = []
        """The last updates that belonged to no turn."""
        self.outside_dropped = 0
        """How many more there were."""
        self.replayed: list[Any] = []
        """The history that the agent replayed when the session was loaded: updates, or events
        where they are made."""
        # Whether the session is a new one, so that nothing was spent in it before.
        self.began_here = False
        self._replaying = False
        self._load_answered_at: float | None = None
        self._heard_at = 0.0
        self.questions = OpenQuestions()
        self.record = record
        # Without events the envelope only fills the fields of what a turn counts.
        self.place = client.feed.no_session if record is None else record.place(id)
        self._turns = 0
        # Updates that come once more because the session is open now. Their events were told.
        self._early = 0 if record is None else record.early_told.pop(id, 0)

    # -- prompting

    def prompt(self, prompt: Prompt, *, meta: dict[str, Any] | None = None) -> Turn:
        """A turn with this prompt; it begins when its ``async with`` block is entered.

        `meta` travels with it as its `_meta`. Raises `Unsupported` for content that the agent did
        not say it accepts.
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
        """Send a prompt and wait for its end. The result says how it ended, and what was said."""
        turn = self.prompt(prompt)
        turn.max_text_size = None
        async with turn:
            return await turn.wait()

    # -- the end

    async def close(self) -> None:
        """End the session at the agent where it can do that, and forget it here."""
        if self.turn is not None:
            self.turn.cancel()
        try:
            # An agent that goes away has ended the session too.
            with suppress(ConnectionLost):
                if self.client.can("sessionCapabilities.close"):
                    await self.client.ask(
                        acp.SESSION_CLOSE, acp.CloseSessionRequest(session_id=self.id)
                    )
        finally:
            await self.release()

    async def release(self) -> None:
        """Forget the session here without telling the agent."""
        terminals = self.let_go()
        if terminals is not None:
            await terminals.aclose()

    def let_go(self) -> Terminals | None:
        """Forget the session at once; what is returned still has to be closed."""
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
        """Say that the session is there, and what its settings are."""
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
        """What comes from now on belongs to another turn."""
        if self.record is not None:
            self._turns += 1
            self.place.turn = f"t{self._turns}"
            self.place.replay = False

    def deliver(self, update: acp.SessionUpdate, line: bytes) -> None:
        """An update of this session arrived, in this line."""
        # The commonest of all reports nothing lasting.
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
            # The line counts once, however many events it makes.
            size = 0

    def _deliver_outside(self, update: acp.SessionUpdate, line: bytes) -> None:
        if self._early:
            self._early -= 1
        elif self.record is not None:
            place = self.place
            place.turn = None
            place.replay = self.replaying
            for event in translate.of_update(update, place, line):
                self.record.emit(event)
                if place.replay:
                    self.replayed.append(event)
        self.keep(update)

    def _observe(self, update: acp.SessionUpdate) -> None:
        assert self.on_update is not None
        try:
            self.on_update(update)
        except Exception:
            # One observer must not stop the others.
            log.exception("the observer of a session's updates failed")

    def keep(self, update: acp.SessionUpdate) -> None:
        """Keep an update that belongs to no turn."""
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
        """A message about this session cannot be read. Returns whether that was told here."""
        if self.record is None:
            return False
        if self.turn is None:
            self.place.turn = None
        unknown = model.Unknown(*self.place.base(message.method, message.line), reason)
        self._hand_over(unknown, len(message.line))
        return True

    def _hand_over(self, event: model.Event, size: int) -> None:
        """An event that no update made: to the observer, and to the turn if one runs."""
        assert self.record is not None
        self.record.emit(event)
        if self.turn is not None:
            self.turn.event(event, size)

    # -- for the client: the replay of history

    @property
    def replaying(self) -> bool:
        """Whether what arrives now, outside of turns, is history."""
        if self._replaying and self._replay_left() <= 0:
            self._replaying = False
        return self._replaying

    @replaying.setter
    def replaying(self, replaying: bool) -> None:
        self._replaying = replaying

    def _replay_left(self) -> float:
        """Seconds until the replay counts as over, if nothing more comes."""
        if self._load_answered_at is None:
            return self.client.budgets.replay_total
        budgets = self.client.budgets
        over_at = min(
            self._heard_at + budgets.replay_quiet, self._load_answered_at + budgets.replay_total
        )
        return over_at - asyncio.get_running_loop().time()

    def replay_answered(self) -> None:
        """The answer to a load arrived: history ends with the first quiet from here on."""
        self._load_answered_at = self._heard_at = asyncio.get_running_loop().time()

    async def wait_replayed(self) -> None:
        """Wait for the end of a replay. Without one, which is the rule, nothing waits."""
        while self.replaying and self.client.connection.failure is None:  # noqa: ASYNC110 - below
            # What is waited for is that nothing comes.
            await asyncio.sleep(self._replay_left())
        self._replaying = False

    # -- services

    @property
    def missing_file_is_empty(self) -> bool:
        return self.client.options.missing_file_is_empty

    # -- questions of the agent that are open

    def asked(self, request: acp.RequestPermissionRequest, line: bytes) -> str:
        """The agent asks for permission. The tool call may be seen here for the first time: two
        real agents announce it nowhere else. Returns what the question is called, if anything."""
        if self.record is not None:
            return self._asked(self.record, request, line)
        update = _progress(request.tool_call)
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

    def answered(self, question: Question, answer: Decision, option_id: str | None) -> None:
        """The question was answered."""
        turn = self.turn
        if turn is not None:
            turn.answered(question, answer)
        if self.record is None:
            return
        event = model.PermissionAnswered(
            *self.place.base(acp.SESSION_REQUEST_PERMISSION.name, None),
            question.request_id,
            answer.allows,
            option_id,
            "cancel" if answer is Answer.CANCEL else "caller",
        )
        self.record.emit(event)
        if turn is not None:
            # It is history: the agent has its answer before anybody is told of it.
            turn.put_unhurried(event, 0)

    def cancel_questions(self) -> None:
        """Stop asking: every open question is answered as cancelled."""
        self.questions.call_off()


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
"""How a session takes over what an update reports, for those that report something lasting."""


def _progress(call: acp.ToolCallUpdate) -> acp.ToolCallProgress:
    # Written out: by name and in a loop it takes five times as long.
    return acp.ToolCallProgress(
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
