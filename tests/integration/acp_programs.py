"""Agents for tests, given as text and run as programs of their own."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import dragoman
from dragoman.client.acp import AcpClient, ClientOptions, use_agent
from dragoman.testing.scripted import Expect, Reply, Step, command
from dragoman.transports import spawn
from dragoman.transports.process.child import ShutdownTimes
from dragoman.transports.process.stream import DEFAULT_TIMES

TIMEOUT = 30.0
"""Seconds until a wait is a failure; the machine may be busy with other tests."""

ENVIRONMENT = {"PYTHONPATH": str(Path(dragoman.__file__).parents[1])}
"""Where a child finds dragoman, installed or not."""

HANDSHAKE: tuple[Step, ...] = (
    Expect("initialize"),
    Reply({"protocolVersion": 1, "agentCapabilities": {}}),
    Expect("session/new"),
    Reply({"sessionId": "s1"}),
)
"""How a scripted agent begins: with a session "s1"."""


def program(text: str) -> list[str]:
    """The command for an agent that is written with dragoman."""
    return [sys.executable, "-c", textwrap.dedent(text)]


def scripted(*steps: Step) -> list[str]:
    """The command for an agent that opens a session and then follows the script."""
    return command(*HANDSHAKE, *steps)


class Child:
    """The process of an agent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @property
    def is_running(self) -> bool:
        return os.path.exists(f"/proc/{self.pid}")

    @property
    def peak_memory_size(self) -> int:
        """The most memory it ever had, in bytes."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        raise AssertionError("there is no peak")


@asynccontextmanager
async def running(
    argv: list[str], options: ClientOptions | None = None, *, times: ShutdownTimes = DEFAULT_TIMES
) -> AsyncIterator[tuple[AcpClient, Child]]:
    """An agent as a child process, and its client."""
    stream = await spawn(argv, env=ENVIRONMENT, times=times)
    async with use_agent(stream, options=options) as client:
        yield client, Child(stream.pid)
