"""Completion in real shells: installed by the command, then Tab is pressed in a terminal.

zsh and fish are tried where they are installed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.integration.cli_shell import Cli, cli_in
from tests.integration.pty_terminal import in_terminal

PROMPT = "ready> "
START = {
    "bash": (("--norc", "-i"), f"PS1='{PROMPT[:3]}''{PROMPT[3:]}'; . $HOME/.bashrc\r"),
    "zsh": (("-i",), f"PROMPT='{PROMPT[:3]}''{PROMPT[3:]}'\r"),
    "fish": (("-i",), f"function fish_prompt; echo -n '{PROMPT[:3]}''{PROMPT[3:]}'; end\r"),
}


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = cli_in(tmp_path)
    programs = cli.home / "programs"
    programs.mkdir()
    command = programs / "dragoman"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m dragoman "$@"\n')
    command.chmod(0o755)
    cli.extra["PATH"] = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    return cli


@pytest.mark.parametrize("shell", START)
def test_tab_completes_commands_peers_and_roles(cli: Cli, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    words, setting = START[shell]
    argv = [program, *words]
    (cli.home / ".zshrc").touch()
    env = cli.env
    with in_terminal(argv, cwd=cli.cwd, env=env, columns=100) as terminal:
        terminal.type("dragoman --install-completion\r")
        terminal.expect("completion installed")
        terminal.type("exit\r")
    with in_terminal(argv, cwd=cli.cwd, env=env, columns=100) as terminal:
        terminal.type(setting)
        terminal.expect(PROMPT)
        # The first Tab of a zsh only loads the completion.
        terminal.type("dragoman bro\t" + ("\t" if shell == "zsh" else ""))
        terminal.expect("ker")
        terminal.type("\x15dragoman run sco\t")
        terminal.expect("ut")
        terminal.type("\x15dragoman delegate explo\t")
        terminal.expect("ration")
        terminal.type("\x15exit\r")
        terminal.wait()
