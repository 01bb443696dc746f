"""The tagged dialect: ACP designed for Go servers, with a string version and typed updates.

Method names, message shapes and event translations for both ends. Capability keys contain literal
dots. Cancelling is a request, on a best-effort basis: a serial agent reads it only after its prompt
has ended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, field

from dragoman.dialects import analyse
from dragoman.dialects.legacy import base
from dragoman.dialects.legacy.base import Message, PlaceOf, SessionOptions
from dragoman.events import model, parts, words
from dragoman.events.model import Event, EventEnvelope
from dragoman.events.words import Loss, Outcome, Part, PlanStatus, Role, ToolStatus

DIALECT: Final = "tagged"
VERSION: Final = "1"
"""The version of the dialect. The specification only says that it is a string, and gives no
value."""

VERSIONS: Final = (VERSION, "1.0")
"""The versions to greet an agent with, in this order: an agent that validates the version may
expect the second spelling."""

LOSSES: Final = (
    Loss("thoughts have no type of their own: they are message chunks with the role `thought`"),
    base.NO_MESSAGE_IDS,
    Loss("plans have no fields: they are sent as text", (Part.PLAN_ENTRIES,)),
    base.ONLY_TOOL_NAMES,
    Loss(
        "the input of a tool, other than as text; its content and locations",
        (Part.TOOL_INPUT_VALUES, Part.TOOL_CONTENT, Part.TOOL_LOCATIONS),
    ),
    base.NO_DIFFS,
    base.NO_PERMISSIONS,
    base.NO_USAGE,
    Loss("why a turn failed", (Part.FAILURES,)),
    Loss("the client's files and terminals: there are capabilities for them but no methods"),
    Loss(
        "MCP servers, and embedded resources in a prompt",
        (),
        ("mcp_stdio", "mcp_http", "mcp_sse", "embedded"),
    ),
    Loss(
        "listing, loading, resuming, forking, closing and deleting sessions, and additional "
        "directories",
        (),
        ("list", "load", "resume", "fork", "close", "delete", "additional_directories"),
    ),
    base.NO_SETTINGS,
    base.NO_COMMANDS,
    Loss("a serial agent reads a cancel only between two requests"),
    base.NO_LOGOUT,
)

INITIALIZE: Final = "initialize"
NEW: Final = "session/new"
LOAD: Final = "session/load"
"""The method that loads a session. It is not in the specification, which has only the capability
`loadSession`."""
PROMPT: Final = "session/prompt"
CANCEL: Final = "session/cancel"
UPDATE: Final = "session/update"


class Info(Struct, frozen=True):
    name: str = ""
    version: str = ""


class ClientCapabilities(Struct, frozen=True, omit_defaults=True):
    terminal: bool = False
    read_text_file: bool = field(default=False, name="fs.readTextFile")
    write_text_file: bool = field(default=False, name="fs.writeTextFile")


class Initialize(Struct, frozen=True, rename="camel"):
    protocol_version: str = VERSION
    client_info: Info = Info()
    capabilities: ClientCapabilities = ClientCapabilities()


class PromptCapabilities(Struct, frozen=True, omit_defaults=True, rename="camel"):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class AgentCapabilities(Struct, frozen=True, omit_defaults=True, rename="camel"):
    load_session: bool = False
    prompt_capabilities: PromptCapabilities = PromptCapabilities()


class Initialized(Struct, frozen=True, rename="camel"):
    protocol_version: str = VERSION
    agent_info: Info = Info()
    capabilities: AgentCapabilities = AgentCapabilities()


class NewSession(Struct, frozen=True, omit_defaults=True):
    metadata: dict[str, str] = field(default_factory=dict)


class LoadSession(NewSession, frozen=True, kw_only=True):
    session_id: str = field(name="sessionId")


class Session(Struct, frozen=True, omit_defaults=True):
    id: str
    metadata: dict[str, str] = field(default_factory=dict)


class SessionAnswer(Struct, frozen=True):
    session: Session


class PromptPart(Struct, frozen=True, omit_defaults=True):
    type: str
    text: str = ""
    data: str = ""
    mime_type: str = field(default="", name="mimeType")


class CommandInput(Struct, frozen=True, omit_defaults=True):
    name: str
    input: str = ""


class Prompt(Struct, frozen=True, omit_defaults=True):
    session_id: str = field(name="sessionId")
    prompt: list[PromptPart] = field(default_factory=list)
    command: CommandInput | None = None


Stopped = base.StopAnswer


class Cancel(Struct, frozen=True, rename="camel"):
    session_id: str


class ToolCall(Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    status: str
    input: str = ""
    output: str = ""


class Update(Struct, frozen=True, omit_defaults=True):
    type: str
    role: str = ""
    chunk: str = ""
    tool_call: ToolCall | None = field(default=None, name="toolCall")


class SessionUpdate(Struct, frozen=True, rename="camel"):
    session_id: str
    update: Update


_ROLES: Final = {
    "": Role.AGENT,
    "assistant": Role.AGENT,
    "agent": Role.AGENT,
    "user": Role.USER,
    "thought": Role.THOUGHT,
    "thinking": Role.THOUGHT,
    "reasoning": Role.THOUGHT,
}
_ROLE_WORDS: Final = {Role.AGENT: "assistant", Role.USER: "user", Role.THOUGHT: "thought"}

_COMMAND: Final = re.compile(r"/([A-Za-z][\w.:-]*)(?:\s+(.*))?\Z", re.DOTALL)


# -- the client's end


class ClientEnd(base.ClientEnd):
    """The client's side of the tagged dialect, on one connection."""

    name = DIALECT
    capabilities = parts.Capabilities(cancel=True)
    cancel = "request"
    opens_with = frozenset({"metadata"})
    blocks = (parts.Text, parts.Image, parts.Audio)

    def __init__(
        self,
        *,
        client_name: str = "dragoman",
        client_version: str = "",
        versions: Sequence[str] = VERSIONS,
    ) -> None:
        self._client = Info(client_name, client_version)
        self._versions = versions

    def hello(self) -> Message:
        return self.hellos()[0]

    def hellos(self) -> Sequence[Message]:
        return [(INITIALIZE, Initialize(version, self._client)) for version in self._versions]

    def greeted(self, result: Raw) -> None:
        answer = msgspec.json.decode(result, type=Initialized)
        can = answer.capabilities.prompt_capabilities
        self.version = answer.protocol_version
        self.info = parts.PeerInfo(answer.agent_info.name, None, answer.agent_info.version or None)
        # `loadSession` may be true, but there is no method to load a session.
        self.capabilities = parts.Capabilities(image=can.image, audio=can.audio, cancel=True)

    def opening(self, session_id: str | None, options: SessionOptions) -> Sequence[Message]:
        words = {key: str(value) for key, value in options.metadata.items()}
        return ((NEW, NewSession({"workDir": options.cwd, **words})),)

    def opened(
        self, result: Raw | None, session_id: str | None, how: str, place_of: PlaceOf
    ) -> tuple[str, list[Event]]:
        assert result is not None
        return msgspec.json.decode(result, type=SessionAnswer).session.id, []

    def prompting(self, session_id: str, blocks: Sequence[parts.Block]) -> Sequence[Message]:
        first = blocks[0] if blocks else None
        command = None
        if isinstance(first, parts.Text) and (found := _COMMAND.match(first.text.strip())):
            command = CommandInput(found[1], (found[2] or "").strip())
        return ((PROMPT, Prompt(session_id, [_part(block) for block in blocks], command)),)

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        return base.stopped(result, place, PROMPT)

    def _update(
        self, message: SessionUpdate, place: EventEnvelope, method: str, line: bytes
    ) -> Sequence[Event]:
        update = message.update
        native = f"{method}:{update.type}"
        match update.type:
            case "messageChunk" if (role := _ROLES.get(update.role)) is not None:
                return (model.MessageDelta(*place.base(native, line), role, update.chunk),)
            case "toolCall" if update.tool_call is not None:
                return (_tool(update.tool_call, place, native, line),)
            case "planUpdate" if update.chunk:
                return (model.PlanSet(*place.base(native, line), text=update.chunk),)
        return (model.Unknown(*place.base(native, line), "an update without a known meaning"),)

    notifications = base.meanings({UPDATE: (SessionUpdate, _update)})

    def cancelling(self, session_id: str) -> Message:
        return CANCEL, Cancel(session_id)


