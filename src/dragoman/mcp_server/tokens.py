"""Create and read the bearer token file of the HTTP server.

The file is created once with mode 600 and refused if other users can read it. `http_guard` compares
the token.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.client.folders import make_private
from dragoman.config.safe_files import create_file
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.paths import Paths

TOKEN_SIZE: Final = 32
"""Random bytes of a token."""

MIN_SIZE: Final = 16
"""Characters below which a token could be guessed."""

MAX_SIZE: Final = 1024
"""Bytes of a file that are read: a token is short."""


def default_path(paths: Paths) -> Path:
    """The default path of the token file."""
    return paths.state / "mcp-token"


def token_in(path: Path) -> str:
    """The token in a file, which is made if there is none. Raises `UsageError`."""
    try:
        with contextlib.suppress(FileExistsError):
            _make(path)
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise UsageError(f"the token cannot be kept in {path}: {error.strerror}") from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"others can read the token in {path}: chmod 600 it, or make a new one")
    try:
        token = text.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not MIN_SIZE <= len(token) <= MAX_SIZE or not token.isprintable() or " " in token:
        raise UsageError(f"{path} holds no token: delete it, and one is made")
    return token


def _make(path: Path) -> None:
    make_private(path.parent)
    if os.path.exists(path):
        raise FileExistsError
    # Whole or not at all: another server may look at the same moment.
    create_file(path, [secrets.token_urlsafe(TOKEN_SIZE).encode() + b"\n"])
