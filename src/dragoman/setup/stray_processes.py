"""Find processes that outlived the dragoman that started them (Linux only).

A child carries its owner's id in its environment (DRAGOMAN_MARK), and each live owner has a warden
process with that id. Kills nothing, because a process that is found may still be in use.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.transports.process import warden

MARK: Final = re.compile(rb"\0" + warden.MARK_NAME.encode() + rb"=([0-9a-f]+)\.[0-9]+\0")
WARDEN: Final = re.compile(rb"warden\.py\0([0-9a-f]+)\0")

MAX_SHOWN: Final = 160
"""Characters of a command line that are shown: an interpreter's path alone may take half."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process whose owner is gone."""

    pid: int
    command: str


def find_leftovers(proc: Path = Path("/proc"), *, platform: str = sys.platform) -> list[Leftover]:
    """The running processes with a mark whose owner's warden is gone."""
    if platform != "linux":
        return []
    lines = {pid: _read(proc / str(pid) / "cmdline") for pid in _processes(proc)}
    guarded = {found[1] for line in lines.values() if (found := WARDEN.search(line))}
    left: list[Leftover] = []
    for pid, line in sorted(lines.items()):
        mark = MARK.search(b"\0" + _read(proc / str(pid) / "environ") + b"\0")
        # A zombie process has no command line.
        if mark is not None and mark[1] not in guarded and line:
            words = line.decode("utf-8", "replace").replace("\0", " ").strip()
            left.append(Leftover(pid, words[:MAX_SHOWN]))
    return left


def _processes(proc: Path) -> list[int]:
    try:
        return [int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
