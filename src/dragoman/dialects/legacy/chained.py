"""The chained dialect: each method has several possible names, to be tried in order.

Defines the name chains, message shapes and event translations. `client.legacy.method_names` finds
the name that works, beginning with the naming family that a read-only call was answered in. The
response to a prompt may never come: a notification ends the turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from dragoman.dialects.legacy import base
from dragoman.events import model, parts, words
from dragoman.events.envelope import EventEnvelope
from dragoman.events.losses import Loss, Part
from dragoman.events.model import Event
from dragoman.events.words import ERROR_OUTCOMES, ErrorKind, Outcome, Role, ToolStatus
from dragoman.wire.messages import UNDECODABLE

DIALECT: Final = "chained"

LOSSES: Final = (
    Loss("a handshake: nothing is known of the agent before it is used"),
    Loss("the ids of messages", (Part.MESSAGE_IDS, Part.REPLAYED_IDS)),
    Loss(
        "the title and the kind of a tool call: only its name", (Part.TOOL_TITLES, Part.TOOL_KINDS)
    ),
    Loss(
        "the content and the locations of a tool call: only its result",
        (Part.TOOL_CONTENT, Part.TOOL_LOCATIONS),
    ),
    Loss("diffs", (Part.CHANGES,)),
    Loss("plans", (Part.PLANS,)),
    Loss("permissions", (Part.PERMISSIONS,), ("permissions",)),
    Loss("usage", (Part.CONTEXT_USAGE, Part.TURN_USAGE)),
    Loss(
        "the client's files and terminals, and MCP servers",
        (),
        ("mcp_stdio", "mcp_http", "mcp_sse"),
    ),
    Loss("of a loaded session, everything but its messages"),
    Loss(
        "resuming, forking, closing and deleting sessions, and more folders for one",
        (),
        ("resume", "fork", "close", "delete", "additional_directories"),
    ),
    Loss(
        "modes, models and options",
        (Part.MODES, Part.MODELS, Part.OPTIONS),
        ("set_mode", "set_model", "set_option"),
    ),
    Loss("which slash commands there are", (Part.COMMANDS,)),
    Loss("sound and embedded resources in a prompt", (), ("audio", "embedded")),
    Loss("cancelling: only ending the process stops a turn", (), ("cancel",)),
    Loss("logging out, and adding to a turn that is running", (), ("logout", "steer")),
)

LIST: Final = ("session/list", "sessions/list", "list_sessions", "listSessions")
CREATE: Final = ("session/create", "session/start", "create_session", "startSession")
PROMPT: Final = ("prompt/send", "message/send", "chat/send", "sendMessage")
"""The chains, in the order of their families: one place in all three is one style of naming."""

TEXT: Final = ("message/delta", "stream/chunk", "completion/delta", "text/delta")
TOOL_START: Final = ("tool/start", "function/call", "action/start")
TOOL_RESULT: Final = ("tool/result", "function/result", "action/result")
REASONING: Final = ("reasoning/delta", "thinking/delta")
STATUS: Final = ("turn/status", "message/status", "completion/status")
ERROR: Final = "error"

PAGE_SIZE: Final = 50
_ENDED: Final = 32
"""How many ended turns of a session are remembered, so that a late word about one of them does not
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
    """What every notification begins with."""

    session_id: str | None = None
    turn_id: str | None = None
    request_id: str | None = None

    @property
    def turn(self) -> str | None:
        return self.turn_id or self.request_id


class Delta(About, frozen=True, kw_only=True):
    delta: str
    type: str | None = None
    """text, tool or reasoning; text if it is left out."""


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
    """Which style of naming a method belongs to."""
    for chain in (LIST, CREATE, PROMPT):
        if method in chain:
            return chain.index(method)
    return None


# -- the client's end


