"""One prompt from its sending to its end.

Owns the life of a turn: the updates in wire order, the end, the budgets, and cancelling. It does
not know how updates are decoded or to which session they belong (`session` does), nor how
questions are answered (`serving` does).

    running ──answer──▶ ended
       │ cancel            ▲
       ▼                   │ answer, or the grace period is over (then the session is given up)
    cancelling ────────────┘

Cancelling an ended turn does nothing, so a late cancel cannot hit the next turn.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import Raw

from dragoman.client.budgets import Watchdog
from dragoman.client.permissions import Denial
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import (
    BudgetExceeded,
    CallCancelled,
    DragomanError,
    SessionUnusable,
    TurnInProgress,
    UsageError,
)
from dragoman.rpc import Call, Lane

if TYPE_CHECKING:
    from dragoman.client.acp.session import Session


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended."""

    stop_reason: str
    """As the agent said it; ``cancelled`` also where it never answered a cancel."""
    response: acp.PromptResponse | None
    """The agent's answer; None if the turn was settled without it."""
    denials: tuple[Denial, ...] = ()
    """Permissions that were refused on the way."""

    @property
    def usage(self) -> dict[str, Any] | None:
        """The tokens of the turn where the agent told them: its `usage` is not stable in the
        protocol yet, so it is given as it came."""
        usage = (self.response.extra or {}).get("usage") if self.response else None
        return usage if isinstance(usage, dict) else None

    @property
    def settled_locally(self) -> bool:
        """Whether the agent never answered and the session was given up."""
        return self.response is None


class State(enum.Enum):
    NEW = "new"
    RUNNING = "running"
    CANCELLING = "cancelling"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class _End:
    """Stands in the lane behind the last update."""

    result: TurnResult | None = None
    error: DragomanError | None = None


class Turn:
    """A running prompt, for use as ``async with``; iterate over it for its updates.

    Leaving the block early cancels the turn and waits for its end. Without iteration, `wait`
    drops the updates and returns the result.
    """

    __slots__ = (
        "_blocks",
        "_call",
        "_denials",
        "_end",
        "_grace",
        "_lane",
        "_meta",
        "_over",
        "_session",
        "_watchdog",
        "_why",
        "state",
    )

    def __init__(
        self, session: Session, blocks: Sequence[acp.ContentBlock], meta: dict[str, Any] | None
    ) -> None:
        self._session = session
        self._blocks = blocks
        self._meta = meta
        self._lane: Lane[acp.SessionUpdate | _End] = Lane(session.client.connection.flow)
        self._watchdog = Watchdog(session.client.budgets, self._expired)
        self._call: Call | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._why: DragomanError | None = None
        self._denials: list[Denial] = []
        self._end: _End | None = None
        self._over = asyncio.Event()
        self.state = State.NEW

    # -- life

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.state is not State.ENDED:
            self.cancel()
            try:
                # Bounded by the grace period. If this wait is cancelled too, the timer goes on.
                await self._over.wait()
            finally:
                self._lane.close()
        else:
            self._lane.close()

    async def _begin(self) -> None:
        session = self._session
        if self.state is not State.NEW:
            raise UsageError("a turn is begun once")
        await session.wait_replayed()
        if session.unusable:
            raise SessionUnusable(f"the session {session.id} was given up; open another")
        if session.turn is not None:
            raise TurnInProgress(f"a turn of the session {session.id} is still running")
        connection = session.client.connection
        self._call = connection.begin(
            acp.SESSION_PROMPT.name,
            Raw(
                acp.encode(
                    acp.PromptRequest(session_id=session.id, prompt=self._blocks, meta=self._meta)
                )
            ),
            settle=self._settled,
        )
        session.turn = self
        self.state = State.RUNNING
        self._watchdog.start()

    # -- for the consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> acp.SessionUpdate:
        if self._end is not None:
            raise StopAsyncIteration
        item = await self._lane.get()
        if type(item) is not _End:
            return item  # type: ignore[return-value]
        self._end = item
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration

    async def wait(self) -> TurnResult:
        """Wait for the end, dropping the updates that were not iterated over."""
        async for _ in self:
            pass
        return self.result

    @property
    def result(self) -> TurnResult:
        """How the turn ended. Raises what ended it if it failed, and UsageError before its end."""
        if self._end is None:
            raise UsageError("the turn has not ended yet, or its updates were not read to the end")
        if self._end.error is not None:
            raise self._end.error
        assert self._end.result is not None
        return self._end.result

    def cancel(self) -> None:
        """Ask the agent to stop. Go on iterating for what it still has to say, and for the end."""
        if self.state is not State.RUNNING:
            return
        self.state = State.CANCELLING
        session = self._session
        self._watchdog.stop()
        session.client.connection.post(
            acp.SESSION_CANCEL.name, acp.CancelNotification(session_id=session.id)
        )
        session.cancel_questions()
        loop = asyncio.get_running_loop()
        self._grace = loop.call_later(session.client.budgets.cancel_grace, self._abandon)

    # -- for the session and the connection

    def put(self, update: acp.SessionUpdate, size: int) -> None:
        """An update of this turn arrived."""
        self._watchdog.signs += 1
        self._lane.put(update, size)

    @property
    def cancelling(self) -> bool:
        return self.state is State.CANCELLING

    def question_opened(self) -> None:
        self._watchdog.signs += 1
        self._watchdog.open_questions += 1

    def question_closed(self) -> None:
        self._watchdog.open_questions -= 1

    def denied(self, denial: Denial) -> None:
        self._denials.append(denial)

    def _settled(self, raw: Raw | None, error: DragomanError | None) -> None:
        """The answer, in wire order behind the last update."""
        if isinstance(error, CallCancelled) and self.state is State.CANCELLING:
            # An agent that answers a cancelled prompt with the error for cancelled requests.
            error = None
            response = acp.PromptResponse(stop_reason="cancelled")
        elif raw is not None:
            try:
                response = self._session.client.decode(acp.SESSION_PROMPT, raw)
            except DragomanError as invalid:
                error = invalid
        if error is not None:
            self._finish(_End(error=self._why or self._session.client.explain(error)))
        elif self._why is not None:
            self._finish(_End(error=self._why))
        else:
            self._finish(_End(TurnResult(response.stop_reason, response, tuple(self._denials))))

    def _expired(self, budget: str, timeout: float) -> None:
        self._why = BudgetExceeded(budget, timeout)
        self.cancel()

    def _abandon(self) -> None:
        """The agent did not answer a cancel: settle without it and give the session up."""
        self._session.unusable = True
        assert self._call is not None
        self._finish(
            _End(error=self._why)
            if self._why is not None
            else _End(TurnResult("cancelled", None, tuple(self._denials)))
        )
        self._call.give_up(CallCancelled(-32800, "cancelled without an answer"))

    def _finish(self, end: _End) -> None:
        if self.state is State.ENDED:
            return
        self.state = State.ENDED
        self._watchdog.stop()
        if self._grace is not None:
            self._grace.cancel()
        self._session.turn_ended(self)
        self._lane.put(end, 0)
        self._over.set()
