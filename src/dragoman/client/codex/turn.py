"""Start, interrupt and end one turn of a thread.

The response to a prompt only confirms that the turn has begun; `turn/completed` ends it. `thread`
applies events to the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.client.codex.client import may_retry, retry_delay
from dragoman.client.conversation import ConversationTurn
from dragoman.client.results import Result
from dragoman.client.turns import TurnEndMark, TurnStage
from dragoman.dialects.codex import shapes
from dragoman.errors import AuthRequired, ConnectionLost, DragomanError
from dragoman.events import model
from dragoman.events.parts import Block, Failure, Usage
from dragoman.events.words import Outcome
from dragoman.rpc import Call

if TYPE_CHECKING:
    from dragoman.client.codex.thread import CodexConversation

INTERRUPT_TIMEOUT: Final = 10.0
"""Timeout for an interrupt: the server does not answer one for a turn that has just ended."""

LOGIN_HINT: Final = "log in with `codex login`"


class CodexTurn(ConversationTurn):
    """A turn of a Codex thread."""

    __slots__ = (
        "_active",
        "_attempt",
        "_before",
        "_blocks",
        "_client",
        "_input",
        "_interrupt",
        "_retry",
        "_sent",
        "_thread",
        "id",
    )

    def __init__(
        self,
        thread: CodexConversation,
        blocks: Sequence[Block],
        wire: Sequence[dict[str, Any]],
    ) -> None:
        self._thread = thread
        self._client = thread.client
        self._blocks = tuple(blocks)
        self._input = wire
        self._interrupt = False
        self._active = asyncio.Event()
        self._attempt = 0
        self._retry: asyncio.TimerHandle | None = None
        self._before = thread.used
        self._sent: dict[str, Any] = {}
        self.id: str | None = None
        super().__init__(thread, self._client.connection.flow, self._client.budgets)

    # -- beginning

    async def _wait_for_room(self) -> None:
        await self._client.connection.wait_for_room("the prompt", self._client.budgets.request)

    def _send(self) -> Call:
        self._attempt += 1
        self._sent = self._thread.overrides()
        params = {"threadId": self._thread.id, "input": self._input, **self._sent}
        return self._client.connection.begin("turn/start", params, settle=self._begun)

    def _begun(self, raw: Raw | None, error: DragomanError | None) -> None:
        """Called when the server has accepted or refused the prompt, or the call has failed."""
        if raw is not None:
            try:
                turn = self._client.decode("turn/start", raw, shapes.TurnStartResponse).turn
            except DragomanError as invalid:
                error = invalid
            else:
                self.id = self.id or turn.id
                self._thread.took(self._sent)
        retries = may_retry(error, self._attempt)
        if retries and self.cancelling:
            self._cancelled_before_it_began()
        elif retries and self.state is TurnStage.RUNNING:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(retry_delay(self._attempt), self._send_again)
        elif error is not None:
            self.failed(error)

    def _send_again(self) -> None:
        self._retry = None
        if self.state is not TurnStage.RUNNING:
            return
        try:
            self._call = self._send()
        except DragomanError as error:
            self.failed(error)

    # -- events

    def seen(self, event: model.Event) -> model.Event:
        """Return an event of the thread, and record the start of this turn. Its `TurnStarted` gets
        the prompt; its `TurnEnded` gets the usage and, if the turn failed without a login, the
        outcome `AUTH_REQUIRED`."""
        if isinstance(event, model.TurnStarted) and self.id in (None, event.turn):
            # The response to `turn/start` may be late.
            self.id = event.turn
            self._active.set()
            self._before = self._thread.used
            return msgspec.structs.replace(event, prompt=self._blocks)
        if isinstance(event, model.TurnEnded) and self._is_mine(event):
            usage = _difference(self._before, self._thread.used)
            outcome = event.outcome
            if outcome is Outcome.FAILED and self._client.needs_login:
                outcome = Outcome.AUTH_REQUIRED
            return msgspec.structs.replace(event, outcome=outcome, usage=usage)
        return event

    def happened(self, event: model.Event, size: int) -> None:
        """Deliver an event of the thread. The `TurnEnded` of this turn ends it; that of another
        turn is dropped."""
        if isinstance(event, model.TurnEnded):
            if self._is_mine(event):
                self.conclude(event)
            return
        self.event(event, size)
        if isinstance(event, model.TurnStarted) and self._interrupt:
            self._interrupt = False
            self._send_interrupt()
        if isinstance(event, model.Noticed) and event.retrying and self._client.needs_login:
            # Without a login every retry fails.
            self.give_up(AuthRequired(event.detail or event.title, hint=LOGIN_HINT))

    def will_tell(self, event: model.Event) -> bool:
        """Return whether this turn emits the event itself: its end, if dragoman caused it."""
        return self._why is not None and isinstance(event, model.TurnEnded) and self._is_mine(event)

    def _is_mine(self, event: model.TurnEnded) -> bool:
        return self.id is None or event.turn == self.id

    def give_up(self, why: DragomanError) -> None:
        """Interrupt the turn, if it is running; it ends with `why`, whatever the server reports."""
        if self.state is TurnStage.RUNNING:
            if not isinstance(why, AuthRequired):
                # The server has the prompt. Without a login nothing has run, unless the turn shows
                # work; its result says so.
                why.may_have_run = True
            self._why = why
            self.cancel()

    def made(self, event: model.Event) -> None:
        self._client.emit(event)

    def lost(self, failure: ConnectionLost) -> None:
        """Called when the connection has ended, which ends the turn."""
        self.failed(failure)

    async def wait_active(self) -> None:
        """Wait until the server reports that the turn has started, or the turn ends.

        Before that, the server does not know the turn.
        """
        await self._active.wait()

    def _finish(self, end: TurnEndMark[Result]) -> None:
        # Release the callers that wait for the start.
        self._active.set()
        if self._retry is not None:
            self._retry.cancel()
        super()._finish(end)

    async def wait_over(self) -> None:
        """Wait until the turn is over. The wait is bounded once the turn is being cancelled."""
        await self._over.wait()

    # -- cancelling

    def _send_cancel(self) -> None:
        if self._active.is_set():
            self._send_interrupt()
        elif self._retry is not None:
            # The prompt was not accepted, so there is nothing to interrupt.
            self._retry.cancel()
            asyncio.get_running_loop().call_soon(self._cancelled_before_it_began)
        else:
            # The server refuses to interrupt a turn that it has accepted but not started.
            self._interrupt = True

    def _cancelled_before_it_began(self) -> None:
        if self.state is TurnStage.ENDED:
            return
        ended = self._ended(Outcome.CANCELLED, "cancelled before it began", None)
        if self._why is None:
            self.made(ended)
        self.conclude(ended)

    def _send_interrupt(self, attempt: int = 1) -> None:
        def settle(result: Raw | None, error: DragomanError | None) -> None:
            if may_retry(error, attempt) and self.state is not TurnStage.ENDED:
                # If the connection ends, the turn ends too, and that stops this timer.
                self._retry = asyncio.get_running_loop().call_later(
                    retry_delay(attempt), self._send_interrupt, attempt + 1
                )

        self._client.connection.begin(
            "turn/interrupt",
            {"threadId": self._thread.id, "turnId": self.id},
            settle=settle,
            timeout=INTERRUPT_TIMEOUT,
        )

    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        base = self._client.place(self._thread.id, self.id).base("turn/start", None)
        return model.TurnEnded(*base, outcome, stop, failure)


def _difference(before: Usage | None, after: Usage | None) -> Usage | None:
    """Return a turn's usage: the thread's total after it minus the total before it. None if no
    total was reported in between.

    The last report alone covers only the last model call.
    """
    if after is None or after is before:
        return None
    old = before or Usage()

    def less(new: int | None, then: int | None) -> int | None:
        return None if new is None else max(0, new - (then or 0))

    return Usage(
        less(after.input_tokens, old.input_tokens),
        less(after.output_tokens, old.output_tokens),
        less(after.thought_tokens, old.thought_tokens),
        less(after.cache_read_tokens, old.cache_read_tokens),
        less(after.cache_write_tokens, old.cache_write_tokens),
        less(after.total_tokens, old.total_tokens),
        context_size=after.context_size,
    )