class ClientEnd(base.ClientEnd):
    """This dialect as a client speaks it."""

    name = DIALECT
    loads_from_list = True
    half_duplex = False
    info = parts.PeerInfo()
    auth_methods: tuple[parts.AuthMethod, ...] = ()
    version: str | None = None
    cancel: Literal["end"] = "end"
    opens_with: frozenset[str] = frozenset({"metadata"})
    blocks: tuple[type, ...] = (parts.Text, parts.Image)

    def __init__(self) -> None:
        self.capabilities = parts.Capabilities(
            load=None, list=None, image=True, prompt_acknowledged=True
        )
        self.family: int | None = None
        """The style of naming that the other side answered to."""
        self._listed: dict[str, Session] = {}
        self._over: dict[str | None, deque[str]] = {}

    def hello(self) -> None:
        return None

    def greeted(self, result: Raw) -> None:
        raise AssertionError("there is no handshake")

    def _chain(self, names: Sequence[str]) -> list[str]:
        if self.family is None:
            return list(names)
        first = names[self.family]
        return [first, *(name for name in names if name != first)]

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
        if session_id is not None:
            return ()
        title = metadata.get("title")
        context = {key: value for key, value in metadata.items() if key != "title"}
        body = CreateSession(title, {"cwd": cwd, **context})
        return [(name, body) for name in self._chain(CREATE)]

    def opened(
        self,
        result: Raw | None,
        session_id: str | None,
        how: str,
        place_of: Callable[[str | None], EventEnvelope],
    ) -> tuple[str, list[Event]]:
        if result is not None:
            return msgspec.json.decode(result, type=Created).session_id, []
        assert session_id is not None
        session = self._listed.get(session_id)
        if session is None or how != "load":
            return session_id, []
        return session_id, history(session, place_of(session_id))

    def listing(self, cursor: str | None) -> Sequence[tuple[str, Any]]:
        body = ListSessions(offset=int(cursor or 0))
        return [(name, body) for name in self._chain(LIST)]

    def listed(self, result: Raw) -> tuple[list[Session], str | None]:
        page = msgspec.json.decode(result, type=Sessions)
        self._listed.update({session.id: session for session in page.sessions})
        return page.sessions, None if page.next_offset is None else str(page.next_offset)

    def prompting(
        self, session_id: str, blocks: Sequence[parts.Block]
    ) -> Sequence[tuple[str, Any]]:
        text = "\n".join(block.text for block in blocks if isinstance(block, parts.Text))
        images = [
            Attachment(block.mime_type, block.data)
            for block in blocks
            if isinstance(block, parts.Image)
        ]
        body = Send(session_id, text, images)
        return [(name, body) for name in self._chain(PROMPT)]

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        sent = Sent() if bytes(result) == b"null" else msgspec.json.decode(result, type=Sent)
        place.turn = sent.turn or place.turn
        # An answer that only acknowledges ends nothing. One that calls itself done does.
        if sent.status in ("completed", "error"):
            self._remember(place)
            base = place.base(PROMPT[0], bytes(result))
            return [model.TurnEnded(*base, words.outcome_of(sent.status), sent.status)]
        base = place.base(PROMPT[0], bytes(result))
        return [model.TurnState(*base, words.TurnPhase.RUNNING)]

    # -- notifications

    def notified(
        self, method: str, params: Raw, line: bytes, place_of: Callable[[str | None], EventEnvelope]
    ) -> Sequence[Event]:
        known = _NOTIFICATIONS.get(method)
        if known is None:
            base = place_of(None).base(method, line)
            return (model.Unknown(*base, "an unknown notification"),)
        shape, meaning = known
        try:
            message = msgspec.json.decode(params, type=shape)
        except UNDECODABLE as error:
            return (model.Unknown(*place_of(None).base(method, line), str(error)),)
        place = place_of(message.session_id)
        turn = message.turn
        if turn is not None:
            if turn in self._over.get(place.session, ()):
                base = place.base(method, line)
                return (model.Unknown(*base, "about a turn that is over"),)
            place.turn = turn
        events = meaning(message, place, method, line)
        if any(isinstance(event, model.TurnEnded) for event in events):
            self._remember(place)
        return events

    def _remember(self, place: EventEnvelope) -> None:
        if place.turn is not None:
            over = self._over.setdefault(place.session, deque(maxlen=_ENDED))
            over.append(place.turn)

    def worked(self, method: str) -> None:
        """The other side has this method: its other names are likely of the same family."""
        family = family_of(method)
        self.family = self.family if family is None else family

    def closing(self, place: EventEnvelope) -> list[Event]:
        return []

    def cancelling(self, session_id: str) -> None:
        return None

    def setting_mode(self, session_id: str, mode: str) -> None:
        return None


def history(session: Session, place: EventEnvelope) -> list[Event]:
    """The messages of a listed session as a replay."""
    roles = {"user": Role.USER, "assistant": Role.AGENT, "agent": Role.AGENT}
    replay, place.replay = place.replay, True
    events: list[Event] = []
    for message in session.messages or ():
        base = place.base(LIST[0], None)
        role = roles.get(message.role)
        if role is None:
            block = parts.OtherBlock(message.role, message.content)
            events.append(model.MessageDelta(*base, Role.AGENT, "", block))
        else:
            events.append(model.MessageDelta(*base, role, message.content))
    place.replay = replay
    return events


def _text(m: Delta, place: EventEnvelope, native: str, line: bytes) -> list[Event]:
    if m.type == "tool":
        return [model.ToolDelta(*place.base(native, line), "", "output", m.delta)]
    role = Role.THOUGHT if m.type == "reasoning" else Role.AGENT
    return [model.MessageDelta(*place.base(native, line), role, m.delta)]


def _reasoning(m: Reasoning, place: EventEnvelope, native: str, line: bytes) -> list[Event]:
    base = place.base(native, line)
    return [model.MessageDelta(*base, Role.THOUGHT, m.delta, None, None, m.mode)]


