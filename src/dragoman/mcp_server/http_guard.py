"""Authorize HTTP requests to the MCP server with a bearer token.

`config.token_file` reads the token from its file and compares it. `transports.http_guard` checks
Host, Origin and size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException

from dragoman.config.token_file import has_token
from dragoman.transports.http_guard import AddressGuard

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Scope

    from dragoman.paths import Paths

PATH: Final = "/mcp"


class HttpGuard(AddressGuard):
    """ASGI middleware: besides the checks of `AddressGuard`, a request needs the bearer token and
    must be for `PATH`."""

    def __init__(self, inner: ASGIApp, *, token: str, **limits: Any) -> None:
        super().__init__(inner, **limits)
        self._token = token

    def authorize(self, scope: Scope) -> None:
        if not self._knows_token(scope["headers"]):
            challenge = {"www-authenticate": 'Bearer realm="dragoman"'}
            raise HTTPException(401, "the token is missing or wrong", challenge)
        if scope["path"] != PATH:
            raise HTTPException(404, f"not found; the path is {PATH}")
        self.admit(scope)

    def _knows_token(self, headers: list[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name == b"authorization"]
        return has_token(given, self._token)


def default_path(paths: Paths) -> Path:
    """Return the default path of the token file."""
    return paths.state / "mcp-token"
