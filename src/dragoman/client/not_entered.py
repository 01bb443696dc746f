"""What a call returns that has to be entered with ``with`` or ``async with`` before it is used.

Owns the sentence for a program that forgot it: whatever else is done with such a value says what to
write. What is entered, and what that costs, is known to the call that made it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")


class Entering(AbstractAsyncContextManager[T], Generic[T]):
    """To be entered with ``async with``, and nothing else."""

    __slots__ = ("_block", "_use")

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
        """Only there to let `with` come as far as the error of `__enter__`."""

    def __await__(self) -> NoReturn:
        raise TypeError(self._use)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self._use}; it has no {name!r} of its own")


class EnteringSync(AbstractContextManager[T], Generic[T]):
    """To be entered with ``with``, and nothing else."""

    __slots__ = ("_block", "_use")

    def __init__(self, block: AbstractContextManager[T], use: str) -> None:
        self._block = block
        self._use = use

    def __enter__(self) -> T:
        return self._block.__enter__()

    def __exit__(self, *raised: Any) -> bool | None:
        return self._block.__exit__(*raised)

    async def __aenter__(self) -> NoReturn:
        raise TypeError(self._use)

    async def __aexit__(self, *raised: object) -> None:
        """Only there to let `async with` come as far as the error of `__aenter__`."""

    def __iter__(self) -> NoReturn:
        raise TypeError(self._use)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self._use}; it has no {name!r} of its own")
