"""The components of events: content, tool details, plans, options, usage.

These are values inside events, independent of any dialect's spelling. `model` has the events.
Anything that this vocabulary cannot express is kept in the raw message.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct

from dragoman.events.words import ErrorKind, FileOp, PermissionKind, PlanStatus

__all__ = [
    "Audio",
    "AuthMethod",
    "Block",
    "Capabilities",
    "Choice",
    "Cost",
    "Failure",
    "FileChange",
    "Image",
    "Limit",
    "Link",
    "Location",
    "OtherBlock",
    "PeerInfo",
    "PermissionOption",
    "PlanEntry",
    "Resource",
    "SessionOption",
    "SlashCommand",
    "TerminalRef",
    "Text",
    "ToolItem",
    "Usage",
]


class Text(Struct, frozen=True, gc=False, tag="text"):
    """Text, usually Markdown."""

    text: str


class Image(Struct, frozen=True, gc=False, tag="image"):
    """An image in base64, with its URI if it has one."""

    data: str
    mime_type: str
    uri: str | None = None


class Audio(Struct, frozen=True, gc=False, tag="audio"):
    """Audio in base64."""

    data: str
    mime_type: str


class Link(Struct, frozen=True, gc=False, tag="link"):
    """A link to a resource."""

    uri: str
    name: str
    mime_type: str | None = None


class Resource(Struct, frozen=True, gc=False, tag="resource"):
    """A resource with its contents: text, or a blob in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class OtherBlock(Struct, frozen=True, gc=False, tag="other"):
    """Content of an unknown kind, as received."""

    kind: str
    """The dialect's name of the kind."""
    value: Any
    """The content, as received."""


Block: TypeAlias = Text | Image | Audio | Link | Resource | OtherBlock


class Location(Struct, frozen=True, gc=False):
    """A place in a file; lines count from 1."""

    path: str
    line: int | None = None


class FileChange(Struct, frozen=True, gc=False):
    """A change to one file, with whole texts and a unified diff if they are known."""

    path: str
    op: FileOp = FileOp.UNKNOWN
    """What happened to the file."""
    old_text: str | None = None
    """The whole text before the change."""
    new_text: str | None = None
    """The whole text after the change."""
    diff: str | None = None
    """The change as a unified diff."""
    old_path: str | None = None
    """The former path of a file that was moved or copied."""


class TerminalRef(Struct, frozen=True, gc=False, tag="terminal"):
    """A terminal whose output belongs to a tool call."""

    terminal_id: str


ToolItem: TypeAlias = Text | Image | Audio | Link | Resource | OtherBlock | TerminalRef


class PlanEntry(Struct, frozen=True, gc=False):
    """One step of a plan."""

    text: str
    status: PlanStatus
    priority: str | None = None
    """The peer's own word, such as ``high``."""


class Choice(Struct, frozen=True, gc=False):
    """A value that an option can have."""

    value: str
    name: str
    description: str | None = None
    group: str | None = None
    """The id of the group that the value belongs to."""


class SessionOption(Struct, frozen=True, gc=False):
    """A setting of a session. `choices` is empty for a boolean."""

    id: str
    name: str
    value: str | bool
    """The current value."""
    choices: tuple[Choice, ...] = ()
    category: str | None = None
    """What the option is for, such as ``mode`` or ``model``."""
    open_ended: bool = False
    """Whether the option accepts values that are not among the choices."""


class SlashCommand(Struct, frozen=True, gc=False):
    """A slash command that the peer offers."""

    name: str
    description: str
    hint: str | None = None
    """What may follow the command."""


class Cost(Struct, frozen=True, gc=False):
    """An amount of money, or of another unit that the peer counts in."""

    amount: float
    unit: str
    """The currency, or the unit that the peer counts in."""


