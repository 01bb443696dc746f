"""Awaitables returned by the methods of a turn, which detect a missing `await`.

They have no truth value, so that `if turn.ask_permission(…)` without `await` raises instead of
reading as consent, and those that were not awaited are reported at the end of the turn. The turn
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
    """The calls of one turn that must be awaited."""

    __slots__ = ("unused", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, Pending[Any]] = {}
        """The calls that were not awaited yet, by identity. The reference keeps a call that its
        author drops, so that it is still reported at the end of the turn."""
        self.unused: list[str] = []
        """Other objects that were created and not used, as the author wrote them."""

    def unawaited(self) -> list[str]:
        """Return every call that was not awaited, as the author wrote it, and forget them."""
        calls = self._close()
        return [*self.unused, *(call.place() for call in calls)]

    def _close(self) -> tuple[Pending[Any], ...]:
        """Close the calls: otherwise Python would warn and name an internal method."""
        calls = tuple(self.waiting.values())
        for call in calls:
            call.close()
        return calls

    def __del__(self) -> None:
        self._close()


class Owner(Protocol):
    """An object with methods that must be awaited."""

    @property
    def _calls(self) -> AwaitedCalls: ...


class Pending(Coroutine[Any, Any, T]):
    """A coroutine that reports a missing `await`."""

    __slots__ = ("_begun", "_code", "_inner", "_line", "_waiting", "_what")

    def __init__(self, inner: Coroutine[Any, Any, T], owner: Owner, what: str) -> None:
        caller = sys._getframe(2)
        self._begun = False
        self._inner = inner
        self._what = what
        self._code = caller.f_code
        self._line = caller.f_lineno
        self._waiting = owner._calls.waiting
        self._waiting[id(self)] = self

    def place(self) -> str:
        """Return the call and its source location."""
        return f"{self._what} at {self._code.co_filename}:{self._line}"

    def _begin(self) -> None:
        """Stop tracking the call."""
        self._begun = True
        self._waiting.pop(id(self), None)

    def __await__(self) -> Generator[Any, Any, T]:
        self._begun = True
        self._waiting.pop(id(self), None)
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
        """Raise the error for using the call without `await`."""
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


def awaited(what: str) -> Callable[[F], F]:
    """Make an `async` method return a `Pending`; `what` is the call as its user writes it."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def call(self: Owner, *args: Any, **kwargs: Any) -> Pending[Any]:
            return Pending(method(self, *args, **kwargs), self, what)

        return cast("F", call)

    return decorate
