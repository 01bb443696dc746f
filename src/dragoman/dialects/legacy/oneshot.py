"""The oneshot dialect: one prompt per request, no sessions, a date as version.

Method names, message shapes and event translations for both ends. Tool calls have no id and no
result on the wire: ids are generated, and open calls are closed as "other" when the turn ends.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Raw, Struct, field

from dragoman.dialects import analyse
from dragoman.dialects.legacy import base
from dragoman.dialects.legacy.base import Message
from dragoman.errors import ProtocolMismatch
from dragoman.events import model, parts
from dragoman.events.model import Event, EventEnvelope
from dragoman.events.words import ChangeStage, FileOp, Loss, Part, Role, ToolStatus

DIALECT: Final = "oneshot"
VERSION: Final = "2025-06-18"

LOSSES: Final = (
    base.NO_THOUGHTS,
    base.NO_PLANS,
    base.NO_MESSAGE_IDS,
    base.ONLY_TOOL_NAMES,
    Loss(
        "the id, the result, the end and the locations of a tool call",
        (
            Part.TOOL_IDS,
            Part.TOOL_ENDS,
            Part.TOOL_OUTPUT,
            Part.TOOL_CONTENT,
            Part.TOOL_LOCATIONS,
        ),
    ),
    Loss(
        "which call changed a file, and its old and new text: there is only a unified diff",
        (Part.CHANGE_TEXTS,),
    ),
    base.NO_PERMISSIONS,
    base.ONLY_TURN_USAGE,
    base.NO_CLIENT_SERVICES,
    Loss(
        "sessions: listing, loading, resuming, forking, closing, deleting, additional directories",
        (),
        ("list", "load", "resume", "fork", "close", "delete", "additional_directories"),
    ),
    Loss("separate sessions: to the agent, all prompts are one conversation"),
    base.NO_SETTINGS,
    base.NO_COMMANDS,
    base.ONLY_TEXT_PROMPTS,
    base.NO_CANCEL,
    base.NO_LOGOUT,
)

INITIALIZE: Final = "initialize"
PROMPT: Final = "prompt"
CHUNK: Final = "agent_message_chunk"
TOOL: Final = "tool_call"
FILE: Final = "file_change"


class Initialize(Struct, frozen=True, rename="camel"):
    protocol_version: str = VERSION
    client_capabilities: dict[str, Any] = field(default_factory=dict)


class Initialized(Struct, frozen=True, rename="camel"):
    protocol_version: str = ""
    server_capabilities: dict[str, Any] = field(default_factory=dict)


class Prompt(Struct, frozen=True):
    text: str


class Note(Struct, frozen=True):
    """Base class of the notifications; none of them names a session."""

    session_id: ClassVar[None] = None


class Chunk(Note, frozen=True):
    text: str


class ToolCall(Note, frozen=True):
    tool: str
    input: Any = None


class FileChange(Note, frozen=True):
    path: str
    diff: str = ""


Usage = base.TokenUsage


class Answer(Struct, frozen=True, omit_defaults=True):
    content: str = ""
    finish_reason: str = ""
    usage: Usage | None = None


# -- the client's end


class ClientEnd(base.ClientEnd):
    """The client's side of the oneshot dialect, on one connection."""

    name = DIALECT
    half_duplex = True

    def __init__(self, *, version: str = VERSION, any_version: bool = False) -> None:
        self._ours = version
        self._any_version = any_version
        self._ids = itertools.count(1)
        self._running: list[str] = []
        self._changed: dict[str, parts.FileChange] = {}
        """The changes of the turn so far, by path."""
        self._said = ""
        """The answer of the turn so far."""

    def hello(self) -> Message:
        return INITIALIZE, Initialize(self._ours)

    def greeted(self, result: Raw) -> None:
        answer = msgspec.json.decode(result, type=Initialized)
        if not self._any_version:
            require_version(answer, self._ours)
        self.version = answer.protocol_version

    def prompting(self, session_id: str, blocks: Sequence[parts.Block]) -> Sequence[Message]:
        return ((PROMPT, Prompt(base.text_of(blocks))),)

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        answer = msgspec.json.decode(result, type=Answer)
        usage = base.usage_of(answer.usage)
        stop, text = answer.finish_reason, answer.content
        return [
            *base.said(place, PROMPT, base.unsaid(self._said, text)),
            *self.closing(place),
            base.ended(place, PROMPT, bytes(result), stop, text=text, usage=usage),
        ]

    def _chunk(
        self, chunk: Chunk, place: EventEnvelope, native: str, line: bytes
    ) -> Sequence[Event]:
        self._said += chunk.text
        return (model.MessageDelta(*place.base(native, line), Role.AGENT, chunk.text),)

    def _tool(
        self, call: ToolCall, place: EventEnvelope, native: str, line: bytes
    ) -> Sequence[Event]:
        tool_id = f"tool-{next(self._ids)}"
        self._running.append(tool_id)
        running = ToolStatus.RUNNING
        call_event = base.tool_named(
            place, native, line, tool_id, call.tool, running, input=call.input
        )
        return (call_event,)

    def _file(
        self, change: FileChange, place: EventEnvelope, native: str, line: bytes
    ) -> Sequence[Event]:
        # A message names one file, the event all files that the turn has changed.
        known = self._changed.get(change.path)
        diff = change.diff if known is None else f"{known.diff}{change.diff}"
        self._changed[change.path] = parts.FileChange(change.path, FileOp.UNKNOWN, diff=diff)
        files = tuple(self._changed.values())
        return (model.FilesChanged(*place.base(native, line), files, ChangeStage.UNKNOWN),)

    notifications = base.meanings(
        {CHUNK: (Chunk, _chunk), TOOL: (ToolCall, _tool), FILE: (FileChange, _file)}
    )

    def closing(self, place: EventEnvelope) -> list[Event]:
        self._changed.clear()
        self._said = ""
        running, self._running = self._running, []
        return [
            model.ToolChanged(*place.base(TOOL, None), tool_id, status=ToolStatus.OTHER)
            for tool_id in running
        ]


