"""Forward the messages of an ACP peer about one session to the ACP client that opened it.

Tracks the running prompt and the peer's open requests to the client, for cancel and disconnect.
`gateway.acp_passthrough` handles the client's requests and owns its sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from dragoman.client.acp.session import Session
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import CallCancelled, DragomanError, MessageTooLong, UsageError
from dragoman.gateway import acp_filter, prompt_responses
from dragoman.gateway.relay import HERE, UPDATE, Route
from dragoman.rpc import LATER, Call
from dragoman.wire.messages import Id, Notification, Request

if TYPE_CHECKING:
    from dragoman.gateway.acp_passthrough import PassthroughSession

log: Final = logging.getLogger("dragoman.gateway")

_PERMISSION: Final = acp.SESSION_REQUEST_PERMISSION.name
_ELICIT: Final = acp.ELICITATION_CREATE.name
_CANCEL: Final = acp.SESSION_CANCEL.name
_CANCELLED: Final = acp.PromptResponse(stop_reason=acp.StopReason.CANCELLED)


class PassthroughRoute(Route):
    """One session of a client. The peer's messages about it pass through here."""

    def __init__(self, through: PassthroughSession, session: Session) -> None:
        self._through = through
        self._connection = through.connection
        self.session = session
        self.sieve = through.sieve(session)
        self.prompt: tuple[Request, Call] | None = None
        self.questions: dict[Id, tuple[Request, Call]] = {}
        self._grace: asyncio.TimerHandle | None = None
        self._passes_all = self.sieve.passes_all

    def opened(self, answer: Any) -> None:
        """Record the settings in the response that opened the session."""
        self.session.opened(answer.modes, answer.models, answer.config_options)
        self._passes_all = self.sieve.passes_all

    # -- messages from the peer

    def update(self, notification: Notification) -> None:
        connection = self._connection
        if connection.failure is not None:
            return
        updates = None if self._passes_all else self.sieve.updates(notification)
        if updates is None:
            try:
                connection.pass_on(notification.line)
            except MessageTooLong as error:
                self._leave_out(error)
        else:
            for update in updates:
                try:
                    self._tell(update)
                except MessageTooLong as error:
                    self._leave_out(error)
        if connection.is_full:
            self._through.hold_up()

    def _tell(self, update: acp.SessionUpdate) -> None:
        told = acp.SessionNotification(session_id=self.session.id, update=update)
        self._connection.post(UPDATE, told)

    def _leave_out(self, error: MessageTooLong) -> None:
        """Log that an update was too long for the client, and tell the client so. Does not raise
        if even that is too long, so that later updates still arrive."""
        log.warning("an update of session %s was left out: %s", self.session.id, error)
        # The limit may be too low even for this.
        with contextlib.suppress(MessageTooLong):
            for update in self.sieve.left_out(error):
                self._tell(update)

    def request(self, request: Request) -> Any:
        params: Any = request.params
        if self._connection.failure is not None or not self._through.serves(request):
            return HERE
        if request.method == _PERMISSION:
            params = acp_filter.question(params)
        call = self._connection.begin(
            request.method,
            params,
            settle=lambda result, error: self._answered(request, result, error),
        )
        if call.settled:
            # The client does not read: sending the request ended the connection to it.
            return HERE
        self.questions[request.id] = (request, call)
        self._through.upstream.asked[request.id] = call
        return LATER

    def _answered(self, request: Request, result: Raw | None, error: DragomanError | None) -> None:
        upstream = self._through.upstream
        upstream.asked.pop(request.id, None)
        if self.questions.pop(request.id, None) is None:
            # Already answered, because its turn was cancelled.
            return
        if error is None:
            assert result is not None
            if request.method == _ELICIT:
                upstream.note_page(request, result, self._connection)
            upstream.connection.answer(request, result)
        elif isinstance(error, CallCancelled) or request.method not in acp_filter.DECLINED:
            refusal = prompt_responses.refusal(error)
            upstream.connection.refuse(request, refusal.code, refusal.message, refusal.data)
        else:
            log.warning("the client could not be asked (%s): %s", request.method, error)
            upstream.connection.answer(request, acp_filter.DECLINED[request.method](request.params))

    # -- messages from the client

    def cancel(self) -> None:
        """Cancel the running turn at the peer, and answer its permission requests as cancelled. If
        the peer does not end the turn in time, `_abandon` answers the client's prompt."""
        upstream = self._through.upstream.connection
        if upstream.failure is None:
            upstream.post(_CANCEL, acp.CancelNotification(session_id=self.session.id))
        if self.prompt is None:
            return
        for request, call in list(self.questions.values()):
            if request.method == _PERMISSION:
                self.questions.pop(request.id, None)
                upstream.answer(request, acp.cancelled())
                # A response from the client would now be too late.
                call.give_up(UsageError("the turn was cancelled"))
        if self._grace is None:
            grace = self.session.client.budgets.cancel_grace
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(grace, self._abandon)

    def _abandon(self) -> None:
        """Answer the client's prompt as cancelled, and mark the session as unusable, because the
        peer did not respond to a cancel."""
        if self.prompt is not None:
            request, call = self.prompt
            self.session.unusable = True
            self.ended()
            self._connection.answer(request, _CANCELLED)
            call.give_up(UsageError("the agent did not answer a cancel"))

    def ended(self) -> None:
        """Record that the turn is over."""
        self.prompt = None
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    async def aclose(self) -> None:
        """Cancel the turn and close the session at the peer. Called when the client has
        disconnected or closed the session."""
        if self.prompt is not None:
            self.cancel()
        self.ended()
        try:
            await self.session.close()
        except DragomanError as error:
            log.debug("could not close session %s at the peer: %s", self.session.id, error)
