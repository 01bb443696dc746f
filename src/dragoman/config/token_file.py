"""The bearer token of a server, which is stored in a file.

Any user of the machine can reach a port of it, hence the token. Its file is created once with mode
600, and refused if other users can read it. `acp_server.listener` and `mcp_server.http_guard`
compare the token that a client sends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from dragoman.client.folders import make_private
from dragoman.config.safe_files import create_file
from dragoman.errors import UsageError

TOKEN_SIZE: Final = 32
"""Number of random bytes in a token."""

MIN_SIZE: Final = 16
"""Minimum length of a token, in characters: a shorter one could be guessed."""

MAX_SIZE: Final = 1024
"""Maximum number of bytes read from a file: a token is short."""


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(TOKEN_SIZE)


def token_in(path: Path) -> str:
    """Return the token in a file, which is created if it does not exist. Raises `UsageError`."""
    try:
        with contextlib.suppress(FileExistsError):
            _make(path)
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise UsageError(f"the token cannot be stored in {path}: {error.strerror}") from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise UsageError(
            f"other users can read the token in {path}: delete the file to create a new token"
        )
    try:
        token = text.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not MIN_SIZE <= len(token) <= MAX_SIZE or not token.isprintable() or " " in token:
        raise UsageError(f"{path} contains no valid token: delete the file to create one")
    return token


def _make(path: Path) -> None:
    make_private(path.parent)
    if os.path.exists(path):
        raise FileExistsError
    # Completely or not at all: another server may read it at the same moment.
    create_file(path, [new_token().encode() + b"\n"])
