"""The life cycle of a turn, in any dialect.

Covers the order of a turn's items, its end, its budgets and cancellation. A dialect's client
subclasses `BaseTurn` to send the prompt and define the items.

    new ──begin──▶ running ──answer──▶ ended
                      │ cancel            ▲
                      ▼                   │ answer, or the grace period is over
                  cancelling ─────────────┘ (then the session is abandoned)

Cancelling an ended turn does nothing, so a late cancel cannot hit the next turn.
"""

from __future__ import annotations

import abc
import asyncio
import enum
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from msgspec import Struct

from dragoman.client.budgets import Budgets, Watchdog
from dragoman.client.permissions import Answer, Decision, Denial, Question, add_denial
from dragoman.errors import (
    BudgetExceeded,
    ConnectionLost,
    DragomanError,
    PeerBusy,
    SessionUnusable,
    TurnInProgress,
    UsageError,
)
from dragoman.rpc import Call, Lane, Limits
from dragoman.rpc.lanes import Flow

Item = TypeVar("Item")
Result = TypeVar("Result")


class TurnStage(enum.Enum):
    """The stage of a turn."""

    NEW = "new"
    RUNNING = "running"
    CANCELLING = "cancelling"
    ENDED = "ended"


class Prompted(Protocol):
    """What a turn needs from its session, in any dialect."""

    id: str
    turn: Any
    unusable: bool

    def cancel_questions(self) -> None:
        """Answer every open question of the agent as cancelled."""

    async def wait_replayed(self) -> None:
        """Wait until a replay of history is over."""


class TurnEndMark(Struct, Generic[Result], frozen=True):
    """Marks the end of a turn in its queue, after the last item, with its result or its error."""

    result: Result | None = None
    error: DragomanError | None = None


