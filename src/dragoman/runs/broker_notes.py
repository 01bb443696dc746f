"""BrokerNotes: what a broker adds to its answers, kept for one session and reported to the user.

With the opening of a session and the end of a turn a broker says what the peer knew of the session,
why nothing is stored, and what its user has to know (`broker.protocol.Added`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dragoman.runs.sessions import LIVE, RESTORED

if TYPE_CHECKING:
    from dragoman.broker.protocol import Added


class BrokerNotes:
    """The notes of the broker of one session; without a broker there are none."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self.opened: Added | None = None
        """What it added to the opening of the session."""
        self.ended: Added | None = None
        """What it added to the end of the turn."""
        self._turns = 0
        self._unstored: str | None = None

    def turn_begins(self) -> None:
        """Forget what was said with the end of the last turn."""
        self._turns += 1
        self.ended = None

    def context(self, opened: str) -> str:
        """What the peer knew of the session in the turn that is over. `opened` is what it knew when
        the session was opened, without a broker."""
        told = (self.ended.context if self.ended else None) or LIVE
        if told != LIVE or self._turns > 1:
            return told
        if opened != RESTORED:
            return opened
        return (self.opened.context if self.opened else None) or RESTORED

    def report(self) -> None:
        """Report what the broker said with the end of the turn; the same failure to store once."""
        ended = self.ended
        self.report_unstored(ended.unstored if ended else None)
        if ended and ended.notice is not None:
            self._on_notice(ended.notice)

    def report_unstored(self, why: str | None) -> None:
        """Report why nothing is stored, unless it was reported for the last turn, too."""
        if why is not None and why != self._unstored:
            self._on_notice(f"this is not stored: {why}")
        self._unstored = why
