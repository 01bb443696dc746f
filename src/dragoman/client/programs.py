"""What a command line is for a cache: which program, and started how.

Owns what identifies a program: the real path of its file, its size and when it was changed. It does
not know what is remembered of one; `dragoman.dialects.discovery` has the cache's shape.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from dragoman.dialects.discovery import Program
from dragoman.transports.programs import which


def program_of(argv: Sequence[str]) -> Program | None:
    """What identifies a program for a cache; None if there is no such file."""
    # Of an interpreter with a script, the script is the program.
    script = argv[1] if len(argv) > 1 and os.path.isfile(argv[1]) else None
    path = script or which(argv[0])
    if path is None:
        return None
    info = os.stat(path)
    return Program(os.path.realpath(path), info.st_size, info.st_mtime_ns)


def launch_of(argv: Sequence[str]) -> str:
    """What tells two launches of one program apart: they may well speak two dialects, or be two
    programs of one interpreter. Arguments may hold secrets, so only their digest is kept."""
    words = "\0".join(argv[1:]).encode("utf-8", "surrogateescape")
    return hashlib.sha256(words).hexdigest()[:16]
