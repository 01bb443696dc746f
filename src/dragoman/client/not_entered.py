"""Context managers that raise a helpful error if they are used without ``with``.

`Entering` and `EnteringSync` wrap a block. Awaiting it, reading an attribute or entering it the
wrong way raises an error that shows the correct statement.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")


class _NotEntered:
    """Base class: reading an attribute that it does not have raises an error with the text
    `_use`."""

    __slots__ = ("_use",)

    _use: str

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self._use}; until then it has no {name!r}")

    def __repr__(self) -> str:
        return f"<{self._use}>"


class Entering(_NotEntered, AbstractAsyncContextManager[T], Generic[T]):
    """An async context manager that raises a helpful error unless it is entered with ``async
    with``."""

    __slots__ = ("_block",)

    def __init__(self, block: AbstractAsyncContextManager[T], use: str) -> None:
        self._block = block
        self._use = use

    async def __aenter__(self) -> T:
        return await self._block.__aenter__()

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._block.__aexit__(*raised)

    def __enter__(self) -> NoReturn:
        raise TypeError(self._use)

    def __exit__(self, *raised: object) -> None:
        """Exists only so that `with` reaches the error of `__enter__`."""

    def __await__(self) -> NoReturn:
        raise TypeError(self._use)


class EnteringSync(_NotEntered, AbstractContextManager[T], Generic[T]):
    """A context manager that raises a helpful error unless it is entered with ``with``."""

    __slots__ = ("_block",)

    def __init__(self, block: AbstractContextManager[T], use: str) -> None:
        """`block` must have been made by `contextlib.contextmanager`; `use` is the text of the
        errors."""
        self._block = block
        self._use = use

    def __enter__(self) -> T:
        try:
            return self._block.__enter__()
        except BaseException as error:
            # Ctrl-C may come when the block is entered but not yet returned from `__enter__`: then
            # nothing else would leave it. For a block that was not entered, this does nothing.
            self._block.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(self, *raised: Any) -> bool | None:
        try:
            return self._block.__exit__(*raised)
        except BaseException:
            # Ctrl-C may come before the first line of `__exit__`. If it has run, this does nothing.
            self._block.__exit__(*raised)
            raise

    async def __aenter__(self) -> NoReturn:
        raise TypeError(self._use)

    async def __aexit__(self, *raised: object) -> None:
        """Exists only so that `async with` reaches the error of `__aenter__`."""

    def __iter__(self) -> NoReturn:
        raise TypeError(self._use)
