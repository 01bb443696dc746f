"""The threads dialect: threads and turns, where the response to a turn is its result.

Method names, message shapes and event translations for both ends. The handshake is optional.
Progress notifications have no fixed method name: their text is found by its field name. The
response to a failed turn is a result with an error, not a JSON-RPC error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from dragoman.dialects import analyse
from dragoman.dialects.legacy import base
from dragoman.dialects.legacy.base import Message, PlaceOf, SessionOptions
from dragoman.events import model, parts
from dragoman.events.model import Event, EventEnvelope
from dragoman.events.words import ErrorKind, Loss, Part, Role
from dragoman.wire.messages import UNDECODABLE

DIALECT: Final = "threads"
SERVICE: Final = "gdd_peer_delegation"
"""The client's default service name, from the specification."""

LOSSES: Final = (
    base.NO_MESSAGE_IDS,
    base.NO_THOUGHTS,
    Loss("tool calls, diffs and plans", (Part.TOOLS, Part.CHANGES, Part.PLANS)),
    base.NO_PERMISSIONS,
    base.ONLY_TURN_USAGE,
    Loss("ids of replayed messages", (Part.REPLAYED_IDS,)),
    base.NO_CLIENT_SERVICES,
    Loss(
        "listing, forking, closing and deleting sessions, and additional directories",
        (),
        ("list", "fork", "close", "delete", "additional_directories"),
    ),
    base.NO_SETTINGS,
    base.NO_COMMANDS,
    base.ONLY_TEXT_PROMPTS,
    base.NO_CANCEL,
    base.NO_LOGOUT,
)

INITIALIZE: Final = "initialize"
START: Final = "threadStart"
RESUME: Final = "threadResume"
TURN: Final = "turn"
PROGRESS: Final = "turn_progress"
"""The method name for progress that dragoman's own agents use; the dialect does not define one."""


class Service(Struct, frozen=True):
    """The params of `threadStart` and of the handshake: the client's name."""

    service_name: str = SERVICE
    raw_events: bool = field(default=False, name="experimentalRawEvents")


class Thread(Struct, frozen=True, rename="camel"):
    """The params of `threadResume`, and the response to every request that opens a thread."""

    thread_id: str


class Turn(Struct, frozen=True, rename="camel"):
    thread_id: str
    text: str


Usage = base.TokenUsage


class Error(Struct, frozen=True):
    code: str = ""
    message: str = ""


