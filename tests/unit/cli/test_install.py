"""What both ways to install have in common: names, and which file is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.cli.install import check_name, install
from dragoman.errors import UsageError
from dragoman.setup.install.clients import MCP_CLIENTS
from tests.unit.cli.calling import Shell


@pytest.mark.parametrize("name", ["dragoman", "d", "my other-agents 2.0", "_x_"])
def test_a_name_for_menus_and_tools_is_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", " x", "x ", "a\n", "a/b", 'a"', "ä", "x" * 65])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_name(name)


def test_one_file_is_named_in_one_way(shell: Shell) -> None:
    with pytest.raises(UsageError, match="both choose"):
        install(MCP_CLIENTS["zed"], name="d", write=True, file=Path("x"), project=shell.cwd)
    assert list(shell.cwd.iterdir()) == []


def test_control_characters_in_a_path_do_not_reach_the_terminal(shell: Shell) -> None:
    said = shell("mcp", "install", "--client", "zed", "--file", "a\x1b[2Jb")
    assert said.code == 0 and "\x1b" not in said.err
