"""Base classes of the clients for ACP, Codex and the legacy dialects.

`BaseClient` is a connection with its open sessions, `EventFeed` the numbered events of a
connection, `EventClient` and `EventConversation` the client and session of dialects whose messages
all become events, `ClientPeer` the peer above them, `WorkspaceServices` the files and terminals of
a session, and `Cursor` the position in a list that comes in pages. None of them uses a method of a
dialect.
"""

from __future__ import annotations

import abc
import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Conversation, Peer
from dragoman.client.early_messages import EarlyMessages
from dragoman.client.open_questions import OpenQuestions
from dragoman.client.permissions import Decision, Question
from dragoman.client.results import explain
from dragoman.errors import (
    ArgumentInvalid,
    CallError,
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    DragomanError,
    FileMissing,
    InvalidAnswer,
    ProcessExited,
    ProgramNotFound,
    RemoteError,
    ServiceError,
    SpawnError,
    TerminalUnknown,
    UsageError,
)
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.rpc import Call, Connection
from dragoman.rpc.tasks import all_ended, finish
from dragoman.transports.base import Stream
from dragoman.wire import codes
from dragoman.wire.peer import Noise, Stray

if TYPE_CHECKING:
    from msgspec import Raw

    from dragoman.client.options import DialectOptions
    from dragoman.client.services.files import Files
    from dragoman.client.services.terminals import Terminals
    from dragoman.client.services.workspace import Workspace

C = TypeVar("C", bound="Startable")
S = TypeVar("S", bound="OpenSession")
T = TypeVar("T")

log: Final = logging.getLogger("dragoman.client")


async def call_in_order(
    connection: Connection,
    method: str,
    params: Any,
    then: Callable[[Call, Raw], T],
    *,
    timeout: float | None,
    explain: Callable[[DragomanError], DragomanError] | None = None,
    undo: Callable[[Raw], None] | None = None,
) -> T:
    """Call a method and return what `then` makes of its result. If the call fails, raise its error,
    or the error that `explain`, if given, returns for it.

    `then` is called while the response is being read. Code after an `await` would run only after
    messages that followed the response: it could overwrite newer state with older state, and an
    update would not find its session.

    `undo`, which needs a `timeout`, is called with the result of a response that comes too late,
    because the caller was cancelled or the timeout has expired. Such a response is still accepted
    for another `timeout` seconds.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    answer: Raw | None = None

    def settle(raw: Raw | None, error: DragomanError | None) -> None:
        nonlocal answer
        if future.done():
            if undo is not None and raw is not None:
                undo(raw)
            return
        if error is not None:
            future.set_exception(error if explain is None else explain(error))
            return
        assert raw is not None
        answer = raw
        try:
            result = then(call, raw)
        except Exception as failure:
            # The caller gets every error, or it would wait forever.
            if not future.done():
                future.set_exception(failure)
            if not isinstance(failure, DragomanError):
                # The connection logs it.
                raise
        else:
            # `then` may cancel the caller, for example in an observer of events.
            if not future.done():
                future.set_result(result)

    if undo is None:
        call = connection.begin(method, params, settle=settle, timeout=timeout)
        try:
            return await future
        except asyncio.CancelledError:
            call.give_up(ConnectionClosed("the caller was cancelled"))
            raise
    assert timeout is not None
    call = connection.begin(method, params, settle=settle)

    def expire() -> None:
        if not future.done():
            error = CallTimeout(method, timeout)
            future.set_exception(error if explain is None else explain(error))
            connection.expect_late(call, timeout)

    timer = loop.call_later(timeout, expire)
    try:
        return await future
    except asyncio.CancelledError:
        if answer is not None:
            undo(answer)
        else:
            connection.expect_late(call, timeout)
        raise
    finally:
        timer.cancel()


MAX_PAGES: Final = 10_000
"""Maximum number of pages of a list, in case an agent sends a new cursor with every page."""


class Cursor:
    """The position in a list that an agent sends in pages.

    Until `over`, fetch the page at `value`, and pass the next page's cursor to `advance`.
    """

    def __init__(self, what: str) -> None:
        self.value: str | None = None
        """The cursor of the next page; None for the first one."""
        self.over = False
        self._what = what
        self._used: set[str] = set()

    def advance(self, cursor: str | None) -> None:
        """Go to the next page; without a cursor, the list is over. Raises `InvalidAnswer` if the
        list does not end: a cursor comes again, or there are too many pages."""
        if cursor is None:
            self.over = True
        elif cursor in self._used or len(self._used) + 1 >= MAX_PAGES:
            raise InvalidAnswer(f"the agent's list of {self._what} does not end")
        else:
            self._used.add(cursor)
            self.value = cursor


# -- sessions


class WorkspaceServices:
    """The files and terminals of a session, created on first use. Files are confined to the
    session's directories; commands start in one of them."""

    __slots__ = ("_files", "_terminals", "additional_directories", "cwd")

    def __init__(self, cwd: Path, additional_directories: Sequence[Path] = ()) -> None:
        self.cwd: Path = cwd
        """The working directory of the session, as an absolute path."""
        self.additional_directories: tuple[Path, ...] = tuple(additional_directories)
        """Further directories that the agent may use."""
        self._files: Files | None = None
        self._terminals: Terminals | None = None

    # -- services

    @property
    def missing_file_is_empty(self) -> bool:
        """Whether reading a missing file returns an empty text instead of an error: here, false. A
        subclass may override this."""
        return False

    def files(self) -> Files:
        if self._files is None:
            from dragoman.client.services.files import Files

            self._files = Files(self._workspace(), missing_file_is_empty=self.missing_file_is_empty)
        return self._files

    def terminals(self) -> Terminals:
        if self._terminals is None:
            from dragoman.client.services.terminals import Terminals

            self._terminals = Terminals(self._workspace())
        return self._terminals

    def _workspace(self) -> Workspace:
        # Not at the top: most agents never request a file or a terminal.
        from dragoman.client.services.workspace import Workspace

        return Workspace([self.cwd, *self.additional_directories])


