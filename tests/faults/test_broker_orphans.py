"""Processes of an agent that neither its mark nor its session identifies, and who ends them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.transports.process.identity import ProcessIdentity, ProcessState, identify, state_of
from dragoman.transports.process.warden import parent_of
from tests.integration.broker_places import wait_dead
from tests.integration.cli_shell import Cli, warm_cli

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")

TIMEOUT = 20.0


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def known(pid: int) -> ProcessIdentity:
    found = identify(pid)
    assert found is not None
    return found


def daemon_of(cli: Cli, *environment: str) -> tuple[ProcessIdentity, ProcessIdentity]:
    """Start the broker, and a process below its agent in another session, with no environment or
    with this one."""
    words = ("-s", "talk", "--approve-reads", "--format", "quiet", "--", *cli.agent)
    done = cli("run", " ".join(("daemon", *environment)), *words)
    assert done.code == 0, done.err
    (broker,) = map(json.loads, cli("broker", "list", "--format", "json").out.splitlines())
    return known(broker["pid"]), known(int(done.out))


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_process_that_left_everything_ends_with_the_broker(warm: Cli, how: str) -> None:
    broker, daemon = daemon_of(warm)
    supervisor = known(parent_of(broker.pid))
    if how == "stopped":
        assert warm.child("broker", "stop", "--all").code == 0
    else:
        os.kill(broker.pid, signal.SIGKILL)
    try:
        wait_dead(daemon)
    finally:
        if state_of(daemon) is ProcessState.ALIVE:
            os.kill(daemon.pid, signal.SIGKILL)
    wait_dead(broker)
    wait_dead(supervisor)


def test_a_process_that_is_meant_to_stay_outlives_agent_broker_and_supervisor(warm: Cli) -> None:
    broker, daemon = daemon_of(warm, "DRAGOMAN_MARK=detached")
    try:
        supervisor = known(parent_of(broker.pid))
        os.kill(broker.pid, signal.SIGKILL)
        wait_dead(broker)
        wait_dead(supervisor)
        assert state_of(daemon) is ProcessState.ALIVE
    finally:
        os.kill(daemon.pid, signal.SIGKILL)
    wait_dead(daemon)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def wardens_of(pid: int) -> list[int]:
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdecimal()
        and parent_of(int(path.name)) == pid
        and b"warden.py" in read(path / "cmdline")
    ]


def test_a_warden_that_is_killed_is_replaced_while_the_agent_lives(warm: Cli) -> None:
    broker, daemon = daemon_of(warm)
    [first] = wardens_of(broker.pid)
    os.kill(first, signal.SIGKILL)
    give_up_at = time.monotonic() + TIMEOUT
    while (found := wardens_of(broker.pid)) in ([], [first]):
        assert time.monotonic() < give_up_at, "the warden was not replaced"
    assert len(found) == 1
    os.kill(broker.pid, signal.SIGKILL)
    wait_dead(daemon)


def test_a_warden_that_is_stopped_does_not_outlive_its_broker(warm: Cli) -> None:
    broker, daemon = daemon_of(warm)
    [warden] = map(known, wardens_of(broker.pid))
    os.kill(warden.pid, signal.SIGSTOP)
    try:
        os.kill(broker.pid, signal.SIGKILL)
        wait_dead(daemon)
        wait_dead(warden)
    finally:
        if state_of(warden) is ProcessState.ALIVE:
            os.kill(warden.pid, signal.SIGKILL)
