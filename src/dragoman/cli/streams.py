"""The three streams of the process, so that every command may count on them.

Owns what is done to them before anything else: one that was closed leads nowhere, and no character
ends a command because the encoding lacks it. What is written there is the business of `output`.
"""

from __future__ import annotations

import io
import os
import sys
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


def _open_nowhere(number: int) -> None:
    """Take the number of a closed stream: else the pipe of an agent may get it, and whatever is
    written to the stream goes to the agent."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(nowhere, number)
        os.close(nowhere)
