"""BrokerNotes: what a broker says beside the events of a session, read and reported to the user.

With the opening of a session and the end of a turn a broker says what the peer knew of the session,
why nothing is stored, and what its user has to know. `sessions` reads it from the answers.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.events.model import Event, SessionOpened, TurnEnded
from dragoman.runs.sessions import LIVE, RESTORED, context_of, notice_of, unstored_of


class BrokerNotes:
    """The notes of the broker of one session; without a broker there are none."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self._opened: Event | None = None
        self._ended: Event | None = None
        self._turns = 0
        self._unstored: str | None = None

    def turn_begins(self) -> None:
        """Forget what was said with the end of the last turn."""
        self._turns += 1
        self._ended = None

    def event(self, event: Event) -> None:
        """Keep the event that has the notes."""
        kind = type(event)
        if kind is TurnEnded:
            self._ended = event
        elif kind is SessionOpened:
            self._opened = event

    def context(self, opened: str) -> str:
        """What the peer knew of the session in the turn that is over. `opened` is what it knew when
        the session was opened, without a broker."""
        told = context_of(self._ended) or LIVE
        if told != LIVE or self._turns > 1:
            return told
        if opened != RESTORED:
            return opened
        return context_of(self._opened) or RESTORED

    def report(self) -> None:
        """Report what the broker said with the end of the turn; the same failure to store once."""
        self.report_unstored(unstored_of(self._ended))
        if (notice := notice_of(self._ended)) is not None:
            self._on_notice(notice)

    def report_unstored(self, why: str | None) -> None:
        """Report why nothing is stored, unless it was reported for the last turn, too."""
        if why is not None and why != self._unstored:
            self._on_notice(f"this is not stored: {why}")
        self._unstored = why
