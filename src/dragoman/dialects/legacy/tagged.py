"""The tagged dialect: ACP designed for Go servers, with a string version and typed updates.

Method names, message shapes and event translations for both ends. Capability keys contain literal
dots. Cancelling is a request and best effort: a serial agent reads it only after its prompt ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, field

from dragoman.dialects.legacy import base
from dragoman.events import model, parts, words
from dragoman.events.envelope import EventEnvelope
from dragoman.events.losses import Loss, Part
from dragoman.events.model import Event
from dragoman.events.words import Outcome, PlanStatus, Role, ToolStatus
from dragoman.wire.messages import UNDECODABLE

DIALECT: Final = "tagged"
VERSION: Final = "1"
"""The document only says that a version is a string; it names none."""

LOSSES: Final = (
    Loss("thoughts have no type of their own: they are message chunks with the role `thought`"),
    Loss("the ids of messages", (Part.MESSAGE_IDS,)),
    Loss("plans have no fields: they travel as text", (Part.PLAN_ENTRIES,)),
    Loss(
        "the title and the kind of a tool call: only its name", (Part.TOOL_TITLES, Part.TOOL_KINDS)
    ),
    Loss(
        "what a tool was given, other than as text; its content and locations",
        (Part.TOOL_INPUT_VALUES, Part.TOOL_CONTENT, Part.TOOL_LOCATIONS),
    ),
    Loss("diffs", (Part.CHANGES,)),
    Loss("permissions", (Part.PERMISSIONS,), ("permissions",)),
    Loss("usage", (Part.CONTEXT_USAGE, Part.TURN_USAGE)),
    Loss("why a turn failed", (Part.FAILURES,)),
    Loss("the client's files and terminals: there are capabilities for them, and no methods"),
    Loss(
        "MCP servers, and embedded resources in a prompt",
        (),
        ("mcp_stdio", "mcp_http", "mcp_sse", "embedded"),
    ),
    Loss(
        "listing, loading, resuming, forking, closing and deleting sessions, and more folders",
        (),
        ("list", "load", "resume", "fork", "close", "delete", "additional_directories"),
    ),
    Loss(
        "modes, models and options",
        (Part.MODES, Part.MODELS, Part.OPTIONS),
        ("set_mode", "set_model", "set_option"),
    ),
    Loss("which slash commands there are", (Part.COMMANDS,)),
    Loss("a cancel is only read between two requests by a serial agent"),
    Loss("logging out, and adding to a turn that is running", (), ("logout", "steer")),
)

INITIALIZE: Final = "initialize"
NEW: Final = "session/new"
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


class Stopped(Struct, frozen=True, rename="camel"):
    stop_reason: str


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
    """This dialect as a client speaks it."""

    name = DIALECT
    loads_from_list = False
    half_duplex = False
    auth_methods: tuple[parts.AuthMethod, ...] = ()
    cancel: Literal["request"] = "request"
    opens_with: frozenset[str] = frozenset({"metadata"})
    blocks: tuple[type, ...] = (parts.Text, parts.Image, parts.Audio)

    def __init__(self, *, client_name: str = "dragoman", client_version: str = "") -> None:
        self._client = Info(client_name, client_version)
        self.info = parts.PeerInfo()
        self.capabilities = parts.Capabilities(cancel=True)
        self.version: str | None = None

    def hello(self) -> tuple[str, Any]:
        return INITIALIZE, Initialize(client_info=self._client)

    def greeted(self, result: Raw) -> None:
        answer = msgspec.json.decode(result, type=Initialized)
        can = answer.capabilities.prompt_capabilities
        self.version = answer.protocol_version
        self.info = parts.PeerInfo(answer.agent_info.name, None, answer.agent_info.version or None)
        # `loadSession` may be true, but there is no method to load one with.
        self.capabilities = parts.Capabilities(image=can.image, audio=can.audio, cancel=True)

    def opening(
        self,
        how: str,
        session_id: str | None,
        *,
        cwd: str,
        mode: str | None,
        model: str | None,
        mcp_servers: Sequence[Mapping[str, Any]],
        metadata: Mapping[str, Any],
    ) -> Sequence[tuple[str, Any]]:
        words = {key: str(value) for key, value in metadata.items()}
        return ((NEW, NewSession({"workDir": cwd, **words})),)

    def opened(
        self,
        result: Raw | None,
        session_id: str | None,
        how: str,
        place_of: Callable[[str | None], EventEnvelope],
    ) -> tuple[str, list[Event]]:
        assert result is not None
        return msgspec.json.decode(result, type=SessionAnswer).session.id, []

    def listing(self, cursor: str | None) -> Sequence[tuple[str, Any]]:
        return ()

    def listed(self, result: Raw) -> tuple[list[Any], None]:
        return [], None

    def prompting(
        self, session_id: str, blocks: Sequence[parts.Block]
    ) -> Sequence[tuple[str, Any]]:
        first = blocks[0] if blocks else None
        command = None
        if isinstance(first, parts.Text) and (found := _COMMAND.match(first.text.strip())):
            command = CommandInput(found[1], (found[2] or "").strip())
        return ((PROMPT, Prompt(session_id, [_part(block) for block in blocks], command)),)

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        stop = msgspec.json.decode(result, type=Stopped).stop_reason
        base = place.base(PROMPT, bytes(result))
        return [model.TurnEnded(*base, words.outcome_of(stop), stop)]

    def notified(
        self, method: str, params: Raw, line: bytes, place_of: Callable[[str | None], EventEnvelope]
    ) -> Sequence[Event]:
        if method != UPDATE:
            base = place_of(None).base(method, line)
            return (model.Unknown(*base, "an unknown notification"),)
        try:
            message = _decode_update(params)
        except UNDECODABLE as error:
            return (model.Unknown(*place_of(None).base(method, line), str(error)),)
        place = place_of(message.session_id)
        update = message.update
        native = f"{UPDATE}:{update.type}"
        match update.type:
            case "messageChunk" if update.role in _ROLES:
                role = _ROLES[update.role]
                return (model.MessageDelta(*place.base(native, line), role, update.chunk),)
            case "toolCall" if update.tool_call is not None:
                return (_tool(update.tool_call, place, native, line),)
            case "planUpdate" if update.chunk:
                return (model.PlanSet(*place.base(native, line), text=update.chunk),)
        return (model.Unknown(*place.base(native, line), "nothing that has a meaning here"),)

    def worked(self, method: str) -> None:
        pass

    def closing(self, place: EventEnvelope) -> list[Event]:
        return []

    def cancelling(self, session_id: str) -> tuple[str, Any]:
        return CANCEL, Cancel(session_id)

    def setting_mode(self, session_id: str, mode: str) -> None:
        return None


_decode_update = msgspec.json.Decoder(SessionUpdate).decode


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
    """A part of a prompt in the common vocabulary."""
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
    return model.ToolChanged(
        *place.base(native, line),
        call.id,
        title=call.name,
        name=call.name,
        kind=words.tool_kind(call.name),
        status=status,
        input=call.input or UNSET,
        output=call.output or UNSET,
        error=(call.output or None) if status is ToolStatus.FAILED else UNSET,
    )


# -- the agent's end


_STOPS: Final = {"end_turn": "endTurn", "cancelled": "cancelled"}


def stop_reason(stop: str) -> str:
    """The word for the end of a turn, given the agent's own. What has none did not end well."""
    if stop in _STOPS:
        return _STOPS[stop]
    return "endTurn" if words.outcome_of(stop) is Outcome.OK else "error"


