"""Queue of prompts, with a limit on how many may wait.

Prompts of one session run one at a time, in order of arrival. Prompts of different sessions run in
parallel if the peer supports that, otherwise one at a time as well. `turns` runs what `ready`
returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from dragoman.broker.error_codec import busy

T = TypeVar("T")

MAX_WAITING: Final = 100
"""Maximum number of prompts that may wait in one broker. Beyond that, an error is better than a
longer wait."""


class Queue(Generic[T]):
    """A queue of items, each with a key (its session) that only one running item may have."""

    __slots__ = ("_key", "_limit", "_parallel", "_running", "_waiting")

    def __init__(
        self, key: Callable[[T], object], *, parallel: bool, limit: int = MAX_WAITING
    ) -> None:
        self._key = key
        self._parallel = parallel
        self._limit = limit
        self._running: dict[object, T] = {}
        self._waiting: list[T] = []

    def __len__(self) -> int:
        """Return the number of waiting items."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self._running or self._waiting)

    @property
    def running(self) -> list[T]:
        return list(self._running.values())

    def waiting(self, key: object | None = None) -> Iterator[T]:
        """Return an iterator over the waiting items, in order; with `key` only those with that
        key."""
        return (item for item in list(self._waiting) if key is None or self._key(item) == key)

    def put(self, item: T) -> None:
        """Append an item. Raises `BrokerBusy` if it would have to wait and the limit is reached."""
        if len(self._waiting) >= self._limit and not self._may_run(item):
            raise busy(len(self._waiting))
        self._waiting.append(item)

    def _may_run(self, item: T) -> bool:
        if self._running and not self._parallel:
            return False
        key = self._key(item)
        return key not in self._running and all(self._key(each) != key for each in self._waiting)

    def ready(self) -> T | None:
        """Take and return the next item that may run now; None if there is none. It counts as
        running until `done`."""
        if self._running and not self._parallel:
            return None
        for index, item in enumerate(self._waiting):
            key = self._key(item)
            if key not in self._running:
                del self._waiting[index]
                self._running[key] = item
                return item
        return None

    def done(self, item: T) -> None:
        """Record that an item has ended. No effect if it is not running."""
        key = self._key(item)
        if self._running.get(key) is item:
            del self._running[key]

    def drop(self, item: T) -> bool:
        """Remove a waiting item. Returns whether it was there."""
        for index, each in enumerate(self._waiting):
            if each is item:
                del self._waiting[index]
                return True
        return False