def _part(block: parts.Block) -> PromptPart:
    match block:
        case parts.Text(text=text):
            return PromptPart("text", text=text)
        case parts.Image(data=data, mime_type=mime_type):
            return PromptPart("image", data=data, mime_type=mime_type)
        case parts.Audio(data=data, mime_type=mime_type):
            return PromptPart("audio", data=data, mime_type=mime_type)
        case _:
            raise AssertionError(block)


def block_of(part: PromptPart) -> parts.Block:
    """Convert a part of a prompt to a block of `events.parts`."""
    match part.type:
        case "text":
            return parts.Text(part.text)
        case "image":
            return parts.Image(part.data, part.mime_type)
        case "audio":
            return parts.Audio(part.data, part.mime_type)
        case _:
            return parts.OtherBlock(part.type, msgspec.to_builtins(part))


def _tool(call: ToolCall, place: EventEnvelope, native: str, line: bytes) -> Event:
    status = words.tool_status(call.status)
    return base.tool_named(
        place,
        native,
        line,
        call.id,
        call.name,
        status,
        input=call.input or UNSET,
        output=call.output or UNSET,
        error=(call.output or None) if status is ToolStatus.FAILED else UNSET,
    )


# -- the agent's end


_STOPS: Final = {"end_turn": "endTurn", "cancelled": "cancelled"}