def require_version(answer: Initialized, ours: str) -> None:
    """Raise `ProtocolMismatch` unless the agent speaks our version."""
    told = [answer.protocol_version]
    # The specification compares a field that its own example lacks; both are accepted.
    if "protocolVersion" in answer.server_capabilities:
        told.append(answer.server_capabilities["protocolVersion"])
    for version in told:
        if version != ours:
            raise ProtocolMismatch(
                f"the agent speaks version {version!r} of the oneshot dialect, "
                f"but dragoman speaks version {ours!r}",
                version=str(version) or None,
                remedy=base.OTHER_VERSION if version else "",
            )


# -- the agent's end


_FINISH: Final = {"end_turn": "stop", "max_tokens": "length", "max_turn_requests": "length"}


def finish_reason(stop: str) -> str:
    """Return the dialect's finish reason for the agent's own stop reason; unknown ones are kept."""
    return _FINISH.get(stop, stop)


class AgentEnd(base.AgentEnd):
    """Translates an agent's events of one turn to this dialect."""

    def __init__(self) -> None:
        super().__init__()
        self._changes: dict[str | None, tuple[parts.FileChange, ...]] = {}
        self._completed: dict[str | None, tuple[parts.FileChange, ...]] = {}
        """The completed tool calls, with the changes already sent for each."""

    def message(self, event: model.MessageDelta) -> Message:
        return CHUNK, Chunk(event.text)

    def tool(self, event: model.ToolChanged) -> list[Message]:
        messages: list[Message] = []
        if self.begins(event.tool_id):
            given = None if event.input is msgspec.UNSET else event.input
            messages.append((TOOL, ToolCall(base.tool_name(event), given)))
        if event.status is ToolStatus.COMPLETED:
            self._completed.setdefault(event.tool_id, ())
            messages += self._tell_files(event.tool_id)
        elif base.is_over(event):
            self._changes.pop(event.tool_id, None)
        return messages

    def files(self, event: model.FilesChanged) -> list[Message]:
        # A proposed change may never be made, so it is sent only when its tool call has completed,
        # which may already be the case. Each event repeats all changes of its call, so those that
        # were already sent are left out.
        told = self._completed.get(event.tool_id, ())
        self._changes[event.tool_id] = tuple(each for each in event.changes if each not in told)
        applied = event.stage is ChangeStage.APPLIED or event.tool_id in self._completed
        return self._tell_files(event.tool_id) if applied else []

    def _tell_files(self, tool_id: str | None) -> list[Message]:
        changes = self._changes.pop(tool_id, ())
        if tool_id in self._completed:
            self._completed[tool_id] += changes
        return [(FILE, FileChange(change.path, _diff(change))) for change in changes]


def _diff(change: parts.FileChange) -> str:
    """Return the unified diff of a change: its own, or one made from its whole texts."""
    if change.diff is not None:
        return change.diff
    old, new = change.old_text or "", change.new_text or ""
    return "".join(
        line if line.endswith("\n") else line + "\n"
        for line in difflib.unified_diff(
            old.splitlines(keepends=True),
            new.splitlines(keepends=True),
            f"a/{change.path.lstrip('/')}" if change.old_text is not None else "/dev/null",
            f"b/{change.path.lstrip('/')}",
        )
    )


analyse(__name__)
