"""In-memory log of one session's events as numbered lines.

Keeps the newest lines up to a size limit, and those that still wait to be stored. `LogLimits` drops
stored lines when all sessions together use too much memory. `recorder` writes lines to the store,
`event_reader` sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.wire.messages import Notification

MAX_LOG_SIZE: Final = 16 * 1024 * 1024
"""Maximum number of bytes in memory per session: enough for a reader that is slower than the peer,
so that only returning callers read from disk."""

MAX_ROOM_SIZE: Final = 64 * 1024 * 1024
"""Maximum number of bytes in memory for all sessions of a broker together."""

LINE_OVERHEAD: Final = 240
"""Memory overhead per line, in bytes, for the objects around it."""


class LogLimits:
    """Limits the total size of the event logs of a broker."""

    __slots__ = ("limit", "logs", "size")

    def __init__(self, limit: int = MAX_ROOM_SIZE) -> None:
        self.limit = limit
        self.size = 0
        self.logs: list[EventLog] = []

    def tidy(self) -> None:
        """If over the limit, free memory by dropping stored lines, starting with the oldest
        sessions."""
        if self.size > self.limit:
            for log in self.logs:
                log.trim(keep=0)
                if self.size <= self.limit:
                    return


class EventLog:
    """The event lines of one session. They are numbered from 0, the very first event of the
    session."""

    __slots__ = (
        "_limit", "_lines", "_room", "_size", "began", "first", "next", "stored", "taken",
        "untaken_size",
    )  # fmt: skip

    def __init__(self, next: int = 0, *, room: LogLimits | None = None, limit: int = MAX_LOG_SIZE):
        # A list and not a deque: a reader that catches up reads from the middle.
        self._lines: list[Notification] = []
        self._room = room or LogLimits()
        self._room.logs.append(self)
        self._limit = limit
        self._size = 0
        self.began = next
        """The number of the first line since this broker opened the session. The numbers between
        the last line of a previous broker and this number are not used."""
        self.first = next
        """The number of the oldest line in memory."""
        self.next = next
        """The number of the next line."""
        self.stored = next
        """Lines below this number are on disk, or cannot be stored: `trim` may drop them."""
        self.taken = next
        """Lines below this number were taken to be stored."""
        self.untaken_size = 0

    @property
    def size(self) -> int:
        """Size in bytes of the lines that were taken and are still in memory, with their
        overhead."""
        return self._size

    def append(self, event: Notification) -> None:
        """Append one event. Called for every update, so all other work is done in `take`."""
        self._lines.append(event)
        self.next += 1
        self.untaken_size += len(event.line)

    def extend(self, events: Sequence[Notification], size: int) -> None:
        """Append events; `size` is the total size of their lines in bytes."""
        self._lines += events
        self.next += len(events)
        self.untaken_size += size

    def take(self) -> tuple[int, list[Notification]]:
        """Return the lines still to be stored and the number of the first, and mark them as
        taken."""
        first = self.taken
        count = self.next - first
        lines = self._lines[first - self.first :]
        size = self.untaken_size + count * LINE_OVERHEAD
        self._size += size
        self._room.size += size
        self.taken = self.next
        self.untaken_size = 0
        return first, lines

    def lines(self, start: int, stop: int | None = None, *, max_size: int) -> list[Notification]:
        """Return lines from memory, starting at `start`: as many as fit into `max_size`, but at
        least one if there are any.

        `start` must not be before `first`.
        """
        end = self.next if stop is None else min(stop, self.next)
        first = self.first
        assert start >= first
        found: list[Notification] = []
        size = 0
        for index in range(start - first, end - first):
            line = self._lines[index]
            size += len(line.line)
            if found and size > max_size:
                break
            found.append(line)
        return found

    def trim(self, *, keep: int | None = None) -> None:
        """Drop the oldest stored lines until the log fits the limit, or `keep` bytes."""
        excess = self._size - (self._limit if keep is None else keep)
        if excess <= 0:
            return
        count = size = 0
        for line in self._lines[: max(self.stored - self.first, 0)]:
            if size >= excess:
                break
            size += len(line.line) + LINE_OVERHEAD
            count += 1
        del self._lines[:count]
        self.first += count
        self._size -= size
        self._room.size -= size

    def tidy(self) -> None:
        """Drop lines that need not be in memory, after more were stored."""
        self.trim()
        self._room.tidy()

    def close(self) -> None:
        """Drop all lines."""
        if self in self._room.logs:
            self._room.logs.remove(self)
        self._room.size -= self._size
        self._size = self.untaken_size = 0
        self._lines.clear()
        self.first = self.taken = self.stored = self.next