def service_refusal(error: ServiceError | SpawnError) -> RemoteError:
    """Return the error the agent gets for a request that a service refused or could not carry
    out."""
    match error:
        case FileMissing() | TerminalUnknown() | ProgramNotFound():
            code = codes.NOT_FOUND
        case ArgumentInvalid():
            code = codes.INVALID_PARAMS
        case ServiceError() if error.blame != "world":
            code = codes.INVALID_PARAMS
        case _:
            code = codes.INTERNAL_ERROR
    return RemoteError(code, str(error), {"errorClass": error.error_class})


# -- clients


class OpenSession(Protocol):
    """What a client needs from each of its sessions."""

    @property
    def id(self) -> str: ...

    def let_go(self) -> Terminals | None:
        """Forget the session at once. The caller must close the returned terminals, if any."""


class BaseClient(abc.ABC, Generic[S]):
    """A connection to an agent and its open sessions. Use with ``async with``."""

    connection: Connection

    def __init__(self, options: DialectOptions) -> None:
        self.budgets = options.budgets or Budgets()
        # The open sessions by id.
        self.conversations: dict[str, S] = {}

    @abc.abstractmethod
    async def start(self) -> None:
        """Start reading and do the handshake. ``async with`` does this."""

    async def aclose(self) -> None:
        """Forget the sessions; end their terminals, the connection and the process behind it."""
        terminals = [session.let_go() for session in list(self.conversations.values())]
        try:
            await all_ended(*(each.aclose() for each in terminals if each is not None))
        finally:
            await self.connection.aclose()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # -- for the sessions

    def require_new(self, session_id: str) -> None:
        """Raise `UsageError` if the session is already open: its messages have one receiver."""
        if session_id in self.conversations:
            raise UsageError(f"the session {session_id} is already open on this connection")

    def forget(self, session: S) -> None:
        """Remove a session that is no longer open."""
        if self.conversations.get(session.id) is session:
            del self.conversations[session.id]


class EventFeed:
    """Passes the events of one connection to its observer, in order."""

    def __init__(
        self,
        dialect: str,
        connection: Connection,
        on_event: Callable[[model.Event], None] | None = None,
    ) -> None:
        self.on_event = on_event
        self.numbers = itertools.count(1)
        self.source = model.Source(dialect, connection.name)
        self.no_session = self.place(None)
        """The envelope of events that belong to no session."""

    def place(self, session_id: str | None, turn_id: str | None = None) -> EventEnvelope:
        place = EventEnvelope(self.source, self.numbers, session_id)
        place.turn = turn_id
        return place

    def emit(self, event: model.Event) -> None:
        """Pass an event to the observer of the connection."""
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:
                # An observer that raises must not stop the others.
                log.exception("the on_event callback of a connection failed")

    def emit_unknown(self, method: str, line: bytes | None, reason: str) -> None:
        """Emit an `Unknown` event for a message that is not understood. `method` is empty for a
        line that is not a message."""
        self.emit(model.Unknown(*self.no_session.base(method, line), reason))

    def emit_answer(self, call: Call, error: DragomanError | None) -> None:
        """Emit an `Answered` event for the response to a call, with `error` as its failure, if
        any."""
        failure = None if error is None else explain(error)[1]
        self.emit(model.Answered(*self.no_session.base(call.method, call.line), failure))

    def emit_over(self, failure: ConnectionLost) -> None:
        """Emit the `ConnectionOver` event, with the reason for the end of the connection."""
        exited = failure if isinstance(failure, ProcessExited) else None
        self.emit(
            model.ConnectionOver(
                *self.no_session.base("", None),
                failure.error_class,
                str(failure),
                exited.exit_code if exited else None,
                exited.signal if exited else None,
                exited.stderr_tail if exited else "",
            )
        )


E = TypeVar("E", bound="EventConversation")