class Result(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The result of a turn: its content and usage, or an error."""

    thread_id: str = ""
    turn_id: str = ""
    status: str = ""
    content: str | None = None
    usage: Usage | None = None
    error: Error | None = None
    text: str | None = None
    """The prompt; only in a history."""


class State(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A resumed thread. The specification names no fields, so the usual names are tried."""

    thread_id: str
    turns: list[Result] = field(default_factory=list)
    history: list[Result] = field(default_factory=list)
    last_result: Result | str | None = None
    """The last turn, or only its text."""


class Progress(Struct, frozen=True, rename="camel"):
    thread_id: str
    turn_id: str
    text: str


class Notification(Struct, frozen=True, rename="camel"):
    """A notification of any name. The specification names no fields, so the usual names are
    tried."""

    thread_id: str | None = None
    text: Any = None
    delta: Any = None
    content: Any = None
    message: Any = None
    title: Any = None

    @property
    def session_id(self) -> str | None:
        return self.thread_id

    @property
    def piece(self) -> str:
        """The chunk of the answer in this notification; empty if there is none."""
        return _first(self.text, self.delta, self.content)

    @property
    def notice(self) -> str:
        """The notice for the user in this notification; empty if there is none."""
        return _first(self.message, self.title)


def _first(*values: Any) -> str:
    return next((value for value in values if isinstance(value, str) and value), "")


ERRORS: Final[dict[str, ErrorKind]] = {
    "rate_limit": ErrorKind.RATE_LIMITED,
    "rate_limited": ErrorKind.RATE_LIMITED,
    "quota": ErrorKind.QUOTA,
    "quota_exceeded": ErrorKind.QUOTA,
    "usage_limit": ErrorKind.QUOTA,
    "auth_required": ErrorKind.AUTH_REQUIRED,
    "unauthorized": ErrorKind.AUTH_REQUIRED,
    "context_full": ErrorKind.CONTEXT_FULL,
    "context_length_exceeded": ErrorKind.CONTEXT_FULL,
    "overloaded": ErrorKind.OVERLOADED,
    "not_found": ErrorKind.NOT_FOUND,
    "cancelled": ErrorKind.CANCELLED,
    "network": ErrorKind.NETWORK,
    "internal": ErrorKind.INTERNAL,
    "internal_error": ErrorKind.INTERNAL,
}
"""Error kinds by the code of a failed turn; other codes are the peer's own."""


# -- the client's end


class ClientEnd(base.ClientEnd):
    """The client's side of the threads dialect, on one connection."""

    name = DIALECT
    half_duplex = True
    capabilities = parts.Capabilities(load=True, resume=True)
    harmless = frozenset({"create"})

    def __init__(self, *, service_name: str = SERVICE, handshake: bool = False) -> None:
        self._service = Service(service_name)
        self._handshake = handshake
        self._greeted = False
        self._first: str | None = None
        self._said = ""
        """The part of the answer that progress has delivered in this turn."""

    def hello(self) -> Message | None:
        return (INITIALIZE, self._service) if self._handshake else None

    def greeted(self, result: Raw) -> None:
        self._first = _decode_thread(result).thread_id
        self._greeted = True

    def proof(self, cwd: str) -> base.Proof | None:
        return None if self._greeted else ("create", self._starting(), self.greeted)

    def _starting(self) -> Sequence[Message]:
        """Return the requests to try, in order, until one starts a thread. The second is the
        handshake, which also starts a thread and which an agent may require. It is left out after
        one of them has worked."""
        start = (START, self._service)
        return (start,) if self._greeted else (start, (INITIALIZE, self._service))

    def worked(self, method: str) -> None:
        self._greeted = self._greeted or method in (START, INITIALIZE)

    def opening(self, session_id: str | None, options: SessionOptions) -> Sequence[Message]:
        if session_id is not None:
            return ((RESUME, Thread(session_id)),)
        # The response to a handshake has a thread: the first one is already open.
        return () if self._first is not None else self._starting()

    def opened(
        self, result: Raw | None, session_id: str | None, how: str, place_of: PlaceOf
    ) -> tuple[str, list[Event]]:
        if result is None:
            assert self._first is not None
            thread_id, self._first = self._first, None
            return thread_id, []
        if session_id is None:
            return _decode_thread(result).thread_id, []
        state = msgspec.json.decode(result, type=State)
        if how != "load":
            return state.thread_id, []
        return state.thread_id, history(state, place_of(state.thread_id))

    def prompting(self, session_id: str, blocks: Sequence[parts.Block]) -> Sequence[Message]:
        return ((TURN, Turn(session_id, base.text_of(blocks))),)

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        answer = msgspec.json.decode(result, type=Result)
        place.turn = answer.turn_id or place.turn
        said, self._said = self._said, ""
        rest = base.unsaid(said, answer.content)
        return [*base.said(place, TURN, rest), *of_result(answer, place, bytes(result))]

    def notified(self, method: str, params: Raw, line: bytes, place_of: PlaceOf) -> Sequence[Event]:
        try:
            told = _decode_notification(params)
        except UNDECODABLE:
            told = Notification()
        place = place_of(told.session_id)
        if piece := told.piece:
            self._said += piece
            return (model.MessageDelta(*place.base(method, line), Role.AGENT, piece),)
        if notice := told.notice:
            return (model.Noticed(*place.base(method, line), "progress", notice),)
        return (model.Unknown(*place.base(method, line), "progress without a text"),)

    def closing(self, place: EventEnvelope) -> list[Event]:
        self._said = ""
        return []


_decode_notification = msgspec.json.Decoder(Notification).decode
_decode_thread = msgspec.json.Decoder(Thread).decode


def of_result(result: Result, place: EventEnvelope, raw: bytes | None) -> list[Event]:
    """Translate the result of a turn."""
    usage = base.usage_of(result.usage)
    text = result.content
    if result.error is None and result.status != "error":
        return [base.ended(place, TURN, raw, result.status, text=text, usage=usage)]
    error = result.error or Error()
    return base.failed(
        place,
        TURN,
        raw,
        result.status,
        kind=ERRORS.get(error.code, ErrorKind.PEER),
        code=error.code or None,
        message=error.message or base.UNEXPLAINED,
        text=text,
        usage=usage,
    )


def history(state: State, place: EventEnvelope) -> list[Event]:
    """Return events that replay the turns of a resumed thread, and then its last result if that is
    not among them."""
    turns = state.turns or state.history
    last = state.last_result
    if isinstance(last, str):
        said = turns and turns[-1].content == last
        last = None if said or not last else Result(status="complete", content=last)
    if last is not None and not any(turn.turn_id == last.turn_id for turn in turns):
        turns = [*turns, last]
    events: list[Event] = []
    with base.replaying(place):
        for turn in turns:
            place.turn = turn.turn_id or None
            for role, text in ((Role.USER, turn.text), (Role.AGENT, turn.content)):
                if text:
                    events.append(model.MessageDelta(*place.base(RESUME, None), role, text))
            events += of_result(turn, place, None)
        place.turn = None
    return events


# -- the agent's end


class AgentEnd(base.AgentEnd):
    """Translates an agent's events of one turn to this dialect."""

    def __init__(self, thread_id: str, turn_id: str) -> None:
        super().__init__()
        self.thread_id = thread_id
        self.turn_id = turn_id

    def message(self, event: model.MessageDelta) -> Message:
        return PROGRESS, Progress(self.thread_id, self.turn_id, event.text)


_NUMBERS: Final = {
    -32000: "auth_required",
    -32001: "overloaded",
    -32002: "not_found",
    -32603: "internal_error",
    -32800: "cancelled",
    429: "rate_limit",
}


def error_code(number: int) -> str:
    """Return the dialect's error word for a JSON-RPC error code, ``error_N`` if it has none."""
    return _NUMBERS.get(number, f"error_{abs(number)}")


analyse(__name__)
