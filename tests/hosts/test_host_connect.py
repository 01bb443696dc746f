"""`connect("far", host="box")` in a Python program, over a real sshd."""

from __future__ import annotations

import subprocess
import sys

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
