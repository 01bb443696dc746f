"""Method names and message shapes of the keyed dialect, in wire spelling.

Optional fields have a default and are omitted when sent. `translate` converts them to events.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from dragoman.dialects import analyse
from dragoman.dialects.legacy.base import StopAnswer

INITIALIZE: Final = "initialize"
AUTHENTICATE: Final = "authenticate"
NEW: Final = "session/new"
LOAD: Final = "session/load"
PROMPT: Final = "session/prompt"
UPDATE: Final = "session/update"
PERMISSION: Final = "session/request_permission"
SET_MODE: Final = "session/set_mode"
CANCEL: Final = "session/cancel"
READ: Final = "fs/read_text_file"
WRITE: Final = "fs/write_text_file"
TERMINAL_CREATE: Final = "terminal/create"
TERMINAL_OUTPUT: Final = "terminal/output"
TERMINAL_WAIT: Final = "terminal/wait_for_exit"
TERMINAL_KILL: Final = "terminal/kill"
TERMINAL_RELEASE: Final = "terminal/release"


class Shape(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base class of params and results whose default values are omitted when sent."""


class Info(Shape, frozen=True):
    name: str = ""
    title: str | None = None
    version: str | None = None


class Files(Shape, frozen=True):
    read_text_file: bool = False
    write_text_file: bool = False


class PromptContent(Shape, frozen=True):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class McpTransport(Shape, frozen=True):
    http: bool = False
    sse: bool = False


class Mcp(Shape, frozen=True):
    transport: McpTransport | None = None


class ClientCapabilities(Shape, frozen=True):
    fs: Files | None = None
    terminal: bool = False
    prompt: PromptContent | None = None
    mcp: Mcp | None = None


class Initialize(Struct, frozen=True, rename="camel"):
    protocol_version: int
    client_info: Info = Info()
    client_capabilities: ClientCapabilities = ClientCapabilities()


class AgentCapabilities(Struct, frozen=True):
    modes: bool = False
    plan: bool = False


class Initialized(Struct, frozen=True, rename="camel"):
    protocol_version: int
    agent_info: Info = Info()
    agent_capabilities: AgentCapabilities = AgentCapabilities()
    auth_methods: list[str] = field(default_factory=list)


class Authenticate(Shape, frozen=True):
    method: str
    password: str | None = None
    token: str | None = None


class Model(Struct, frozen=True):
    provider: str = field(name="providerID")
    model: str = field(name="modelID")


class LocalServer(Shape, frozen=True, tag_field="type", tag="local"):
    command: str
    args: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


class RemoteServer(Shape, frozen=True, tag_field="type", tag="remote"):
    url: str
    headers: dict[str, str] = field(default_factory=dict)


McpServer: TypeAlias = LocalServer | RemoteServer


class NewSession(Shape, frozen=True):
    cwd: str
    model: Model | None = None
    mode_id: str | None = None
    mcp_servers: list[McpServer] = field(default_factory=list)


class LoadSession(Shape, frozen=True):
    session_id: str
    cwd: str | None = None
    mcp_servers: list[McpServer] = field(default_factory=list)


class Mode(Shape, frozen=True):
    id: str
    name: str = ""
    description: str | None = None


class Opened(Shape, frozen=True):
    session_id: str = ""
    modes: list[Mode] | None = None
    current_mode_id: str | None = None


# -- content


class TextBlock(Shape, frozen=True, tag_field="type", tag="text"):
    text: str
    annotations: list[Any] | None = None


class ImageBlock(Shape, frozen=True, tag_field="type", tag="image"):
    data: str
    mime_type: str
    uri: str | None = None


class AudioBlock(Shape, frozen=True, tag_field="type", tag="audio"):
    data: str
    mime_type: str


class LinkBlock(Shape, frozen=True, tag_field="type", tag="resource_link"):
    uri: str
    name: str
    mime_type: str | None = None


class ResourceBlock(Shape, frozen=True, tag_field="type", tag="embedded_resource"):
    uri: str
    text: str | None = None
    blob: str | None = None


ContentBlock: TypeAlias = TextBlock | ImageBlock | AudioBlock | LinkBlock | ResourceBlock


class Prompt(Struct, frozen=True, rename="camel"):
    session_id: str
    content: list[ContentBlock]


Stopped = StopAnswer


# -- updates


class ContentChunk(Struct, frozen=True):
    id: str = ""
    index: int = 0
    delta: str = ""


class FileLocation(Shape, frozen=True):
    path: str
    line: int | None = None


class Diff(Shape, frozen=True):
    path: str
    old_content: str | None = None
    new_content: str | None = None


class ToolCall(Shape, frozen=True):
    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: list[Any] | None = None
    """Blocks, decoded one by one: an unknown type does not affect the others."""
    locations: list[FileLocation] | None = None
    diff: Diff | None = None


class Step(Struct, frozen=True):
    title: str
    status: str = "pending"


class Plan(Struct, frozen=True):
    steps: list[Step]


class Update(Shape, frozen=True):
    """An update. Any of the keys may be present, even several at once."""

    session_id: str
    content_chunk: ContentChunk | None = None
    tool_call: ToolCall | None = None
    plan: Plan | None = None
    current_mode_id: str | None = None


# -- questions


class AskPermission(Shape, frozen=True):
    session_id: str
    permission_id: str
    title: str
    kind: str = "other"
    tool_call_id: str | None = None
    content: list[Any] | None = None


class Decision(Shape, frozen=True):
    decision: str
    cancelled: bool = False


class SetMode(Shape, frozen=True):
    session_id: str
    mode_id: str


class Cancel(Shape, frozen=True):
    session_id: str


class ReadFile(Shape, frozen=True):
    session_id: str
    path: str
    line: int | None = None
    limit: int | None = None


class FileContent(Struct, frozen=True):
    content: str


class WriteFile(Struct, frozen=True, rename="camel"):
    session_id: str
    path: str
    content: str


class CreateTerminal(Shape, frozen=True):
    session_id: str
    command: str
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    output_bytes_limit: int | None = None


class Terminal(Shape, frozen=True):
    """The response to `terminal/create`."""

    terminal_id: str


class TerminalName(Shape, frozen=True):
    """The params of every other terminal method."""

    session_id: str
    terminal_id: str


class TerminalOutput(Shape, frozen=True):
    output: str
    exit_code: int | None = None
    signal: str | None = None


class TerminalExit(Shape, frozen=True):
    exit_code: int | None = None
    signal: str | None = None


analyse(__name__)
