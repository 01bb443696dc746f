"""Connection to an agent that speaks a legacy dialect: handshake, calls and message routing.

The dialect (`dialects.legacy`) is an argument and translates messages to events. Sessions are in
`peer`, turns in `turn`, the agent's requests in `inbound`, the choice of method names in
`method_names`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from dragoman.client.budgets import Budgets
from dragoman.client.legacy import inbound
from dragoman.client.legacy.method_names import MethodNames, proves_nothing_ran
from dragoman.client.options import DialectOptions
from dragoman.client.results import explain
from dragoman.dialects.legacy.base import ClientEnd, Message
from dragoman.dialects.legacy.keyed.shapes import AUTHENTICATE
from dragoman.errors import (
    CallError,
    ConnectionClosed,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    ProcessExited,
    ProtocolMismatch,
    RemoteError,
)
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.rpc import Call, Connection, ConnectionSettings, End
from dragoman.transports.base import Stream
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.messages import UNDECODABLE, Notification, Request
from dragoman.wire.peer import Noise, Stray

if TYPE_CHECKING:
    from dragoman.client.legacy.peer import DocumentConversation

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.client")

MASK: Final = b"***"
"""Stands for a secret in the raw message of an event."""

EARLY_EVENTS: Final = 4096
"""Events kept for a session whose id is not known yet: some agents talk before they answer."""


class DocumentOptions(DialectOptions, frozen=True, kw_only=True):
    """What the client offers, as far as the dialect has a way to offer it, and how it behaves."""

    service_name: str = ""
    """The name of the service in the dialect of threads; empty is the document's."""
    handshake: bool = False
    """Whether the dialect of threads begins with a handshake."""


