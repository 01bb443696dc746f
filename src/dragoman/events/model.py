"""The events: a small closed set, the same for every dialect.

Defines the union `Event`. Every event has its origin: the connection's `source`, its number in the
order (`seq`, increasing on each connection), the session and turn it belongs to, the dialect's own
name for it (`native`), whether it is replayed history, and the message it came from, `raw`,
unmodified (None for an event without a message). If a whole history comes in one response, the
response is the `raw` of one event, and each replayed event has its part of it, or none.

The common fields of all events come from an `EventEnvelope`. All envelopes of one connection share
a counter, so its events are numbered in order.

In an event that patches something, `UNSET` leaves a value unchanged, None clears it, and anything
else replaces it.
"""

from __future__ import annotations

from itertools import count
from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from dragoman.events.parts import (
    AuthMethod,
    Block,
    Capabilities,
    Failure,
    FileChange,
    Location,
    PeerInfo,
    PermissionOption,
    PlanEntry,
    SessionOption,
    SlashCommand,
    ToolItem,
    Usage,
)
from dragoman.events.words import ChangeStage, Outcome, Role, ToolKind, ToolStatus, TurnPhase

__all__ = [
    "Answered",
    "Base",
    "CommandsChanged",
    "Compacted",
    "ConnectionOver",
    "ConnectionReady",
    "ErrorReported",
    "Event",
    "FilesChanged",
    "InputAnswered",
    "InputAsked",
    "LoginChanged",
    "LoginRequired",
    "MessageDelta",
    "MessageSet",
    "Noticed",
    "PermissionAnswered",
    "PermissionAsked",
    "PlanDelta",
    "PlanRemoved",
    "PlanSet",
    "ServiceCalled",
    "SessionChanged",
    "SessionClosed",
    "SessionOpened",
    "SettingsChanged",
    "Source",
    "ToolChanged",
    "ToolDelta",
    "TurnEnded",
    "TurnStarted",
    "TurnState",
    "Unknown",
    "UsageReported",
]


class Source(Struct, frozen=True, gc=False, omit_defaults=True):
    """The connection that an event came from, and its dialect."""

    dialect: str
    """The agent's dialect."""
    connection: str
    """The name of the connection, such as ``client-1``."""
    via: str = ""
    """The dialect of the connection if a broker or a gateway translates for the agent; `native`
    and `raw` are then in that dialect. JSON omits it if it is empty."""

    @property
    def spoken(self) -> str:
        """The dialect of `native` and `raw`."""
        return self.via or self.dialect


class Base(Struct, frozen=True, gc=False):
    """The common fields of all events."""

    source: Source
    """The connection that the event came from."""
    seq: int
    """The number of the event on its connection; it increases with each event."""
    session: str | None
    """The id of the session that the event belongs to, if any."""
    turn: str | None
    """The id of the turn that the event belongs to, if any."""
    native: str
    """The dialect's own name for the message."""
    raw: bytes | None
    """The message that the event came from; None for an event without a message. If one response
    contains a whole history, the part for this event."""
    replay: bool
    """Whether the event is part of a replayed history."""

    def __repr__(self) -> str:
        """Show the event's content and origin. The message it came from is in `raw`."""
        own = self.__struct_fields__[len(Base.__struct_fields__) :]
        defaults = self.__struct_defaults__
        said = dict.fromkeys(own)
        for name, default in zip(reversed(own), reversed(defaults), strict=False):
            if getattr(self, name) == default:
                del said[name]
        place = ["seq", *(name for name in ("session", "turn", "replay") if getattr(self, name))]
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in [*said, *place])
        return f"{type(self).__name__}({shown})"


# -- the connection


class ConnectionReady(Base, frozen=True, gc=False, tag=True):
    """The handshake is done."""

    peer: PeerInfo
    capabilities: Capabilities
    protocol_version: str | None = None
    auth_methods: tuple[AuthMethod, ...] = ()
    """The ways to log in that the peer offers."""


class ConnectionOver(Base, frozen=True, gc=False, tag=True):
    """The connection has ended."""

    error_class: str
    """The kind of error that ended the connection."""
    message: str
    exit_code: int | None = None
    """The exit code of the peer's process, if it exited."""
    signal: int | None = None
    """The number of the signal that ended the peer's process, if one did."""
    stderr_tail: str = ""
    """The end of the process's stderr output."""


class LoginRequired(Base, frozen=True, gc=False, tag=True):
    """The peer requires a login before it does what was requested."""

    message: str
    methods: tuple[AuthMethod, ...] = ()
    """The ways to log in that the peer offers."""
    hint: str = ""
    """What to do about it."""


class LoginChanged(Base, frozen=True, gc=False, tag=True):
    """A login or logout happened, or a login failed."""

    logged_in: bool | None
    """Whether the peer is logged in now; None if that is unknown."""
    account: str | None = None
    """The account that is logged in, if the peer says so."""
    error: str | None = None
    """Why the login failed, if it did."""


