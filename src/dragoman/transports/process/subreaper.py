"""Supervise a long-lived process (a broker): adopt its orphans, and kill them when it ends.

As a subreaper, the supervisor becomes the parent of every orphan, even one that has neither mark
nor session (`strays`). The supervisor runs the code in `warden`, to use little memory. Linux only.
"""

from __future__ import annotations

import os
import signal
import sys

from dragoman.transports.process import warden

PR_SET_CHILD_SUBREAPER = 36
"""The number of this option of prctl(2), on every architecture."""


def become_subreaper() -> bool:
    """Make this process the parent of every orphan below it. Returns False if the kernel does not
    support that."""
    if sys.platform != "linux":
        return False
    try:
        # Slow to import, and only needed here.
        import ctypes

        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def supervise() -> None:
    """Continue in a child of this process, while this process stays to clean up after it.

    Returns in the child, or in this process if it cannot fork or adopt orphans.
    """
    if sys.platform == "win32" or not become_subreaper():
        return
    try:
        pid = os.fork()
    except OSError:
        return
    if pid == 0:
        return
    try:
        _stay_quiet()
        try:
            # A process stays a subreaper across exec, and the warden program uses little memory.
            words = [sys.executable, "-I", "-S", warden.__file__, warden.SUPERVISE, str(pid)]
            os.execve(words[0], words, {warden.MARK_NAME: warden.DETACHED})
        except (OSError, ValueError):
            warden.supervise(pid)
    finally:
        os._exit(0)


def _stay_quiet() -> None:
    """Release stdin, stdout and stderr, and ignore the signals that are meant for the program."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    if null > 2:
        os.close(null)
