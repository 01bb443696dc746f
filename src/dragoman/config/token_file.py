"""The bearer token of a server: create and read its file, validate a token, and find it in a
request.

Every user of a machine can connect to its ports, hence the token. Its file is created once with
mode 600, and refused if other users can access it. `acp_server.listener` and
`mcp_server.http_guard` refuse the requests without it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
from collections.abc import Sequence
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
"""Maximum length of a token, in characters, and maximum number of bytes read from a file."""


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(TOKEN_SIZE)


def token_in(path: Path) -> str:
    """Return the token in a file, which is created if it does not exist. Raises `UsageError` if the
    file cannot be used, other users can access it, or it contains no valid token."""
    try:
        with contextlib.suppress(FileExistsError):
            _make(path)
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise UsageError(f"the token file {path} cannot be used: {error.strerror}") from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise UsageError(
            f"other users can access the token file {path}: delete it to create a new token"
        )
    return valid_token(
        text.decode("ascii", "replace"), str(path), remedy="delete the file to create a new token"
    )


def valid_token(text: str, origin: str, *, remedy: str) -> str:
    """Return the token in a text, without white space around it. Raises `UsageError`, which names
    the origin of the text, if it is not a token that a client can send."""
    token = text.strip()
    if len(token) < MIN_SIZE:
        problem = f"it is shorter than {MIN_SIZE} characters"
    elif len(token) > MAX_SIZE:
        problem = f"it is longer than {MAX_SIZE} characters"
    elif not (token.isascii() and token.isprintable()) or " " in token:
        problem = "it contains a space or a character that is not printable ASCII"
    else:
        return token
    raise UsageError(f"{origin} contains no valid token, because {problem}: {remedy}")


def has_token(headers: Sequence[str | bytes], token: str) -> bool:
    """Return whether a request has exactly one `Authorization` header, with the scheme Bearer in
    any case and this token. Several headers would be ambiguous."""
    if len(headers) != 1:
        return False
    header = headers[0]
    given = header if isinstance(header, bytes) else header.encode("utf-8", "backslashreplace")
    scheme, _, sent = given.partition(b" ")
    # Constant time: the duration must not reveal how many characters match.
    return scheme.lower() == b"bearer" and hmac.compare_digest(sent.strip(), token.encode())


def _make(path: Path) -> None:
    make_private(path.parent)
    if os.path.exists(path):
        raise FileExistsError
    # Completely or not at all: another server may read it at the same moment.
    create_file(path, [new_token().encode() + b"\n"])
