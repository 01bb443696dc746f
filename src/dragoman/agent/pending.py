"""Awaitables returned by the methods of a turn, which detect a missing `await`.

They have no truth value, so that `if turn.ask_permission(…)` without `await` raises instead of
reading as consent, and those that were not awaited are reported at the end of the turn. The turn
decides what happens with such a report.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine, Generator
from types import CodeType, TracebackType
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

from msgspec import Struct

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
T = TypeVar("T")


class AwaitedCalls:
    """The calls of one turn that must be awaited."""

    __slots__ = ("unused", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Pending[Any], None] = {}
        """The calls that were not awaited yet, in order. The reference keeps a call alive even if
        the author drops its result, so that it is reported at the end of the turn."""
        self.unused: list[str] = []
        """Tool calls that were created but never announced, as the author wrote them."""

    def unawaited(self) -> list[str]:
        """Return every call that was not awaited or not used, as the author wrote it, and close
        those that were not awaited."""
        calls = self._close()
        return [*self.unused, *(call.place() for call in calls)]

    def _close(self) -> tuple[Pending[Any], ...]:
        """Close and return the calls that were not awaited: otherwise Python would warn, and
        name an internal method."""
        calls = tuple(self.waiting)
        for call in calls:
            call.close()
        return calls

    def __del__(self) -> None:
        self._close()


class Owner(Protocol):
    """An object with methods that must be awaited."""

    @property
    def _calls(self) -> AwaitedCalls: ...


class Pending(Struct, Generic[T], eq=False):
    """Wraps the coroutine of a call, and raises an error if the call is used without `await`."""

    # A Struct because one is created for every call: that takes half the time of a class with an
    # `__init__`.
    _inner: Coroutine[Any, Any, T]
    _waiting: dict[Pending[Any], None]
    """The calls of the same turn that were not awaited yet."""
    _what: str
    _code: CodeType
    """The code that made the call."""
    _offset: int
    """The instruction in `_code`. Its line number is looked up only for a report: in a long
    function, that takes as long as the rest of this."""

    def place(self) -> str:
        """Return the call and its source location."""
        return f"{self._what} at {self._code.co_filename}:{self._line()}"

    def _line(self) -> int | None:
        for start, end, line in self._code.co_lines():
            if start <= self._offset < end:
                return line
        return None

    def __await__(self) -> Generator[Any, Any, T]:
        self._waiting.pop(self, None)
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        self._waiting.pop(self, None)
        return self._inner.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        self._waiting.pop(self, None)
        if value is None and traceback is None:
            return self._inner.throw(kind)
        return self._inner.throw(kind, value, traceback)

    def close(self) -> None:
        self._waiting.pop(self, None)
        self._inner.close()

    def _misused(self) -> str:
        """Close the call and return the message of the error for using it without `await`."""
        self.close()
        return f"{self._what} must be awaited: write `await {self._what}`"

    def __bool__(self) -> bool:
        raise TypeError(self._misused())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Pending):
            return self is other
        raise TypeError(self._misused())

    def __ne__(self, other: object) -> bool:
        # A Struct has its own.
        return not self == other

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
        return f"<{self._what}, {'not awaited' if self in self._waiting else 'awaited'}>"


def must_await(work: Coroutine[Any, Any, T], calls: AwaitedCalls, what: str) -> Pending[T]:
    """Wrap a method's coroutine in a `Pending`, and add that to `calls`. Call this directly in the
    method: the caller of the method is recorded as the place of the call."""
    caller = sys._getframe(2)
    waiting = calls.waiting
    pending = Pending(work, waiting, what, caller.f_code, caller.f_lasti)
    waiting[pending] = None
    return pending


def awaited(what: str) -> Callable[[F], F]:
    """Decorator: make an `async` method return a `Pending`. `what` is the call as its user writes
    it."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def call(self: Owner, *args: Any, **kwargs: Any) -> Pending[Any]:
            return must_await(method(self, *args, **kwargs), self._calls, what)

        return cast("F", call)

    return decorate
