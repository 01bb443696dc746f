"""`dragoman.connect`: names go to the catalogue, all else does not even load it."""

from __future__ import annotations

import inspect

import pytest

from dragoman.client import connect as client
from dragoman.errors import UsageError
from dragoman.runs.connect import Options, connect, is_address
from tests.aio import aio
from tests.unit.test_init import loaded_by


@pytest.mark.parametrize("text", ["unix:/x", "ws://x", "http://x", "/usr/bin/agent", "a/b", ""])
def test_what_looks_like_an_address_is_no_name(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize("text", ["gemini", "codex-acp", "mistral-vibe"])
def test_the_names_of_peers_are_no_addresses(text: str) -> None:
    assert not is_address(text)


def test_a_command_line_needs_neither_a_catalogue_nor_a_thread() -> None:
    loaded = loaded_by("from dragoman import connect")
    assert "dragoman.client.connect" in loaded
    heavy = {"dragoman.catalogue", "dragoman.config", "dragoman.client.sync", "tomllib"}
    assert loaded.isdisjoint(heavy)


def test_the_options_for_a_name_are_those_for_a_command_line() -> None:
    from dragoman.catalogue.open import open_peer
    from dragoman.runs.open_by_name import open_named

    def options(function: object) -> set[str]:
        assert callable(function)
        named = inspect.signature(function).parameters.values()
        return {each.name for each in named if each.kind is each.KEYWORD_ONLY}

    known = set(Options.__annotations__) | {"workspace"}
    assert options(client.connect) == known
    assert known <= options(open_named) | options(open_peer)
    assert connect.__doc__ is not None and "name of a peer" in connect.__doc__


@aio
async def test_a_command_line_has_no_broker() -> None:
    with pytest.raises(UsageError, match="only a peer that has a name"):
        async with connect(["agent"], warm=True):
            pass


def test_the_options_for_brokers_are_those_for_a_direct_start_and_more() -> None:
    from dragoman.broker.client.connect import open_warm
    from dragoman.catalogue.open import open_peer

    direct = inspect.signature(open_peer).parameters
    warm = inspect.signature(open_warm).parameters
    assert {name: warm[name] for name in direct} == dict(direct)
