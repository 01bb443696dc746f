"""Find the local process at the other end of a loopback TCP connection (Linux, via /proc).

A stdio server inherits the delegation depth from its parent. An HTTP server has to look up its
caller; otherwise delegated work could delegate without limit. `runs.lineage` reads the caller's
environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from dragoman.transports.process.identity import PROC

LOOPBACK: Final = ("0100007F", "0000000000000000FFFF00000100007F")
"""127.0.0.1 as the kernel writes it, alone and inside an IPv6 address."""


def caller_of(port: int, *, proc: Path = PROC) -> int | None:
    """Return the id of the process that is connected from this port of 127.0.0.1. None if it is not
    found or is this process, if its descriptors cannot be read, and on systems other than Linux."""
    if sys.platform != "linux":
        return None
    wanted = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not wanted:
        return None
    own = os.getpid()
    for folder in proc.iterdir():
        if not folder.name.isdigit() or int(folder.name) == own:
            continue
        if any(link in wanted for link in _links(folder / "fd")):
            return int(folder.name)
    return None


def _links(folder: Path) -> Iterator[str]:
    """Yield what the file descriptors in a ``/proc/…/fd`` directory refer to, if readable."""
    # The process may belong to another user, or exit in the meantime.
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                yield os.readlink(folder / name)


def _inodes(port: int, proc: Path) -> Iterator[str]:
    ends = {f"{address}:{port:04X}" for address in LOOPBACK}
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                words = line.split()
                # The inode is 0 when the connection is closed and only its kernel memory is left.
                if len(words) > 9 and words[1] in ends and words[9] != "0":
                    yield words[9]
