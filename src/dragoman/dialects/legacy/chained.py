"""The chained dialect: each method has several possible names, to be tried in order.

Defines the name chains, message shapes and event translations. `client.legacy.method_names` finds
the name that works, starting with the naming family in which a read-only call was answered. The
response to a prompt may never arrive: a notification ends the turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from dragoman.dialects import analyse
from dragoman.dialects.legacy import base
from dragoman.dialects.legacy.base import Message, PlaceOf, SessionOptions
from dragoman.events import model, parts, words
from dragoman.events.model import Event, EventEnvelope
from dragoman.events.words import ErrorKind, Loss, Part, Role, ToolStatus

DIALECT: Final = "chained"

LOSSES: Final = (
    Loss("a handshake: nothing is known about the agent before it is used"),
    Loss("message ids", (Part.MESSAGE_IDS, Part.REPLAYED_IDS)),
    base.ONLY_TOOL_NAMES,
    Loss(
        "the content and the locations of a tool call: only its result",
        (Part.TOOL_CONTENT, Part.TOOL_LOCATIONS),
    ),
    base.NO_DIFFS,
    base.NO_PLANS,
    base.NO_PERMISSIONS,
    base.NO_USAGE,
    base.NO_CLIENT_SERVICES,
    Loss("everything in a loaded session except its messages"),
    Loss(
        "resuming, forking, closing and deleting sessions, and additional directories",
        (),
        ("resume", "fork", "close", "delete", "additional_directories"),
    ),
    base.NO_SETTINGS,
    base.NO_COMMANDS,
    Loss("audio and embedded resources in a prompt", (), ("audio", "embedded")),
    base.NO_CANCEL,
    base.NO_LOGOUT,
)

LIST: Final = ("session/list", "sessions/list", "list_sessions", "listSessions")
CREATE: Final = ("session/create", "session/start", "create_session", "startSession")
PROMPT: Final = ("prompt/send", "message/send", "chat/send", "sendMessage")
"""The name chains, ordered by family: the same index in all three is one naming style."""

TEXT: Final = ("message/delta", "stream/chunk", "completion/delta", "text/delta")
TOOL_START: Final = ("tool/start", "function/call", "action/start")
TOOL_RESULT: Final = ("tool/result", "function/result", "action/result")
REASONING: Final = ("reasoning/delta", "thinking/delta")
STATUS: Final = ("turn/status", "message/status", "completion/status")
ERROR: Final = "error"

PAGE_SIZE: Final = 50
_ENDS: Final = ("completed", "error")
"""The statuses that end a turn."""
_ENDED: Final = 32
"""Number of ended turns to remember per session, so that a late message about one of them does not
end the next."""


class ListSessions(Struct, frozen=True):
    limit: int = PAGE_SIZE
    offset: int = 0


class SessionMessage(Struct, frozen=True):
    role: str
    content: str


class Session(Struct, frozen=True, omit_defaults=True):
    id: str
    title: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    status: str | None = None
    messages: list[SessionMessage] | None = None


class Sessions(Struct, frozen=True, omit_defaults=True):
    sessions: list[Session]
    next_offset: int | None = field(default=None, name="nextOffset")


class CreateSession(Struct, frozen=True, omit_defaults=True):
    title: str | None = None
    context: dict[str, Any] | None = None


class Created(Struct, frozen=True, rename="camel"):
    session_id: str
    status: str = "active"


class Attachment(Struct, frozen=True):
    type: str
    data: str


class Send(Struct, frozen=True, rename="camel"):
    session_id: str
    message: str
    attachments: list[Attachment] = field(default_factory=list)
    stream: bool = True


class Sent(Struct, frozen=True, omit_defaults=True, rename="camel"):
    turn_id: str | None = None
    request_id: str | None = None
    message_id: str | None = None
    status: str | None = None

    @property
    def turn(self) -> str | None:
        return self.turn_id or self.request_id or self.message_id


class About(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base class of notifications: the session and the turn that they name, if any."""

    session_id: str | None = None
    turn_id: str | None = None
    request_id: str | None = None

    @property
    def turn(self) -> str | None:
        return self.turn_id or self.request_id


