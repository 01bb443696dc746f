"""The fields that every event begins with: source, sequence number, session, turn, raw line.

All envelopes of one connection share a counter, so its events are numbered in order.
"""

from __future__ import annotations

from itertools import count

from dragoman.events.model import Source


class EventEnvelope:
    """Where events come from: made once for each session, changed when a turn begins or ends."""

    __slots__ = ("numbers", "replay", "session", "source", "turn")

    def __init__(self, source: Source, numbers: count[int], session: str | None) -> None:
        self.source = source
        self.numbers = numbers
        self.session = session
        self.turn: str | None = None
        self.replay = False

    def base(
        self, native: str, raw: bytes | None
    ) -> tuple[Source, int, str | None, str | None, str, bytes | None, bool]:
        """The fields that every event begins with."""
        return (
            self.source,
            next(self.numbers),
            self.session,
            self.turn,
            native,
            raw,
            self.replay,
        )
