"""A host that lacks something: Python, git, disk space, a writable home, a matching dragoman, or a
quiet shell. Every command that a user types works, or says what is missing there and what to do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.far_machine import FarMachine, mounted
from tests.hosts.test_host_errors import program
from tests.hosts.test_hosts_files import repo as repo
from tests.integration.cli_shell import Done

pytestmark = pytest.mark.timeout(300)

TOOLS = ("sh", "cat", "env", "ls", "mkdir", "uname")
"""Programs that any machine has."""

RUN = ("--host", "box", "run", "far", "hello")
SEND = (*RUN, "--send")
JOBS = ("--host", "box", "jobs")
DELEGATE = ("--host", "box", "delegate", "review", "hello")
CHECK = ("hosts", "check", "box")
BOOTSTRAP = ("hosts", "bootstrap", "box")

PROGRAM = """
import asyncio
from dragoman import connect
from dragoman.errors import HostUnavailable

async def main():
    async with connect("far", host="box") as peer, peer.session() as session:
        async with session.prompt("hello") as turn:
            await turn.wait()
        print(turn.result.text)

try:
    asyncio.run(main())
except HostUnavailable as error:
    raise SystemExit(f"{error}; {error.remedy}")
"""


def connected(far: FarMachine) -> Done:
    """Prompt the far agent from a Python program."""
    argv = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        argv, cwd=far.cli.cwd, env=far.cli.env, capture_output=True, text=True, timeout=120
    )
    return Done(done.returncode, done.stdout, done.stderr)


def said(done: Done) -> str:
    """The error of a command that failed."""
    assert done.code == 1 and "Traceback" not in done.err, done
    return " ".join(done.err.split())


def refusals(far: FarMachine, *doors: tuple[str, ...]) -> Iterator[str]:
    """Run commands, which all fail, and yield their errors; at the end that of a program."""
    for words in doors:
        yield said(far.cli.child(*words))
    yield said(connected(far))
    assert far.prompts() == []


# -- Python and git


def test_without_python_every_command_says_so_and_what_to_install(
    far: FarMachine, repo: Path
) -> None:
    with far.only_programs(*TOOLS):
        for asked in (CHECK, BOOTSTRAP, (*CHECK, "--format", "json")):
            error = said(far.cli.child(*asked))
            assert "box: Python was not found (python3, python3.14, " in error
            assert "dragoman needs Python 3.11 or newer" in error
            assert "apt install python3" in error and "--python PATH" in error
            assert "sending" not in error
        for error in refusals(far, RUN, JOBS, SEND, DELEGATE):
            assert f"box: the Python of {far.dragoman} was not found there: " in error
            assert "install Python there" in error and "dragoman hosts bootstrap box" in error


def test_without_git_only_sending_files_fails(far: FarMachine, repo: Path) -> None:
    with far.only_programs(*TOOLS, os.path.basename(far.base_python)):
        checked = far.cli.child(*CHECK)
        assert checked.code == 0, checked
        assert "warning  git: not installed\n" in checked.out and "install git" in checked.out
        for error in (said(far.cli.child(*SEND)), said(far.cli.child("hosts", "send", "box"))):
            assert "box: git cannot be used there: " in error and "install git there" in error
        for words in (RUN, DELEGATE):
            done = far.cli.child(*words)
            assert done.code == 0 and "far answer to: hello" in done.out, done
        assert far.cli.child("peers", "enable", "far@box").code == 0
        routed = far.cli.child("delegate", "review", "hello", "--no-fallback")
        assert routed.code == 1 and "box: git cannot be used there" in routed.err, routed
    assert not list(far.home.glob(".local/state/dragoman/sent/trees/*"))


# -- the disk


def test_a_read_only_home_is_reported_by_every_command(far: FarMachine, repo: Path) -> None:
    with mounted(far.home, "--bind", str(far.home)):
        words = ["mount", "-o", "remount,bind,ro", str(far.home)]
        subprocess.run(words, check=True, capture_output=True)
        checked = far.cli.child(*CHECK)
        assert checked.code == 1
        assert f"missing  disk: {far.home} is not writable\n" in checked.out
        *errors, program_error = refusals(far, RUN, JOBS, SEND, DELEGATE)
        for error in errors:
            assert "box: a file there cannot be used: " in error
            assert "Read-only file system" in error and "mounted writable" in error
        assert "cannot be written to" in program_error and "hosts check box" in program_error
        error = said(far.cli.child(*BOOTSTRAP, "--python", far.python))
        assert "Read-only file system" in error
        assert "make ~/.local/share there writable" in error


@contextmanager
def full_disk(far: FarMachine) -> Iterator[None]:
    """The state of the far dragoman is on a small disk, which is full to the last block."""
    disk = far.home / "small"
    disk.mkdir()
    options = f"size=64k,uid={far.uid},gid={far.gid},mode=700"
    wrapped = f'#!/bin/sh\nexport DRAGOMAN_STATE_HOME={disk}\nexec {far.dragoman} "$@"\n'
    try:
        with mounted(disk, "-t", "tmpfs", "-o", options, "tmpfs"), program(far, wrapped):
            far.as_far("sh", "-c", f"cat /dev/zero > {disk}/filler", check=False)
            yield
    finally:
        disk.rmdir()


def test_a_full_disk_is_reported_by_every_command(far: FarMachine, repo: Path) -> None:
    with full_disk(far):
        for error in refusals(far, RUN, JOBS, SEND, DELEGATE):
            assert "box: the disk there is full: " in error and "free some space there" in error


# -- dragoman


def other(far: FarMachine, protocol: int) -> str:
    """A dragoman of an old version, with another protocol number."""
    code = (
        "import sys, dragoman.version; from dragoman.broker import host_protocol as p; "
        f'p.PROTOCOL = {protocol}; dragoman.version.__version__ = "0.0.9"; '
        "from dragoman.cli.entry import run; run(sys.argv[1:])"
    )
    return f"#!/bin/sh\nexec {far.python_program} -c '{code}' \"$@\"\n"


@pytest.mark.parametrize("protocol", [0, 99])
def test_another_protocol_number_is_reported_by_every_command(
    far: FarMachine, protocol: int
) -> None:
    with program(far, other(far, protocol)):
        for words in (RUN, JOBS, DELEGATE, ("jobs", "watch", "last", "--host", "box")):
            error = said(far.cli.child(*words))
            assert f"dragoman 0.0.9 there speaks protocol {protocol}, but dragoman " in error
            assert "dragoman hosts bootstrap box" in error
        checked = far.cli.child(*CHECK, "--format", "json")
    assert far.prompts() == []
    assert checked.code == 1
    (found,) = [each for each in json.loads(checked.out)["findings"] if each["name"] == "dragoman"]
    assert found["state"] == "missing" and f"speaks protocol {protocol};" in found["text"]
    assert "dragoman hosts bootstrap box" in found["remedy"]


def test_a_dragoman_without_these_commands_is_too_old_for_every_command(
    far: FarMachine, repo: Path
) -> None:
    text = (
        '#!/bin/sh\n[ "$1" = --version ] && exec echo dragoman 0.0.1\n'
        "echo 'Usage: dragoman [OPTIONS] COMMAND [ARGS]...' >&2\n"
        "echo \"Error: No such command '$2'.\" >&2\nexit 2\n"
    )
    with program(far, text):
        for error in refusals(far, RUN, JOBS, SEND, DELEGATE):
            assert "dragoman there is too old" in error
            assert "dragoman hosts bootstrap box" in error
        checked = far.cli.child(*CHECK)
    assert checked.code == 1 and "version 0.0.1, is too old for `--host`" in checked.out


# -- the shell

NOISE = "echo Welcome; printf '{}\\nno end'; echo 'quiet hours' >&2"
FAREWELL = "echo Goodbye; printf 'no end'; echo 'see you' >&2"


def test_output_of_the_shell_at_login_and_at_exit_does_not_matter(
    far: FarMachine, repo: Path
) -> None:
    with far.talkative_shell(NOISE, at_exit=FAREWELL):
        for words in (RUN, DELEGATE):
            done = far.cli.child(*words)
            assert (done.code, done.out) == (0, "far answer to: hello\n"), done
        assert far.cli.child(*JOBS).code == 0
        assert connected(far) == Done(0, "far answer to: hello\n", "")
        write = ("--host", "box", "run", "far", "write made.txt", "--send", "--fetch")
        done = far.cli.child(*write, "--approve-all")
        assert (done.code, done.out) == (0, "wrote made.txt\n"), done
        assert (repo / "made.txt").read_text() == "written on the far machine\n"
        assert far.cli.child(*CHECK).code == 0


def test_an_error_has_its_reason_and_not_the_last_line_of_the_shell(
    far: FarMachine, repo: Path
) -> None:
    far.name_host(dragoman="/nowhere/dragoman")
    with far.talkative_shell(NOISE, at_exit=FAREWELL):
        for error in refusals(far, RUN, SEND):
            _, found, reason = error.rpartition(
                "/nowhere/dragoman or its Python was not found there"
            )
            assert found and "/nowhere/dragoman" in reason and "see you" not in reason
        error = said(far.cli.child(*CHECK, "--python", "/nowhere/python"))
        assert "Python was not found (/nowhere/python)" in error
