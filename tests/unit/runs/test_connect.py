"""`dragoman.connect`: names go to the catalogue, all else does not even load it."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from msgspec import structs

from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import deny_all
from dragoman.errors import UsageError
from dragoman.runs import connect as runs_connect
from dragoman.runs.connect import connect, connect_sync, is_address
from tests.aio import aio
from tests.unit.test_init import loaded_by


@pytest.mark.parametrize("text", ["unix:/x", "ws://x", "http://x", "/usr/bin/agent", "a/b", ""])
def test_what_looks_like_an_address_is_not_a_name(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize("text", ["gemini", "codex-acp", "mistral-vibe"])
def test_the_names_of_peers_are_not_addresses(text: str) -> None:
    assert not is_address(text)


def test_a_command_line_needs_neither_a_catalogue_nor_a_thread() -> None:
    loaded = loaded_by("from dragoman import connect")
    assert "dragoman.client.connect" in loaded
    heavy = {"dragoman.catalogue", "dragoman.config", "dragoman.client.sync", "tomllib"}
    assert loaded.isdisjoint(heavy)


NOT_OPTIONS = {"target": inspect.Parameter.empty, "workspace": ".", "warm": None, "host": None}
"""The parameters of `connect` that are not fields of `ConnectOptions`, with their defaults."""


def defaults() -> dict[str, Any]:
    """What each parameter of `connect` has to be by default."""
    return {**NOT_OPTIONS, **structs.asdict(ConnectOptions())}


@pytest.mark.parametrize("function", [connect, connect_sync])
def test_the_parameters_are_the_fields_of_the_options_with_their_defaults(function: Any) -> None:
    found = inspect.signature(function).parameters
    assert {name: each.default for name, each in found.items()} == defaults()
    named = {each.kind for name, each in found.items() if name != "target"}
    assert named == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("function", [connect, connect_sync])
def test_help_describes_every_option_with_its_default(function: Any) -> None:
    shown = inspect.getdoc(function)
    assert shown is not None
    told = re.findall(r"^(\w+) \(default (.+?)\): \S", shown, re.MULTILINE)
    expected = {
        name: "deny_all" if value is deny_all else repr(value).replace("'", '"')
        for name, value in defaults().items()
        if name != "target"
    }
    assert dict(told) == expected
    assert len(told) == len(expected)


def test_every_option_reaches_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: object() for name in ConnectOptions.__struct_fields__}
    handed: list[ConnectOptions] = []

    def hand(target: Any, options: ConnectOptions, **_: Any) -> Any:
        handed.append(options)

    monkeypatch.setattr(runs_connect, "_connected", hand)
    monkeypatch.setattr(runs_connect, "require_options", lambda options: None)
    monkeypatch.setattr(runs_connect, "require_line_size", lambda size: None)
    connect(["x"], **given)  # type: ignore[arg-type]
    assert {name: getattr(handed[0], name) for name in given} == given


@pytest.mark.parametrize("function", [connect, connect_sync])
def test_an_option_that_does_not_exist_is_named(function: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        function(["x"], colour=1)


@pytest.mark.parametrize("function", [connect, connect_sync])
def test_a_workspace_is_a_path(function: Any) -> None:
    with pytest.raises(UsageError, match="workspace= takes the path"):
        function(["x"], workspace=b"/")


@pytest.mark.parametrize("function", [connect, connect_sync])
@pytest.mark.parametrize("size", [0, -1, 4095])
def test_a_message_size_that_no_handshake_fits_in_is_refused(function: Any, size: int) -> None:
    with pytest.raises(UsageError, match=f"must be 4096 bytes or greater, not {size}"):
        function(["x"], max_line_size=size)
    with pytest.raises(UsageError, match="takes a number of bytes, not 'big'"):
        function("gemini", max_line_size="big")


@aio
async def test_a_command_line_has_no_broker() -> None:
    with pytest.raises(UsageError, match="only a peer with a name"):
        async with connect(["agent"], warm=True):
            pass
