"""Authorize HTTP requests to the MCP server with a bearer token that is stored in a file.

Any user of the machine can reach the port, hence the token. Its file is created once with mode 600,
and refused if other users can read it. `transports.http_guard` checks Host, Origin and size.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException

from dragoman.client.folders import make_private
from dragoman.config.safe_files import create_file
from dragoman.errors import UsageError
from dragoman.transports.http_guard import AddressGuard

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

    from dragoman.paths import Paths

PATH: Final = "/mcp"


class HttpGuard(AddressGuard):
    """ASGI middleware: accepts only requests to `PATH` that have the bearer token."""

    def __init__(self, inner: ASGIApp, *, token: str, **limits: Any) -> None:
        super().__init__(inner, **limits)
        self._token = token.encode()

    def authorize(self, scope: Scope) -> None:
        if not self._knows_token(scope["headers"]):
            challenge = {"www-authenticate": 'Bearer realm="dragoman"'}
            raise HTTPException(401, "the token is missing or wrong", challenge)
        if scope["path"] != PATH:
            raise HTTPException(404, f"not found; the path is {PATH}")
        self.admit(scope)

    def _knows_token(self, headers: list[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        # Constant time: the duration must not reveal how many characters match.
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


TOKEN_SIZE: Final = 32
"""Number of random bytes in a token."""

MIN_SIZE: Final = 16
"""Minimum length of a token, in characters: a shorter one could be guessed."""

MAX_SIZE: Final = 1024
"""Maximum number of bytes read from a file: a token is short."""


def default_path(paths: Paths) -> Path:
    """Return the default path of the token file."""
    return paths.state / "mcp-token"


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
    create_file(path, [secrets.token_urlsafe(TOKEN_SIZE).encode() + b"\n"])
