"""Run the user's check command in the workspace after a turn: timeout, exit code, output tail.

The command runs code that the peer has just written, such as a changed test. It therefore gets the
reduced environment of a child process, without secrets.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.client.services.terminals import TIMES, ExitStatus, Terminals
from dragoman.client.services.workspace import Workspace
from dragoman.errors import DragomanError, UsageError
from dragoman.runs.git import real

CHECK_TIMEOUT: Final = 900.0
"""Default timeout in seconds of a check: enough for a large test suite, but bounded if it hangs."""

TAIL_SIZE: Final = 16 * 1024
"""Number of bytes of output to keep: the end, where test runners report failures."""

INHERITED: Final = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "NODE_PATH", "JAVA_HOME", "GOPATH")
"""Variables that locate a project's tools: a check needs them, and a peer does not get them."""


class CheckResult(Struct, frozen=True, kw_only=True):
    """Result of a check."""

    command: str
    ok: bool
    exit_code: int | None = None
    signal: str | None = None
    """The signal that killed the check, or None."""
    timed_out: bool = False
    tail: str = ""
    """The end of its output."""
    seconds: float = 0.0
    problem: str = ""
    """Why it could not be run, or that it took too long; empty otherwise."""


async def run_check(
    command: str,
    workspace: Path,
    *,
    timeout: float = CHECK_TIMEOUT,
) -> CheckResult:
    """Run a shell command line in the workspace and wait for its exit, or kill it at the timeout.

    A check that cannot be run counts as failed, and the result says why. Raises `UsageError` only
    for an empty command.
    """
    if not command.strip():
        raise UsageError("the check command is empty")
    started = time.monotonic()
    # The real path, because a workspace may be a symbolic link to a directory.
    try:
        place = Workspace([real(workspace)])
        terminals = Terminals(place, output_size=TAIL_SIZE, inherit=INHERITED)
    except DragomanError as error:
        return CheckResult(command=command, ok=False, problem=str(error))
    timed_out = False
    try:
        program, *args = _shell(command)
        terminal_id = await terminals.create(program, args)
        try:
            async with asyncio.timeout(timeout):
                status = await terminals.wait_for_exit(terminal_id)
        except TimeoutError:
            timed_out = True
            await terminals.kill(terminal_id)
            try:
                async with asyncio.timeout(TIMES.kill_timeout):
                    status = await terminals.wait_for_exit(terminal_id)
            except TimeoutError:
                status = ExitStatus(None, None)
        tail = terminals.output(terminal_id).output
    except DragomanError as error:
        return CheckResult(command=command, ok=False, problem=str(error))
    finally:
        await terminals.aclose()
    return CheckResult(
        command=command,
        ok=status.exit_code == 0 and not timed_out,
        exit_code=status.exit_code,
        signal=status.signal,
        timed_out=timed_out,
        tail=tail,
        seconds=time.monotonic() - started,
        problem=f"it did not end within {timeout:g} s" if timed_out else "",
    )


def _shell(command: str, platform: str = sys.platform) -> list[str]:
    if platform == "win32":
        return ["cmd.exe", "/d", "/s", "/c", command]
    return ["/bin/sh", "-c", command]
