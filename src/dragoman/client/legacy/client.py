"""Connection to an agent that speaks a legacy dialect: handshake, calls and message routing.

The dialect (`dialects.legacy`) is an argument and translates messages to events. Sessions are in
`peer`, turns in `turn`, the agent's requests in `inbound`, the choice of method names in
`method_names`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from dragoman.client.base import EventClient, call_in_order
from dragoman.client.legacy import inbound
from dragoman.client.legacy.method_names import MethodNames, none_known, proves_nothing_ran
from dragoman.client.open_questions import RequestNames
from dragoman.client.options import DialectOptions
from dragoman.client.results import explain
from dragoman.dialects import discovery
from dragoman.dialects.legacy.base import ClientEnd, Message
from dragoman.dialects.legacy.keyed.shapes import AUTHENTICATE
from dragoman.errors import (
    CallError,
    InvalidAnswer,
    ProtocolMismatch,
    RemoteError,
)
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.rpc import Call, Connection, ConnectionSettings, End
from dragoman.transports.base import Stream
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.messages import UNDECODABLE, Notification, Request

if TYPE_CHECKING:
    from dragoman.client.legacy.peer import DocumentConversation

T = TypeVar("T")

MASK: Final = b"***"
"""Replaces a secret in the raw message of an event."""


class DocumentOptions(DialectOptions, frozen=True, kw_only=True):
    """What the client offers, as far as the dialect can express it, and how it behaves."""

    service_name: str = ""
    """The service name in the threads dialect; if empty, the one in its specification."""
    handshake: bool = False
    """Whether the threads dialect begins with a handshake."""
    protocol_version: str = ""
    """The version requested in the oneshot and tagged handshakes; if empty, the dialect's own."""