def _tool_start(m: ToolStart, place: EventEnvelope, native: str, line: bytes) -> list[Event]:
    return [
        model.ToolChanged(
            *place.base(native, line),
            m.tool_id,
            title=m.name,
            name=m.name,
            kind=words.tool_kind(m.name),
            status=ToolStatus.RUNNING,
            input=m.input,
        )
    ]


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
    if m.status not in ("completed", "error"):
        return [model.Unknown(*place.base(native, line), "an unknown status")]
    failure = None
    if m.status == "error":
        failure = parts.Failure(m.detail or "the agent did not say why")
    outcome = words.outcome_of(m.status)
    return [model.TurnEnded(*place.base(native, line), outcome, m.status, failure)]


_CODES: Final[dict[int | str, ErrorKind]] = {
    429: ErrorKind.RATE_LIMITED,
    "rate_limit": ErrorKind.RATE_LIMITED,
    401: ErrorKind.AUTH_REQUIRED,
    "auth_required": ErrorKind.AUTH_REQUIRED,
    -32001: ErrorKind.OVERLOADED,
    -32603: ErrorKind.INTERNAL,
}

_VAGUE: Final = frozenset({ErrorKind.PEER, ErrorKind.INTERNAL})
"""Kinds that the words of an error may still refine."""


def _error(m: ErrorNote, place: EventEnvelope, native: str, line: bytes) -> list[Event]:
    code = m.error.code
    kind = ErrorKind.PEER if code is None else _CODES.get(code, ErrorKind.PEER)
    # The document's own example of an error has a code that says nothing, and these words.
    if kind in _VAGUE and "rate limit" in m.error.message.lower():
        kind = ErrorKind.RATE_LIMITED
    failure = parts.Failure(
        m.error.message, kind, code, kind in (ErrorKind.RATE_LIMITED, ErrorKind.OVERLOADED)
    )
    outcome = ERROR_OUTCOMES.get(kind, Outcome.FAILED)
    return [
        model.ErrorReported(*place.base(native, line), "turn", failure),
        model.TurnEnded(*place.base(native, line), outcome, "error", failure),
    ]


_NOTIFICATIONS: Final[
    dict[str, tuple[Any, Callable[[Any, EventEnvelope, str, bytes], list[Event]]]]
] = {
    **{name: (Delta, _text) for name in TEXT},
    **{name: (Reasoning, _reasoning) for name in REASONING},
    **{name: (ToolStart, _tool_start) for name in TOOL_START},
    **{name: (ToolResult, _tool_result) for name in TOOL_RESULT},
    **{name: (Status, _status) for name in STATUS},
    ERROR: (ErrorNote, _error),
}


# -- the agent's end


class AgentEnd:
    """What an agent does in one turn, in the words of this dialect, in one family of names."""

    def __init__(self, session_id: str, turn_id: str, family: int = 0) -> None:
        self._session_id = session_id
        self._turn_id = turn_id
        self._family = family
        self._open: set[str] = set()
        self._said: list[str] = []

    @property
    def text(self) -> str:
        """What was said so far, for a history."""
        return "".join(self._said)

    def name(self, names: Sequence[str]) -> str:
        """The notification's name in the client's family, as far as the family has one."""
        return names[min(self._family, len(names) - 1)]

    def _about(self) -> dict[str, str]:
        return {"session_id": self._session_id, "turn_id": self._turn_id}

    def tell(self, event: Event) -> list[tuple[str, Any]]:
        match event:
            case model.MessageDelta(role=Role.AGENT, text=text) if text:
                self._said.append(text)
                return [(self.name(TEXT), Delta(**self._about(), delta=text, type="text"))]
            case model.MessageDelta(role=Role.THOUGHT, text=text) if text:
                return [(self.name(REASONING), Reasoning(**self._about(), delta=text, mode="raw"))]
            case model.ToolChanged():
                return self._tool(event)
            case _:
                return []

    def _tool(self, event: model.ToolChanged) -> list[tuple[str, Any]]:
        messages: list[tuple[str, Any]] = []
        if event.tool_id not in self._open:
            self._open.add(event.tool_id)
            name = str(event.name or event.title or event.tool_id)
            given = {} if event.input is UNSET else event.input
            start = ToolStart(**self._about(), tool_id=event.tool_id, name=name, input=given)
            messages.append((self.name(TOOL_START), start))
        if isinstance(event.status, ToolStatus) and event.status.over:
            failed = event.status is not ToolStatus.COMPLETED
            result = ToolResult(
                **self._about(),
                tool_id=event.tool_id,
                output=_output(event),
                error=(str(event.error or "") or event.status.value) if failed else None,
            )
            messages.append((self.name(TOOL_RESULT), result))
        return messages

    def ended(self, status: str, detail: str | None = None) -> tuple[str, Any]:
        return self.name(STATUS), Status(**self._about(), status=status, detail=detail)

    def failed(self, code: int, message: str) -> tuple[str, Any]:
        return ERROR, ErrorNote(**self._about(), error=Trouble(code, message))


def _output(event: model.ToolChanged) -> Any:
    if event.output is not UNSET:
        return event.output
    items = event.content if isinstance(event.content, tuple) else ()
    return "\n".join(item.text for item in items if isinstance(item, parts.Text))
