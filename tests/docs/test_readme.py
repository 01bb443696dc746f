"""The README is short, and every command line in it can be typed as shown."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer

from dragoman.cli.app import app
from tests.docs.markdown import ROOT, blocks

README = ROOT / "README.md"
BLOCKS = list(blocks(README))
COMMANDS = [
    line
    for block in BLOCKS
    if block.info == "sh"
    for line in block.text.splitlines()
    if line.startswith("dragoman ")
]


def test_the_readme_shows_ten_lines_of_a_program_and_ten_of_an_agent() -> None:
    python = [block.text for block in BLOCKS if block.info == "python"]
    assert len(python) == 2
    for text in python:
        assert len([line for line in text.splitlines() if line.strip()]) <= 10


SHELL = [
    [line.partition("#")[0].strip() for line in block.text.splitlines()]
    for block in BLOCKS
    if block.info == "sh"
]


def test_the_readme_says_how_to_install_and_has_the_two_commands_of_a_clone() -> None:
    install, clone, *_ = SHELL
    assert install == ["pip install dragoman", "uv tool install dragoman"]
    assert clone == ["make demo", "make test"]


def test_the_readme_shows_at_most_ten_lines_of_shell() -> None:
    assert 5 <= len(COMMANDS) <= 10


def test_a_user_learns_how_to_begin() -> None:
    assert any(line.startswith("dragoman init ") for line in COMMANDS)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_line_is_one_that_the_command_takes(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: Any = typer.main.get_command(app)
    context = command.make_context("dragoman", [words[0]], resilient_parsing=True)
    found = command.get_command(context, words[0])
    assert found is not None, line
    # Parsed completely: a wrong option or an extra argument raises.
    found.make_context(words[0], words[1:])


def test_a_wrong_command_line_would_be_noticed() -> None:
    command: Any = typer.main.get_command(app)
    context = command.make_context("dragoman", ["run"], resilient_parsing=True)
    with pytest.raises(Exception, match="No such option"):
        command.get_command(context, "run").make_context("run", ["scout", "x", "--nonsense"])


def test_the_folder_that_is_activated_is_the_one_that_make_builds() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (venv,) = re.findall(r"^VENV := (\S+)$", makefile, re.MULTILINE)
    assert f". {venv}/bin/activate" in README.read_text("utf-8")
