"""Advisory locks on open files: `flock`, and on Windows one locked byte far beyond the content.

The lock belongs to the open file, so the end of the process releases it. Callers decide what to
lock and how long to wait; `broker.lock` has lock files.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final

LOCKED_BYTE: Final = 1 << 30
"""Offset of the byte that is locked on Windows, where a locked byte cannot be read."""

RETRY_INTERVAL: Final = 0.01
"""Seconds between two attempts: no system can wait for a lock with a timeout."""


def take_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting. Returns False if the file is locked through another
    opening of it.

    `shared` locks do not exclude each other (except on Windows). Raises `OSError` if the file
    system does not support locks; on Windows, returns False instead.
    """
    if sys.platform == "win32":
        import msvcrt

        os.lseek(fd, LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(fd: int, *, timeout: float) -> bool:
    """Lock an open file exclusively, blocking the thread for at most `timeout` seconds. Returns
    False if another holder still has the lock after that time. Raises what `take_lock` does."""
    give_up_at = time.monotonic() + timeout
    while not take_lock(fd):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(RETRY_INTERVAL)
    return True
