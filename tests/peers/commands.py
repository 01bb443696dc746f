"""Running `dragoman` as a command, in the surroundings of a user who has the real agents.

Owns the process and what is looked at afterwards. Processes that a command leaves behind do not
carry the mark of these tests but that of the command, so they are found by their home.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.transports.process.warden import list_processes, read_environ

CHECKOUT = Path(__file__).resolve().parents[2]

COMMAND = [sys.executable, "-m", "dragoman"]

RUN_TIMEOUT = 50.0
"""Seconds for a whole command, the agent's start included; a test has sixty."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that is over."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it wrote as lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def surroundings(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which this very dragoman is found. Agents are kept only where a test says
    so."""
    return {"DRAGOMAN_WARM": "0", **environment, "PYTHONPATH": str(CHECKOUT / "src")}


async def dragoman(
    *words: str, cwd: Path, environment: Mapping[str, str], timeout: float = RUN_TIMEOUT
) -> Ended:
    """Run a command to its end, while whoever it talks with goes on in this event loop."""
    ended = await asyncio.to_thread(
        subprocess.run,
        [*COMMAND, *words],
        cwd=cwd,
        env=surroundings(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def living_in(home: Path) -> list[int]:
    """The processes whose home this is."""
    needle = b"\0" + f"HOME={home}".encode() + b"\0"
    return [pid for pid in list_processes() if needle in b"\0" + read_environ(pid) + b"\0"]
