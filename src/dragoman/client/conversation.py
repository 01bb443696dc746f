"""The one high-level way to talk with an agent, whatever it speaks.

Owns the shape of it: a `Peer` is a connected agent, a `Conversation` one session with it, a
`ConversationTurn` one prompt as a stream of events that ends with a `Result`. It does not know any
dialect: each has its implementation beside its typed client.

A turn does not raise for what the other side does: its result says how it ended. It raises for
what the caller does wrong, before anything is sent.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from dragoman.client.budgets import Budgets
from dragoman.client.permissions import Denial
from dragoman.client.turns import BaseTurn, End, Prompted, State
from dragoman.errors import (
    AuthRequired,
    BudgetExceeded,
    CallCancelled,
    ConnectionClosed,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    ProtocolMismatch,
    RemoteError,
    Unsupported,
)
from dragoman.events import model
from dragoman.events.parts import (
    AuthMethod,
    Block,
    Capabilities,
    Failure,
    PeerInfo,
    Text,
    Usage,
)
from dragoman.events.words import ERROR_OUTCOMES, ErrorKind, Outcome, Role
from dragoman.rpc.lanes import Flow


@dataclass(frozen=True, slots=True)
class Result:
    """How a turn ended."""

    outcome: Outcome
    text: str
    """What the agent said."""
    stop: str = ""
    """The other side's own word for why it stopped."""
    failure: Failure | None = None
    usage: Usage | None = None
    denials: tuple[Denial, ...] = ()
    """Permissions that were refused on the way."""
    error: DragomanError | None = None
    """What went wrong on our side of the wire, for those who want to raise it."""

    @property
    def ok(self) -> bool:
        return self.outcome.good

    def require_ok(self) -> Self:
        """Raise unless the turn can be taken for done."""
        if self.ok:
            return self
        if self.error is not None:
            raise self.error
        detail = self.failure.message if self.failure else self.stop
        raise DragomanError(f"the turn ended as {self.outcome}" + (f": {detail}" if detail else ""))


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session that the other side remembers."""

    id: str
    cwd: str | None = None
    title: str | None = None
    updated_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a session is to be opened."""

    cwd: Path
    how: str = "new"
    """new, load (with its history), resume (without it) or fork."""
    session_id: str | None = None
    mode: str | None = None
    model: str | None = None
    mcp_servers: Sequence[Any] = ()
    additional_directories: Sequence[Path] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