# -- sessions


class SessionOpened(Base, frozen=True, gc=False, tag=True):
    """A session was opened."""

    how: str
    """`new`, `load`, `resume`, `fork` or `implicit`."""
    cwd: str | None = None
    """The working directory."""
    title: str | None = None
    model: str | None = None
    forked_from: str | None = None
    """The id of the session that this one is a copy of."""


class SessionChanged(Base, frozen=True, gc=False, tag=True):
    """The session's title, status or time of the last change was updated."""

    title: str | None | UnsetType = UNSET
    updated_at: str | None | UnsetType = UNSET
    """The time of the last change, as the peer wrote it."""
    status: str | None | UnsetType = UNSET
    """The peer's own word, such as ``active``."""


class SessionClosed(Base, frozen=True, gc=False, tag=True):
    """The session is no longer open."""

    reason: str = ""


class SettingsChanged(Base, frozen=True, gc=False, tag=True):
    """The session's current settings. Each list is complete."""

    options: tuple[SessionOption, ...] | UnsetType = UNSET
    mode: str | None | UnsetType = UNSET
    """The id of the current mode."""
    modes: tuple[SessionOption, ...] | UnsetType = UNSET
    """The available modes, each with its `id` and `name`."""
    model: str | None | UnsetType = UNSET
    """The id of the current model."""


class CommandsChanged(Base, frozen=True, gc=False, tag=True):
    """The session's slash commands, as a complete list."""

    commands: tuple[SlashCommand, ...]


# -- turns


class TurnStarted(Base, frozen=True, gc=False, tag=True):
    """A turn began with a prompt."""

    prompt: tuple[Block, ...] = ()


class TurnState(Base, frozen=True, gc=False, tag=True):
    """A turn is running, waiting for an answer, or idle."""

    phase: TurnPhase
    flags: tuple[str, ...] = ()
    """The peer's own words about the state, such as what it waits for."""


class TurnEnded(Base, frozen=True, gc=False, tag=True):
    """A turn is over."""

    outcome: Outcome
    stop: str = ""
    """The peer's own stop reason."""
    failure: Failure | None = None
    """The error that ended the turn, if any."""
    text: str | None = None
    """The whole answer, if the dialect gives it at the end."""
    usage: Usage | None = None
    """Tokens and cost of the turn, if reported."""


# -- messages


class MessageDelta(Base, frozen=True, gc=False, tag=True):
    """A chunk of a message: `text` if it is text, else `block`."""

    role: Role
    text: str
    block: Block | None = None
    """The content, if it is not text."""
    message_id: str | None = None
    """The id of the message; chunks of one message have the same id."""
    part: str | None = None
    """Which text of the reasoning it is, if the peer has several: ``summary`` or ``raw``."""
    index: int | None = None
    """The number of the paragraph in that text, from 0."""


class MessageSet(Base, frozen=True, gc=False, tag=True):
    """A complete message; it replaces the chunks before it."""

    role: Role
    message_id: str
    blocks: tuple[Block, ...] | None | UnsetType = UNSET
    """The content of the message."""
    final: bool = False
    """Whether no more chunks of the message follow."""


# -- tools and files


class ToolChanged(Base, frozen=True, gc=False, tag=True):
    """A tool call began or changed. The first event for an id creates the call; its defaults are
    status `pending` and kind `other`."""

    tool_id: str
    title: str | None | UnsetType = UNSET
    name: str | None | UnsetType = UNSET
    """The tool's own name."""
    kind: ToolKind | UnsetType = UNSET
    status: ToolStatus | UnsetType = UNSET
    input: Any = UNSET
    """The arguments of the call, as the peer sent them."""
    output: Any = UNSET
    """The result of the call, as the peer sent it."""
    content: tuple[ToolItem, ...] | None | UnsetType = UNSET
    """Content to show: text, changes as text, terminals."""
    locations: tuple[Location, ...] | None | UnsetType = UNSET
    """The files that the call works on."""
    exit_code: int | None | UnsetType = UNSET
    """The exit code, if the call ran a command."""
    error: str | None | UnsetType = UNSET
    """Why the call failed, if it did."""


class ToolDelta(Base, frozen=True, gc=False, tag=True):
    """More output or content of a running tool call, or input to it."""

    tool_id: str
    stream: str
    """`output`, `progress`, `stdin` or `content`."""
    text: str = ""
    item: ToolItem | None = None
    """The content, if it is not text."""


class FilesChanged(Base, frozen=True, gc=False, tag=True):
    """Files changed, by one tool call or in the whole turn so far."""

    changes: tuple[FileChange, ...]
    stage: ChangeStage
    tool_id: str | None = None
    """The tool call that changed the files; without one, these are all changes of the turn so
    far."""


# -- plans


class PlanSet(Base, frozen=True, gc=False, tag=True):
    """The whole current plan, as entries or as text."""

    entries: tuple[PlanEntry, ...] = ()
    text: str | None = None
    """The plan, if it is text."""
    plan_id: str = "main"
    explanation: str | None = None
    """Why the plan changed."""


