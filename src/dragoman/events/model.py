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
    """The connection an event came from."""

    dialect: str
    """The agent's dialect."""
    connection: str
    via: str = ""
    """The dialect of the connection if a broker or a gateway translates for the agent; `native`
    and `raw` are then in that dialect."""

    @property
    def spoken(self) -> str:
        """The dialect of `native` and `raw`."""
        return self.via or self.dialect


class Base(Struct, frozen=True, gc=False):
    """The common fields of all events."""

    source: Source
    seq: int
    session: str | None
    turn: str | None
    native: str
    raw: bytes | None
    replay: bool

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


class ConnectionOver(Base, frozen=True, gc=False, tag=True):
    """The connection has ended."""

    error_class: str
    message: str
    exit_code: int | None = None
    signal: int | None = None
    stderr_tail: str = ""


class LoginRequired(Base, frozen=True, gc=False, tag=True):
    """The peer requires a login first."""

    message: str
    methods: tuple[AuthMethod, ...] = ()
    hint: str = ""


class LoginChanged(Base, frozen=True, gc=False, tag=True):
    """A login or logout happened. `logged_in` is None if that is unknown."""

    logged_in: bool | None
    account: str | None = None
    error: str | None = None


# -- sessions


class SessionOpened(Base, frozen=True, gc=False, tag=True):
    """A session was opened. `how`: new, load, resume, fork or implicit."""

    how: str
    cwd: str | None = None
    title: str | None = None
    model: str | None = None
    forked_from: str | None = None


class SessionChanged(Base, frozen=True, gc=False, tag=True):
    """The session's title, status or time of the last change was updated."""

    title: str | None | UnsetType = UNSET
    updated_at: str | None | UnsetType = UNSET
    status: str | None | UnsetType = UNSET


class SessionClosed(Base, frozen=True, gc=False, tag=True):
    """The session is no longer open."""

    reason: str = ""


class SettingsChanged(Base, frozen=True, gc=False, tag=True):
    """The session's current settings. Each list is complete; `UNSET` means not reported."""

    options: tuple[SessionOption, ...] | UnsetType = UNSET
    mode: str | None | UnsetType = UNSET
    modes: tuple[SessionOption, ...] | UnsetType = UNSET
    model: str | None | UnsetType = UNSET


class CommandsChanged(Base, frozen=True, gc=False, tag=True):
    """The current slash commands."""

    commands: tuple[SlashCommand, ...]


# -- turns


class TurnStarted(Base, frozen=True, gc=False, tag=True):
    """A turn began with a prompt."""

    prompt: tuple[Block, ...] = ()


class TurnState(Base, frozen=True, gc=False, tag=True):
    """A turn is running, waiting for an answer, or idle."""

    phase: TurnPhase
    flags: tuple[str, ...] = ()


class TurnEnded(Base, frozen=True, gc=False, tag=True):
    """A turn is over. `stop` is the peer's own stop reason."""

    outcome: Outcome
    stop: str = ""
    failure: Failure | None = None
    text: str | None = None
    """The whole answer, if the dialect gives it at the end."""
    usage: Usage | None = None


# -- messages


class MessageDelta(Base, frozen=True, gc=False, tag=True):
    """A chunk of a message: `text` if it is text, else `block`."""

    role: Role
    text: str
    block: Block | None = None
    message_id: str | None = None
    part: str | None = None
    index: int | None = None


class MessageSet(Base, frozen=True, gc=False, tag=True):
    """A complete message; it replaces the chunks before it."""

    role: Role
    message_id: str
    blocks: tuple[Block, ...] | None | UnsetType = UNSET
    final: bool = False


# -- tools and files


