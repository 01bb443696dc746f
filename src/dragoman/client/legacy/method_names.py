"""Find out and cache which of several method names a legacy agent understands.

Decides in which order to try them and remembers what worked; `client` and `turn` send. A prompt is
sent under the next name only if the error proves that nothing ran, so it is never executed twice.
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
"""Placeholder for an unknown program, in a cache that lasts only as long as its connection."""

NONE = ""
"""Cache value of a concept (an operation, such as ``list``) for which no method name works."""


class MethodNames:
    """The method names known to work on one connection. With a cache and a program, later
    connections know them too."""

    def __init__(
        self,
        dialect: str,
        cache: Cache | None = None,
        program: Program | None = None,
        launch: str = "",
    ) -> None:
        self._dialect = dialect
        self._launch = launch
        # A lasting cache is only valid for a known program.
        known = cache is not None and program is not None
        self._cache: Cache = cache if known and cache is not None else MemoryCache()
        self._program = program if known and program is not None else NOBODY

    def _key(self, concept: str) -> str:
        return f"{self._dialect}.{concept} {self._launch}".rstrip()

    def known(self, concept: str) -> str | None:
        """Return the method name that works, "" if none does, or None if that is not known yet."""
        return self._cache.get(self._program, self._key(concept))

    def order(self, concept: str, messages: Sequence[Message]) -> list[Message]:
        """Return the messages to try, best first. Raises `Unsupported` if it is known that none
        works."""
        known = self.known(concept)
        if known == NONE:
            raise Unsupported(_none_of(messages))
        return sorted(messages, key=lambda message: message[0] != known)

    def worked(self, concept: str, method: str) -> None:
        self._cache.put(self._program, self._key(concept), method)

    def failed(self, concept: str) -> None:
        """Record that the agent knows none of the method names of a concept."""
        self._cache.put(self._program, self._key(concept), NONE)
        if concept == "create":
            # The agent cannot be used in this dialect, so its dialect must be detected again.
            self._cache.put(self._program, dialect_concept(self._launch), NONE)


def proves_nothing_ran(error: DragomanError | None, method: str) -> bool:
    """Return whether the error proves that nothing ran, so that the message may be sent again under
    another method name."""
    return isinstance(error, RemoteError) and not_executed(error.code, error.message, method)


def none_known(messages: Sequence[Message], refusal: RemoteError) -> RemoteError:
    """Return the error for a request if the agent knows none of its method names. `refusal` is the
    last error that the agent sent."""
    if len(messages) == 1:
        return refusal
    return RemoteError(refusal.code, _none_of(messages), refusal.data)


def _none_of(messages: Sequence[Message]) -> str:
    return f"the agent supports none of the methods {', '.join(method for method, _ in messages)}"
