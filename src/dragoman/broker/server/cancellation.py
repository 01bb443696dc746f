"""State machine for cancelling a turn: send cancel, wait for the grace period, settle, quarantine.

Pure: no clock and no I/O; `turns` carries out the moves. A peer that ignores a cancel blocks only
its own session: after the grace period the turn ends without it and the session is quarantined.
"""

from __future__ import annotations

import enum
from typing import Final


class Phase(enum.StrEnum):
    """Where the turn of a session stands."""

    NONE = "none"
    """No turn runs."""
    RUNNING = "running"
    CANCELLING = "cancelling"
    """The peer was told; it has its grace to end the turn."""
    QUARANTINED = "quarantined"
    """The turn was settled without the peer, who may still be working on it."""


class Move(enum.StrEnum):
    """What is to be done now."""

    NOTHING = "nothing"
    SEND = "send"
    """Tell the peer, and start the grace."""
    SETTLE = "settle"
    """Answer the caller with what the peer answered."""
    GIVE_UP = "give up"
    """Answer the caller as cancelled, free the place in the queue, set the session aside."""
    RELEASE = "release"
    """The peer has ended the turn after all: the session can be used again."""


class Trigger(enum.StrEnum):
    BEGIN = "the prompt is sent"
    CANCEL = "somebody cancels"
    ANSWER = "the peer answers the prompt, or its connection ends"
    GRACE_OVER = "the grace is over"


_TABLE: Final[dict[tuple[Phase, Trigger], tuple[Phase, Move]]] = {
    (Phase.NONE, Trigger.BEGIN): (Phase.RUNNING, Move.NOTHING),
    (Phase.RUNNING, Trigger.CANCEL): (Phase.CANCELLING, Move.SEND),
    (Phase.RUNNING, Trigger.ANSWER): (Phase.NONE, Move.SETTLE),
    (Phase.CANCELLING, Trigger.ANSWER): (Phase.NONE, Move.SETTLE),
    (Phase.CANCELLING, Trigger.GRACE_OVER): (Phase.QUARANTINED, Move.GIVE_UP),
    (Phase.QUARANTINED, Trigger.ANSWER): (Phase.NONE, Move.RELEASE),
}


class Cancelling:
    """Where the turn of one session stands."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = Phase.NONE

    def on(self, trigger: Trigger) -> Move:
        """Take note of what happened, and return what to do. What does not fit does nothing: a
        second cancel, or one that comes after the end, is no mistake."""
        self.phase, move = _TABLE.get((self.phase, trigger), (self.phase, Move.NOTHING))
        return move
