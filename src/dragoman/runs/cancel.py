"""CancelHandle: cancel a run from outside, in or between its turns.

The handle outlives single turns: work of several turns, such as a delegation, uses one handle.
`runs.run` tells it which turn is running. Stop requests of other processes are in
`cancel_by_file`.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.client.conversation import ConversationTurn


class CancelHandle:
    """Cancels a run, or work that consists of several runs."""

    def __init__(self, *, one_turn: bool = False) -> None:
        self.pulled = False
        """Whether it was cancelled: then no other turn is started."""
        self._one_turn = one_turn
        """Whether a cancellation is for the running turn, and the next one is not cancelled."""
        self._turn: ConversationTurn | None = None
        self._stop: Callable[[], None] | None = None

    @property
    def in_turn(self) -> bool:
        """Whether a turn is running that can be cancelled."""
        return self._turn is not None

    def hold(self, turn: ConversationTurn | None) -> None:
        """Set the running turn; None when it is over."""
        self._turn = turn
        if turn is not None and self.pulled:
            turn.cancel()
        elif turn is None and self._one_turn:
            self.pulled = False

    def between_turns(self, stop: Callable[[], None] | None) -> None:
        """Set the callback that ends the work between turns; None when it is over."""
        self._stop = stop
        if stop is not None and self.pulled:
            stop()

    def pull(self) -> bool:
        """Cancel: the running turn is cancelled in its agent, and no other is started. False if
        there is nothing to cancel yet."""
        self.pulled = True
        if self._turn is not None:
            self._turn.cancel()
        elif self._stop is not None:
            self._stop()
        return self.in_turn or self._stop is not None
