"""A dialect of somebody else is spoken under its own name, and only until it is forgotten."""

from __future__ import annotations

import pytest

from dragoman.client.connect import OPENERS, connect
from dragoman.client.legacy import DIALECTS, register, unregister
from dragoman.client.options import ConnectOptions
from dragoman.dialects.legacy.base import ClientEnd
from dragoman.errors import UsageError
from dragoman.testing.scripted import command
from tests.aio import aio


@aio
async def test_a_registered_dialect_is_spoken_until_it_is_forgotten() -> None:
    class Own(ClientEnd):
        name = "own"

    register("own", lambda options: Own())
    try:
        async with connect(command(), ConnectOptions(dialect="own")) as peer:
            assert peer.dialect == "own"
    finally:
        unregister("own")
    assert "own" not in OPENERS and "own" not in DIALECTS
    with pytest.raises(UsageError, match="no dialect 'own'"):
        async with connect(command(), ConnectOptions(dialect="own")):
            pass


@pytest.mark.parametrize("name", ["acp", "codex", "keyed", "auto"])
def test_a_name_that_is_taken_stays_with_its_dialect(name: str) -> None:
    before = OPENERS.get(name)
    with pytest.raises(UsageError, match="already"):
        register(name, lambda options: ClientEnd())
    assert OPENERS.get(name) is before


@pytest.mark.parametrize("name", ["acp", "keyed", "nothing"])
def test_only_what_was_registered_is_forgotten(name: str) -> None:
    with pytest.raises(UsageError, match="is built in or not registered"):
        unregister(name)
    assert ("keyed" in OPENERS) is True