class PlanDelta(Base, frozen=True, gc=False, tag=True):
    """A chunk of a plan in text form."""

    text: str
    plan_id: str = "main"


class PlanRemoved(Base, frozen=True, gc=False, tag=True):
    """A plan was removed."""

    plan_id: str = "main"


# -- questions


class PermissionAsked(Base, frozen=True, gc=False, tag=True):
    """The peer requests permission for something."""

    request_id: str
    """The id of the question, unique on a connection; `PermissionAnswered` has it too."""
    options: tuple[PermissionOption, ...]
    title: str = ""
    description: str | None = None
    kind: ToolKind = ToolKind.OTHER
    tool_id: str | None = None
    """The tool call that needs the permission."""


class PermissionAnswered(Base, frozen=True, gc=False, tag=True):
    """A permission request is settled."""

    request_id: str
    allowed: bool
    option_id: str | None = None
    """The option that was chosen, if any."""
    by: str = "policy"
    """Who decided: `caller`, `policy`, or `cancel` if the turn was cancelled."""


class InputAsked(Base, frozen=True, gc=False, tag=True):
    """The peer asks the user something."""

    request_id: str
    mode: str
    """`form`, `url`, `questions` or `other`."""
    message: str = ""
    schema: Any = None
    """The form as a JSON schema, or the questions, as the peer sent them."""
    url: str | None = None
    """The page to open."""
    tool_id: str | None = None
    """The tool call that needs the answer."""


class InputAnswered(Base, frozen=True, gc=False, tag=True):
    """A question to the user is settled."""

    request_id: str
    action: str
    """`accept`, `decline`, `cancel` or `completed`."""


class ServiceCalled(Base, frozen=True, gc=False, tag=True):
    """The peer called a service of the client."""

    service: str
    """`fs` or `terminal`."""
    operation: str
    """The request without the name of the service, such as ``read_text_file``."""
    error: str | None = None
    """Not used; never set."""


# -- the rest


class UsageReported(Base, frozen=True, gc=False, tag=True):
    """Current usage; it replaces the earlier value for the same `scope`."""

    scope: str
    """`context`, `turn`, `session`, `call` or `account`."""
    usage: Usage


class Noticed(Base, frozen=True, gc=False, tag=True):
    """A notice for the user."""

    severity: str
    """`info`, `warning`, `error`, or another word of the peer."""
    title: str
    detail: str | None = None
    retrying: bool = False
    """Whether the peer tries again what failed."""


class Compacted(Base, frozen=True, gc=False, tag=True):
    """The context is being compacted, or has been."""

    status: str
    """`in_progress`, `completed`, `failed`, `cancelled`, or another word of the peer."""
    compaction_id: str = ""
    summary: str | None = None
    """What the peer keeps of the context."""
    error: str | None = None


class ErrorReported(Base, frozen=True, gc=False, tag=True):
    """The peer reported an error. This event itself ends neither the turn nor the connection."""

    scope: str
    """`call`, `turn` or `connection`."""
    failure: Failure


class Answered(Base, frozen=True, gc=False, tag=True):
    """A response to one of our requests that has no event of its own. `native` names the method."""

    failure: Failure | None = None
    """The error, if the response is one."""


class Unknown(Base, frozen=True, gc=False, tag=True):
    """A message without an event type. The message is in `raw`."""

    reason: str = ""
    """Why there is no event for the message."""


Event: TypeAlias = (
    ConnectionReady
    | ConnectionOver
    | LoginRequired
    | LoginChanged
    | SessionOpened
    | SessionChanged
    | SessionClosed
    | SettingsChanged
    | CommandsChanged
    | TurnStarted
    | TurnState
    | TurnEnded
    | MessageDelta
    | MessageSet
    | ToolChanged
    | ToolDelta
    | FilesChanged
    | PlanSet
    | PlanDelta
    | PlanRemoved
    | PermissionAsked
    | PermissionAnswered
    | InputAsked
    | InputAnswered
    | ServiceCalled
    | UsageReported
    | Noticed
    | Compacted
    | ErrorReported
    | Answered
    | Unknown
)


class EventEnvelope:
    """The fields that all events of one stream have in common, usually the events of one session.

    `turn` and `replay` are updated as turns and replays begin and end. Each call of `base` takes
    the next number.
    """

    __slots__ = ("numbers", "replay", "session", "source", "turn")

    def __init__(self, source: Source, numbers: count[int], session: str | None) -> None:
        self.source = source
        self.numbers = numbers
        self.session = session
        self.turn: str | None = None
        self.replay = False

    def base(
        self, native: str, raw: bytes | None
    ) -> tuple[Source, int, str | None, str | None, str, bytes | None, bool]:
        """Return the common fields of a new event, and number it."""
        return (
            self.source,
            next(self.numbers),
            self.session,
            self.turn,
            native,
            raw,
            self.replay,
        )
