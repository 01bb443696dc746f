"""What the legacy dialects share, for the client's end and the agent's end.

A dialect is a table of method names, message shapes and losses, with functions to translate the
messages that only it has. `ClientEnd` turns messages into events, `AgentEnd` turns events into
messages. Each keeps the state of only one connection. A message is a pair of method and params. A
sequence of messages has one request in several forms: the next form is tried only after proof that
the one before did not run, unless the request is `harmless`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from dragoman.dialects import analyse
from dragoman.events import words
from dragoman.events.model import (
    ErrorReported,
    Event,
    EventEnvelope,
    FilesChanged,
    MessageDelta,
    PlanSet,
    SettingsChanged,
    ToolChanged,
    TurnEnded,
    Unknown,
)
from dragoman.events.parts import (
    AuthMethod,
    Block,
    Capabilities,
    Failure,
    PeerInfo,
    Text,
    Usage,
)
from dragoman.events.words import ERROR_OUTCOMES, ErrorKind, Loss, Outcome, Part, Role, ToolStatus
from dragoman.wire.messages import UNDECODABLE

Message: TypeAlias = tuple[str, Any]
PlaceOf: TypeAlias = Callable[[str | None], EventEnvelope]
"""Returns the envelope for the events of a session, given its id; None means the session with a
running turn, if any."""

Proof: TypeAlias = tuple[str, Sequence[Message], Callable[[Raw], object]]
"""The purpose of a request, the request under each of its names, and a function that decodes the
response."""

Cancel: TypeAlias = Literal["request", "notification", "end"]
"""How a turn is cancelled: with a request whose response is ignored, with a notification, or only
by ending the connection."""

Meaning: TypeAlias = Callable[[Any, Any, EventEnvelope, str, bytes], Sequence[Event]]
"""Translates a notification to events, given the client end, the decoded message, its envelope, its
method and its line."""


# -- losses that several dialects have

NO_THOUGHTS: Final = Loss("thoughts", (Part.THOUGHTS,))
NO_PLANS: Final = Loss("plans", (Part.PLANS,))
NO_DIFFS: Final = Loss("diffs", (Part.CHANGES,))
NO_MESSAGE_IDS: Final = Loss("message ids", (Part.MESSAGE_IDS,))
ONLY_TOOL_NAMES: Final = Loss(
    "the title and the kind of a tool call: it has only a name", (Part.TOOL_TITLES, Part.TOOL_KINDS)
)
NO_PERMISSIONS: Final = Loss("permissions", (Part.PERMISSIONS,), ("permissions",))
NO_USAGE: Final = Loss("usage", (Part.CONTEXT_USAGE, Part.TURN_USAGE))
ONLY_TURN_USAGE: Final = Loss(
    "context usage, and session totals", (Part.CONTEXT_USAGE, Part.TOTAL_USAGE)
)
NO_CLIENT_SERVICES: Final = Loss(
    "the client's files and terminals, and MCP servers", (), ("mcp_stdio", "mcp_http", "mcp_sse")
)
NO_SETTINGS: Final = Loss(
    "modes, models and options",
    (Part.MODES, Part.MODELS, Part.OPTIONS),
    ("set_mode", "set_model", "set_option"),
)
NO_COMMANDS: Final = Loss("the list of slash commands", (Part.COMMANDS,))
ONLY_TEXT_PROMPTS: Final = Loss(
    "images, audio and embedded resources in a prompt", (), ("image", "audio", "embedded")
)
NO_CANCEL: Final = Loss("cancellation: only ending the process stops a turn", (), ("cancel",))
NO_LOGOUT: Final = Loss("logging out, and adding to a running turn", (), ("logout", "steer"))


# -- shapes that several dialects have


class StopAnswer(Struct, frozen=True, rename="camel"):
    """A response to a prompt, with nothing but the reason why the turn ended."""

    stop_reason: str


class TokenUsage(Struct, frozen=True, omit_defaults=True):
    input_tokens: int | None = None
    output_tokens: int | None = None


# -- the client's end


class Listed(Protocol):
    """A session in the peer's list."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str | None: ...
    @property
    def updated_at(self) -> str | None: ...
    @property
    def created_at(self) -> str | None: ...
    @property
    def status(self) -> str | None: ...


class SessionOptions(Struct, frozen=True):
    """How a session should be opened."""

    cwd: str
    mode: str | None = None
    model: str | None = None
    mcp_servers: Sequence[Mapping[str, Any]] = ()
    metadata: Mapping[str, Any] = {}


def meanings(
    table: Mapping[str, tuple[Any, Meaning]],
) -> dict[str, tuple[Callable[[Raw], Any], Meaning]]:
    """Return a table of notifications by method, each with its shape replaced by a decoder for
    it."""
    return {
        method: (msgspec.json.Decoder(shape).decode, meaning)
        for method, (shape, meaning) in table.items()
    }


