"""`connect("far", host="box")` in a Python program, over a real sshd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.hosts.far_machine import FarMachine

PROGRAM = """
import asyncio
from dragoman import connect
from dragoman.client.permissions import approve_all

async def main():
    opening = connect("far", host="box", permit=approve_all)
    async with opening as peer, peer.session() as session:
        for prompt in ("where", "ask"):
            async with session.prompt(prompt) as turn:
                await turn.wait()
            print(turn.result.text.strip())

asyncio.run(main())
"""


def test_a_program_prompts_a_peer_on_another_machine(far: FarMachine) -> None:
    # The last line that the shell prints has no end.
    with far.talkative_shell("printf 'Welcome\\n{}\\nno end'"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=far.cli.cwd,
            env=far.cli.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"in {far.work} as {far.home}", "step 1 allowed"]
    assert far.prompts() == ["where", "ask"]
    assert not far.wait_until_gone("broker attach")


KEPT = """
import asyncio, time
from dragoman import connect
from dragoman.broker.client import attach

attach.PING_INTERVAL, attach.SILENCE_TIMEOUT = 0.2, 3.0

async def main():
    async with connect("far", host="box") as peer, peer.session() as session:
        for prompt in PROMPTS:
            async with session.prompt(prompt) as turn:
                async for event in turn:
                    print(type(event).__name__, flush=True)
            print(turn.result.text.strip(), flush=True)
            # The loop is blocked for longer than the connection may be silent.
            time.sleep(6)

asyncio.run(main())
"""
"""A program whose connection counts as dead after 3 seconds without a sign of life."""


@contextmanager
def started(far: FarMachine, *prompts: str) -> Iterator[subprocess.Popen[str]]:  # noqa: TID251
    """Run the program with these prompts, until the block ends."""
    with subprocess.Popen(  # noqa: TID251 - ended below
        [sys.executable, "-c", KEPT.replace("PROMPTS", repr(prompts))],
        cwd=far.cli.cwd,
        env=far.cli.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_program_that_blocks_its_event_loop_stays_connected(far: FarMachine) -> None:
    with started(far, "where", "hello") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "far answer to: hello" in out
    assert far.prompts() == ["where", "hello"]


def test_after_a_silently_lost_connection_only_its_process_there_ends(far: FarMachine) -> None:
    prompt = "count 500 0.02"
    with started(far, prompt) as process:
        assert process.stdout is not None
        assert "MessageDelta\n" in iter(process.stdout.readline, "")
        there = far.processes(containing="broker attach")
        stopped = far.ssh_processes()
        assert there and stopped
        # Nothing arrives there any more, and nothing says that the connection has ended.
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            assert not far.wait_until_gone("broker attach")
            assert far.processes(containing="far_agent.py")
            # The turn continues to its end.
            far.wait_until(lambda: "<500>" in far.far_dragoman("sessions", "show", "last").out)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGKILL)
    assert far.prompts() == [prompt]
