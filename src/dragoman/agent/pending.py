"""What the methods of a turn return: something to await that notices when it is not.

Owns the awaitable that has no truth value, so that `if turn.ask_permission(…)` without `await`
raises instead of reading as consent, and that reports itself when it is dropped without having
been awaited. What becomes of such a report is decided by the turn it belongs to.
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
    """The calls of one turn that are to be awaited, and those that never will be."""

    __slots__ = ("dropped", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[str, str, int]] = {}
        """What was called and where, by the identity of what the call returned."""
        self.dropped: list[str] = []

    def unawaited(self) -> list[str]:
        """Every call that was not awaited, as its author wrote it."""
        return [*self.dropped, *map(_shown, tuple(self.waiting.values()))]


def _shown(call: tuple[str, str, int]) -> str:
    what, file, line = call
    return f"{what} at {file}:{line}"


class Owner(Protocol):
    """What has methods to await."""

    @property
    def _calls(self) -> AwaitedCalls: ...


class Pending(Coroutine[Any, Any, T]):
    """A coroutine that is missed when it is not awaited."""

    __slots__ = ("_begun", "_inner", "_owner", "_what")

    def __init__(self, inner: Coroutine[Any, Any, T], owner: Owner, what: str) -> None:
        caller = sys._getframe(2)
        self._begun = False
        self._inner = inner
        self._owner = owner
        self._what = what
        owner._calls.waiting[id(self)] = (what, caller.f_code.co_filename, caller.f_lineno)

    def _begin(self) -> None:
        """It is not missed any more."""
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
        """It was used without having been awaited, and the error for that is raised here."""
        self.close()
        return f"{self._what} has to be awaited: write `await {self._what}`"

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
        """Only there to let `async with` come as far as the error of `__aenter__`."""

    def __getattr__(self, name: str) -> NoReturn:
        # Not closed: asyncio looks for names of its own in whatever becomes a task.
        what = self._what
        raise AttributeError(f"{what} has to be awaited: write `await {what}`; it has no {name!r}")

    def __repr__(self) -> str:
        return f"<{self._what}, {'awaited' if self._begun else 'not awaited'}>"

    def __del__(self) -> None:
        if not self._begun:
            # Without this Python would warn, and name a method of ours.
            self._inner.close()
            calls = self._owner._calls
            calls.dropped.append(_shown(calls.waiting.pop(id(self))))


def awaited(what: str) -> Callable[[F], F]:
    """Let an `async` method return a `Pending`; `what` is the call as its user writes it."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def call(self: Owner, *args: Any, **kwargs: Any) -> Pending[Any]:
            return Pending(method(self, *args, **kwargs), self, what)

        return cast("F", call)

    return decorate
