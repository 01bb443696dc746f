"""High-level API for talking to an agent in any dialect.

A `Peer` is a connected agent, a `Conversation` one session with it, a `ConversationTurn` one prompt
as a stream of events that ends with a `Result`. Each dialect implements them next to its typed
client. A turn does not raise for agent errors, even if the agent ended before the turn began:
the result says how it ended. It raises only before the prompt is sent: for mistakes of the caller,
and if the agent is too slow to take the prompt.
"""

from __future__ import annotations

import abc
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self

from msgspec import UNSET, Struct, field, json
from msgspec.structs import replace

from dragoman.client.budgets import Budgets
from dragoman.client.folders import absolute
from dragoman.client.not_entered import Entering
from dragoman.client.permissions import Denial, Permit, require_permit
from dragoman.client.results import (
    BY_DENIAL,
    Result,
    complete_usage,
    explain,
    outcome_with,
    own_error,
    peer_end,
    stop_of,
)
from dragoman.client.turns import BaseTurn, Prompted, TurnEndMark, TurnStage
from dragoman.errors import (
    ConnectionLost,
    DragomanError,
    PeerBusy,
    RemoteError,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.events.parts import (
    AuthMethod,
    Block,
    Capabilities,
    Choice,
    Failure,
    PeerInfo,
    Text,
    Usage,
)
from dragoman.events.view import Growing
from dragoman.events.words import Outcome, Role, ToolStatus
from dragoman.rpc.lanes import Flow

if TYPE_CHECKING:
    from dragoman.client.inquiries import Inquire

P = ParamSpec("P")

log: Final = logging.getLogger("dragoman.client")
_AGENT: Final = Role.AGENT
"""Cached, because looking up a member of an enum takes as long as two calls."""

OURS: Final = "dragoman"
"""The key in a session's metadata that dragoman itself uses, for its brokers."""


class SessionSummary(Struct, frozen=True):
    """A session that the agent remembers."""

    id: str
    cwd: str | None = None
    title: str | None = None
    updated_at: str | None = None
    created_at: str | None = None
    status: str | None = None
    """The agent's own word for the session's state, such as active, completed or error."""


class Opening(Struct, frozen=True, kw_only=True):
    """How to open a session."""

    cwd: Path
    how: str = "new"
    """new, load (with its history), resume (without it) or fork."""
    session_id: str | None = None
    mode: str | None = None
    model: str | None = None
    mcp_servers: Sequence[Any] = ()
    additional_directories: Sequence[Path] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    """Context for a new session, such as a branch; in ACP its `_meta`."""


def require_metadata(metadata: object) -> dict[str, Any]:
    """Return a session's metadata as a dict. Raises `UsageError` if it cannot be sent."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or not all(isinstance(key, str) for key in metadata):
        raise UsageError("metadata= takes a mapping of names to values, such as {'branch': 'main'}")
    if OURS in metadata:
        raise UsageError(f"metadata=: the name {OURS!r} is reserved")
    try:
        json.encode(metadata)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"metadata= is not a JSON value: {error}") from error
    return dict(metadata)


_USE: Final = "session(…) is not open yet: write `async with peer.session(…) as session:`"


def _entered(
    make: Callable[P, AbstractAsyncContextManager[Conversation]],
) -> Callable[P, Entering[Conversation]]:
    @functools.wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> Entering[Conversation]:
        return Entering(make(*args, **kwargs), _USE)

    return call


class Peer(abc.ABC):
    """A connected agent. Use with ``async with``."""

    client: Any
    """The dialect's client, for features specific to the dialect."""
    dialect: str
    info: PeerInfo
    capabilities: Capabilities
    auth_methods: tuple[AuthMethod, ...]
    workspace: Path
    on_event: Callable[[model.Event], None] | None
    """Called immediately with every event of the connection, in order."""
    on_open: Callable[[Conversation, Opening], Awaitable[None]] | None = None
    """Awaited for each session that `session` opens; if it raises, the session is closed again."""

    @abc.abstractmethod
    async def open(self, opening: Opening) -> Conversation:
        """Open a session. Prefer `session`, which also closes it."""

    @abc.abstractmethod
    def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[SessionSummary]:
        """Yield the sessions that the agent remembers; with `cwd`, those of one directory. If
        the dialect does not report a session's directory, all sessions are yielded, without a
        `cwd`."""

    async def delete_session(self, session_id: str) -> None:
        """Delete a session at the agent. Raises `Unsupported` unless a dialect overrides this."""
        self.require(False, "delete sessions")

    async def authenticate(
        self, method_id: str, *, password: str | None = None, token: str | None = None
    ) -> None:
        """Log in with one of the agent's own methods. A secret is sent only if it is passed here
        and the method takes one. Raises `Unsupported` unless a dialect overrides this."""
        self.require(False, "log in through dragoman")

    async def logout(self) -> None:
        """Log out of the agent. Raises `Unsupported` unless a dialect overrides this."""
        self.require(False, "log out")

    def answer_with(self, permit: Permit) -> None:
        """Use another permission callback from now on."""
        require_permit(permit)
        self.client.options = replace(self.client.options, permit=permit)

    def inquire_with(self, inquire: Inquire) -> None:  # noqa: B027 - only some dialects ask
        """Use another callback for questions to the user from now on. This has no effect in the
        many dialects without such questions, and an agent that learned in the handshake that the
        client has no callback does not ask."""

    @abc.abstractmethod
    async def aclose(self) -> None:
        """End everything, including the process."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        name = f"{self.info.name or '?'} {self.info.version or ''}".rstrip()
        return f"<Peer {name!r}, {self.dialect}, in {str(self.workspace)!r}>"

    @_entered
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
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Conversation]:
        """Open a new session, or an earlier one: with its history (`load`), without it (`resume`),
        or as a fork (`fork`). It is closed when the ``async with`` block ends.

        `metadata` gives a new session context, such as its title or a branch. A request that the
        dialect cannot express raises an error before anything is sent. A session that is open on
        this connection cannot be loaded or resumed again.
        """
        chosen = [(h, i) for h, i in (("load", load), ("resume", resume), ("fork", fork)) if i]
        if len(chosen) > 1:
            raise Unsupported("load=, resume= and fork= cannot be combined: pass one of them")
        how, session_id = chosen[0] if chosen else ("new", None)
        can = self.capabilities
        if how != "new":
            self.require(getattr(can, how), f"{how} sessions")
        if mode is not None:
            self.require(can.set_mode, "switch its mode")
        if model is not None:
            self.require(can.set_model, "switch its model")
        if additional_directories:
            self.require(can.additional_directories, "use additional directories")
        if isinstance(mcp_servers, str | bytes | Mapping):
            kind = type(mcp_servers).__name__
            raise UsageError(f"mcp_servers= takes a list of servers, not {kind}")
        told = require_metadata(metadata)
        if told and how != "new":
            raise UsageError("metadata= can be passed only for a new session")
        opening = Opening(
            cwd=absolute(cwd) if cwd is not None else self.workspace,
            how=how,
            session_id=session_id,
            mode=mode,
            model=model,
            mcp_servers=mcp_servers,
            additional_directories=[absolute(path) for path in additional_directories],
            metadata=told,
        )
        conversation = await self.open(opening)
        try:
            if self.on_open is not None:
                await self.on_open(conversation, opening)
            yield conversation
        finally:
            try:
                await conversation.close()
            except DragomanError as error:
                # The caller has its result, or an error that says more than this one.
                log.info("could not close session %s at the agent: %s", conversation.id, error)

    def require(self, able: bool | None, what: str) -> None:
        """Raise `Unsupported` (the agent cannot `what`) if `able` is False. None means unknown: the
        request is then sent anyway."""
        if able is False:
            raise Unsupported(f"{self.info.name or 'the agent'} ({self.dialect}) cannot {what}")


class Conversation(abc.ABC):
    """One session with an agent."""

    __slots__ = ()

    id: str
    replayed: Sequence[model.Event]
    """The history replayed when the session was opened, as events."""
    turn: Any
    """The running turn; None between turns."""
    implicit: bool = False
    """Whether only dragoman knows this session, because the dialect has no session ids. The agent
    gets the prompts of all such sessions as one conversation."""
    answer_meta: Mapping[str, Any] | None = None
    """The metadata of the response that opened the session, in a dialect that has any."""

    def __repr__(self) -> str:
        return f"<Session {self.id!r}, {'in a turn' if self.turn else 'idle'}>"

    @property
    def model_choices(self) -> Sequence[Choice]:
        """The models, if the agent reports them separately from its options; otherwise empty."""
        return ()

    @abc.abstractmethod
    async def wait_replayed(self) -> None:
        """Wait until `replayed` is complete: some agents still replay after their response."""

    @abc.abstractmethod
    def prompt(self, prompt: str | Block | Sequence[Block]) -> ConversationTurn:
        """Return a turn with this prompt; it begins when its ``async with`` block is entered."""

    async def ask(self, prompt: str | Block | Sequence[Block]) -> Result:
        """Send a prompt, wait until the turn ends, and return its result."""
        async with self.prompt(prompt) as turn:
            return await turn.wait()

    async def steer(self, prompt: str | Block | Sequence[Block]) -> None:
        """Add input to the running turn. Few agents support it; others raise `Unsupported`."""
        raise Unsupported("this agent accepts no more input while a turn is running")

    @abc.abstractmethod
    async def set_mode(self, mode_id: str) -> None: ...

    @abc.abstractmethod
    async def set_model(self, model_id: str) -> None: ...

    @abc.abstractmethod
    async def set_option(self, option_id: str, value: str | bool) -> None: ...

    @abc.abstractmethod
    async def close(self) -> None:
        """End the session at the agent, if that is supported, and forget the session here."""


class ConversationTurn(BaseTurn[model.Event, Result]):
    """A prompt as a stream of events. The last event is `TurnEnded`; after it, the result is
    available."""

    answer_meta: Mapping[str, Any] | None = None
    """The metadata of the response to the prompt, in a dialect that has any."""

    __slots__ = (
        *("_acted", "_calls", "_denied_at", "_declined", "_said_end", "_spoken", "_text"),
        "_usage",
    )

    def __init__(self, session: Prompted, flow: Flow, budgets: Budgets) -> None:
        super().__init__(session, flow, budgets)
        self._text = Growing()
        self._spoken: dict[str | None, int] = {}
        """The offset of each message in the text, in the order in which the messages began."""
        self._acted = 0
        self._denied_at = -1
        self._declined: set[str] = set()
        self._usage: Usage | None = None
        self._calls: Usage | None = None
        """Usage of model calls that were reported one by one."""
        self._said_end: model.TurnEnded | None = None

    @property
    def max_text_size(self) -> int | None:
        """Maximum number of characters of the agent's text to keep in the result, from its start.

        None keeps all of it in memory. This is the default, except in a turn that yields the
        updates of the protocol: there, 1 Mi characters are kept.
        """
        return self._text.limit

    @max_text_size.setter
    def max_text_size(self, size: int | None) -> None:
        self._text.limit = size

    @property
    def ready(self) -> bool:
        """Whether the next event, or the end, has already arrived."""
        return bool(self._lane.items)

    @property
    def untaken(self) -> Sequence[model.Event | TurnEndMark[Result]]:
        """The items that have arrived and were not yet iterated over, oldest first. Read-only."""
        return self._lane.items

    # -- for a dialect

    def event(self, event: model.Event, size: int) -> None:
        """Deliver an event of this turn, from a message of `size` bytes."""
        # `type`, not isinstance, for the most common event: it is faster.
        if type(event) is model.MessageDelta:
            if event.role is _AGENT:
                self._acted += 1
                if event.message_id not in self._spoken:
                    self._spoken[event.message_id] = self._text.size
                self._text.add(event.text)
            if size:
                # `put`, inlined.
                self._watchdog.signs += 1
            self._lane.put(event, size)
            return
        self.note(event)
        self.put(event, size)

    def note(self, event: model.Event) -> None:
        """Update the turn's state from an event."""
        if isinstance(event, model.ToolChanged | model.FilesChanged):
            # The failure of a refused call is not work: the refusal remains the last thing that
            # happened.
            if event.tool_id not in self._declined:
                self._acted += 1
            if isinstance(event, model.ToolChanged):
                status = None if event.status is UNSET else event.status
                self._watchdog.tool_changed(event.tool_id, status)
        elif isinstance(event, model.MessageSet):
            self._replace_message(event)
        elif isinstance(event, model.UsageReported):
            if event.scope == "call":
                self._calls = _added(self._calls, event.usage)
            else:
                self._usage = self._of_turn(event.usage)

    def _of_turn(self, usage: Usage) -> Usage:
        """Return this turn's share of reported usage: here, all. Subclasses may return less."""
        return usage

    def _replace_message(self, event: model.MessageSet) -> None:
        """Add a complete message of the agent to the text, or replace its pieces there. If another
        message has begun since, the pieces are kept: they are assumed to be the same text."""
        if event.role is not Role.AGENT or not event.blocks:
            return
        self._acted += 1
        id, text = event.message_id, "".join(b.text for b in event.blocks if isinstance(b, Text))
        if id not in self._spoken:
            self._spoken[id] = self._text.size
            self._text.add(text)
        elif text and id == next(reversed(self._spoken)):
            self._text.set_end(self._spoken[id], text)

    def denied(self, denial: Denial) -> None:
        super().denied(denial)
        self._declined.add(denial.tool_call_id)
        self._watchdog.tool_changed(denial.tool_call_id, ToolStatus.DECLINED)
        self._denied_at = self._acted

    def conclude(self, ended: model.TurnEnded, error: DragomanError | None = None) -> None:
        """End the turn; `ended` is its last event."""
        if self.state is TurnStage.ENDED:
            return
        if self._why is not None:
            # If dragoman ended the turn, that is the reason; see `_failed`.
            self._said_end = ended
        else:
            self._put_end(ended)
        self._finish(TurnEndMark(self._result(ended, error)))

    def _result(self, ended: model.TurnEnded, error: DragomanError | None = None) -> Result:
        text = str(self._text) or ended.text or ""
        outcome = outcome_with(
            ended.outcome,
            denials=len(self.denials),
            approvals=self.approvals,
            cancelled=self.cancelling,
        )
        # Nothing happened after the refusal: the turn ended because of it.
        by_denial = self._denied_at == self._acted and ended.outcome in BY_DENIAL
        if outcome is Outcome.OK:
            if by_denial:
                outcome = Outcome.DENIED
            elif not self._acted and not text.strip():
                outcome = Outcome.EMPTY
        if isinstance(error, RemoteError):
            if ended.failure is not None:
                error.retryable = ended.failure.retryable
            if self._acted:
                # The error code may mean that nothing ran, but this turn has done something.
                error.may_have_run = True
        return Result(
            outcome,
            text,
            ended.stop,
            ended.failure,
            complete_usage(ended.usage, self._used()),
            tuple(self.denials),
            error,
            self._text.truncated,
            self.approvals,
            by_denial,
        )

    def _used(self) -> Usage | None:
        """Return the usage reported before the end: the sum over the model calls, if any were
        reported, with missing values taken from the other reports. None without any report."""
        calls, other = self._calls, self._usage
        if calls is None or other is None:
            return calls or other
        # The context usage may be reported separately.
        return complete_usage(calls, other)

    @abc.abstractmethod
    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        """Return a `TurnEnded` event that does not come from an agent message."""

    def failed(self, error: DragomanError) -> None:
        """End the turn with an error of the connection or of the agent."""
        end = peer_end(error)
        cause: DragomanError | None = error
        if end is None:
            outcome, failure = explain(error)
            ended = self._ended(outcome, stop_of(error), failure)
        else:
            ended, cause = self._ended(end.outcome, end.stop, end.failure), own_error(error, end)
        if self.state is not TurnStage.ENDED and self._why is None:
            self.made(ended)
        self.conclude(ended, cause)

    def _not_sent(self, error: ConnectionLost | PeerBusy) -> None:
        outcome, failure = explain(error)
        # Observers of all events do not get this end: they got no start either.
        self.conclude(self._ended(outcome, stop_of(error), failure), error)

    def made(self, event: model.Event) -> None:
        """Called before an event that does not come from a message is queued, so that a dialect can
        pass it to the connection's observer."""

    def _failed(self, error: DragomanError) -> TurnEndMark[Result]:
        outcome, failure = explain(error)
        if self._said_end is None:
            ended = self._ended(outcome, error.error_class, failure)
        else:
            # Keep the agent's last event, but not its outcome.
            ended = replace(
                self._said_end, outcome=outcome, stop=error.error_class, failure=failure
            )
        self.made(ended)
        self._put_end(ended)
        return TurnEndMark(self._result(ended, error))

    def _cancelled(self) -> Result:
        ended = self._ended(Outcome.CANCELLED, "cancelled without an answer", None)
        if self._why is None:
            self.made(ended)
            self._put_end(ended)
        return self._result(ended)

    def _put_end(self, ended: model.TurnEnded) -> None:
        """Deliver the last event to the consumer of the turn."""
        self._lane.put(ended, 0)


def wrong_prompt(prompt: object, block: str) -> UsageError:
    """Return the error for an invalid prompt. `block` names a type of block that is valid."""
    kind = type(prompt).__name__
    hint = ""
    if isinstance(prompt, bytes | bytearray):
        hint = ": decode it first"
    elif isinstance(prompt, list | tuple):
        strange = sorted({type(each).__name__ for each in prompt})
        hint = f" of {', '.join(strange)}" if strange else ""
    return UsageError(f"a prompt is text, or a list of blocks such as {block}, not {kind}{hint}")


def require_unicode(prompt: str) -> None:
    """Raise `UsageError` for text that cannot be sent because it has an unpaired surrogate."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"this prompt is not Unicode text and cannot be sent: {error}") from error


def blocks_of(prompt: str | Block | Sequence[Block]) -> tuple[Block, ...]:
    """Return a prompt as blocks. Raises `UsageError` if it is invalid."""
    if isinstance(prompt, str):
        if not prompt.isascii():
            require_unicode(prompt)
        return (Text(prompt),)
    if isinstance(prompt, Block):
        return (prompt,)
    if isinstance(prompt, list | tuple) and all(isinstance(each, Block) for each in prompt):
        return tuple(prompt)
    raise wrong_prompt(prompt, "dragoman.events.parts.Text")


__all__ = [
    "Conversation",
    "ConversationTurn",
    "Opening",
    "Peer",
    "Result",
    "SessionSummary",
    "absolute",
    "blocks_of",
    "explain",
]


_COUNTS: Final = (
    *("input_tokens", "output_tokens", "thought_tokens", "cache_read_tokens"),
    *("cache_write_tokens", "total_tokens"),
)


def _added(before: Usage | None, usage: Usage) -> Usage:
    """Return `usage` with the token counts of `before` added."""
    if before is None:
        return usage
    counts = {name: (getattr(before, name), getattr(usage, name)) for name in _COUNTS}
    return replace(
        usage,
        **{
            name: None if pair == (None, None) else (pair[0] or 0) + (pair[1] or 0)
            for name, pair in counts.items()
        },
    )