class ClientEnd:
    """A dialect as a client speaks it, on one connection.

    By default, the dialect has no handshake and no notifications, its sessions need no opening, its
    prompts are text, and a turn is cancelled by ending the connection. Methods that read a response
    raise a decoder's error if the response is malformed.
    """

    name: str = ""
    half_duplex: bool = False
    info = PeerInfo()
    capabilities = Capabilities()
    auth_methods: tuple[AuthMethod, ...] = ()
    version: str | None = None
    cancel: Cancel = "end"
    opens_with: frozenset[str] = frozenset()
    """The options of a new session that the dialect can express: mode, model, mcp_servers,
    metadata."""
    loads_from_list: bool = False
    """Whether an earlier session is found by listing and needs no opening."""
    blocks: tuple[type, ...] = (Text,)
    """The kinds of blocks that a prompt may have."""
    harmless: frozenset[str] = frozenset()
    """The purposes of requests, such as ``create``, that may be sent in their next form after any
    refusal, because a refused one has no effect."""

    notifications: ClassVar[Mapping[str, tuple[Callable[[Raw], Any], Meaning]]] = {}
    """The notifications that an agent sends, from `meanings`. Each shape has a `session_id`, which
    may be None."""

    def hello(self) -> Message | None:
        """Return the handshake request, or None if the dialect has none."""
        return None

    def hellos(self) -> Sequence[Message]:
        """Return the handshake request in each of its forms; the next is tried after a refusal."""
        hello = self.hello()
        return () if hello is None else (hello,)

    def greeted(self, result: Raw) -> None:
        """Store what the response to the handshake says about the peer. A subclass may raise
        `ProtocolMismatch`."""

    def proof(self, cwd: str) -> Proof | None:
        """Return a request whose response proves that the peer speaks this dialect, or None if a
        handshake proves it. The request opens a session, which becomes the first one."""
        return None

    def opening(self, session_id: str | None, options: SessionOptions) -> Sequence[Message]:
        """Return the forms of the request that opens a new session, or an earlier one by its id;
        empty if none is needed. A subclass may raise `Unsupported`."""
        return ()

    def opened(
        self, result: Raw | None, session_id: str | None, how: str, place_of: PlaceOf
    ) -> tuple[str | None, list[Event]]:
        """Return the id of the session, and events for whatever else the response contains:
        settings, history.

        `result` is None if no request was needed, and `how` is ``load`` if the history is wanted.
        The id is None if the dialect has no session ids. Then the client makes one, which only it
        knows, and sends one prompt at a time: the agent's messages belong to the running turn.
        """
        return None, []

    def listing(self, cursor: str | None) -> Sequence[Message]:
        return ()

    def listed(self, result: Raw) -> tuple[Sequence[Listed], str | None]:
        """Return the sessions on a page of a list, and the cursor of the next page, or None if it
        is the last."""
        return (), None

    def prompting(self, session_id: str, blocks: Sequence[Block]) -> Sequence[Message]:
        raise NotImplementedError

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        """Translate the response to a prompt. If the events include a `TurnEnded`, the turn is
        over; otherwise a notification ends it."""
        raise NotImplementedError

    def notified(self, method: str, params: Raw, line: bytes, place_of: PlaceOf) -> Sequence[Event]:
        """Translate a notification. Never raises: one that is unknown or cannot be decoded becomes
        an `Unknown` event."""
        try:
            decode, meaning = self.notifications[method]
            message = decode(params)
        except KeyError:
            return (Unknown(*place_of(None).base(method, line), "an unknown notification"),)
        except UNDECODABLE as error:
            return (Unknown(*place_of(None).base(method, line), str(error)),)
        return meaning(self, message, place_of(message.session_id), method, line)

    def worked(self, method: str) -> None:
        """Called when the peer has answered this method. Does nothing here; a dialect with several
        names for a method may prefer this one later."""

    def closing(self, place: EventEnvelope) -> list[Event]:
        """Return the events that must precede a turn's last event, however the turn ends. A
        subclass also forgets its state of the turn."""
        return []

    def cancelling(self, session_id: str) -> Message | None:
        return None

    def setting_mode(self, session_id: str, mode: str) -> Message | None:
        return None


def text_of(blocks: Sequence[object]) -> str:
    """Return the texts of the text blocks, joined by newlines."""
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


def unsaid(said: str, whole: str | None) -> str:
    """Return the text to add to the chunks of an answer (`said`), given the complete answer at the
    end of the turn (`whole`): its rest, or all of it if it does not begin with `said`.

    Empty if `said` already ends with it, or is empty: the end of the turn then has the text.
    """
    if not said or not whole or said.endswith(whole):
        return ""
    return whole.removeprefix(said)


def said(place: EventEnvelope, native: str, text: str) -> list[Event]:
    """Return events for a part of the agent's answer that no message of its own delivered, such as
    the rest of it from `unsaid`; empty if the text is empty."""
    return [MessageDelta(*place.base(native, None), Role.AGENT, text)] if text else []


def usage_of(told: TokenUsage | None) -> Usage | None:
    if told is None:
        return None
    return Usage(input_tokens=told.input_tokens, output_tokens=told.output_tokens)