class Peer(abc.ABC):
    """A connected agent, for use as ``async with``."""

    dialect: str
    info: PeerInfo
    capabilities: Capabilities
    auth_methods: tuple[AuthMethod, ...]
    workspace: Path
    on_event: Callable[[model.Event], None] | None
    """Told about every event of the connection, in order, at once."""

    @abc.abstractmethod
    async def open(self, opening: Opening) -> Conversation:
        """Open a session; `session` is the convenient way."""

    @abc.abstractmethod
    def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[SessionSummary]:
        """The sessions that the other side remembers."""

    @abc.abstractmethod
    async def aclose(self) -> None:
        """End everything, the process included."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @asynccontextmanager
    async def session(
        self,
        *,
        load: str | None = None,
        resume: str | None = None,
        fork: str | None = None,
        cwd: str | Path | None = None,
        mode: str | None = None,
        model: str | None = None,
        mcp_servers: Sequence[Any] = (),
        additional_directories: Sequence[str | Path] = (),
    ) -> AsyncIterator[Conversation]:
        """A new session, or an earlier one: with its history (`load`), without (`resume`), or
        branched off (`fork`). What the dialect cannot do is an error before anything is sent."""
        chosen = [(h, i) for h, i in (("load", load), ("resume", resume), ("fork", fork)) if i]
        if len(chosen) > 1:
            raise Unsupported("a session is loaded, resumed or forked: choose one")
        how, session_id = chosen[0] if chosen else ("new", None)
        conversation = await self.open(
            Opening(
                cwd=absolute(cwd) if cwd is not None else self.workspace,
                how=how,
                session_id=session_id,
                mode=mode,
                model=model,
                mcp_servers=mcp_servers,
                additional_directories=[absolute(path) for path in additional_directories],
            )
        )
        try:
            yield conversation
        finally:
            await conversation.close()

    def require(self, able: bool | None, what: str) -> None:
        """Refuse what the other side cannot do; what it cannot tell is tried."""
        if able is False:
            raise Unsupported(f"{self.info.name or 'the agent'} ({self.dialect}) cannot {what}")


class Conversation(abc.ABC):
    """One session with an agent."""

    id: str
    replayed: Sequence[Any]
    """The history that was replayed when the session was opened, as events."""

    @abc.abstractmethod
    def prompt(self, prompt: str | Block | Sequence[Block]) -> ConversationTurn:
        """A turn with this prompt; it begins when its ``async with`` block is entered."""

    async def ask(self, prompt: str | Block | Sequence[Block]) -> Result:
        """Send a prompt and wait for its end."""
        async with self.prompt(prompt) as turn:
            return await turn.wait()

    @abc.abstractmethod
    async def set_mode(self, mode_id: str) -> None: ...

    @abc.abstractmethod
    async def set_model(self, model_id: str) -> None: ...

    @abc.abstractmethod
    async def set_option(self, option_id: str, value: str | bool) -> None: ...

    @abc.abstractmethod
    async def close(self) -> None:
        """End the session at the other side where it can do that, and forget it here."""


class ConversationTurn(BaseTurn[model.Event, Result]):
    """A prompt as a stream of events. The last one is `TurnEnded`; then there is a result."""

    __slots__ = ("_acted", "_denied_at", "_text", "_usage")

    def __init__(self, session: Prompted, flow: Flow, budgets: Budgets) -> None:
        super().__init__(session, flow, budgets)
        self._text: list[str] = []
        self._acted = 0
        self._denied_at = -1
        self._usage: Usage | None = None

    # -- for a dialect

    def event(self, event: model.Event, size: int) -> None:
        """An event of this turn happened, in a message of `size` bytes."""
        if isinstance(event, model.MessageDelta):
            if event.role is Role.AGENT:
                self._text.append(event.text)
                self._acted += 1
        elif isinstance(event, model.ToolChanged | model.FilesChanged):
            self._acted += 1
        elif isinstance(event, model.UsageReported):
            self._usage = event.usage
        self.put(event, size)

    def denied(self, denial: Denial) -> None:
        self.denials.append(denial)
        self._denied_at = self._acted

    def conclude(self, ended: model.TurnEnded, error: DragomanError | None = None) -> None:
        """The turn is over: this is its last event."""
        text = "".join(self._text)
        if ended.text and not text:
            text = ended.text
        outcome = ended.outcome
        if outcome is Outcome.OK:
            if not text.strip() and not self._acted:
                outcome = Outcome.EMPTY
            elif self._denied_at == self._acted:
                # Nothing came after the refusal: the turn ended because of it.
                outcome = Outcome.DENIED
        if self.state is not State.ENDED and self._why is None:
            # With a reason of our own the turn ends for that reason, see `_failed`.
            self.put(ended, 0)
        self._finish(
            End(
                Result(
                    outcome,
                    text,
                    ended.stop,
                    ended.failure,
                    ended.usage or self._usage,
                    tuple(self.denials),
                    error,
                )
            )
        )

    @abc.abstractmethod
    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        """A last event that no message of the other side made."""

    def failed(self, error: DragomanError) -> None:
        """The turn ended with an error of the connection or of the other side."""
        outcome, failure = explain(error)
        ended = self._ended(outcome, error.error_class, failure)
        if self.state is not State.ENDED and self._why is None:
            self.made(ended)
        self.conclude(ended, error)

    def made(self, event: model.Event) -> None:
        """An event that no message made is about to be put: for whoever watches all events."""

    def _failed(self, error: DragomanError) -> End[Result]:
        outcome, failure = explain(error)
        ended = self._ended(outcome, error.error_class, failure)
        self.made(ended)
        self._lane.put(ended, 0)
        return End(
            Result(
                outcome,
                "".join(self._text),
                ended.stop,
                failure,
                self._usage,
                tuple(self.denials),
                error,
            )
        )

    def _cancelled(self) -> Result:
        ended = self._ended(Outcome.CANCELLED, "cancelled without an answer", None)
        if self._why is None:
            self.made(ended)
            self._lane.put(ended, 0)
        return Result(
            Outcome.CANCELLED,
            "".join(self._text),
            ended.stop,
            usage=self._usage,
            denials=tuple(self.denials),
        )


def explain(error: DragomanError) -> tuple[Outcome, Failure]:
    """What an error says about how a turn ended."""
    kind = ErrorKind.PEER
    code: int | str | None = error.error_class
    data: Any = None
    match error:
        case AuthRequired():
            outcome, kind = Outcome.AUTH_REQUIRED, ErrorKind.AUTH_REQUIRED
        case CallCancelled():
            outcome, kind = Outcome.CANCELLED, ErrorKind.CANCELLED
        case RemoteError():
            kind = error_kind(error.code, error.message, error.data)
            outcome = ERROR_OUTCOMES.get(kind, Outcome.FAILED)
            code, data = error.code, error.data
        case BudgetExceeded():
            outcome = Outcome.TIMED_OUT
        case InvalidAnswer():
            outcome, kind = Outcome.PROTOCOL_ERROR, ErrorKind.PARSE
        case ProtocolMismatch():
            outcome = Outcome.PROTOCOL_ERROR
        case ConnectionClosed():
            outcome, kind = Outcome.CANCELLED, ErrorKind.CANCELLED
        case ConnectionLost():
            outcome = (
                Outcome.PROTOCOL_ERROR if error.error_class == "line_too_long" else Outcome.CRASHED
            )
        case _:
            outcome = Outcome.UNKNOWN
    return outcome, Failure(str(error), kind, code, error.retryable, data)


_CODES = {
    -32000: ErrorKind.AUTH_REQUIRED,
    -32001: ErrorKind.OVERLOADED,
    -32002: ErrorKind.NOT_FOUND,
    -32022: ErrorKind.UNSUPPORTED_VERSION,
    -32600: ErrorKind.INVALID_PARAMS,
    -32601: ErrorKind.METHOD_NOT_FOUND,
    -32602: ErrorKind.INVALID_PARAMS,
    -32603: ErrorKind.INTERNAL,
    -32700: ErrorKind.PARSE,
    -32800: ErrorKind.CANCELLED,
    401: ErrorKind.AUTH_REQUIRED,
    403: ErrorKind.AUTH_REQUIRED,
    429: ErrorKind.RATE_LIMITED,
}


def error_kind(code: int, message: str, data: Any) -> ErrorKind:
    """The kind of a JSON-RPC error. Its words only refine the kind, they never cause a resend."""
    kind = _CODES.get(code, ErrorKind.PEER)
    if code in (-32603, -32602, -32600):
        text = message.lower()
        if isinstance(data, dict) and isinstance(data.get("details"), str):
            text += " " + data["details"].lower()
        if "session" in text and ("not found" in text or "unknown" in text):
            return ErrorKind.NOT_FOUND
        if "quota" in text or "rate limit" in text or "429" in text:
            return ErrorKind.RATE_LIMITED
        if isinstance(data, list) or (isinstance(data, dict) and "_errors" in data):
            return ErrorKind.INVALID_PARAMS
    return kind


def blocks_of(prompt: str | Block | Sequence[Block]) -> tuple[Block, ...]:
    """A prompt as blocks."""
    if isinstance(prompt, str):
        return (Text(prompt),)
    if isinstance(prompt, Struct):
        return (prompt,)
    return tuple(prompt)


def absolute(path: str | Path) -> Path:
    return Path(path).expanduser().absolute()
