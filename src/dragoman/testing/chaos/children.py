"""The processes that a chaos agent starts: MCP servers, commands, and those it leaves behind.

Starts them by plain fork, because this program stands for agents that do not use dragoman's process
handling. The agent and what it leaves behind end after `LIFE_LIMIT` seconds at the latest. Not for
Windows.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from dragoman.transports.process.environment import find_program

LIFE_LIMIT: Final = 120
"""Seconds after which an agent and everything it left behind end in any case."""


def limit_life() -> None:
    """Set an alarm that ends this process after `LIFE_LIMIT` seconds, in case its parent loses
    it."""
    if hasattr(signal, "alarm"):
        signal.alarm(LIFE_LIMIT)


def leave_behind(*, daemon: bool) -> None:
    """Leave a process behind that holds none of our pipes; a `daemon` has its own session."""
    if os.fork() == 0:
        if daemon:
            os.setsid()
        limit_life()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        stay()


def stay() -> NoReturn:
    """Sleep until killed."""
    while True:
        signal.pause()


def run(command: str, *, cwd: str) -> int:
    """Run a command in a shell and return its exit code."""
    pid = os.fork()
    if pid == 0:
        _become(["/bin/sh", "-c", command], cwd=cwd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class McpServer:
    """A running MCP server, connected by pipes."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, cwd: str) -> None:
        source, self._input = os.pipe()
        self.output, sink = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(source, 0)
            os.dup2(sink, 1)
            _become(argv, cwd=cwd, env=env)
        os.close(source)
        os.close(sink)

    def ask(self, line: bytes) -> bytes:
        """Send a line, and return the output that follows, until it ends with a newline or the
        server closes it."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._input, line + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            data = os.read(self.output, 4096)
            if not data:
                break
            answer += data
        return answer

    def end(self) -> None:
        """Close the pipes to the server and wait for its exit."""
        os.close(self._input)
        os.close(self.output)
        os.waitpid(self.pid, 0)


def _become(argv: Sequence[str], *, cwd: str, env: Mapping[str, str] | None = None) -> NoReturn:
    try:
        os.chdir(cwd)
        # The new program must not inherit any of our pipes.
        os.closerange(3, 256)
        environment = {**os.environ, **(env or {})}
        os.execve(find_program(argv[0], environment=environment), [*argv], environment)
    finally:
        os._exit(127)
