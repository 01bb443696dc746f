"""Send, cancel and end one turn in a legacy dialect.

A prompt is sent once. It is sent again under another method name only if the error proves that
nothing ran. The dialect translates messages to events; `peer` has the session around the turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from dragoman.client.conversation import ConversationTurn
from dragoman.client.legacy.method_names import none_known, proves_nothing_ran
from dragoman.client.results import Result
from dragoman.client.turns import TurnEndMark, TurnStage
from dragoman.dialects.legacy.base import Message
from dragoman.errors import (
    CallCancelled,
    ConnectionLost,
    DragomanError,
    RemoteError,
    TurnInProgress,
    UsageError,
)
from dragoman.events import model
from dragoman.events.parts import Block, Failure
from dragoman.events.words import ErrorKind, Outcome
from dragoman.rpc import Call
from dragoman.wire import codes

if TYPE_CHECKING:
    from dragoman.client.legacy.peer import DocumentConversation


class DocumentTurn(ConversationTurn):
    """A prompt in a legacy dialect."""

    __slots__ = ("_alone", "_blocks", "_client", "_here", "_left", "_messages", "_method", "_seen")

    def __init__(
        self,
        conversation: DocumentConversation,
        blocks: Sequence[Block],
        messages: Sequence[Message],
    ) -> None:
        self._here = conversation
        self._client = conversation.client
        self._blocks = blocks
        # Raise here, not when the turn begins, if it is known that no name works.
        self._left = self._client.method_names.order("prompt", messages)
        self._messages = messages
        self._method = self._left[0][0]
        self._seen = False
        self._alone = False
        """Whether the turns of other sessions wait for this one."""
        super().__init__(conversation, self._client.connection.flow, self._client.budgets)

    async def begin(self) -> None:
        """Send the prompt. If the session `takes_turns`, first wait for turns of other sessions."""
        here = self._here
        if self.state is not TurnStage.NEW or not here.takes_turns:
            await super().begin()
            return
        if here.turn is not None or here.queued is not None:
            raise TurnInProgress(f"a turn of the session {here.id} is still running")
        here.queued = self
        try:
            await self._client.wait_for_turns()
        finally:
            here.queued = None
        self._alone = True
        try:
            await super().begin()
        except BaseException:
            self._let_others()
            raise

    def _let_others(self) -> None:
        if self._alone:
            self._alone = False
            self._client.let_others()

    def _is_held(self) -> bool:
        return self._here.serving > 0 or super()._is_held()

    async def _wait_for_room(self) -> None:
        await self._client.connection.wait_for_room("the prompt", self._client.budgets.request)

    def _send(self) -> Call:
        call = self._try_next()
        self._here.new_turn()
        base = self._here.place.base(self._method, None)
        started = model.TurnStarted(*base, tuple(self._blocks))
        self.made(started)
        self.put(started, 0)
        return call

    def _try_next(self) -> Call:
        self._method, params = self._left.pop(0)
        return self._client.connection.begin(self._method, params, settle=self._settled)

    def _settled(self, raw: Raw | None, error: DragomanError | None) -> None:
        """Handle the response to the prompt, or its failure."""
        self._client.answer = None if self._call is None else self._call.line
        try:
            self._over_with(raw, error)
        finally:
            self._client.answer = None

    def _over_with(self, raw: Raw | None, error: DragomanError | None) -> None:
        if self.state is TurnStage.ENDED:
            return
        if error is None:
            assert raw is not None
            self._answered(raw)
        elif (
            isinstance(error, RemoteError)
            and proves_nothing_ran(error, self._method)
            and not self._seen
            and not self.cancelling
        ):
            self._refused(error)
        elif self.cancelling and isinstance(error, CallCancelled | ConnectionLost):
            self._close_tools()
            ended = self._ended(Outcome.CANCELLED, "cancelled", None)
            if self._why is None:
                self.made(ended)
            self.conclude(ended)
        else:
            self.failed(error)

    def lost(self, failure: ConnectionLost) -> None:
        """Called when the connection has ended, which ends the turn at any stage of its prompt."""
        self._over_with(None, failure)

    def _refused(self, error: RemoteError) -> None:
        """Send the prompt under the next method name: the agent does not know the last one, so
        nothing ran. If no name is left, the turn fails."""
        if not self._left:
            self._client.method_names.failed("prompt")
            self.failed(none_known(self._messages, error))
            return
        try:
            self._call = self._try_next()
        except DragomanError as lost:
            self.failed(lost)

    def _answered(self, raw: Raw) -> None:
        client = self._client
        place = self._here.place
        client.worked("prompt", self._method)
        try:
            events = client.reading(self._method, lambda raw: client.end.answered(raw, place), raw)
        except DragomanError as invalid:
            self.failed(invalid)
            return
        for event in map(client.of_answer, events):
            if not self.will_tell(event):
                self.made(event)
            self.happened(event, 1)

    def happened(self, event: model.Event, size: int) -> None:
        """Deliver an event of the session. `TurnEnded` also ends this turn."""
        self._seen = True
        if isinstance(event, model.TurnEnded):
            client = self._client
            client.worked("prompt", self._method)
            self.conclude(event)
            if self._call is not None:
                # In a dialect that ends a turn by a notification, the prompt may get no response.
                self._call.give_up(UsageError("the turn ended without a response"))
        else:
            self.event(event, size)

    def will_tell(self, event: model.Event) -> bool:
        """Return whether this turn emits the event itself: its end, if dragoman caused it."""
        return self._why is not None and isinstance(event, model.TurnEnded)

    # -- ends

    def _send_cancel(self) -> None:
        client = self._client
        message = client.end.cancelling(self._here.id)
        match client.end.cancel:
            case "notification":
                assert message is not None
                client.connection.post(*message)
            case "request":
                assert message is not None
                method, params = message
                client.connection.begin(
                    method,
                    params,
                    settle=lambda result, error: None,
                    timeout=client.budgets.request,
                )
            case "end":
                client.end_soon()

    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        base = self._here.place.base(self._method, self._client.answer)
        ended = model.TurnEnded(*base, outcome, stop, failure)
        self._client.of_answer(ended)
        return ended

    def _close_tools(self) -> None:
        for event in self._client.end.closing(self._here.place):
            self.made(event)
            self.put(event, 0)
        if self._client.active is self._here:
            self._client.active = None

    def conclude(self, ended: model.TurnEnded, error: DragomanError | None = None) -> None:
        if self.state is not TurnStage.ENDED:
            self._close_tools()
            super().conclude(ended, error)

    def _finish(self, end: TurnEndMark[Result]) -> None:
        super()._finish(end)
        self._let_others()

    def made(self, event: model.Event) -> None:
        self._client.emit(event)

    def failed(self, error: DragomanError) -> None:
        if self.state is not TurnStage.ENDED:
            # Done first, so that no event is numbered after the end.
            self._close_tools()
            if isinstance(error, RemoteError) and is_no_login(error):
                self._server_error(error)
            else:
                super().failed(error)

    def _server_error(self, error: RemoteError) -> None:
        """End the turn with a server error. Its code means a missing login in ACP, but any server
        error in the legacy dialects."""
        limited = "rate limit" in error.message.lower() or "quota" in error.message.lower()
        kind = ErrorKind.RATE_LIMITED if limited else ErrorKind.PEER
        failure = Failure(str(error), kind, error.code, kind.retryable, error.data)
        outcome = Outcome.QUOTA if limited else Outcome.FAILED
        ended = self._ended(outcome, error.error_class, failure)
        if self._why is None:
            self.made(ended)
        self.conclude(ended, error)

    def _failed(self, error: DragomanError) -> Any:
        self._close_tools()
        return super()._failed(error)

    def _cancelled(self) -> Any:
        self._close_tools()
        return super()._cancelled()


def is_no_login(error: RemoteError) -> bool:
    """Return whether an error has ACP's code for a missing login, but another cause.

    The legacy specifications use this code for any server error, so the message decides.
    """
    text = error.message.lower()
    return error.code == codes.AUTH_REQUIRED and "auth" not in text and "login" not in text
