"""Send, follow and cancel one prompt over ACP.

The life cycle of a turn in any dialect is in `dragoman.client.turns`, and its result in
`dragoman.client.conversation`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw
from msgspec.structs import replace

from dragoman.client.conversation import ConversationTurn
from dragoman.client.permissions import Denial
from dragoman.client.results import Result
from dragoman.client.turns import TurnStage
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.errors import BudgetExceeded, CallCancelled, DragomanError, PeerUnresponsive
from dragoman.events import model
from dragoman.events.parts import Block, Cost, Failure, Usage
from dragoman.events.words import Outcome, Role, tool_status
from dragoman.rpc import Call

if TYPE_CHECKING:
    from dragoman.client.acp.session import Session

_CHUNK: Final = acp.AgentMessageChunk
_TEXT: Final = acp.TextContent

MAX_PIECES: Final = 512
LONG_PIECE: Final = 4096
"""Text pieces are added to the turn's text together, because adding each short piece would take
longer: after more than `MAX_PIECES` of them, or after a line of more than `LONG_PIECE` bytes."""

MAX_TEXT_SIZE: Final = 1024 * 1024
"""Maximum number of characters of the agent's text in a turn's result, for a consumer of updates;
it receives the whole text anyway."""

SHOWN_ID_SIZE: Final = 60
"""Maximum length of the id of a response in an error message, in characters."""

_NOTHING_SPENT: Final = Cost(0.0, "")
"""The cost of a new session, in any currency."""


class Turn(ConversationTurn):
    """A running prompt, used with ``async with``; iterate over it for what the agent sends: updates
    with the typed client, events with the conversation API.

    Leaving the block early cancels the turn and waits for its end. Without iteration, `wait` drops
    the items and returns the result.
    """

    __slots__ = (
        *("_blocks", "_client", "_cost_before", "_meta", "_pieces", "_session", "_wire"),
        "response",
    )

    def __init__(
        self,
        session: Session,
        blocks: Sequence[Block | acp.ContentBlock],
        wire: Sequence[acp.ContentBlock],
        meta: dict[str, Any] | None,
    ) -> None:
        self._session = session
        self._client = session.client
        self._blocks = blocks
        self._wire = wire
        self._meta = meta
        self._cost_before: Cost | None = None
        self._pieces: list[str] = []
        self.response: acp.PromptResponse | None = None
        """The agent's response to the prompt; None if the turn ended without one."""
        super().__init__(session, self._client.connection.flow, self._client.budgets)
        if session.record is None:
            self.max_text_size = MAX_TEXT_SIZE

    if TYPE_CHECKING:

        async def __anext__(self) -> Any: ...

    def _is_held(self) -> bool:
        return self._session.serving > 0 or super()._is_held()

    # -- for the session

    def update(self, update: acp.SessionUpdate, size: int) -> None:
        """Deliver an update of this turn, received in `size` bytes, to a consumer of updates."""
        # `type`, not isinstance, for the most common update: it is faster.
        if type(update) is _CHUNK and type(piece := update.content) is _TEXT and piece.text:
            pieces = self._pieces
            pieces.append(piece.text)
            if size > LONG_PIECE or len(pieces) > MAX_PIECES:
                self._join()
        else:
            self._note(update)
        self._watchdog.signs += 1
        self._lane.put(update, size)  # type: ignore[arg-type]

    def asked(self, update: acp.ToolCallProgress, size: int) -> None:
        """Deliver the tool call in a permission request, which came in `size` bytes, to a consumer
        of updates."""
        if self._pieces:
            self._join()
        if update.tool_call_id not in self._declined:
            self._acted += 1
        status = None if update.status is None else tool_status(update.status)
        self._watchdog.tool_changed(update.tool_call_id, status)
        self._watchdog.signs += 1
        # Not urgent: a policy has already answered, and a person who is asked wakes the consumer.
        self._lane.put_unhurried(update, size)  # type: ignore[arg-type]

    @property
    def answer_meta(self) -> Mapping[str, Any] | None:  # type: ignore[override]
        """The `_meta` of the response to the prompt."""
        return None if self.response is None else self.response.meta

    # -- inside

    def _note(self, update: acp.SessionUpdate) -> None:
        """Update the turn's state from an update that is not a piece of the agent's text."""
        self._join()
        for event in translate.of_update(update, self._session.place, None):
            if not isinstance(event, model.MessageDelta):
                self.note(event)
            elif event.role is Role.AGENT:
                self._acted += 1

    def _join(self) -> None:
        """Add the waiting pieces of text to the turn's text."""
        if self._pieces:
            self._acted += len(self._pieces)
            self._text.add("".join(self._pieces))
            self._pieces.clear()

    def denied(self, denial: Denial) -> None:
        self._join()
        super().denied(denial)

    def _result(self, ended: model.TurnEnded, error: DragomanError | None = None) -> Result:
        self._join()
        return super()._result(ended, error)

    async def _wait_for_room(self) -> None:
        await self._client.connection.wait_for_room("the prompt", self._client.budgets.request)

    def _send(self) -> Call:
        session, record = self._session, self._session.record
        session.new_turn()
        told = None if session.usage is None else session.usage.cost
        if told is not None:
            self._cost_before = Cost(told.amount, told.currency)
        elif session.began_here:
            self._cost_before = _NOTHING_SPENT
        request = acp.PromptRequest(session_id=session.id, prompt=self._wire, meta=self._meta)
        self._client.prompting()
        if record is None:
            return self._begin(request)
        blocks = tuple(b if isinstance(b, Block) else translate.block(b) for b in self._blocks)
        base = session.place.base(acp.SESSION_PROMPT.name, None)
        call = self._begin(request)
        started = model.TurnStarted(*base, blocks)
        record.emit(started)
        self.put(started, 0)
        return call

    def _begin(self, request: acp.PromptRequest) -> Call:
        return self._client.connection.begin(acp.SESSION_PROMPT.name, request, settle=self._settled)

    def _send_cancel(self) -> None:
        cancel = acp.CancelNotification(
            session_id=self._session.id, meta=self._client.cancel_meta(self._why)
        )
        self._client.connection.post(acp.SESSION_CANCEL.name, cancel)

    def _of_turn(self, usage: Usage) -> Usage:
        """Return the usage with this turn's share of the cost instead of the whole session's, which
        agents report. The share is None if the cost before the turn is unknown, as in a resumed
        session whose cost was not reported before the turn."""
        cost, before = usage.cost, self._cost_before
        if cost is None:
            return usage
        if before is None:
            return replace(usage, cost=None)
        if before.unit == cost.unit and before.amount <= cost.amount:
            cost = Cost(cost.amount - before.amount, cost.unit)
        # Otherwise the agent has started counting from zero again, as after a restart.
        return replace(usage, cost=cost)

    def expire(self, why: BudgetExceeded) -> None:
        stray = self._client.stray
        if stray is not None and self.state is TurnStage.RUNNING:
            sent = json.dumps(stray.id)[:SHOWN_ID_SIZE]
            found = f"the agent sent a response with the id {sent}, which no request has"
            why.args = (f"{why}; {found}",)
        super().expire(why)

    def _settled(self, raw: Raw | None, error: DragomanError | None) -> None:
        """Handle the response, in wire order after the last update."""
        if isinstance(error, CallCancelled) and self.cancelling:
            # Some agents answer a cancelled prompt with the error for cancelled requests.
            self._answered(self._ended(Outcome.CANCELLED, "cancelled", None))
            return
        if raw is not None:
            try:
                self.response = self._client.decode(acp.SESSION_PROMPT, raw)
            except DragomanError as invalid:
                error = invalid
            else:
                place = self._session.place
                self._answered(translate.of_answer(self.response, place, self._line()))
        if error is not None:
            error = self._client.explain(error)
            if self._why is not None and isinstance(error, PeerUnresponsive):
                # The exhausted budget is the reason, and this error only its consequence.
                self._why.args = (f"{self._why}; {error}",)
            self.failed(error)

    def _answered(self, ended: model.TurnEnded) -> None:
        if self._why is None:
            self.made(ended)
        self.conclude(ended)

    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        base = self._session.place.base(acp.SESSION_PROMPT.name, self._line())
        return model.TurnEnded(*base, outcome, stop, failure)

    def _line(self) -> bytes | None:
        """Return the line with the response to the prompt, whether a result or an error, or None if
        there is none."""
        return None if self._call is None else self._call.line

    def made(self, event: model.Event) -> None:
        if self._session.record is not None:
            self._session.record.tell(event)

    def _put_end(self, ended: model.TurnEnded) -> None:
        # A consumer of updates gets no events.
        if self._session.record is not None:
            super()._put_end(ended)