class ToolChanged(Base, frozen=True, gc=False, tag=True):
    """A tool call began or changed. The first event for an id creates the call; its defaults are
    status `pending` and kind `other`."""

    tool_id: str
    title: str | None | UnsetType = UNSET
    name: str | None | UnsetType = UNSET
    kind: ToolKind | UnsetType = UNSET
    status: ToolStatus | UnsetType = UNSET
    input: Any = UNSET
    output: Any = UNSET
    content: tuple[ToolItem, ...] | None | UnsetType = UNSET
    locations: tuple[Location, ...] | None | UnsetType = UNSET
    exit_code: int | None | UnsetType = UNSET
    error: str | None | UnsetType = UNSET


class ToolDelta(Base, frozen=True, gc=False, tag=True):
    """More output of a running tool. `stream`: output, progress, stdin or content."""

    tool_id: str
    stream: str
    text: str = ""
    item: ToolItem | None = None


class FilesChanged(Base, frozen=True, gc=False, tag=True):
    """Files changed, by one tool call or in the whole turn so far."""

    changes: tuple[FileChange, ...]
    stage: ChangeStage
    tool_id: str | None = None


# -- plans


class PlanSet(Base, frozen=True, gc=False, tag=True):
    """The whole current plan, as entries or as text."""

    entries: tuple[PlanEntry, ...] = ()
    text: str | None = None
    plan_id: str = "main"
    explanation: str | None = None


class PlanDelta(Base, frozen=True, gc=False, tag=True):
    """A chunk of a plan in text form."""

    text: str
    plan_id: str = "main"


class PlanRemoved(Base, frozen=True, gc=False, tag=True):
    """A plan was removed."""

    plan_id: str = "main"


# -- questions


class PermissionAsked(Base, frozen=True, gc=False, tag=True):
    """The peer requests permission for something. `request_id` is unique on a connection."""

    request_id: str
    options: tuple[PermissionOption, ...]
    title: str = ""
    description: str | None = None
    kind: ToolKind = ToolKind.OTHER
    tool_id: str | None = None


class PermissionAnswered(Base, frozen=True, gc=False, tag=True):
    """A permission request is settled. `by`: caller, policy or cancel."""

    request_id: str
    allowed: bool
    option_id: str | None = None
    by: str = "policy"


class InputAsked(Base, frozen=True, gc=False, tag=True):
    """The peer asks the user something. `mode`: form, url, questions or other."""

    request_id: str
    mode: str
    message: str = ""
    schema: Any = None
    url: str | None = None
    tool_id: str | None = None


class InputAnswered(Base, frozen=True, gc=False, tag=True):
    """A question is settled. `action`: accept, decline, cancel or completed."""

    request_id: str
    action: str


class ServiceCalled(Base, frozen=True, gc=False, tag=True):
    """The peer called a service of the client. `service`: fs or terminal."""

    service: str
    operation: str
    error: str | None = None


# -- the rest


class UsageReported(Base, frozen=True, gc=False, tag=True):
    """Current usage; replaces the earlier value for the same `scope`: context, turn, session,
    call or account."""

    scope: str
    usage: Usage


class Noticed(Base, frozen=True, gc=False, tag=True):
    """A notice for the user. `retrying`: the peer is retrying."""

    severity: str
    title: str
    detail: str | None = None
    retrying: bool = False


class Compacted(Base, frozen=True, gc=False, tag=True):
    """The context is being compacted, or has been."""

    status: str
    compaction_id: str = ""
    summary: str | None = None
    error: str | None = None


class ErrorReported(Base, frozen=True, gc=False, tag=True):
    """The peer reported an error. The turn and the connection continue. `scope`: call, turn or
    connection."""

    scope: str
    failure: Failure


class Answered(Base, frozen=True, gc=False, tag=True):
    """A response to one of our requests that has no event of its own. `native` names the method."""

    failure: Failure | None = None


class Unknown(Base, frozen=True, gc=False, tag=True):
    """A message without an event type. The message is in `raw`."""

    reason: str = ""


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
    """The origin of events: created once for each session, changed when a turn begins or ends."""

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
        """Return the common fields of an event."""
        return (
            self.source,
            next(self.numbers),
            self.session,
            self.turn,
            native,
            raw,
            self.replay,
        )
