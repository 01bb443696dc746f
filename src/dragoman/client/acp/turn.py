"""One prompt over ACP, from its sending to its end.

Owns how a prompt is sent, answered and called off in this dialect. The life of a turn, whatever
the dialect, is in `dragoman.client.turns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from dragoman.client.permissions import Denial
from dragoman.client.turns import BaseTurn, TurnEndMark
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import CallCancelled, DragomanError, PeerUnresponsive
from dragoman.rpc import Call

if TYPE_CHECKING:
    from dragoman.client.acp.session import Session


class TurnResult(Struct, frozen=True):
    """How a turn ended."""

    stop_reason: str
    """As the agent said it; ``cancelled`` also where it never answered a cancel."""
    response: acp.PromptResponse | None
    """The agent's answer; None if the turn was settled without it."""
    denials: tuple[Denial, ...] = ()
    """Permissions that were refused on the way."""
    approvals: int = 0
    """How many permissions were given on the way."""

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


class Turn(BaseTurn[acp.SessionUpdate, TurnResult]):
    """A running prompt, for use as ``async with``; iterate over it for the agent's updates.

    Leaving the block early cancels the turn and waits for its end. Without iteration, `wait`
    drops the updates and returns the result.
    """

    __slots__ = ("_blocks", "_client", "_meta")

    def __init__(
        self, session: Session, blocks: Sequence[acp.ContentBlock], meta: dict[str, Any] | None
    ) -> None:
        self._client = session.client
        self._blocks = blocks
        self._meta = meta
        super().__init__(session, self._client.connection.flow, self._client.budgets)

    def _send(self) -> Call:
        request = acp.PromptRequest(
            session_id=self.session.id, prompt=self._blocks, meta=self._meta
        )
        self._client.prompting()
        return self._client.connection.begin(acp.SESSION_PROMPT.name, request, settle=self._settled)

    def _send_cancel(self) -> None:
        self._client.connection.post(
            acp.SESSION_CANCEL.name, acp.CancelNotification(session_id=self.session.id)
        )

    def _cancelled(self) -> TurnResult:
        return TurnResult("cancelled", None, tuple(self.denials), self.approvals)

    def _settled(self, raw: Raw | None, error: DragomanError | None) -> None:
        """The answer, in wire order behind the last update."""
        if raw is not None:
            try:
                response = self._client.decode(acp.SESSION_PROMPT, raw)
            except DragomanError as invalid:
                error = invalid
        elif isinstance(error, CallCancelled) and self.cancelling:
            # An agent that answers a cancelled prompt with the error for cancelled requests.
            response, error = acp.PromptResponse(stop_reason="cancelled"), None
        if error is not None:
            error = self._client.explain(error)
            if self._why is not None and isinstance(error, PeerUnresponsive):
                # The budget is the reason, and this is why it was used up.
                self._why.args = (f"{self._why}; {error}",)
            self._finish(self._failed(error))
        else:
            denials, approvals = tuple(self.denials), self.approvals
            self._finish(
                TurnEndMark(TurnResult(response.stop_reason, response, denials, approvals))
            )
