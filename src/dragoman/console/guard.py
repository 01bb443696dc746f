"""ASGI middleware of the console: authorizes requests with the token in the cookie.

`transports.http_guard` checks Host and Origin. The page and its static files contain no data and
need no token. Everything else but the login needs a token. A request that changes something also
needs the right to act, and an Origin header. Every refused request is logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException

from dragoman.errors import DragomanError
from dragoman.transports.http_guard import AddressGuard

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

    from dragoman.console.access import ConsoleAccess

log: Final = logging.getLogger("dragoman.console")

API: Final = "/api/"
LOGIN: Final = "/api/v1/login"
LOGOUT: Final = "/api/v1/logout"
TOKEN: Final = "dragoman.console.token"
"""Key of the browser's `ConsoleToken` in the state of the request scope."""

READING: Final = frozenset({"GET", "HEAD"})

KEY_HEADER: Final = b"x-dragoman-key"
KEY_PROTOCOL: Final = b"dragoman.key."
"""A request carries the key of its token in the header `KEY_HEADER`. A page cannot set headers for
a WebSocket, so there the key follows the prefix `KEY_PROTOCOL` in the name of a subprotocol."""


class ConsoleGuard(AddressGuard):
    """Requires a token, except for the page, its static files and the login."""

    takes_websockets = True

    def __init__(self, inner: ASGIApp, *, access: ConsoleAccess, read_only: bool = False) -> None:
        super().__init__(inner)
        self._access = access
        self._read_only = read_only

    def authorize(self, scope: Scope) -> None:
        path: str = scope["path"]
        is_socket = scope["type"] == "websocket"
        reads = not is_socket and scope["method"] in READING
        headers = scope["headers"]
        if any(n == b"sec-fetch-site" and v not in (b"same-origin", b"none") for n, v in headers):
            # A link on another page may open the page, but not use the API.
            if path.startswith(API) or not reads:
                raise HTTPException(403, "requests from other origins are refused")
        if not reads and not any(name == b"origin" for name, _ in headers):
            raise HTTPException(403, "the Origin header is missing")
        if not path.startswith(API):
            if not reads:
                raise HTTPException(405, "this path does not accept changes")
            return
        if path == LOGIN:
            return
        token = None
        key = _key(scope)
        try:
            for secret in _cookies(headers, self._access.cookie):
                token = token or self._access.find(secret, key=key)
        except DragomanError as error:
            raise HTTPException(503, "the file with the tokens cannot be read") from error
        if token is None:
            raise HTTPException(401, "the token is missing, expired or revoked")
        if not (reads or is_socket or path == LOGOUT):
            if self._read_only or token.rights != "act":
                raise HTTPException(403, "this token, or the whole console, is read-only")
        self.admit(scope)
        scope.setdefault("state", {})[TOKEN] = token

    def refused(self, scope: Scope, error: HTTPException) -> None:
        client = scope.get("client") or ("?", 0)
        # Not the query or the headers: they may contain a secret.
        what = "WEBSOCKET" if scope["type"] == "websocket" else scope["method"]
        log.warning(
            "refused %s %.200r from %s: %s %s",
            what,
            scope["path"],
            client[0],
            error.status_code,
            error.detail,
        )


def _key(scope: Scope) -> str:
    """Return the key that a request has in addition to its cookie, or an empty string."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    found = [value for name, value in headers if name == KEY_HEADER]
    if scope["type"] == "websocket":
        offered = [
            word.strip()
            for name, value in headers
            if name == b"sec-websocket-protocol"
            for word in value.split(b",")
        ]
        found += [
            word.removeprefix(KEY_PROTOCOL) for word in offered if word.startswith(KEY_PROTOCOL)
        ]
    return found[0].decode("latin-1") if found else ""


def _cookies(headers: list[tuple[bytes, bytes]], name: str) -> list[str]:
    """Return the values of the cookies with this name.

    Does not use `http.cookies`, which stops at the first malformed cookie. Other servers on the
    same host share the cookies and may set malformed ones.
    """
    prefix = f"{name}=".encode()
    parts = [
        part.strip() for key, value in headers if key == b"cookie" for part in value.split(b";")
    ]
    return [part[len(prefix) :].decode("latin-1") for part in parts if part.startswith(prefix)]