class BaseTurn(abc.ABC, Generic[Item, Result]):
    """A running prompt. Use with ``async with``, and iterate over it for its items.

    Leaving the block early cancels the turn and waits for its end. Without iteration, `wait`
    drops the items and returns the result.
    """

    __slots__ = (
        "_budgets",
        "_call",
        "_end",
        "_flow",
        "_grace",
        "_grace_time",
        "_lane",
        "_last",
        "_over",
        "_watchdog",
        "_why",
        "approvals",
        "denials",
        "session",
        "state",
        "unsent",
    )

    _lane: Lane[Item | TurnEndMark[Result]]

    def __init__(self, session: Prompted, flow: Flow, budgets: Budgets) -> None:
        self.session = session
        self._flow = flow
        self._watchdog = Watchdog(budgets, self._expired, self._is_held)
        self._grace_time = budgets.cancel_grace
        self._budgets = budgets
        self._grace: asyncio.TimerHandle | None = None
        self._call: Call | None = None
        self._why: DragomanError | None = None
        self._end: TurnEndMark[Result] | None = None
        self._last: TurnEndMark[Result] | None = None
        """The end of the turn, set as soon as the turn ends. `_end` is set only when the consumer
        has reached the end or left the block."""
        self._over = asyncio.Event()
        self.approvals = 0
        """How many permission requests were granted so far, by a person or a policy."""
        self.denials: list[Denial] = []
        """The permission requests that were refused so far."""
        self.state = TurnStage.NEW
        self.unsent: ConnectionLost | PeerBusy | None = None
        """Why the prompt was not sent, if the agent could not take it: nothing has run. None
        otherwise."""

    def __repr__(self) -> str:
        state = self.state.name.lower()
        if self._last is not None and self._last.result is not None:
            state = f"{state}, {self._last.result!r}"
        return f"<Turn of session {self.session.id!r}, {state}>"

    # -- for a dialect

    async def _wait_for_room(self) -> None:
        """Called before the prompt is sent. A subclass waits here while the agent reads too slowly:
        prompts may be long, and those of many sessions must not fill the connection's buffer at
        once."""

    @abc.abstractmethod
    def _send(self) -> Call:
        """Send the prompt and return its call. Whatever ends the turn must call `_finish`."""

    @abc.abstractmethod
    def _send_cancel(self) -> None:
        """Ask the agent to stop."""

    @abc.abstractmethod
    def _cancelled(self) -> Result:
        """Return the result of a turn that the agent did not end in time after a cancel."""

    def _is_held(self) -> bool:
        """Return whether the agent is silent only because of us: here, if too much of what it has
        sent is unread. Subclasses add other reasons."""
        return self._flow.blocked

    def _failed(self, error: DragomanError) -> TurnEndMark[Result]:
        """Return the end mark of a failed turn: here, one that raises `error` for the consumer. A
        subclass may return one with a result instead."""
        return TurnEndMark(error=error)

    def _not_sent(self, error: ConnectionLost | PeerBusy) -> None:
        """End a turn whose prompt could not be sent, because the agent has already ended or is
        busy."""
        self._finish(self._failed(error))

    # -- start and end

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()
        try:
            # Bounded by the grace period. If this wait is cancelled too, its timer keeps running.
            await self._over.wait()
            # Unread items are dropped; the turn still has its result.
            self._end = self._end or self._last
        finally:
            self._lane.close()

    async def begin(self) -> None:
        """Send the prompt, once any replay of history is over and the agent can take it. ``async
        with`` does this. Raises `SessionUnusable` if the session was closed or abandoned, and
        `TurnInProgress` if another turn is running in it."""
        if self.state is not TurnStage.NEW:
            raise UsageError("a turn can begin only once")
        session = self.session
        try:
            await session.wait_replayed()
            await self._wait_for_room()
        except ConnectionLost:
            # Sending the prompt, below, fails with the reason.
            pass
        except DragomanError as error:
            # Whatever failed may have run, but the prompt was not sent.
            error.may_have_run = False
            raise
        if session.unusable:
            raise SessionUnusable(f"the session {session.id} was closed or abandoned; open another")
        if session.turn is not None:
            raise TurnInProgress(f"a turn of the session {session.id} is still running")
        session.turn = self
        self.state = TurnStage.RUNNING
        # Not earlier: a turn that never begins must not leave a queue with the connection.
        self._lane = Lane(self._flow)
        try:
            self._call = self._send()
        except BaseException as error:
            if isinstance(error, ConnectionLost | PeerBusy) and error.blame != "us":
                self.unsent = error
                # The lane of an ended connection takes no items.
                self._lane.close()
                self._lane = Lane(Flow(_nothing, _nothing, Limits()))
                self._not_sent(error)
                return
            session.turn = None
            self.state = TurnStage.ENDED
            self._over.set()
            self._lane.close()
            raise
        self._watchdog.start()

    # -- for the consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        try:
            lane = self._lane
        except AttributeError:
            raise UsageError("the turn has not started: use `async with`") from None
        if lane.items:
            # Without a coroutine if the item is already there: this runs for every item of a fast
            # agent.
            item = lane.take()
        else:
            if self._end is not None:
                raise StopAsyncIteration
            item = await lane.get()
        # `type`, not isinstance, which calls the metaclass of a Struct: this runs for every item.
        if type(item) is not TurnEndMark:
            return item  # type: ignore[return-value]
        self._end = item
        self._lane.close()
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration

    async def wait(self) -> Result:
        """Wait for the end and return the result, dropping the items that were not iterated
        over."""
        async for _ in self:
            pass
        return self.result

    @property
    def result(self) -> Result:
        """How the turn ended. Raises `UsageError` until the consumer has reached the end or left
        the ``async with`` block, and the error of a turn that has one instead of a result."""
        if self._end is None:
            raise UsageError(
                "the turn has not ended: before you read its result, iterate to its end, call "
                "turn.wait(), or leave its `with` block, which cancels the turn"
            )
        if self._end.error is not None:
            raise self._end.error
        assert self._end.result is not None
        return self._end.result

    def cancel(self) -> None:
        """Ask the agent to stop. Keep iterating for its remaining output and the end. This has no
        effect before the turn begins or after it ends."""
        if self.state is not TurnStage.RUNNING:
            return
        self.state = TurnStage.CANCELLING
        self._watchdog.stop()
        try:
            self._send_cancel()
        finally:
            self.session.cancel_questions()
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(self._grace_time, self._abandon)

    @property
    def cancelling(self) -> bool:
        """Whether a cancel was sent and the end is still pending."""
        return self.state is TurnStage.CANCELLING

    # -- for the session

    def put(self, item: Item, size: int) -> None:
        """Add an item of this turn, received in `size` bytes.

        The size is 0 for our own items, which are not signs of life.
        """
        if size:
            self._watchdog.signs += 1
        self._lane.put(item, size)

    def put_unhurried(self, item: Item, size: int) -> None:
        """Like `put`, for items that are not urgent: the consumer is woken a moment later
        (`rpc.lanes.UNHURRIED_INTERVAL`), unless something else wakes it before."""
        if size:
            self._watchdog.signs += 1
        self._lane.put_unhurried(item, size)

    def answered(self, question: Question, answer: Decision) -> None:
        """Record that a permission was granted or refused. A cancelled question is not recorded."""
        if answer.allows:
            self.approvals += 1
        elif answer is not Answer.CANCEL:
            self.denied(Denial(question.tool_call_id, question.title, question.kind))

    def denied(self, denial: Denial) -> None:
        """Record that a permission was refused."""
        add_denial(self.denials, denial)

    def question_opened(self) -> None:
        """Called when the agent asks a question: from now on its silence does not count."""
        self._watchdog.signs += 1
        self._watchdog.open_questions += 1
        # The consumer may first have to show what the question refers to.
        self._lane.wake()

    def question_closed(self) -> None:
        """Called when a question is over: once none is open, the agent's silence counts again."""
        self._watchdog.signs += 1
        self._watchdog.open_questions -= 1

    # -- inside

    def fail(self, why: DragomanError) -> None:
        """Cancel the turn, if it is running, for a reason on our side. It ends with the error
        `why`."""
        if self.state is TurnStage.RUNNING:
            # The agent already has the prompt.
            why.may_have_run = True
            self._why = why
            self.cancel()

    def expire(self, why: BudgetExceeded) -> None:
        """Cancel the turn, if it is running, because a time limit has passed: one of its budgets,
        or one that covers more than this turn. The turn ends with the error `why`."""
        if self.state is TurnStage.RUNNING:
            self._why = why
            self._grace_time = self._budgets.grace_after(why.budget)
            self.cancel()

    def _expired(self, budget: str, timeout: float) -> None:
        self.expire(BudgetExceeded(budget, timeout))

    def _abandon(self) -> None:
        """End the turn and abandon the session: the agent did not end the turn after a cancel."""
        self.session.unusable = True
        self._finish(TurnEndMark(result=self._cancelled()))
        if self._call is not None:
            self._call.give_up(UsageError("cancelled without an answer"))

    def _finish(self, end: TurnEndMark[Result]) -> None:
        """End the turn; the first end counts."""
        if self.state is TurnStage.ENDED:
            return
        self.state = TurnStage.ENDED
        self._watchdog.stop()
        if self._grace is not None:
            self._grace.cancel()
        if self.session.turn is self:
            self.session.turn = None
        if self._watchdog.open_questions:
            # The agent no longer waits for an answer.
            self.session.cancel_questions()
        if self._why is not None:
            # A budget that ran out is the reason, whatever the agent made of the cancel.
            end = self._failed(self._why)
        self._last = end
        self._lane.put(end, 0)
        self._over.set()


def _nothing() -> None:
    pass
