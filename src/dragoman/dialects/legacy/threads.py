"""The threads dialect: threads and turns, where the response to a turn is its result.

Method names, message shapes and event translations for both ends. The handshake is optional.
Progress notifications have no fixed names and are kept as they are. A failed turn is answered with
a result that says so, not with a JSON-RPC error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct, field

from dragoman.dialects.legacy import base
from dragoman.events import model, parts, words
from dragoman.events.envelope import EventEnvelope
from dragoman.events.losses import Loss, Part
from dragoman.events.model import Event
from dragoman.events.words import ERROR_OUTCOMES, ErrorKind, Outcome, Role
from dragoman.wire.messages import UNDECODABLE

DIALECT: Final = "threads"
SERVICE: Final = "gdd_peer_delegation"
"""The name by which a client introduces itself, unless it is given another."""

LOSSES: Final = (
    Loss(
        "streamed text: progress has no names, the text comes with a good result",
        (Part.STREAMED_TEXT, Part.MESSAGE_IDS),
    ),
    Loss("thoughts", (Part.THOUGHTS,)),
    Loss("tool calls, diffs and plans", (Part.TOOLS, Part.CHANGES, Part.PLANS)),
    Loss("permissions", (Part.PERMISSIONS,), ("permissions",)),
    Loss("how full the context is, and sums", (Part.CONTEXT_USAGE, Part.TOTAL_USAGE)),
    Loss("the ids of replayed messages", (Part.REPLAYED_IDS,)),
    Loss(
        "the client's files and terminals, and MCP servers",
        (),
        ("mcp_stdio", "mcp_http", "mcp_sse"),
    ),
    Loss(
        "listing, forking, closing and deleting sessions, and more folders for one",
        (),
        ("list", "fork", "close", "delete", "additional_directories"),
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
START: Final = "threadStart"
RESUME: Final = "threadResume"
TURN: Final = "turn"
PROGRESS: Final = "turn_progress"
"""What our own agents call progress; the dialect leaves the name to the agent."""


class Service(Struct, frozen=True):
    """`threadStart` and the handshake: who is asking."""

    service_name: str = SERVICE
    raw_events: bool = field(default=False, name="experimentalRawEvents")


class Thread(Struct, frozen=True, rename="camel"):
    """`threadResume`, and the answer to every opening."""

    thread_id: str


class Turn(Struct, frozen=True, rename="camel"):
    thread_id: str
    text: str


class Usage(Struct, frozen=True, omit_defaults=True):
    input_tokens: int | None = None
    output_tokens: int | None = None


class Error(Struct, frozen=True):
    code: str = ""
    message: str = ""


class Result(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The end of a turn: complete with its content, or an error."""

    thread_id: str = ""
    turn_id: str = ""
    status: str = ""
    content: str | None = None
    usage: Usage | None = None
    error: Error | None = None
    text: str | None = None
    """What was asked; only in a history."""


class State(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a resumed thread looks like. The document names no fields, so both usual names count."""

    thread_id: str
    turns: list[Result] = field(default_factory=list)
    history: list[Result] = field(default_factory=list)
    last_result: Result | None = None


class Progress(Struct, frozen=True, rename="camel"):
    thread_id: str
    turn_id: str
    text: str


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
"""What the codes of a failed turn mean; others are the peer's own."""

_VAGUE: Final = frozenset({ErrorKind.PEER, ErrorKind.INTERNAL})
"""Kinds that the words of an error may still refine."""

_RETRYABLE: Final = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.OVERLOADED, ErrorKind.NETWORK})


# -- the client's end