class Delta(About, frozen=True, kw_only=True):
    delta: str
    type: str | None = None
    """text, tool or reasoning; text if omitted."""


class Reasoning(About, frozen=True, kw_only=True):
    delta: str
    mode: str | None = None


class ToolStart(About, frozen=True, kw_only=True):
    tool_id: str
    name: str
    input: Any = UNSET


class ToolResult(About, frozen=True, kw_only=True):
    tool_id: str
    output: Any = UNSET
    error: str | None = None


class Status(Struct, frozen=True, kw_only=True, rename="camel"):
    session_id: str | None = None
    turn_id: str | None = None
    request_id: str | None | UnsetType = UNSET
    status: str
    detail: str | None = None

    @property
    def turn(self) -> str | None:
        return self.turn_id or self.request_id or None


class Trouble(Struct, frozen=True):
    code: int | str | None = None
    message: str = ""


class ErrorNote(About, frozen=True, kw_only=True):
    error: Trouble


def family_of(method: str) -> int | None:
    """Return the family (naming style) of a method, or None if it is not in a name chain."""
    for chain in (LIST, CREATE, PROMPT):
        if method in chain:
            return chain.index(method)
    return None


# -- what notifications mean


def _text(m: Delta, place: EventEnvelope, native: str, line: bytes) -> list[Event]:
    if m.type == "tool":
        return [model.ToolDelta(*place.base(native, line), "", "output", m.delta)]
    role = Role.THOUGHT if m.type == "reasoning" else Role.AGENT
    return [model.MessageDelta(*place.base(native, line), role, m.delta)]


def _reasoning(m: Reasoning, place: EventEnvelope, native: str, line: bytes) -> list[Event]:
    told = place.base(native, line)
    return [model.MessageDelta(*told, Role.THOUGHT, m.delta, None, None, m.mode)]


def _tool_start(m: ToolStart, place: EventEnvelope, native: str, line: bytes) -> list[Event]:
    running = ToolStatus.RUNNING
    return [base.tool_named(place, native, line, m.tool_id, m.name, running, input=m.input)]


def _tool_result(m: ToolResult, place: EventEnvelope, native: str, line: bytes) -> list[Event]:
    failed = m.error is not None
    return [
        model.ToolChanged(
            *place.base(native, line),
            m.tool_id,
            status=ToolStatus.FAILED if failed else ToolStatus.COMPLETED,
            output=m.output,
            error=m.error if failed else UNSET,
        )
    ]


def _status(m: Status, place: EventEnvelope, native: str, line: bytes) -> list[Event]:
    if m.status == "processing":
        return [model.TurnState(*place.base(native, line), words.TurnPhase.RUNNING)]
    if m.status not in _ENDS:
        return [model.Unknown(*place.base(native, line), "an unknown status")]
    failure = parts.Failure(m.detail or base.UNEXPLAINED) if m.status == "error" else None
    return [base.ended(place, native, line, m.status, failure=failure)]


_CODES: Final[dict[int | str, ErrorKind]] = {
    429: ErrorKind.RATE_LIMITED,
    "rate_limit": ErrorKind.RATE_LIMITED,
    401: ErrorKind.AUTH_REQUIRED,
    "auth_required": ErrorKind.AUTH_REQUIRED,
    -32001: ErrorKind.OVERLOADED,
    -32603: ErrorKind.INTERNAL,
}


def _error(m: ErrorNote, place: EventEnvelope, native: str, line: bytes) -> list[Event]:
    code = m.error.code
    kind = ErrorKind.PEER if code is None else _CODES.get(code, ErrorKind.PEER)
    return base.failed(place, native, line, "error", kind=kind, code=code, message=m.error.message)


def _in_turn(meaning: Callable[[Any, EventEnvelope, str, bytes], list[Event]]) -> base.Meaning:
    """Wrap a translation: its events belong to the turn that the message names, if it names one. If
    that turn is over, the message becomes an `Unknown` event."""

    def told(
        end: ClientEnd, message: Any, place: EventEnvelope, method: str, line: bytes
    ) -> list[Event]:
        turn = message.turn
        if turn is not None:
            if end.is_over(turn, place):
                return [model.Unknown(*place.base(method, line), "about a turn that is over")]
            place.turn = turn
        events = meaning(message, place, method, line)
        if isinstance(events[-1], model.TurnEnded):
            end.remember(place)
        return events

    return told


