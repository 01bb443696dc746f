"""Find the command line with which another program starts this installation of dragoman.

Uses the full path of the installed command, because the PATH of an editor started from a desktop
differs from that of a shell. Without an installed command, uses the interpreter
with ``-m dragoman``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

NAME: Final = "dragoman"


def this_program(argv0: str | None = None, *, interpreter: str | None = None) -> tuple[str, ...]:
    """Return the command line that starts this installation of dragoman, with a full path.

    A symbolic link is not resolved, because its target changes with every upgrade.
    """
    called = Path(os.path.abspath(sys.argv[0] if argv0 is None else argv0))
    python = sys.executable if interpreter is None else interpreter
    if called.stem == NAME and _runs(called):
        return (str(called),)
    beside = Path(python).with_name(NAME + (".exe" if sys.platform == "win32" else ""))
    if _runs(beside):
        return (str(beside),)
    return (python, "-m", NAME)


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