def tool_named(
    place: EventEnvelope,
    native: str,
    line: bytes,
    tool_id: str,
    name: str,
    status: ToolStatus,
    *,
    input: Any = UNSET,
    output: Any = UNSET,
    error: Any = UNSET,
) -> ToolChanged:
    """Return an event for a tool call of which only the name is known.

    The name is also its title, and its kind is guessed from the name.
    """
    return ToolChanged(
        *place.base(native, line),
        tool_id,
        title=name,
        name=name,
        kind=words.tool_kind(name),
        status=status,
        input=input,
        output=output,
        error=error,
    )


def stopped(result: Raw, place: EventEnvelope, method: str) -> list[Event]:
    """Translate the end of a turn whose response has only a stop reason."""
    return [ended(place, method, bytes(result), _decode_stop(result).stop_reason)]


_decode_stop = msgspec.json.Decoder(StopAnswer).decode


def ended(
    place: EventEnvelope,
    native: str,
    raw: bytes | None,
    stop: str,
    *,
    failure: Failure | None = None,
    text: str | None = None,
    usage: Usage | None = None,
) -> TurnEnded:
    """Return the end of a turn, with the outcome for its stop reason."""
    outcome = words.outcome_of(stop)
    return TurnEnded(*place.base(native, raw), outcome, stop, failure, text, usage)


OTHER_VERSION: Final = (
    "use a release of the agent that speaks dragoman's version, or try the agent anyway: "
    "`--any-version`, or any_version=True in a program"
)
"""The remedy if an agent answers the handshake with another version of its dialect."""

UNEXPLAINED: Final = "the agent did not say why"

_VAGUE: Final = frozenset({ErrorKind.PEER, ErrorKind.INTERNAL})
"""Kinds that the error message may still refine."""


def failed(
    place: EventEnvelope,
    native: str,
    raw: bytes | None,
    stop: str,
    *,
    kind: ErrorKind,
    code: int | str | None,
    message: str,
    text: str | None = None,
    usage: Usage | None = None,
) -> list[Event]:
    """Return the events for a turn that ended with an error: the report of the error and the end of
    the turn. A vague `kind` is refined if the message mentions a rate limit."""
    # The message may say more than the code, as in an example in one of the specifications.
    if kind in _VAGUE and "rate limit" in message.lower():
        kind = ErrorKind.RATE_LIMITED
    failure = Failure(message, kind, code, kind.retryable)
    outcome = ERROR_OUTCOMES.get(kind, Outcome.FAILED)
    return [
        ErrorReported(*place.base(native, raw), "turn", failure),
        TurnEnded(*place.base(native, raw), outcome, stop, failure, text, usage),
    ]


@contextmanager
def replaying(place: EventEnvelope) -> Iterator[None]:
    """Context manager: events made with this envelope inside the block are marked as replayed."""
    replay, place.replay = place.replay, True
    try:
        yield
    finally:
        place.replay = replay


# -- the agent's end


class AgentEnd:
    """Translates an agent's events to a dialect; events that it cannot express are dropped."""

    roles: ClassVar[frozenset[Role]] = frozenset({Role.AGENT})
    """The roles whose messages the dialect can express."""
    keeps_text: ClassVar[bool] = True
    """Whether `text` is kept. It is never reset, so only an end that serves a single turn keeps
    it."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._started: set[str] = set()

    @property
    def text(self) -> str:
        """The agent's text so far. A chunk that could not be sent may have half a surrogate pair,
        which becomes a question mark."""
        return "".join(self._said).encode(errors="replace").decode()

    def tell(self, event: Event) -> list[Message]:
        match event:
            case MessageDelta(role=role, text=text) if text and role in self.roles:
                if self.keeps_text and role is Role.AGENT:
                    self._said.append(text)
                return [self.message(event)]
            case ToolChanged():
                return self.tool(event)
            case FilesChanged():
                return self.files(event)
            case PlanSet():
                return self.plan(event)
            case SettingsChanged():
                return self.settings(event)
            case _:
                return []

    def message(self, event: MessageDelta) -> Message:
        raise NotImplementedError

    def tool(self, event: ToolChanged) -> list[Message]:
        return []

    def files(self, event: FilesChanged) -> list[Message]:
        return []

    def plan(self, event: PlanSet) -> list[Message]:
        return []

    def settings(self, event: SettingsChanged) -> list[Message]:
        return []

    def begins(self, tool_id: str) -> bool:
        """Return whether a tool call is seen for the first time, and remember it."""
        known = tool_id in self._started
        self._started.add(tool_id)
        return not known


def tool_name(event: ToolChanged, known: str = "") -> str:
    """Return a name for a tool call, for a dialect with a single field for it: the call's name, its
    title, `known` or its id, whichever is the first that is not empty."""
    return str(event.name or event.title or known or event.tool_id)


def is_over(event: ToolChanged) -> bool:
    return isinstance(event.status, ToolStatus) and event.status.over


def content_text(event: ToolChanged) -> str:
    """Return the text in the content of a tool call."""
    return text_of(event.content) if isinstance(event.content, tuple) else ""


analyse(__name__)