def stop_reason(stop: str) -> str:
    """Return the dialect's stop reason for the agent's own. One that means neither success nor
    cancellation becomes ``error``."""
    if stop in _STOPS:
        return _STOPS[stop]
    return "endTurn" if words.outcome_of(stop) is Outcome.OK else "error"


class AgentEnd(base.AgentEnd):
    """Translates an agent's events of one session to this dialect."""

    roles = frozenset(_ROLE_WORDS)
    keeps_text = False

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self._session_id = session_id
        self._tools: dict[str, ToolCall] = {}

    def message(self, event: model.MessageDelta) -> Message:
        return self._update(Update("messageChunk", _ROLE_WORDS[event.role], event.text))

    def plan(self, event: model.PlanSet) -> list[Message]:
        steps = "\n".join(map(_step, event.entries))
        return [self._update(Update("planUpdate", chunk=steps))]

    def tool(self, event: model.ToolChanged) -> list[Message]:
        known = self._tools.get(event.tool_id, _NEW_CALL)
        status = known.status
        if event.status is ToolStatus.COMPLETED:
            status = "completed"
        elif base.is_over(event):
            status = "error"
        call = self._tools[event.tool_id] = ToolCall(
            event.tool_id,
            base.tool_name(event, known.name),
            status,
            _text(event.input) or known.input,
            _text(event.output) or base.content_text(event) or known.output,
        )
        return [self._update(Update("toolCall", tool_call=call))]

    def _update(self, update: Update) -> Message:
        return UPDATE, SessionUpdate(self._session_id, update)


_NEW_CALL: Final = ToolCall("", "", "running")


def _step(entry: parts.PlanEntry) -> str:
    mark = {PlanStatus.COMPLETED: "x", PlanStatus.RUNNING: ">"}.get(entry.status, " ")
    return f"- [{mark}] {entry.text}"


def _text(value: Any) -> str:
    """Return a value as text, for a field that only takes text."""
    if value is UNSET or value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


analyse(__name__)
