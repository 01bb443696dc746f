"""`dragoman serve`: the group of servers, each fetched when it is called."""

from __future__ import annotations

from importlib import import_module

import pytest

from dragoman.cli.serve import COMMANDS
from tests.unit.cli.calling import Shell


def test_the_help_lists_every_server(shell: Shell) -> None:
    said = shell("serve", "--help")
    assert said.code == 0
    for name, text in COMMANDS.items():
        assert f"  {name} " in said.out
        assert text.split()[0] in said.out


def test_a_server_that_is_none_is_wrong_usage(shell: Shell) -> None:
    said = shell("serve", "tea")
    assert said.code == 2
    assert "tea" in said.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_server_has_its_module(name: str, shell: Shell) -> None:
    assert import_module(f"dragoman.cli.serve_{name}").app is not None
    said = shell("serve", name, "--help")
    assert said.code == 0
    assert "Examples:" in said.out