class EventClient(BaseClient[E], EventFeed):
    """A client that turns every received message into events. It is the handler of its
    connection."""

    def __init__(self, options: DialectOptions, dialect: str, connection: Connection) -> None:
        BaseClient.__init__(self, options)
        EventFeed.__init__(self, dialect, connection, options.on_event)
        self._on_noise = options.on_noise
        self.early: EarlyMessages[model.Event] = EarlyMessages()
        self.connection = connection
        connection.on_answer = self._answered
        connection.on_end = self._lost

    def deliver(self, event: model.Event, size: int) -> None:
        """Pass an event to its session, and to the observer unless the running turn does that
        itself. If the session is not open, the event is also kept, in case it is being opened."""
        session_id = event.session
        conversation = None if session_id is None else self.conversations.get(session_id)
        if conversation is None:
            self.emit(event)
            if session_id is not None:
                # Some arrive before the response with their session's id. Others belong to sessions
                # that are not ours, such as those of agents that Codex itself starts.
                self.early.keep(session_id, event, len(event.raw or b""))
            return
        event = conversation.seen(event)
        if not conversation.will_tell(event):
            self.emit(event)
        conversation.deliver(event, size)

    def adopt(self, conversation: E) -> None:
        """Register an open session and deliver the events that came early."""
        self.conversations[conversation.id] = conversation
        for event in self.early.take(conversation.id):
            conversation.deliver(conversation.seen(event), 0)

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        """Do nothing: the connection was created with this client as its handler."""

    def noise(self, noise: Noise | Stray) -> None:
        log.debug("noise: %.200r", noise.line)
        self.emit_unknown("", self._shown(noise.line), "not a known message")
        if self._on_noise is not None:
            self._on_noise(noise)

    def _shown(self, line: bytes | None) -> bytes | None:
        """Return a received line as events show it. A dialect may mask secrets in it."""
        return line

    def _answered(self, call: Call, error: CallError | None) -> None:
        """Called after a response was delivered to its caller: emit `Answered` for it."""
        self.emit_answer(call, error)

    def _lost(self, failure: ConnectionLost) -> None:
        """Called when the connection has ended: end each running turn, and emit `ConnectionOver`.

        A turn whose prompt was acknowledged has no open call that would end it.
        """
        for conversation in list(self.conversations.values()):
            if conversation.turn is not None:
                lost = failure.fresh()
                # A session has a turn only once its prompt is sent.
                lost.may_have_run = True
                conversation.turn.lost(lost)
        self.emit_over(failure)


class EventConversation(Conversation):
    """A session of an `EventClient`."""

    client: EventClient[Any]
    unusable: bool

    def __init__(self, client: EventClient[Any], id: str) -> None:
        self.client = client
        self.id = id
        self.turn = None
        self.unusable = False
        self.replayed: list[model.Event] = []
        self.questions = OpenQuestions()

    def seen(self, event: model.Event) -> model.Event:
        """Return the event, unchanged here. A subclass updates the session's state from it and
        fills in missing fields."""
        return event

    def will_tell(self, event: model.Event) -> bool:
        """Return whether the running turn emits the event itself."""
        return self.turn is not None and self.turn.will_tell(event)

    @abc.abstractmethod
    def deliver(self, event: model.Event, size: int) -> None:
        """Deliver an event of this session, from a message of `size` bytes."""

    def let_go(self) -> Terminals | None:
        """Called when the client is closed. Cancel the open questions, and return None. A subclass
        with terminals returns those, and the caller must close them."""
        self.cancel_questions()
        return None

    def answered(self, question: Question, answer: Decision) -> None:
        """Record in the running turn, if any, that a permission was granted or refused. A
        cancelled question is not recorded."""
        if self.turn is not None:
            self.turn.answered(question, answer)

    def cancel_questions(self) -> None:
        self.questions.call_off()


def fail_turn(session: Any, error: UsageError) -> None:
    """Cancel the running turn of a session, if any; it ends with `error`, its caller's mistake."""
    if session is not None and session.turn is not None:
        session.turn.fail(error)


# -- peers


class Startable(Protocol):
    """A client or a peer on a stream."""

    async def start(self) -> None: ...
    async def aclose(self) -> None: ...


async def started(stream: Stream, make: Callable[[], C]) -> C:
    """Create a client or peer with `make` and do the handshake. The stream is closed if that fails:
    a client that could not be created closes nothing, and its process would be left running."""
    try:
        made = make()
    except BaseException:
        await finish(stream.aclose())
        raise
    try:
        await made.start()
    except BaseException:
        await made.aclose()
        raise
    return made


class ClientPeer(Peer):
    """A peer that reaches its agent through the client of a dialect."""

    client: BaseClient[Any]
    feed: EventFeed
    """Numbers the events of the connection and passes them to the observer."""

    def __init__(self, client: BaseClient[Any], feed: EventFeed, workspace: Path) -> None:
        self.client = client
        self.feed = feed
        self.workspace = workspace

    @property
    def on_event(self) -> Callable[[model.Event], None] | None:
        return self.feed.on_event

    @on_event.setter
    def on_event(self, observer: Callable[[model.Event], None] | None) -> None:
        self.feed.on_event = observer

    async def start(self) -> None:
        """Start reading and do the handshake."""
        await self.client.start()

    async def aclose(self) -> None:
        await self.client.aclose()
