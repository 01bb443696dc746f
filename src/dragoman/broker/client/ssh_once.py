"""Run one command on another machine, with given bytes on its stdin and a limit on its output.

Used for scripts that inspect or set up a machine, and for bundles and patches. `ssh_command` builds
the command line and explains failures of ssh; the module `ssh` has the connection that stays open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from dragoman.broker.client.ssh_command import (
    OWN_ERROR,
    QUIET_REMEDY,
    Host,
    explain_exit,
    explain_spawn,
    reason,
    ssh_command,
)
from dragoman.errors import HostUnavailable, ProcessExited, SpawnError
from dragoman.transports.process.query import ProgramOutput, run_program

SSH_FAILED = 255
"""The exit code of ssh for its own failures."""


async def run_on_host(
    host: Host,
    words: Sequence[str],
    *,
    timeout: float,
    limit_size: int,
    input: Iterable[bytes] = (),
) -> ProgramOutput:
    """Run a command on a host, and return its exit code and output. The output is incomplete if the
    command exceeded a limit; `failure` explains that and every other failure. Raises
    `HostUnavailable` if ssh cannot be started, and `UsageError` if the host's destination is not
    allowed."""
    try:
        return await run_program(
            ssh_command(host, words),
            cwd="/",
            timeout=timeout,
            limit_size=limit_size,
            # ssh is the user's own program and gets the complete environment, as from a shell.
            inherit=tuple(os.environ),
            input=input,
        )
    except SpawnError as error:
        raise explain_spawn(host, error) from error


def failure(host: Host, done: ProgramOutput, *, timeout: float, limit_size: int) -> HostUnavailable:
    """Return the error for a command that did not answer as expected, with a remedy. `timeout` and
    `limit_size` are those that it ran with."""
    if done.cut and len(done.output) >= limit_size:
        return HostUnavailable(
            host.name,
            "the login shell prints too much",
            remedy=QUIET_REMEDY,
        )
    if done.cut:
        return HostUnavailable(
            host.name,
            f"no answer within {timeout:g} s",
            remedy="try again, or check whether the machine is overloaded",
            passing=True,
        )
    if done.exit_code in (SSH_FAILED, 126, 127):
        return explain_exit(host, ProcessExited(exit_code=done.exit_code, stderr_tail=done.errors))
    said = done.errors if done.errors.strip() else done.output.decode("utf-8", "replace")
    last = reason(said, OWN_ERROR, "Error: ").removeprefix(OWN_ERROR)
    return HostUnavailable(
        host.name,
        f"the command failed there: {last or f'exit code {done.exit_code}'}",
        remedy=f"see what is installed there with `dragoman hosts check {host.name}`",
    )
