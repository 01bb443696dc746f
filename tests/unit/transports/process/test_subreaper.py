"""A supervisor adopts what is left below the process it watches, and ends it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dragoman.errors
from dragoman.transports.process import subreaper
from dragoman.transports.process.subreaper import become_subreaper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")

TIMEOUT = 20.0

PROGRAM = """
import os, signal, subprocess, sys
from dragoman.transports.process.subreaper import supervise

def start(**environment):
    "A process that leaves its parents, its session and its environment."
    inner = "import time; time.sleep(120)"
    outer = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-I', '-S', '-c', "
        + repr(inner) + "], start_new_session=True, env=" + repr(environment)
        + ", stdout=-3, stderr=-3).pid)"
    )
    return int(subprocess.check_output([python, "-I", "-S", "-c", outer], env={}))

python = sys.executable
BEGIN
supervise()
lost, meant = start(), start(DRAGOMAN_MARK="detached")
print(os.getppid(), lost, meant, flush=True)
END
"""


def wait_dead(pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    try:
        assert poll.poll(TIMEOUT * 1000), f"process {pid} does not die"
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("end", "begin"),
    [
        ("sys.exit()", ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", ""),
        ("sys.exit()", "sys.executable, python = '', sys.executable"),
    ],
)
def test_what_has_left_everything_but_its_parents_is_ended_with_the_program(
    end: str, begin: str
) -> None:
    source = str(Path(dragoman.errors.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("END", end).replace("BEGIN", begin)],
        env={"PYTHONPATH": source},
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    supervisor, lost, meant = map(int, done.stdout.split())
    try:
        wait_dead(lost)
        # It holds none of the program's files, so that the above may come before its end.
        wait_dead(supervisor)
        # What is meant to outlive its starter does.
        os.kill(meant, 0)
    finally:
        os.kill(meant, signal.SIGKILL)


def test_without_a_subreaper_the_program_goes_on_in_its_own_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not become_subreaper()
    before = os.getpid()
    subreaper.supervise()
    assert os.getpid() == before
