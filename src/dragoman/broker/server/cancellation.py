"""State machine for cancelling a turn: send cancel, wait for the grace period, settle, quarantine.

Pure: no clock and no I/O; `turns` executes the moves. A peer that ignores a cancel blocks only its
own session: after the grace period the turn ends without it and the session is quarantined.
"""

from __future__ import annotations

import enum
from typing import Final


class Phase(enum.StrEnum):
    """State of a session's turn."""

    NONE = "none"
    """No turn runs."""
    RUNNING = "running"
    CANCELLING = "cancelling"
    """The cancel was sent; the grace period is running."""
    QUARANTINED = "quarantined"
    """The turn was settled without the peer, which may still be working on it."""


class Move(enum.StrEnum):
    """The next action."""

    NOTHING = "nothing"
    SEND = "send"
    """Send the cancel and start the grace period."""
    SETTLE = "settle"
    """Answer the caller with the peer's response."""
    GIVE_UP = "give up"
    """Answer the caller as cancelled, free the queue slot, quarantine the session."""
    RELEASE = "release"
    """The peer has ended the turn after all: the session is usable again."""


class Trigger(enum.StrEnum):
    BEGIN = "the prompt is sent"
    CANCEL = "a cancel is requested"
    ANSWER = "the peer answers the prompt, or its connection ends"
    GRACE_OVER = "the grace period is over"


_TABLE: Final[dict[tuple[Phase, Trigger], tuple[Phase, Move]]] = {
    (Phase.NONE, Trigger.BEGIN): (Phase.RUNNING, Move.NOTHING),
    (Phase.RUNNING, Trigger.CANCEL): (Phase.CANCELLING, Move.SEND),
    (Phase.RUNNING, Trigger.ANSWER): (Phase.NONE, Move.SETTLE),
    (Phase.CANCELLING, Trigger.ANSWER): (Phase.NONE, Move.SETTLE),
    (Phase.CANCELLING, Trigger.GRACE_OVER): (Phase.QUARANTINED, Move.GIVE_UP),
    (Phase.QUARANTINED, Trigger.ANSWER): (Phase.NONE, Move.RELEASE),
}


class Cancelling:
    """The cancellation state of one session's turn."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = Phase.NONE

    def on(self, trigger: Trigger) -> Move:
        """Record an event and return the action. Events that do not apply are ignored: a second
        cancel, or a cancel after the end, is not an error."""
        self.phase, move = _TABLE.get((self.phase, trigger), (self.phase, Move.NOTHING))
        return move
