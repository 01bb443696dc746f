"""The life of a turn, whatever the dialect.

Owns the order of a turn's items, its end, its budgets, and cancelling. It does not know how a
prompt is sent or what the items are: a client of a dialect subclasses `BaseTurn` and does.

    new ──begin──▶ running ──answer──▶ ended
                      │ cancel            ▲
                      ▼                   │ answer, or the grace period is over
                  cancelling ─────────────┘ (then the session is given up)

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
from dragoman.client.permissions import Answer, Decision, Denial, Question
from dragoman.errors import (
    BudgetExceeded,
    DragomanError,
    SessionUnusable,
    TurnInProgress,
    UsageError,
)
from dragoman.rpc import Call, Lane
from dragoman.rpc.lanes import Flow

Item = TypeVar("Item")
Result = TypeVar("Result")


class TurnStage(enum.Enum):
    """Where a turn is in its life."""

    NEW = "new"
    RUNNING = "running"
    CANCELLING = "cancelling"
    ENDED = "ended"


class Prompted(Protocol):
    """What a turn needs to know of its session, in any dialect."""

    id: str
    turn: Any
    unusable: bool

    def cancel_questions(self) -> None:
        """Answer every open question of the agent as cancelled."""

    async def wait_replayed(self) -> None:
        """Wait until a replay of history is over."""


class TurnEndMark(Struct, Generic[Result], frozen=True):
    """Stands in the lane behind the last item."""

    result: Result | None = None
    error: DragomanError | None = None


class BaseTurn(abc.ABC, Generic[Item, Result]):
    """A running prompt, for use as ``async with``; iterate over it for its items.

    Leaving the block early cancels the turn and waits for its end. Without iteration, `wait`
    drops the items and returns the result.
    """

    __slots__ = (
        "_call",
        "_end",
        "_flow",
        "_expired_grace_time",
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
    )

    _lane: Lane[Item | TurnEndMark[Result]]

    def __init__(self, session: Prompted, flow: Flow, budgets: Budgets) -> None:
        self.session = session
        self._flow = flow
        self._watchdog = Watchdog(budgets, self._expired, lambda: flow.blocked)
        self._grace_time = budgets.cancel_grace
        self._expired_grace_time = min(budgets.cancel_grace, budgets.expired_grace)
        self._grace: asyncio.TimerHandle | None = None
        self._call: Call | None = None
        self._why: DragomanError | None = None
        self._end: TurnEndMark[Result] | None = None
        self._last: TurnEndMark[Result] | None = None
        """The end, before the consumer has got to it."""
        self._over = asyncio.Event()
        self.approvals = 0
        """How many permissions were given, by a person or a policy."""
        self.denials: list[Denial] = []
        self.state = TurnStage.NEW

    def __repr__(self) -> str:
        state = self.state.name.lower()
        if self._last is not None and self._last.result is not None:
            state = f"{state}, {self._last.result!r}"
        return f"<Turn of session {self.session.id!r}, {state}>"

    # -- for a dialect

    @abc.abstractmethod
    def _send(self) -> Call:
        """Send the prompt; whatever ends the turn has to call `_finish`."""

    @abc.abstractmethod
    def _send_cancel(self) -> None:
        """Ask the other side to stop."""

    @abc.abstractmethod
    def _cancelled(self) -> Result:
        """The result of a turn whose cancel was never answered."""

    def _failed(self, error: DragomanError) -> TurnEndMark[Result]:
        """The end of a turn that failed: by default its consumer gets the error raised."""
        return TurnEndMark(error=error)

    # -- life

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
            # Bounded by the grace period. If this wait is cancelled too, its timer goes on.
            await self._over.wait()
            # What was not read is dropped, and the turn has its result all the same.
            self._end = self._end or self._last
        finally:
            self._lane.close()

    async def begin(self) -> None:
        """Send the prompt. ``async with`` does it."""
        if self.state is not TurnStage.NEW:
            raise UsageError("a turn is begun once")
        session = self.session
        await session.wait_replayed()
        if session.unusable:
            raise SessionUnusable(f"the session {session.id} was given up; open another")
        if session.turn is not None:
            raise TurnInProgress(f"a turn of the session {session.id} is still running")
        session.turn = self
        self.state = TurnStage.RUNNING
        # Not earlier: a turn that is never begun shall not leave a queue with the connection.
        self._lane = Lane(self._flow)
        try:
            self._call = self._send()
        except BaseException:
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
            raise UsageError("the turn has not begun: use it as `async with`") from None
        if lane.items:
            # Without a coroutine for what is already there: this is every item of a fast agent.
            item = lane.take()
        else:
            if self._end is not None:
                raise StopAsyncIteration
            item = await lane.get()
        # `type` and not isinstance, which asks the metaclass of a Struct: this is every item.
        if type(item) is not TurnEndMark:
            return item  # type: ignore[return-value]
        self._end = item
        self._lane.close()
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration

    async def wait(self) -> Result:
        """Wait for the end, dropping the items that were not iterated over."""
        async for _ in self:
            pass
        return self.result

    @property
    def result(self) -> Result:
        """How the turn ended. Raises what ended it if it failed, and UsageError before its end."""
        if self._end is None:
            raise UsageError(
                "the turn has not ended: iterate to its end or call `await turn.wait()`, or leave "
                "its `async with` block, which cancels it, before you ask for its result"
            )
        if self._end.error is not None:
            raise self._end.error
        assert self._end.result is not None
        return self._end.result

    def cancel(self) -> None:
        """Ask the agent to stop. Go on iterating for what it still has to say, and for the end."""
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
        """Whether a cancel was sent and the end is still to come."""
        return self.state is TurnStage.CANCELLING

    # -- for the session

    def put(self, item: Item, size: int) -> None:
        """An item of this turn arrived in `size` bytes; 0 if it is one of ours and no sign of
        life of the other side."""
        if size:
            self._watchdog.signs += 1
        self._lane.put(item, size)

    def put_unhurried(self, item: Item, size: int) -> None:
        """`put` for what nobody waits for: its consumer is woken a few milliseconds later, unless
        something else wakes it before."""
        if size:
            self._watchdog.signs += 1
        self._lane.put_unhurried(item, size)

    def answered(self, question: Question, answer: Decision) -> None:
        """A permission was given, or refused, or nobody answered any more."""
        if answer.allows:
            self.approvals += 1
        elif answer is not Answer.CANCEL:
            self.denied(Denial(question.tool_call_id, question.title, question.kind))

    def denied(self, denial: Denial) -> None:
        """A permission was refused."""
        self.denials.append(denial)

    def question_opened(self) -> None:
        """The agent asked us something: its silence is ours now."""
        self._watchdog.signs += 1
        self._watchdog.open_questions += 1
        # Whoever shows the question may have to show first what it is about.
        self._lane.wake()

    def question_closed(self) -> None:
        """We answered: from now on its silence is its own again."""
        self._watchdog.signs += 1
        self._watchdog.open_questions -= 1

    # -- inside

    def fail(self, why: DragomanError) -> None:
        """End the turn for a reason of our own, which is its error then."""
        if self.state is TurnStage.RUNNING:
            self._why = why
            self.cancel()

    def _expired(self, budget: str, timeout: float) -> None:
        self._why = BudgetExceeded(budget, timeout)
        self._grace_time = self._expired_grace_time
        self.cancel()

    def _abandon(self) -> None:
        """A cancel was not answered: settle without the other side and give the session up."""
        self.session.unusable = True
        self._finish(TurnEndMark(result=self._cancelled()))
        if self._call is not None:
            self._call.give_up(UsageError("cancelled without an answer"))

    def _finish(self, end: TurnEndMark[Result]) -> None:
        """The turn is over; the first end counts."""
        if self.state is TurnStage.ENDED:
            return
        self.state = TurnStage.ENDED
        self._watchdog.stop()
        if self._grace is not None:
            self._grace.cancel()
        if self.session.turn is self:
            self.session.turn = None
        if self._why is not None:
            # A budget that ran out is the reason, however the other side took the cancel.
            end = self._failed(self._why)
        self._last = end
        self._lane.put(end, 0)
        self._over.set()