class ClientEnd(base.ClientEnd):
    """This dialect as a client speaks it."""

    name = DIALECT
    loads_from_list = False
    half_duplex = True
    capabilities = parts.Capabilities(load=True, resume=True)
    info = parts.PeerInfo()
    auth_methods: tuple[parts.AuthMethod, ...] = ()
    version: str | None = None
    cancel: Literal["end"] = "end"
    opens_with: frozenset[str] = frozenset()
    blocks: tuple[type, ...] = (parts.Text,)

    def __init__(self, *, service_name: str = SERVICE, handshake: bool = False) -> None:
        self._service = Service(service_name)
        self._handshake = handshake
        self._first: str | None = None

    def hello(self) -> tuple[str, Any] | None:
        return (INITIALIZE, self._service) if self._handshake else None

    def greeted(self, result: Raw) -> None:
        self._first = msgspec.json.decode(result, type=Thread).thread_id

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
            return ((RESUME, Thread(session_id)),)
        # A handshake is answered with a thread: the first one is there already.
        return () if self._first is not None else ((START, self._service),)

    def opened(
        self,
        result: Raw | None,
        session_id: str | None,
        how: str,
        place_of: Callable[[str | None], EventEnvelope],
    ) -> tuple[str, list[Event]]:
        if result is None:
            assert self._first is not None
            thread_id, self._first = self._first, None
            return thread_id, []
        if session_id is None:
            return msgspec.json.decode(result, type=Thread).thread_id, []
        state = msgspec.json.decode(result, type=State)
        if how != "load":
            return state.thread_id, []
        return state.thread_id, history(state, place_of(state.thread_id))

    def listing(self, cursor: str | None) -> Sequence[tuple[str, Any]]:
        return ()

    def listed(self, result: Raw) -> tuple[list[Any], None]:
        return [], None

    def prompting(
        self, session_id: str, blocks: Sequence[parts.Block]
    ) -> Sequence[tuple[str, Any]]:
        text = "\n".join(block.text for block in blocks if isinstance(block, parts.Text))
        return ((TURN, Turn(session_id, text)),)

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        answer = msgspec.json.decode(result, type=Result)
        place.turn = answer.turn_id or place.turn
        return of_result(answer, place, bytes(result))

    def notified(
        self, method: str, params: Raw, line: bytes, place_of: Callable[[str | None], EventEnvelope]
    ) -> Sequence[Event]:
        try:
            thread_id = _decode_thread(params).thread_id
        except UNDECODABLE:
            thread_id = None
        base = place_of(thread_id).base(method, line)
        return (model.Unknown(*base, "progress has no names in this dialect"),)

    def worked(self, method: str) -> None:
        pass

    def closing(self, place: EventEnvelope) -> list[Event]:
        return []

    def cancelling(self, session_id: str) -> None:
        return None

    def setting_mode(self, session_id: str, mode: str) -> None:
        return None


_decode_thread = msgspec.json.Decoder(Thread).decode


def of_result(result: Result, place: EventEnvelope, raw: bytes | None) -> list[Event]:
    """How a turn ended."""
    failure: parts.Failure | None = None
    events: list[Event] = []
    outcome = words.outcome_of(result.status)
    if result.error is not None or result.status == "error":
        error = result.error or Error()
        kind = ERRORS.get(error.code, ErrorKind.PEER)
        if kind in _VAGUE and "rate limit" in error.message.lower():
            kind = ErrorKind.RATE_LIMITED
        outcome = ERROR_OUTCOMES.get(kind, Outcome.FAILED)
        message = error.message or "the agent did not say why"
        failure = parts.Failure(message, kind, error.code or None, kind in _RETRYABLE)
        events.append(model.ErrorReported(*place.base(TURN, raw), "turn", failure))
    usage = None
    if result.usage is not None:
        usage = parts.Usage(
            input_tokens=result.usage.input_tokens, output_tokens=result.usage.output_tokens
        )
    base = place.base(TURN, raw)
    events.append(model.TurnEnded(*base, outcome, result.status, failure, result.content, usage))
    return events


def history(state: State, place: EventEnvelope) -> list[Event]:
    """The turns of a thread as a replay, the last known result behind them."""
    turns = state.turns or state.history
    last = state.last_result
    if last is not None and not any(turn.turn_id == last.turn_id for turn in turns):
        turns = [*turns, last]
    events: list[Event] = []
    replay, place.replay = place.replay, True
    for turn in turns:
        place.turn = turn.turn_id or None
        if turn.text:
            events.append(model.MessageDelta(*place.base(RESUME, None), Role.USER, turn.text))
        if turn.content:
            events.append(model.MessageDelta(*place.base(RESUME, None), Role.AGENT, turn.content))
        events += of_result(turn, place, None)
    place.turn, place.replay = None, replay
    return events


# -- the agent's end


class AgentEnd:
    """What an agent does in one turn, in the words of this dialect."""

    def __init__(self, thread_id: str, turn_id: str) -> None:
        self.thread_id = thread_id
        self.turn_id = turn_id
        self.said: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.said)

    def tell(self, event: Event) -> list[tuple[str, Any]]:
        if isinstance(event, model.MessageDelta) and event.role is Role.AGENT and event.text:
            self.said.append(event.text)
            return [(PROGRESS, Progress(self.thread_id, self.turn_id, event.text))]
        return []


_NUMBERS: Final = {
    -32000: "auth_required",
    -32001: "overloaded",
    -32002: "not_found",
    -32603: "internal_error",
    -32800: "cancelled",
    429: "rate_limit",
}


def error_code(number: int) -> str:
    """The word for an error that an agent knows by its number."""
    return _NUMBERS.get(number, f"error_{abs(number)}")