class DocumentClient:
    """One connection. `start` it before use, `aclose` it after."""

    def __init__(
        self,
        stream: Stream,
        end: ClientEnd,
        options: DocumentOptions | None = None,
        *,
        chains: MethodNames | None = None,
    ) -> None:
        self.end = end
        self.options = options or DocumentOptions()
        self.budgets = self.options.budgets or Budgets()
        self.chains = chains or MethodNames(end.name)
        self.conversations: dict[str, DocumentConversation] = {}
        self.active: DocumentConversation | None = None
        """The conversation whose turn runs, for dialects whose messages do not name one."""
        self.on_event = self.options.on_event
        self.secrets: list[bytes] = []
        """What was sent to log in, as it stands on the wire: the answer may repeat it."""
        self.permissions: Counter[str] = Counter()
        """How often a permission was asked for, by the agent's id for it."""
        self.answer: bytes | None = None
        """The line of the answer that is being read."""
        self._told: bytes | None = None
        self._stream = stream
        self._opening = 0
        self._early: list[model.Event] = []
        limit = self.options.max_line_size
        settings = ConnectionSettings(
            half_duplex=end.half_duplex,
            max_line_size=DEFAULT_MAX_LINE_SIZE if limit is None else limit,
        )
        self.connection = Connection(stream, End.CLIENT, self, settings=settings)
        self.connection.on_end = self._lost
        self.connection.on_answer = self._answered
        self.numbers = itertools.count(1)
        self.source = model.Source(end.name, self.connection.name)
        self._place = EventEnvelope(self.source, self.numbers, None)

    # -- life

    async def start(self) -> None:
        """Begin to read, and shake hands where the dialect does."""
        self.connection.start()
        hello = self.end.hello()
        if hello is not None:
            await self.ask(hello, self._greeted, timeout=self.budgets.initialize)

    async def aclose(self) -> None:
        await self.connection.aclose()

    def end_soon(self) -> None:
        """End the connection, and the process behind it, without waiting for it here."""
        self.connection.tasks.start(self._stream.aclose(), "end the connection")

    # -- calls

    async def ask(self, message: Message, read: Callable[[Raw], T], *, timeout: float) -> T:
        """Call a method. `read` makes something of the answer, in the order of the wire."""
        method, params = message
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(raw: Raw | None, error: DragomanError | None) -> None:
            if future.done():
                return
            if raw is None:
                assert error is not None
                future.set_exception(error)
                return
            self.answer = call.line
            try:
                future.set_result(self.reading(method, read, raw))
            except DragomanError as refused:
                future.set_exception(refused)
            finally:
                self.answer = None

        call = self.connection.begin(method, params, settle=settle, timeout=timeout)
        try:
            return await future
        except asyncio.CancelledError:
            call.give_up(ConnectionClosed("the caller was cancelled"))
            raise

    def reading(self, method: str, read: Callable[[Raw], T], raw: Raw) -> T:
        """Read an answer; a malformed one is the other side's fault and has a name."""
        try:
            return read(raw)
        except UNDECODABLE as error:
            raise InvalidAnswer(f"the answer to {method} is malformed: {error}") from error

    async def ask_any(
        self,
        concept: str,
        messages: Sequence[Message],
        read: Callable[[Raw], T],
        *,
        timeout: float,
    ) -> T:
        """Call a method that may have several names: the next only if nothing ran."""
        refusal: RemoteError | None = None
        for message in self.chains.order(concept, messages):
            try:
                result = await self.ask(message, read, timeout=timeout)
            except RemoteError as error:
                if not proves_nothing_ran(error, message[0]):
                    # It knows the method and refused: that is an answer, and not a missing name.
                    self.worked(concept, message[0])
                    raise
                refusal = error
            else:
                self.worked(concept, message[0])
                return result
        assert refusal is not None
        self.chains.failed(concept)
        raise refusal

    def worked(self, concept: str, method: str) -> None:
        self.chains.worked(concept, method)
        self.end.worked(method)

    # -- events

    def place_of(self, session_id: str | None) -> EventEnvelope:
        if session_id is None:
            return self._place if self.active is None else self.active.place
        conversation = self.conversations.get(session_id)
        if conversation is not None:
            return conversation.place
        return EventEnvelope(self.source, self.numbers, session_id)

    def emit(self, event: model.Event, size: int) -> None:
        """Hand an event to its conversation and to whoever watches."""
        conversation = None if event.session is None else self.conversations.get(event.session)
        if conversation is None or not conversation.will_tell(event):
            self.watch(event)
        if conversation is not None:
            conversation.deliver(event, size)
        elif event.session is None:
            return
        elif self._opening and len(self._early) < EARLY_EVENTS:
            self._early.append(event)

    def watch(self, event: model.Event) -> None:
        """Tell whoever watches all events."""
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:
                # One observer must not stop the others.
                log.exception("the observer of a connection's events failed")

    def of_answer(self, event: model.Event) -> model.Event:
        """An event that the answer made which is being read. A dialect sees the result in it; the
        event keeps the whole line, which then is not told once more."""
        if event.raw is None:
            return event
        self._told = self.answer
        return replace(event, raw=self.answer)

    @contextlib.contextmanager
    def expecting(self) -> Iterator[None]:
        """While a session is being opened whose id only the answer will tell."""
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1
            if not self._opening:
                self._early.clear()

    def adopt(self, conversation: DocumentConversation) -> None:
        """A conversation is there: it gets what came for it before."""
        self.conversations[conversation.id] = conversation
        early, self._early = self._early, []
        for event in early:
            if event.session == conversation.id:
                conversation.deliver(event, 0)
            else:
                self._early.append(event)

    # -- called by the connection

    def _lost(self, failure: ConnectionLost) -> None:
        # A turn whose prompt was acknowledged has no open call that would tell it.
        for conversation in [*self.conversations.values()]:
            if conversation.turn is not None:
                conversation.turn.lost(failure.fresh())
        exited = failure if isinstance(failure, ProcessExited) else None
        self.watch(
            model.ConnectionOver(
                *self._place.base("", None),
                failure.error_class,
                str(failure),
                exited.exit_code if exited else None,
                exited.signal if exited else None,
                exited.stderr_tail if exited else "",
            )
        )

    def _answered(self, call: Call, error: CallError | None) -> None:
        """An answer came, and whoever waited for it has it: its line is kept for who watches."""
        told, self._told = self._told, None
        if call.line is not None and call.line is told:
            return
        login = call.method == AUTHENTICATE
        base = self._place.base(call.method, self._masked(call.line) if login else call.line)
        # Why a login failed may repeat its secret, and stands in the masked line, too.
        failure = None if error is None or login else explain(error)[1]
        self.watch(model.Answered(*base, failure))

    def _greeted(self, result: Raw) -> None:
        """The handshake was answered: tell of it, or of why there can be none."""
        base = self._place.base("initialize", self.answer)
        self._told = self.answer
        end = self.end
        try:
            end.greeted(result)
        except ProtocolMismatch as mismatch:
            failure = explain(mismatch)[1]
            self.watch(model.ErrorReported(*base, "connection", failure))
            raise
        except UNDECODABLE as error:
            self.watch(model.Unknown(*base, str(error)))
            raise
        self.watch(
            model.ConnectionReady(*base, end.info, end.capabilities, end.version, end.auth_methods)
        )

    def _masked(self, line: bytes | None) -> bytes | None:
        for secret in self.secrets:
            line = None if line is None else line.replace(secret, MASK)
        return line

    def attach(self, connection: Connection) -> None:
        pass

    def notification(self, notification: Notification) -> None:
        line = notification.line
        events = self.end.notified(notification.method, notification.params, line, self.place_of)
        for event in events:
            self.emit(event, len(line))

    def request(self, request: Request) -> Any:
        try:
            return inbound.answer(self, request)
        except RemoteError as refusal:
            self.watch(model.Unknown(*self._place.base(request.method, request.line), str(refusal)))
            raise

    def noise(self, noise: Noise | Stray) -> None:
        log.debug("noise: %.200r", noise.line)
        # A late answer to a login is noise.
        base = self._place.base("", self._masked(noise.line))
        self.watch(model.Unknown(*base, "no message that is understood here"))
        if self.options.on_noise is not None:
            self.options.on_noise(noise)
