"""The awaitables that the methods of a turn return: they detect a missing `await`.

They have no truth value, so that `if turn.ask_permission(…)` without `await` raises instead of
reading as consent, and they report themselves if dropped without having been awaited. The turn
decides what happens with such a report.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, NoReturn, Protocol, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
T = TypeVar("T")


class AwaitedCalls:
    """The calls of one turn that must be awaited, and those that never will be."""

    __slots__ = ("dropped", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[str, str, int]] = {}
        """The call and its source location, by the identity of the returned object."""
        self.dropped: list[str] = []

    def unawaited(self) -> list[str]:
        """Every call that was not awaited, as the author wrote it."""
        return [*self.dropped, *map(_shown, tuple(self.waiting.values()))]


def _shown(call: tuple[str, str, int]) -> str:
    what, file, line = call
    return f"{what} at {file}:{line}"


class Owner(Protocol):
    """An object with methods that must be awaited."""

    @property
    def _calls(self) -> AwaitedCalls: ...


class Pending(Coroutine[Any, Any, T]):
    """A coroutine that reports a missing `await`."""

    __slots__ = ("_begun", "_inner", "_owner", "_what")

    def __init__(self, inner: Coroutine[Any, Any, T], owner: Owner, what: str) -> None:
        caller = sys._getframe(2)
        self._begun = False
        self._inner = inner
        self._owner = owner
        self._what = what
        owner._calls.waiting[id(self)] = (what, caller.f_code.co_filename, caller.f_lineno)

    def _begin(self) -> None:
        """Stop tracking it."""
        self._begun = True
        self._owner._calls.waiting.pop(id(self), None)

    def __await__(self) -> Generator[Any, Any, T]:
        self._begin()
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        if not self._begun:
            self._begin()
        return self._inner.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        self._begin()
        if value is None and traceback is None:
            return self._inner.throw(kind)
        return self._inner.throw(kind, value, traceback)

    def close(self) -> None:
        self._begin()
        self._inner.close()

    def _misused(self) -> str:
        """Raise the error for using it without `await`."""
        self.close()
        return f"{self._what} must be awaited: write `await {self._what}`"

    def __bool__(self) -> bool:
        raise TypeError(self._misused())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Pending):
            return self is other
        raise TypeError(self._misused())

    __hash__ = object.__hash__

    async def __aenter__(self) -> NoReturn:
        raise TypeError(self._misused())

    async def __aexit__(self, *raised: object) -> None:
        """Exists only so that `async with` reaches the error in `__aenter__`."""

    def __getattr__(self, name: str) -> NoReturn:
        # Not closed: asyncio looks up attributes on any object that becomes a task.
        what = self._what
        raise AttributeError(f"{what} must be awaited: write `await {what}`; it has no {name!r}")

    def __repr__(self) -> str:
        return f"<{self._what}, {'awaited' if self._begun else 'not awaited'}>"

    def __del__(self) -> None:
        if not self._begun:
            # Otherwise Python would warn and name an internal method.
            self._inner.close()
            calls = self._owner._calls
            calls.dropped.append(_shown(calls.waiting.pop(id(self))))


def awaited(what: str) -> Callable[[F], F]:
    """Make an `async` method return a `Pending`; `what` is the call as its user writes it."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def call(self: Owner, *args: Any, **kwargs: Any) -> Pending[Any]:
            return Pending(method(self, *args, **kwargs), self, what)

        return cast("F", call)

    return decorate
