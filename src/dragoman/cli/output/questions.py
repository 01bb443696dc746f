"""Asking a person on the terminal, for commands that run without an event loop.

Owns the question that is answered with yes or no. Without a terminal nobody can answer, and that is
an error that names the option to use instead. What is asked while an agent works is in
`dragoman.cli.permitting`.
"""

from __future__ import annotations

import sys

from dragoman.cli.output.neutral import neutral
from dragoman.cli.output.terminal import is_interactive
from dragoman.errors import UsageError


def confirm(question: str, *, instead: str, default: bool = False) -> bool:
    """Ask a person; `instead` is the option that answers in advance, such as ``--yes``.

    The end of input is a no, and Ctrl-C goes up as `KeyboardInterrupt`.
    """
    if not is_interactive():
        raise UsageError(f"{question} Nobody is there to answer: add {instead}")
    choices = "[Y/n]" if default else "[y/N]"
    while True:
        # On stderr: whoever keeps the output of a command does not want our questions in it.
        sys.stderr.write(f"{neutral(question)} {choices} ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            sys.stderr.write("\n")
            return False
        match line.strip().lower():
            case "":
                return default
            case "y" | "yes":
                return True
            case "n" | "no":
                return False