_NOTIFICATIONS: Final[
    dict[str, tuple[Any, Callable[[Any, EventEnvelope, str, bytes], list[Event]]]]
] = {
    **dict.fromkeys(TEXT, (Delta, _text)),
    **dict.fromkeys(REASONING, (Reasoning, _reasoning)),
    **dict.fromkeys(TOOL_START, (ToolStart, _tool_start)),
    **dict.fromkeys(TOOL_RESULT, (ToolResult, _tool_result)),
    **dict.fromkeys(STATUS, (Status, _status)),
    ERROR: (ErrorNote, _error),
}


# -- the client's end


class ClientEnd(base.ClientEnd):
    """The client's side of the chained dialect, on one connection."""

    name = DIALECT
    loads_from_list = True
    capabilities = parts.Capabilities(load=None, list=None, image=True, prompt_acknowledged=True)
    opens_with = frozenset({"metadata"})
    blocks = (parts.Text, parts.Image)
    notifications = base.meanings(
        {name: (shape, _in_turn(meaning)) for name, (shape, meaning) in _NOTIFICATIONS.items()}
    )

    def __init__(self) -> None:
        self.family: int | None = None
        """The naming style that the peer responded to."""
        self._first: tuple[str, str] | None = None
        """The directory and the id of a session that is not used yet."""
        self._listed: dict[str, Session] = {}
        self._over: dict[str | None, deque[str]] = {}

    def _any(self, names: Sequence[str], body: Any) -> Sequence[Message]:
        """Return a message under each of its names, starting with the known family's."""
        first = None if self.family is None else names[self.family]
        return [(name, body) for name in sorted(names, key=lambda name: name != first)]

    def proof(self, cwd: str) -> base.Proof:
        def created(result: Raw) -> None:
            self._first = cwd, msgspec.json.decode(result, type=Created).session_id

        return "create", self._any(CREATE, CreateSession(None, {"cwd": cwd})), created

    def opening(self, session_id: str | None, options: SessionOptions) -> Sequence[Message]:
        if session_id is not None:
            return ()
        if self._first is not None and (options.cwd, {}) == (self._first[0], options.metadata):
            # The session that proved the dialect is already open.
            return ()
        title = options.metadata.get("title")
        context = {key: value for key, value in options.metadata.items() if key != "title"}
        return self._any(CREATE, CreateSession(title, {"cwd": options.cwd, **context}))

    def opened(
        self, result: Raw | None, session_id: str | None, how: str, place_of: PlaceOf
    ) -> tuple[str, list[Event]]:
        if result is not None:
            return msgspec.json.decode(result, type=Created).session_id, []
        if session_id is None:
            assert self._first is not None
            (_, first), self._first = self._first, None
            return first, []
        session = self._listed.get(session_id)
        if session is None or how != "load":
            return session_id, []
        return session_id, history(session, place_of(session_id))

    def listing(self, cursor: str | None) -> Sequence[Message]:
        return self._any(LIST, ListSessions(offset=int(cursor or 0)))

    def listed(self, result: Raw) -> tuple[list[Session], str | None]:
        page = msgspec.json.decode(result, type=Sessions)
        self._listed.update({session.id: session for session in page.sessions})
        return page.sessions, None if page.next_offset is None else str(page.next_offset)

    def prompting(self, session_id: str, blocks: Sequence[parts.Block]) -> Sequence[Message]:
        images = [
            Attachment(block.mime_type, block.data)
            for block in blocks
            if isinstance(block, parts.Image)
        ]
        return self._any(PROMPT, Send(session_id, base.text_of(blocks), images))

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        sent = Sent() if bytes(result) == b"null" else msgspec.json.decode(result, type=Sent)
        place.turn = sent.turn or place.turn
        self._reuse(place)
        # A mere acknowledgement ends nothing; a response with an end status does.
        if sent.status in _ENDS:
            self.remember(place)
            return [base.ended(place, PROMPT[0], bytes(result), sent.status)]
        running = words.TurnPhase.RUNNING
        return [model.TurnState(*place.base(PROMPT[0], bytes(result)), running)]

    def is_over(self, turn: str, place: EventEnvelope) -> bool:
        """Return whether a turn of this envelope's session is remembered as ended."""
        return turn in self._over.get(place.session, ())

    def _reuse(self, place: EventEnvelope) -> None:
        """Forget ended turns with the id of the running turn: the agent has used the id again."""
        over = self._over.get(place.session, deque())
        while place.turn is not None and place.turn in over:
            over.remove(place.turn)

    def remember(self, place: EventEnvelope) -> None:
        """Remember that the turn of this envelope has ended."""
        if place.turn is not None:
            over = self._over.setdefault(place.session, deque(maxlen=_ENDED))
            over.append(place.turn)

    def worked(self, method: str) -> None:
        """Record that the peer has this method.

        The names of its other methods are probably of the same family.
        """
        family = family_of(method)
        self.family = self.family if family is None else family


