"""Choose and cache which of several method names a legacy agent understands.

Keeps the order to try and remembers success and failure; `client` and `turn` send. The next name is
tried only if the error proves that nothing ran, so a prompt is never executed twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.dialects.discovery import (
    Cache,
    MemoryCache,
    Program,
    dialect_concept,
    not_executed,
)
from dragoman.dialects.legacy.base import Message
from dragoman.errors import DragomanError, RemoteError, Unsupported

NOBODY = Program("", 0, 0)
"""Stands for a program that is not known, in a cache that lives no longer than its connection."""

NONE = ""
"""What the cache holds for a concept that has no name which works."""


class MethodNames:
    """The names that work on one connection; with a cache and a program, on the next ones too."""

    def __init__(
        self,
        dialect: str,
        cache: Cache | None = None,
        program: Program | None = None,
        launch: str = "",
    ) -> None:
        self._dialect = dialect
        self._launch = launch
        # Without a program there is nothing that a lasting cache could be right about.
        known = cache is not None and program is not None
        self._cache: Cache = cache if known and cache is not None else MemoryCache()
        self._program = program if known and program is not None else NOBODY

    def _key(self, concept: str) -> str:
        return f"{self._dialect}.{concept} {self._launch}".rstrip()

    def known(self, concept: str) -> str | None:
        """The name that worked; "" if none does; None if nobody tried."""
        return self._cache.get(self._program, self._key(concept))

    def order(self, concept: str, messages: Sequence[Message]) -> list[Message]:
        """What to try, best first. Raises `Unsupported` where nothing is known to work."""
        known = self.known(concept)
        if known == NONE:
            raise Unsupported(_none_of(messages))
        return sorted(messages, key=lambda message: message[0] != known)

    def worked(self, concept: str, method: str) -> None:
        self._cache.put(self._program, self._key(concept), method)

    def failed(self, concept: str) -> None:
        """No name is known at the other side."""
        self._cache.put(self._program, self._key(concept), NONE)
        if concept == "create":
            # It cannot be used in this dialect, so that it has to be found out again.
            self._cache.put(self._program, dialect_concept(self._launch), NONE)


def proves_nothing_ran(error: DragomanError | None, method: str) -> bool:
    """Whether the same thing may be sent under another name."""
    return isinstance(error, RemoteError) and not_executed(error.code, error.message, method)


def none_known(messages: Sequence[Message], refusal: RemoteError) -> RemoteError:
    """The error for an agent that refused a request under the last of its names as unknown."""
    if len(messages) == 1:
        return refusal
    return RemoteError(refusal.code, _none_of(messages), refusal.data)


def _none_of(messages: Sequence[Message]) -> str:
    return f"the agent knows none of {', '.join(method for method, _ in messages)}"