class DocumentClient(EventClient["DocumentConversation"]):
    """One connection to an agent that speaks a legacy dialect. Call `start` before use and `aclose`
    afterwards."""

    def __init__(
        self,
        stream: Stream,
        end: ClientEnd,
        options: DocumentOptions | None = None,
        *,
        method_names: MethodNames | None = None,
    ) -> None:
        self.end = end
        self.options = options or DocumentOptions()
        self.method_names = method_names or MethodNames(end.name)
        self.active: DocumentConversation | None = None
        """The conversation of the running turn, for dialects whose messages do not name one."""
        self._alone = asyncio.Lock()
        """Held by the running turn of a conversation that `takes_turns`, and by a request of a
        half-duplex dialect."""
        self._ending = False
        """Whether the connection is being closed to cancel a turn."""
        self.secrets: list[bytes] = []
        """Secrets sent to log in, as encoded on the wire: the response may repeat them."""
        self.names = RequestNames()
        """The names that events use for permission requests."""
        self.hello: Raw | None = None
        """The response to the handshake; None without one."""
        self.answer: bytes | None = None
        """The line of the response that is being read; None while none is."""
        self._told: bytes | None = None
        self._stream = stream
        limit = self.options.max_line_size
        settings = ConnectionSettings(
            half_duplex=end.half_duplex,
            max_line_size=DEFAULT_MAX_LINE_SIZE if limit is None else limit,
        )
        connection = Connection(stream, End.CLIENT, self, settings=settings)
        super().__init__(self.options, end.name, connection)

    # -- start and end

    async def start(self) -> None:
        """Start reading, and do the handshake if the dialect has one."""
        self.connection.start()
        refusal: RemoteError | None = None
        for hello in self.end.hellos():
            try:
                await self.ask(hello, self._greeted, timeout=self.budgets.initialize)
            except RemoteError as error:
                refusal = refusal or error
            else:
                return
        if refusal is not None:
            raise refusal

    async def wait_for_turns(self) -> None:
        """Wait until no turn or request that must run alone is left, and then keep others waiting
        until `let_others`.

        This wait has no timeout of its own: turns have their own time limits.
        """
        await self._alone.acquire()
        if self._ending:
            # A cancelled turn is ending the connection. Its request stays open until then, so no
            # other request may be sent.
            try:
                await self.connection.wait_ended()
            except BaseException:
                self._alone.release()
                raise

    def let_others(self) -> None:
        self._alone.release()

    def end_soon(self) -> None:
        """End the connection and the process behind it, in the background."""
        self._ending = True
        self.connection.tasks.start(self._stream.aclose(), "end the connection")

    # -- calls

    async def ask(self, message: Message, read: Callable[[Raw], T], *, timeout: float) -> T:
        """Call a method and return what `read` makes of the raw result. `read` is called while the
        response is being read, before any later message.

        In a half-duplex dialect the call first waits for the running turn or request. The timeout
        starts after that: it limits how long the agent takes, and a turn has its own limits.
        """
        if not self.end.half_duplex:
            return await self._ask(message, read, timeout=timeout)
        await self.wait_for_turns()
        try:
            return await self._ask(message, read, timeout=timeout)
        finally:
            self.let_others()

    async def _ask(self, message: Message, read: Callable[[Raw], T], *, timeout: float) -> T:
        method, params = message

        def then(call: Call, raw: Raw) -> T:
            self.answer = call.line
            try:
                return self.reading(method, read, raw)
            finally:
                self.answer = None

        return await call_in_order(self.connection, method, params, then, timeout=timeout)

    def reading(self, method: str, read: Callable[[Raw], T], raw: Raw) -> T:
        """Return what `read` makes of a raw result. Raises `InvalidAnswer` if it is malformed."""
        try:
            return read(raw)
        except UNDECODABLE as error:
            raise InvalidAnswer(f"invalid response to {method}: {error}") from error

    async def ask_any(
        self,
        concept: str,
        messages: Sequence[Message],
        read: Callable[[Raw], T],
        *,
        timeout: float,
    ) -> T:
        """Call a method that may have several names: `messages` has one message for each.

        After an error, the next message is tried only if the error proves that nothing ran, or if
        the call is harmless.
        """
        unknown: RemoteError | None = None
        refused: list[tuple[str, RemoteError]] = []
        for message in self.method_names.order(concept, messages):
            try:
                result = await self.ask(message, read, timeout=timeout)
            except RemoteError as error:
                if proves_nothing_ran(error, message[0]):
                    unknown = error
                    continue
                refused.append((message[0], error))
                if concept not in self.end.harmless:
                    break
            else:
                self.worked(concept, message[0])
                return result
        if refused:
            # The agent knows this method: it refused the call, not the name.
            method, refusal = refused[0]
            if len(refused) == 1:
                self.worked(concept, method)
            raise refusal
        assert unknown is not None
        self.method_names.failed(concept)
        raise none_known(messages, unknown)

    def worked(self, concept: str, method: str) -> None:
        self.method_names.worked(concept, method)
        self.end.worked(method)

    # -- events

    def place_of(self, session_id: str | None) -> EventEnvelope:
        if session_id is None:
            return self.no_session if self.active is None else self.active.place
        conversation = self.conversations.get(session_id)
        if conversation is not None:
            return conversation.place
        return self.place(session_id)

    def of_answer(self, event: model.Event) -> model.Event:
        """Return the event with its `raw` replaced by the whole line of the current response. An
        event without `raw` is returned unchanged.

        The dialect, which made the event, had only the result. No second event is emitted for the
        line.
        """
        if event.raw is None:
            return event
        self._told = self.answer
        return replace(event, raw=self.answer)

    # -- called by the connection

    def _answered(self, call: Call, error: CallError | None) -> None:
        told, self._told = self._told, None
        if call.line is not None and call.line is told:
            return
        if call.method == AUTHENTICATE:
            # The error of a failed login may repeat its secret; the masked line has the error as
            # well.
            base = self.no_session.base(call.method, self._shown(call.line))
            self.emit(model.Answered(*base, None))
        else:
            super()._answered(call, error)

    def _greeted(self, result: Raw) -> None:
        """Handle the handshake response: emit that the connection is ready, or why it is not."""
        self.hello = result
        base = self.no_session.base("initialize", self.answer)
        self._told = self.answer
        end = self.end
        try:
            end.greeted(result)
        except ProtocolMismatch as mismatch:
            found = discovery.of_text(result)
            if found is not None and found != end.name:
                # The agent speaks another dialect, not another version of this one.
                mismatch.dialect, mismatch.version, mismatch.remedy = found, None, ""
            failure = explain(mismatch)[1]
            self.emit(model.ErrorReported(*base, "connection", failure))
            raise
        except UNDECODABLE as error:
            self.emit(model.Unknown(*base, str(error)))
            raise
        self.emit(
            model.ConnectionReady(*base, end.info, end.capabilities, end.version, end.auth_methods)
        )

    def _shown(self, line: bytes | None) -> bytes | None:
        # A late response to a login is reported as noise, and may contain the secret.
        for secret in self.secrets:
            line = None if line is None else line.replace(secret, MASK)
        return line

    def notification(self, notification: Notification) -> None:
        line = notification.line
        events = self.end.notified(notification.method, notification.params, line, self.place_of)
        for event in events:
            self.deliver(event, len(line))

    def request(self, request: Request) -> Any:
        try:
            return inbound.answer(self, request)
        except RemoteError as refusal:
            self.emit_unknown(request.method, request.line, str(refusal))
            raise
