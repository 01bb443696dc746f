"""What has to be entered says so, whatever else is done with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from dragoman.client.not_entered import Entering, EnteringSync
from tests.aio import aio

USE = "write it like this"


@asynccontextmanager
async def later(log: list[str]) -> AsyncIterator[str]:
    try:
        yield "inside"
    finally:
        log.append("left")


@contextmanager
def now(log: list[str]) -> Iterator[str]:
    try:
        yield "inside"
    finally:
        log.append("left")


@aio
async def test_a_block_is_entered_and_left() -> None:
    log: list[str] = []
    async with Entering(later(log), USE) as value:
        assert value == "inside"
    with EnteringSync(now(log), USE) as value:
        assert value == "inside"
    assert log == ["left", "left"]


@aio
async def test_an_exception_goes_through_it() -> None:
    log: list[str] = []
    with pytest.raises(KeyError):
        async with Entering(later(log), USE):
            raise KeyError
    with pytest.raises(KeyError), EnteringSync(now(log), USE):
        raise KeyError
    assert log == ["left", "left"]


@aio
async def test_anything_else_says_what_to_write() -> None:
    careless: Any = Entering(later([]), USE)
    with pytest.raises(AttributeError, match=f"{USE}; until then it has no 'ask'"):
        careless.ask()
    with pytest.raises(TypeError, match=USE):
        await careless
    with pytest.raises(TypeError, match=USE):
        with careless:
            pytest.fail("entered")
    careless = EnteringSync(now([]), USE)
    with pytest.raises(AttributeError, match=f"{USE}; until then it has no 'ask'"):
        careless.ask()
    with pytest.raises(TypeError, match=USE):
        list(careless)
    with pytest.raises(TypeError, match=USE):
        async with careless:
            pytest.fail("entered")
