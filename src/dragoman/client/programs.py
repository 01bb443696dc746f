"""Check the command line of an agent's program, and identify the program for a cache.

A program is identified by the real path of its file, its size and its modification time.
`dragoman.dialects.discovery` defines the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

from dragoman.dialects.discovery import Program
from dragoman.errors import UsageError
from dragoman.transports.process.environment import which


def program_of(argv: Sequence[str]) -> Program | None:
    """Return the cache identity of a program, or None if there is no such file. If its first
    argument is a file, such as the script of an interpreter, that file is the program."""
    # For an interpreter with a script, the script is the program.
    script = argv[1] if len(argv) > 1 and os.path.isfile(argv[1]) else None
    path = script or which(argv[0])
    if path is None:
        return None
    info = os.stat(path)
    return Program(os.path.realpath(path), info.st_size, info.st_mtime_ns)


def program_at(address: str) -> Program:
    """Return the cache identity of the program at an address.

    The address may contain a secret, so only its digest is kept.
    """
    return Program(f"address {_digest(address)}", 0, 0)


def launch_of(argv: Sequence[str], folder: str | os.PathLike[str] = "") -> str:
    """Return a digest that distinguishes launches of one program, which may speak different
    dialects. It covers the arguments, and the size and modification time of the first file among
    them. Relative paths start at `folder`, where the program is started. Arguments may contain
    secrets, so only the digest is kept."""
    words = list(argv[1:])
    for word in words:
        # For an interpreter with options, the first file is the program.
        with contextlib.suppress(OSError, ValueError):
            info = os.stat(os.path.join(folder, word))
            if stat.S_ISREG(info.st_mode):
                words.append(f"{info.st_size} {info.st_mtime_ns}")
                break
    return _digest("\0".join(words))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def require_words(target: object) -> None:
    """Raise `UsageError` unless the target is an address or the arguments of a command line."""
    if isinstance(target, os.PathLike):
        raise UsageError(
            f"a command line is a list of strings: pass [{os.fspath(target)!r}] for this program, "
            "not its path alone"
        )
    if isinstance(target, bytes | Mapping | Set) or not isinstance(target, Iterable):
        kind = type(target).__name__
        raise UsageError(
            f"an agent is an address (a string) or a command line (a list), not {kind}"
        )
    words = list(target)
    if strange := [word for word in words if not isinstance(word, str)]:
        raise UsageError(f"the arguments of a command line must be strings; {strange[0]!r} is not")
    if len(words) == 1 and len(words[0].split()) > 1 and not Path(words[0]).exists():
        raise UsageError(
            f"pass each word of a command line as an item of the list: {words[0].split()!r}"
        )