def history(session: Session, place: EventEnvelope) -> list[Event]:
    """Return events that replay the messages of a listed session."""
    roles = {"user": Role.USER, "assistant": Role.AGENT, "agent": Role.AGENT}
    events: list[Event] = []
    with base.replaying(place):
        for message in session.messages or ():
            listed = place.base(LIST[0], None)
            role = roles.get(message.role)
            if role is None:
                block = parts.OtherBlock(message.role, message.content)
                events.append(model.MessageDelta(*listed, Role.AGENT, "", block))
            else:
                events.append(model.MessageDelta(*listed, role, message.content))
    return events


# -- the agent's end


class AgentEnd(base.AgentEnd):
    """Translates an agent's events of one turn to this dialect, in one family of names."""

    roles = frozenset({Role.AGENT, Role.THOUGHT})

    def __init__(
        self, session_id: str, turn_id: str, family: int = 0, *, stream: bool = True
    ) -> None:
        super().__init__()
        self._streams = stream
        self._about = {"session_id": session_id, "turn_id": turn_id}
        self._family = family
        self._output: dict[str, str] = {}
        """The text in the content of each running tool call."""

    def tell(self, event: Event) -> list[Message]:
        messages = super().tell(event)
        # Without streaming, the client is notified only of the end of its turn.
        return messages if self._streams else []

    def name(self, names: Sequence[str]) -> str:
        """Return the notification's name in the client's family, or the last name if the family has
        none."""
        return names[min(self._family, len(names) - 1)]

    def message(self, event: model.MessageDelta) -> Message:
        if event.role is Role.THOUGHT:
            thought = Reasoning(**self._about, delta=event.text, mode="raw")
            return self.name(REASONING), thought
        return self.name(TEXT), Delta(**self._about, delta=event.text, type="text")

    def tool(self, event: model.ToolChanged) -> list[Message]:
        messages: list[Message] = []
        if self.begins(event.tool_id):
            name = base.tool_name(event)
            given = {} if event.input is UNSET else event.input
            start = ToolStart(**self._about, tool_id=event.tool_id, name=name, input=given)
            messages.append((self.name(TOOL_START), start))
        if text := base.content_text(event):
            self._output[event.tool_id] = text
        if isinstance(event.status, ToolStatus) and event.status.over:
            failed = event.status is not ToolStatus.COMPLETED
            shown = self._output.pop(event.tool_id, "")
            result = ToolResult(
                **self._about,
                tool_id=event.tool_id,
                output=shown if event.output is UNSET else event.output,
                error=(str(event.error or "") or event.status.value) if failed else None,
            )
            messages.append((self.name(TOOL_RESULT), result))
        return messages

    def ended(self, status: str, detail: str | None = None) -> Message:
        return self.name(STATUS), Status(**self._about, status=status, detail=detail)

    def failed(self, code: int, message: str) -> Message:
        return ERROR, ErrorNote(**self._about, error=Trouble(code, message))


analyse(__name__)
