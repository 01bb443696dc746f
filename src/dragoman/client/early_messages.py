"""Buffer messages of sessions that are being opened: some agents send them before they respond.

Used by every client and by the gateway while a session is being opened, for messages of any type.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

log: Final = logging.getLogger("dragoman.client")

M = TypeVar("M")

MAX_EARLY: Final = 4096
MAX_EARLY_SIZE: Final = 16 * 1024 * 1024
"""Maximum number and total size of buffered messages. A list of commands can be half a megabyte; no
agent needs more than this before it responds."""


class EarlyMessages(Generic[M]):
    """Messages kept while a session is being opened, until its owner takes them.

    Those left when the last opening is over are passed to the callback `dropped`, if there is one.
    """

    __slots__ = ("_dropped", "_full", "_kept", "_opening", "_size")

    def __init__(self, dropped: Callable[[M], None] | None = None) -> None:
        self._dropped = dropped
        self._opening = 0
        self._kept: list[tuple[str, M, int]] = []
        self._size = 0
        self._full = False
        """Whether a message was dropped since an opening last ended; only the first is logged."""

    def __len__(self) -> int:
        return len(self._kept)

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """Context manager for opening a session whose id is known only from the response."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Called before a session is opened; `end` must follow."""
        self._opening += 1

    def end(self) -> None:
        """Called when the opening is over, whether it succeeded or not."""
        self._opening -= 1
        self._full = False
        if not self._opening and self._kept:
            left, self._kept, self._size = self._kept, [], 0
            if self._dropped is not None:
                for _, message, _ in left:
                    self._dropped(message)

    def keep(self, session_id: str, message: M, size: int) -> bool:
        """Keep a message of `size` bytes. Returns whether it was kept, which requires that a
        session is being opened and that there is room."""
        if not self._opening:
            return False
        total = self._size + size
        if total > MAX_EARLY_SIZE or len(self._kept) >= MAX_EARLY:
            if not self._full:
                self._full = True
                log.warning(
                    "an agent sent more than %d messages or %d bytes before it answered; further "
                    "messages are dropped",
                    MAX_EARLY,
                    MAX_EARLY_SIZE,
                )
            return False
        self._kept.append((session_id, message, size))
        self._size = total
        return True

    def take(self, session_id: str) -> list[M]:
        """Remove the messages of a session that is now open and return them, oldest first."""
        if not self._kept:
            return []
        taken = [each for each in self._kept if each[0] == session_id]
        self._kept = [each for each in self._kept if each[0] != session_id]
        self._size -= sum(size for _, _, size in taken)
        return [message for _, message, _ in taken]
