"""Which command a peer means, and what is refused before anything is started.

Terminals with real commands are in tests/integration/test_terminals.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.services.terminals import ExitStatus, Terminals, _status_of, command_line
from dragoman.client.services.workspace import Workspace
from dragoman.errors import (
    ArgumentInvalid,
    FileMissing,
    PathRefused,
    TerminalUnknown,
    UsageError,
)
from dragoman.transports.process.child import ChildProcess
from tests.aio import aio

ENVIRONMENT = {"PATH": os.pathsep.join(["/usr/bin", "/bin"])}
SHELL = ["/bin/sh", "-c"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("command", "args", "argv"),
    [
        ("ls", [], ["ls"]),
        ("ls", ["-l", "a b"], ["ls", "-l", "a b"]),
        ("no-such-program", [], ["no-such-program"]),
        ("/bin/echo", ["x"], ["/bin/echo", "x"]),
        ("ls -l", ["x"], ["ls -l", "x"]),
        ("echo hi && ls", ["x"], ["echo hi && ls", "x"]),
        ("ls -l", [], [*SHELL, "ls -l"]),
        ("echo 'a  b' | wc -c", [], [*SHELL, "echo 'a  b' | wc -c"]),
        ("make\ntest", [], [*SHELL, "make\ntest"]),
        ("X=1", [], [*SHELL, "X=1"]),
        ("$HOME/bin/x", [], [*SHELL, "$HOME/bin/x"]),
        ("~/bin/x", [], [*SHELL, "~/bin/x"]),
        ("ls>out", [], [*SHELL, "ls>out"]),
        ("ls;ls", [], [*SHELL, "ls;ls"]),
        ("./my tool", [], ["./my tool"]),
        ("cat my/tool", [], [*SHELL, "cat my/tool"]),
        ("{root}/my tool", [], ["{root}/my tool"]),
        ("./my tool -v", [], [*SHELL, "./my tool -v"]),
        ("./not executable", [], [*SHELL, "./not executable"]),
        ("g++", [], ["g++"]),
        ("./build-all_2.sh", [], ["./build-all_2.sh"]),
    ],
)
def test_a_command_is_a_program_or_a_line_for_the_shell(
    root: Path, command: str, args: list[str], argv: list[str]
) -> None:
    (root / "my tool").write_text("#!/bin/sh\n")
    (root / "my tool").chmod(0o755)
    (root / "not executable").write_text("#!/bin/sh\n")
    (root / "cat my").mkdir()
    (root / "cat my" / "tool").write_text("#!/bin/sh\n")
    (root / "cat my" / "tool").chmod(0o755)
    command, *argv = (text.replace("{root}", str(root)) for text in [command, *argv])
    assert command_line(command, args, environment=ENVIRONMENT, folder=str(root)) == argv


@pytest.mark.parametrize(
    ("command", "args", "argv"),
    [
        ("npm", ["test"], ["npm", "test"]),
        ("npm test", [], ["D:\\Win\\System32\\cmd.exe", "/d", "/s", "/c", "npm test"]),
        ("dir | more", [], ["D:\\Win\\System32\\cmd.exe", "/d", "/s", "/c", "dir | more"]),
    ],
)
def test_on_windows_the_shell_is_cmd(
    root: Path, command: str, args: list[str], argv: list[str]
) -> None:
    environment = {"SYSTEMROOT": "D:\\Win", "PATH": "D:\\Win"}
    made = command_line(command, args, environment=environment, folder=str(root), platform="win32")
    assert made == argv


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": ""},
        {"command": "a\0b"},
        {"command": "\ud800"},
        {"command": "ls", "args": ["a\0b"]},
        {"command": "ls", "args": ["\ud800"]},
        {"command": "ls", "args": "-l"},
        {"command": "ls", "env": {"": "x"}},
        {"command": "ls", "env": {"A=B": "x"}},
        {"command": "ls", "env": {"A\0": "x"}},
        {"command": "ls", "env": {"A": "x\0"}},
        {"command": "ls", "env": {"A": "\ud800"}},
        {"command": "ls", "output_byte_limit": -1},
        {"command": "ls", "output_byte_limit": True},
        {"command": "ls", "cwd": "relative"},
        {"command": "ls", "cwd": ""},
    ],
    ids=str,
)
@aio
async def test_arguments_that_can_never_be_right_are_refused(
    root: Path, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ArgumentInvalid):
        await Terminals(Workspace([root])).create(**arguments)


@aio
async def test_the_working_folder_has_to_be_a_folder_of_the_workspace(root: Path) -> None:
    (root / "file").touch()
    (root / "out").symlink_to("..")
    terminals = Terminals(Workspace([root]))
    for cwd in (root.parent, "/", root / "file", root / "out", f"{root}/.."):
        with pytest.raises(PathRefused):
            await terminals.create("ls", cwd=cwd)
    with pytest.raises(FileMissing):
        await terminals.create("ls", cwd=root / "missing")


@aio
async def test_an_id_that_was_never_given_out_is_unknown(root: Path) -> None:
    terminals = Terminals(Workspace([root]))
    with pytest.raises(TerminalUnknown, match="'nobody'"):
        terminals.output("nobody")
    for method in (terminals.wait_for_exit, terminals.kill, terminals.release):
        with pytest.raises(TerminalUnknown):
            await method("nobody")


@aio
async def test_after_closing_nothing_can_be_started(root: Path) -> None:
    terminals = Terminals(Workspace([root]))
    await terminals.aclose()
    await terminals.aclose()
    with pytest.raises(UsageError, match="closed"):
        await terminals.create("ls")


class Dead:
    """The part of a dead child that its exit status is read from."""

    def __init__(self, exit_code: int | None, signal: int | None) -> None:
        self.exit_code = exit_code
        self.signal = signal


@pytest.mark.parametrize(
    ("exit_code", "signal", "status"),
    [
        (0, None, ExitStatus(0, None)),
        (3, None, ExitStatus(3, None)),
        (None, 9, ExitStatus(None, "SIGKILL")),
        (None, 15, ExitStatus(None, "SIGTERM")),
        (None, 40, ExitStatus(None, "SIG40")),
        (None, None, ExitStatus(None, None)),
    ],
)
def test_an_exit_is_a_code_or_the_name_of_a_signal(
    exit_code: int | None, signal: int | None, status: ExitStatus
) -> None:
    child: Any = Dead(exit_code, signal)
    assert _status_of(child) == status


def test_the_fake_child_has_what_the_real_one_has() -> None:
    names: Mapping[str, Any] = vars(Dead(None, None))
    assert set(names) <= set(ChildProcess.__init__.__code__.co_names)
