"""One conversation with an agent.

Owns what is known of a session: its settings as last reported, the turn that runs, and the updates
that belong to no turn. It does not decode (`client` does) and does not follow a turn (`turn` does).

Where an update goes: to the running turn; to `replayed` while history is being replayed; else to
`outside`, which keeps the newest ones. `on_update` sees all of them, at once.

History ends with a short quiet after the answer to the load, and not with the answer: one real
agent sends the first message of its history before the answer and the others after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client.acp.calls import Calls
from dragoman.client.acp.turn import Turn
from dragoman.client.base import WorkspaceServices
from dragoman.client.open_questions import OpenQuestions
from dragoman.client.permissions import Decision, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.session import is_open_ended
from dragoman.errors import DragomanError, Unsupported
from dragoman.errors.usage import alternatives

if TYPE_CHECKING:
    from dragoman.client.acp.client import AcpClient
    from dragoman.client.services.terminals import Terminals
    from dragoman.wire.messages import Notification

log: Final = logging.getLogger("dragoman.client")

KEPT_OUTSIDE: Final = 256
"""Updates outside of turns that are kept; older ones are dropped and counted."""


class Session(WorkspaceServices):
    """A session of an agent. Made by the client's `new_session`, `load_session` and the like."""

    __slots__ = (
        "_heard_at",
        "_load_answered_at",
        "_replaying",
        "calls",
        "client",
        "commands",
        "config_options",
        "id",
        "info",
        "models",
        "modes",
        "on_update",
        "outside",
        "outside_dropped",
        "questions",
        "replayed",
        "turn",
        "unusable",
        "usage",
    )

    def __init__(
        self, client: AcpClient, id: str, cwd: Path, additional_directories: Sequence[Path] = ()
    ) -> None:
        super().__init__(cwd, additional_directories)
        self.client = client
        self.id = id
        self.modes: acp.SessionModeState | None = None
        """The modes and the current one, if the agent has modes."""
        self.models: acp.SessionModelState | None = None
        """The models and the current one, where the agent tells them apart from options."""
        self.config_options: Sequence[acp.SessionConfigOption] | None = None
        """The config options with their current values."""
        self.commands: Sequence[acp.AvailableCommand] = ()
        """The slash commands."""
        self.info: acp.SessionInfoUpdate | None = None
        """The title and the time of the last change, as last told."""
        self.usage: acp.UsageUpdate | None = None
        """How full the context is and what it cost, as last told."""
        # For questions that tell less than was told before.
        self.calls = Calls()
        self.turn: Turn | None = None
        """The turn that is running, if one is."""
        self.unusable = False
        """Whether the session was closed, or given up after a cancel that was never answered."""
        self.on_update: Callable[[acp.SessionUpdate], None] | None = None
        """Called with every update when it arrives, in a turn and outside."""
        self.outside: deque[acp.SessionUpdate] = deque(maxlen=KEPT_OUTSIDE)
        """The last updates that belonged to no turn."""
        self.outside_dropped = 0
        """How many more there were."""
        self.replayed: list[acp.SessionUpdate] = []
        """The history that the agent replayed when the session was loaded."""
        self._replaying = False
        self._load_answered_at: float | None = None
        self._heard_at = 0.0
        self.questions = OpenQuestions()

    # -- prompting

    def prompt(
        self,
        prompt: str | acp.ContentBlock | Sequence[acp.ContentBlock],
        *,
        meta: dict[str, Any] | None = None,
    ) -> Turn:
        """A turn with this prompt; it begins when its ``async with`` block is entered.

        Raises `Unsupported` for content that the agent did not say it accepts.
        """
        if isinstance(prompt, str):
            blocks: Sequence[acp.ContentBlock] = (acp.TextContent(text=prompt),)
        elif isinstance(prompt, Struct):
            blocks = (prompt,)
        elif isinstance(prompt, list | tuple) and all(isinstance(each, Struct) for each in prompt):
            blocks = tuple(prompt)
        else:
            from dragoman.client.conversation import wrong_prompt

            raise wrong_prompt(prompt, "dragoman.dialects.acp.v1.TextContent")
        self.client.require_content(blocks)
        return Turn(self, blocks, meta)

    async def ask(self, prompt: str | Sequence[acp.ContentBlock]) -> str:
        """Send a prompt and return the text of the answer."""
        parts: list[str] = []
        async with self.prompt(prompt) as turn:
            async for update in turn:
                if isinstance(update, acp.AgentMessageChunk) and isinstance(
                    update.content, acp.TextContent
                ):
                    parts.append(update.content.text)
            result = turn.result
        if result.settled_locally:
            raise DragomanError("the turn was cancelled and never answered")
        return "".join(parts)

    # -- settings

    async def set_mode(self, mode_id: str) -> None:
        """Switch the mode. Uses a config option of category ``mode`` where there is one."""
        option = self._option("mode")
        if option is not None:
            await self.set_config_option(option.id, mode_id)
            return
        await self.switch_mode(mode_id)

    async def switch_mode(self, mode_id: str) -> None:
        """Switch the mode by `session/set_mode`, also where there is a config option for it."""
        known = [mode.id for mode in self.modes.available_modes] if self.modes else []
        if mode_id not in known:
            raise Unsupported(f"the agent has no mode {mode_id!r}; {alternatives(mode_id, known)}")
        before = self.modes

        def switched(_: acp.SetSessionModeResponse) -> None:
            # What the agent has said about its mode meanwhile counts.
            if self.modes is before:
                self._switched(mode_id)

        await self.client.ask_then(
            acp.SESSION_SET_MODE,
            acp.SetSessionModeRequest(session_id=self.id, mode_id=mode_id),
            switched,
        )

    def _switched(self, mode_id: str) -> None:
        if self.modes is None or self.modes.current_mode_id == mode_id:
            return
        self.modes = replace(self.modes, current_mode_id=mode_id)
        # The option says the same, whichever of the two was changed.
        option = self._option("mode")
        if option is not None and mode_id in _values(option):
            changed = replace(option, current_value=mode_id)
            self.config_options = [
                changed if each is option else each for each in self.config_options or ()
            ]

    async def set_model(self, model_id: str) -> None:
        """Switch the model: by a config option of category ``model``, else by `session/set_model`,
        which no schema has any more but real agents still offer."""
        option = self._option("model")
        if option is not None:
            await self.set_config_option(option.id, model_id)
            return
        known = [model.model_id for model in self.models.available_models] if self.models else []
        if model_id not in known:
            raise Unsupported(
                f"the agent has no model {model_id!r}; {alternatives(model_id, known)}"
            )

        def switched(_: acp.SetSessionModelResponse) -> None:
            if self.models is not None:
                self.models = replace(self.models, current_model_id=model_id)

        await self.client.ask_then(
            acp.SESSION_SET_MODEL,
            acp.SetSessionModelRequest(session_id=self.id, model_id=model_id),
            switched,
        )

    async def set_config_option(self, config_id: str, value: str | bool) -> None:
        """Change a config option. The agent's answer is the complete list, read back here."""
        options = [
            o for o in self.config_options or () if not isinstance(o, acp.UnknownConfigOption)
        ]
        option = next((o for o in options if o.id == config_id), None)
        if option is None:
            known = [o.id for o in options]
            raise Unsupported(
                f"the agent has no option {config_id!r}; {alternatives(config_id, known)}"
            )
        values = _values(option)
        open_ended = (
            isinstance(value, str)
            and isinstance(option, acp.SessionConfigSelect)
            and is_open_ended(option)
        )
        # To Python 1 is True; to an agent it is not.
        if not open_ended and (value not in values or type(value) is not type(values[0])):
            offered = alternatives(str(value), map(str, values))
            raise Unsupported(f"the option {config_id!r} has no value {value!r}; {offered}")

        def changed(response: acp.SetSessionConfigOptionResponse) -> None:
            self.config_options = response.config_options
            if option.category == "mode" and isinstance(value, str):
                told = self._option("mode")
                self._switched(value if told is None else told.current_value)

        await self.client.ask_then(
            acp.SESSION_SET_CONFIG_OPTION,
            acp.SetSessionConfigOptionRequest(session_id=self.id, config_id=config_id, value=value),
            changed,
        )

    def _option(self, category: str) -> acp.SessionConfigSelect | None:
        for option in self.config_options or ():
            if isinstance(option, acp.SessionConfigSelect) and option.category == category:
                return option
        return None

    # -- the end

    async def close(self) -> None:
        """End the session at the agent where it can do that, and forget it here."""
        if self.turn is not None:
            self.turn.cancel()
        try:
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

    # -- for the client

    def opened(self, modes: Any, models: Any, config_options: Any) -> None:
        """Take over the settings of the answer that opened the session."""
        self.modes = modes
        self.models = models
        self.config_options = config_options

    async def prepare(self, *, mode: str | None, model: str | None) -> None:
        """Set the starting mode and model that the caller asked for."""
        if model is not None:
            await self.set_model(model)
        if mode is None:
            mode = self._starting_mode()
        if mode is not None:
            await self.set_mode(mode)

    def _starting_mode(self) -> str | None:
        """The mode that every session is to be in, if the agent has it and this one is not."""
        wanted = self.client.options.starting_mode
        option = self._option("mode")
        if option is not None:
            known, current = _values(option), option.current_value
        elif self.modes is not None:
            known = [mode.id for mode in self.modes.available_modes]
            current = self.modes.current_mode_id
        else:
            return None
        return wanted if wanted in known and wanted != current else None

    def deliver(self, update: acp.SessionUpdate, line: bytes) -> None:
        """An update of this session arrived, in this line."""
        apply = APPLY.get(type(update))
        if apply is not None:
            apply(self, update)
        if self.on_update is not None:
            self._observe(update)
        if self.turn is not None:
            self.turn.put(update, len(line))
        else:
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
            self.replayed.append(update)
        else:
            if len(self.outside) == KEPT_OUTSIDE:
                self.outside_dropped += 1
            self.outside.append(update)

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

    def heard(self, message: Notification, reason: str) -> bool:
        """A message about this session cannot be read. Returns whether that was told here."""
        return False

    # -- questions of the agent that are open

    def asked(self, request: acp.RequestPermissionRequest, line: bytes) -> str:
        """The agent asks for permission. The tool call may be seen here for the first time: two
        real agents announce it nowhere else. Returns what the question is called, if anything."""
        update = _progress(request.tool_call)
        if self.on_update is not None:
            self._observe(update)
        if self.turn is not None:
            # If a policy answers, this is history already; if people are asked, they hurry it.
            self.turn.put_unhurried(update, len(line))
        else:
            self.keep(update)
        return ""

    def answered(self, question: Question, answer: Decision, option_id: str | None) -> None:
        """The question was answered."""
        if self.turn is not None:
            self.turn.answered(question, answer)

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


def _values(option: acp.SessionConfigSelect | acp.SessionConfigBoolean) -> list[str | bool]:
    """What an option can be set to."""
    if isinstance(option, acp.SessionConfigBoolean):
        return [False, True]
    values: list[str | bool] = []
    for entry in option.options:
        if isinstance(entry, acp.SessionConfigSelectGroup):
            values.extend(choice.value for choice in entry.options)
        else:
            values.append(entry.value)
    return values
