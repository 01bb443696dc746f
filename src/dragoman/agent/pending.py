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
from typing import Any, Protocol, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
T = TypeVar("T")


class Owner(Protocol):
    """Hears of what was never awaited."""

    def forgot(self, what: str) -> None: ...


class Pending(Coroutine[Any, Any, T]):
    """A coroutine that is missed when it is not awaited."""

    __slots__ = ("_begun", "_inner", "_owner", "_what", "_where")

    def __init__(self, inner: Coroutine[Any, Any, T], owner: Owner, what: str) -> None:
        caller = sys._getframe(2)
        self._begun = False
        self._inner = inner
        self._owner = owner
        self._what = what
        self._where = (caller.f_code.co_filename, caller.f_lineno)

    def __await__(self) -> Generator[Any, Any, T]:
        self._begun = True
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        self._begun = True
        return self._inner.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        self._begun = True
        if value is None and traceback is None:
            return self._inner.throw(kind)
        return self._inner.throw(kind, value, traceback)

    def close(self) -> None:
        self._begun = True
        self._inner.close()

    def __bool__(self) -> bool:
        self._begun = True
        self._inner.close()
        raise TypeError(f"{self._what} has to be awaited: write `await {self._what}`")

    def __repr__(self) -> str:
        return f"<{self._what}, {'awaited' if self._begun else 'not awaited'}>"

    def __del__(self) -> None:
        if not self._begun:
            # Without this Python would warn, and name a method of ours.
            self._inner.close()
            file, line = self._where
            self._owner.forgot(f"{self._what} at {file}:{line}")


def awaited(what: str) -> Callable[[F], F]:
    """Let an `async` method return a `Pending`; `what` is the call as its user writes it."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def call(self: Owner, *args: Any, **kwargs: Any) -> Pending[Any]:
            return Pending(method(self, *args, **kwargs), self, what)

        return cast("F", call)

    return decorate
