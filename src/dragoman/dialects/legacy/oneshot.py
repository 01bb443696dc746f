"""The oneshot dialect: one prompt per request, no sessions, a date as version.

Method names, message shapes and event translations for both ends. Tool calls have no id and no
result on the wire: ids are generated, and open calls are closed as "other" when the turn ends.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct, field

from dragoman.errors import ProtocolMismatch
from dragoman.events import model, parts, words
from dragoman.events.envelope import EventEnvelope
from dragoman.events.losses import Loss, Part
from dragoman.events.model import Event
from dragoman.events.words import ChangeStage, FileOp, Role, ToolStatus
from dragoman.wire.messages import UNDECODABLE

DIALECT: Final = "oneshot"
VERSION: Final = "2025-06-18"
SESSION: Final = "default"
"""There is one conversation on a connection, and it has no name on the wire."""

LOSSES: Final = (
    Loss("thoughts", (Part.THOUGHTS,)),
    Loss("plans", (Part.PLANS,)),
    Loss("the ids of messages", (Part.MESSAGE_IDS,)),
    Loss(
        "the title and the kind of a tool call: only its name", (Part.TOOL_TITLES, Part.TOOL_KINDS)
    ),
    Loss(
        "the id, the result and the end of a tool call, and where it is at work",
        (
            Part.TOOL_IDS,
            Part.TOOL_ENDS,
            Part.TOOL_OUTPUT,
            Part.TOOL_CONTENT,
            Part.TOOL_LOCATIONS,
        ),
    ),
    Loss(
        "which call changed a file, and its texts: only a unified diff, once it is changed",
        (Part.CHANGE_TEXTS,),
    ),
    Loss("permissions", (Part.PERMISSIONS,), ("permissions",)),
    Loss("how full the context is, and sums", (Part.CONTEXT_USAGE, Part.TOTAL_USAGE)),
    Loss(
        "the client's files and terminals, and MCP servers",
        (),
        ("mcp_stdio", "mcp_http", "mcp_sse"),
    ),
    Loss(
        "sessions: listing, loading, resuming, forking, closing, deleting, more folders",
        (),
        ("list", "load", "resume", "fork", "close", "delete", "additional_directories"),
    ),
    Loss(
        "modes, models and options",
        (Part.MODES, Part.MODELS, Part.OPTIONS),
        ("set_mode", "set_model", "set_option"),
    ),
    Loss("which slash commands there are", (Part.COMMANDS,)),
    Loss("images, sound and embedded resources in a prompt", (), ("image", "audio", "embedded")),
    Loss("cancelling: only ending the process stops a turn", (), ("cancel",)),
    Loss("logging out, and adding to a turn that is running", (), ("logout", "steer")),
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


class Chunk(Struct, frozen=True):
    text: str


class ToolCall(Struct, frozen=True):
    tool: str
    input: Any = None


class FileChange(Struct, frozen=True):
    path: str
    diff: str = ""


class Usage(Struct, frozen=True, omit_defaults=True):
    input_tokens: int | None = None
    output_tokens: int | None = None


class Answer(Struct, frozen=True, omit_defaults=True):
    content: str = ""
    finish_reason: str = ""
    usage: Usage | None = None


# -- the client's end


class ClientEnd:
    """This dialect as a client speaks it."""

    name = DIALECT
    loads_from_list = False
    half_duplex = True
    capabilities = parts.Capabilities()
    info = parts.PeerInfo()
    auth_methods: tuple[parts.AuthMethod, ...] = ()
    cancel: Literal["end"] = "end"
    opens_with: frozenset[str] = frozenset()
    blocks: tuple[type, ...] = (parts.Text,)

    def __init__(self, *, version: str = VERSION) -> None:
        self._ours = version
        self.version: str | None = None
        self._ids = itertools.count(1)
        self._running: list[str] = []
        self._changed: dict[str, parts.FileChange] = {}
        """What the turn has changed so far, by path."""

    def hello(self) -> tuple[str, Any]:
        return INITIALIZE, Initialize(self._ours)

    def greeted(self, result: Raw) -> None:
        answer = msgspec.json.decode(result, type=Initialized)
        require_version(answer, self._ours)
        self.version = answer.protocol_version

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
        return ()

    def opened(
        self,
        result: Raw | None,
        session_id: str | None,
        how: str,
        place_of: Callable[[str | None], EventEnvelope],
    ) -> tuple[str, list[Event]]:
        return SESSION, []

    def listing(self, cursor: str | None) -> Sequence[tuple[str, Any]]:
        return ()

    def listed(self, result: Raw) -> tuple[list[Any], None]:
        return [], None

    def prompting(
        self, session_id: str, blocks: Sequence[parts.Block]
    ) -> Sequence[tuple[str, Any]]:
        return ((PROMPT, Prompt(text_of(blocks))),)

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        answer = msgspec.json.decode(result, type=Answer)
        usage = usage_of(answer.usage)
        return [
            *self.closing(place),
            model.TurnEnded(
                *place.base(PROMPT, bytes(result)),
                words.outcome_of(answer.finish_reason),
                answer.finish_reason,
                None,
                answer.content,
                usage,
            ),
        ]

    def notified(
        self, method: str, params: Raw, line: bytes, place_of: Callable[[str | None], EventEnvelope]
    ) -> Sequence[Event]:
        place = place_of(None)
        try:
            match method:
                case "agent_message_chunk":
                    chunk = _decode_chunk(params)
                    base = place.base(CHUNK, line)
                    return (model.MessageDelta(*base, Role.AGENT, chunk.text),)
                case "tool_call":
                    return (self._tool(msgspec.json.decode(params, type=ToolCall), place, line),)
                case "file_change":
                    change = msgspec.json.decode(params, type=FileChange)
                    return (self._file(change, place, line),)
        except UNDECODABLE as error:
            return (model.Unknown(*place.base(method, line), str(error)),)
        return (model.Unknown(*place.base(method, line), "an unknown notification"),)

    def _tool(self, call: ToolCall, place: EventEnvelope, line: bytes) -> Event:
        tool_id = f"tool-{next(self._ids)}"
        self._running.append(tool_id)
        return model.ToolChanged(
            *place.base(TOOL, line),
            tool_id,
            title=call.tool,
            name=call.tool,
            kind=words.tool_kind(call.tool),
            status=ToolStatus.RUNNING,
            input=call.input,
        )

    def _file(self, change: FileChange, place: EventEnvelope, line: bytes) -> Event:
        # A message names one file, and the event all that the turn has changed.
        known = self._changed.get(change.path)
        diff = change.diff if known is None else f"{known.diff}{change.diff}"
        self._changed[change.path] = parts.FileChange(change.path, FileOp.UNKNOWN, diff=diff)
        files = tuple(self._changed.values())
        return model.FilesChanged(*place.base(FILE, line), files, ChangeStage.UNKNOWN)

    def worked(self, method: str) -> None:
        pass

    def closing(self, place: EventEnvelope) -> list[Event]:
        self._changed.clear()
        running, self._running = self._running, []
        return [
            model.ToolChanged(*place.base(TOOL, None), tool_id, status=ToolStatus.OTHER)
            for tool_id in running
        ]

    def cancelling(self, session_id: str) -> None:
        return None

    def setting_mode(self, session_id: str, mode: str) -> None:
        return None


_decode_chunk = msgspec.json.Decoder(Chunk).decode


def require_version(answer: Initialized, ours: str) -> None:
    """Raise unless the agent speaks our version."""
    told = [answer.protocol_version]
    # The document compares a field that its own example does not have; both count.
    if "protocolVersion" in answer.server_capabilities:
        told.append(answer.server_capabilities["protocolVersion"])
    for version in told:
        if version != ours:
            raise ProtocolMismatch(
                f"the agent speaks version {version!r}, and this client {ours!r}"
            )


def text_of(blocks: Sequence[parts.Block]) -> str:
    """The text of a prompt."""
    return "\n".join(block.text for block in blocks if isinstance(block, parts.Text))


def usage_of(told: Usage | None) -> parts.Usage | None:
    if told is None:
        return None
    return parts.Usage(input_tokens=told.input_tokens, output_tokens=told.output_tokens)


# -- the agent's end


_FINISH: Final = {"end_turn": "stop", "max_tokens": "length", "max_turn_requests": "length"}


def finish_reason(stop: str) -> str:
    """The word for the end of a turn, given the agent's own."""
    return _FINISH.get(stop, stop)