class Limit(Struct, frozen=True, gc=False):
    """How much of a quota is used: within a period that restarts, or in total."""

    name: str
    used_percent: float
    window_minutes: int | None = None
    """The length of the period, unless the quota is a total."""
    resets_at: float | None = None
    """When the period restarts, in seconds since 1970."""
    reached: bool = False
    """Whether the limit is reached."""


class Usage(Struct, frozen=True, gc=False):
    """Token counts, context usage, cost and quota usage. None means not reported, never zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    thought_tokens: int | None = None
    cache_read_tokens: int | None = None
    """Input tokens that were read from the provider's cache."""
    cache_write_tokens: int | None = None
    """Input tokens that were written to the provider's cache."""
    total_tokens: int | None = None
    context_used: int | None = None
    """How many tokens the context contains now."""
    context_size: int | None = None
    """How many tokens the context can contain."""
    cost: Cost | None = None
    limits: tuple[Limit, ...] = ()
    """How much of the account's quotas is used, in a report about the account."""


class PermissionOption(Struct, frozen=True, gc=False):
    """One possible answer to a permission request."""

    option_id: str
    name: str
    kind: PermissionKind


class Failure(Struct, frozen=True, gc=False):
    """An error that the peer reported. `code` is the peer's own: a number or a word."""

    message: str
    kind: ErrorKind = ErrorKind.PEER
    """The kind of error, as dragoman classifies it."""
    code: int | str | None = None
    retryable: bool = False
    """Whether a retry may succeed."""
    data: Any = None
    """Further data of the error, as the peer sent it."""


SECRET_KINDS: Final = ("password", "oauth")
"""Kinds of login methods that take a secret: a password, or a token."""


class AuthMethod(Struct, frozen=True, gc=False):
    """A login method. `command` is set if it is a command to run in a terminal."""

    id: str
    name: str
    kind: str = "agent"
    """How the login is done: ``agent``, ``terminal``, ``env_var``, or the legacy dialect's word."""
    description: str | None = None
    command: str | None = None
    variables: tuple[str, ...] = ()
    """Environment variables that the method reads."""


class PeerInfo(Struct, frozen=True, gc=False):
    """The peer's own name and version."""

    name: str = ""
    title: str | None = None
    version: str | None = None


class Capabilities(Struct, frozen=True, gc=False):
    """The peer's capabilities: yes, no, or None if it is unknown, for example because the dialect
    cannot express it."""

    load: bool | None = False
    """Whether sessions can be loaded with their history."""
    resume: bool | None = False
    """Whether sessions can be opened again without their history."""
    list: bool | None = False
    """Whether the peer lists its sessions."""
    fork: bool | None = False
    """Whether sessions can be copied."""
    close: bool | None = False
    """Whether sessions can be closed."""
    delete: bool | None = False
    """Whether sessions can be deleted."""
    additional_directories: bool | None = False
    """Whether a session may use further directories."""
    image: bool | None = False
    """Whether prompts may contain images."""
    audio: bool | None = False
    """Whether prompts may contain audio."""
    embedded: bool | None = False
    """Whether prompts may contain embedded resources."""
    mcp_stdio: bool | None = False
    """Whether a session may have MCP servers on stdio."""
    mcp_http: bool | None = False
    """Whether a session may have MCP servers over HTTP."""
    mcp_sse: bool | None = False
    """Whether a session may have MCP servers over SSE."""
    logout: bool | None = False
    """Whether the peer can log out."""
    steer: bool | None = False
    """Whether input can be added to a running turn."""
    set_mode: bool | None = False
    """Whether the mode can be changed."""
    set_model: bool | None = False
    """Whether the model can be changed."""
    set_option: bool | None = False
    """Whether options can be changed."""
    cancel: bool | None = False
    """Whether a turn can be cancelled without ending the process."""
    permissions: bool | None = False
    """Whether the peer can ask for permission."""
    prompt_acknowledged: bool = False
    """Whether the response to a prompt only says that the prompt was accepted, and the turn ends
    later."""
