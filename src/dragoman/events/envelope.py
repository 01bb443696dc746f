"""Where events come from: the fields that every event of a session begins with.

Owns the counting of a connection's events. It does not know what the events say; dialects do.
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