class AgentEnd:
    """What an agent does in one turn, in the words of this dialect."""

    def __init__(self, session_id: str = SESSION) -> None:
        self.said: list[str] = []
        self._told: set[str] = set()
        self._changes: dict[str | None, tuple[parts.FileChange, ...]] = {}

    @property
    def text(self) -> str:
        return "".join(self.said)

    def tell(self, event: Event) -> list[tuple[str, Any]]:
        match event:
            case model.MessageDelta(role=Role.AGENT, text=text) if text:
                self.said.append(text)
                return [(CHUNK, Chunk(text))]
            case model.ToolChanged():
                return self._tell_tool(event)
            case model.FilesChanged(changes=changes, stage=stage, tool_id=tool_id):
                # A change that is only proposed may never be made: it waits for its tool's end.
                self._changes[tool_id] = changes
                return self._tell_files(tool_id) if stage is ChangeStage.APPLIED else []
            case _:
                return []

    def _tell_tool(self, event: model.ToolChanged) -> list[tuple[str, Any]]:
        messages: list[tuple[str, Any]] = []
        if event.tool_id not in self._told:
            self._told.add(event.tool_id)
            name = event.name or event.title or event.tool_id
            given = None if event.input is msgspec.UNSET else event.input
            messages.append((TOOL, ToolCall(str(name), given)))
        if event.status is ToolStatus.COMPLETED:
            messages += self._tell_files(event.tool_id)
        elif isinstance(event.status, ToolStatus) and event.status.over:
            self._changes.pop(event.tool_id, None)
        return messages

    def _tell_files(self, tool_id: str | None) -> list[tuple[str, Any]]:
        changes = self._changes.pop(tool_id, ())
        return [(FILE, FileChange(change.path, _diff(change))) for change in changes]


def _diff(change: parts.FileChange) -> str:
    """A unified diff of a change that is known as whole texts."""
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
