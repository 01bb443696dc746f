"""Prepare stdin, stdout and stderr of the process at startup, and flush them at exit.

A closed stream is opened on the null device, and characters that the encoding lacks never raise.
`leave` ends the process without the interpreter's teardown. Writing is in `cli.output`.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from typing import Final

NAMES: Final = ("stdin", "stdout", "stderr")


def prepare() -> None:
    """Make the streams of this process usable, whoever started it."""
    for number, name in enumerate(NAMES):
        stream = getattr(sys, name)
        if stream is None:
            _open_nowhere(number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))
        elif isinstance(stream, io.TextIOWrapper):
            # What is no text is refused where it is used, with words that name it.
            stream.reconfigure(errors="backslashreplace" if number else "surrogateescape")
    from dragoman.cli.output import python_messages

    python_messages.install()


def _open_nowhere(number: int) -> None:
    """Take the number of a closed stream: else the pipe of an agent may get it, and whatever is
    written to the stream goes to the agent."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(nowhere, number)
        os.close(nowhere)


def leave(code: int) -> None:
    """End the process with everything written, without taking its modules apart one by one: that
    takes as long as a fifth of a short command. Returns where that cannot be done safely."""
    if threading.active_count() > 1:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    # What was registered for the end of the process is done all the same.
    atexit._run_exitfuncs()
    os._exit(code)