class AgentEnd:
    """What an agent does in one session, in the words of this dialect."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._tools: dict[str, ToolCall] = {}

    def tell(self, event: Event) -> list[tuple[str, Any]]:
        update: Update | None = None
        match event:
            case model.MessageDelta(role=role, text=text) if text:
                update = Update("messageChunk", _ROLE_WORDS[role], text)
            case model.ToolChanged():
                update = Update("toolCall", tool_call=self._tool(event))
            case model.PlanSet(entries=entries):
                update = Update("planUpdate", chunk="\n".join(map(_step, entries)))
        return [] if update is None else [(UPDATE, SessionUpdate(self._session_id, update))]

    def _tool(self, event: model.ToolChanged) -> ToolCall:
        known = self._tools.get(event.tool_id)
        name = event.name or event.title or (known.name if known else event.tool_id)
        status = known.status if known else "running"
        if event.status is ToolStatus.COMPLETED:
            status = "completed"
        elif isinstance(event.status, ToolStatus) and event.status.over:
            status = "error"
        call = ToolCall(
            event.tool_id,
            str(name),
            status,
            _text(event.input) or (known.input if known else ""),
            _text(event.output) or _content(event) or (known.output if known else ""),
        )
        self._tools[event.tool_id] = call
        return call


def _step(entry: parts.PlanEntry) -> str:
    mark = {PlanStatus.COMPLETED: "x", PlanStatus.RUNNING: ">"}.get(entry.status, " ")
    return f"- [{mark}] {entry.text}"


def _content(event: model.ToolChanged) -> str:
    items = event.content if isinstance(event.content, tuple) else ()
    return "\n".join(item.text for item in items if isinstance(item, parts.Text))


def _text(value: Any) -> str:
    """A value in a field that only takes text."""
    if value is UNSET or value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
