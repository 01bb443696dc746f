"""ASGI middleware of the console: which requests are let in, with which rights.

Host and Origin are checked by `transports.http_guard`. The shell of the page and its files hold no
data and need no token. Everything else needs the cookie; a request that changes something also
needs the right to act, and an Origin. Every refusal is logged.
"""

from __future__ import annotations

import logging
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException

from dragoman.transports.http_guard import AddressGuard

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

    from dragoman.console.access import ConsoleAccess

log: Final = logging.getLogger("dragoman.console")

API: Final = "/api/"
LOGIN: Final = "/api/v1/login"
LOGOUT: Final = "/api/v1/logout"
TOKEN: Final = "dragoman.console.token"
"""Key in the state of a request's scope: the `ConsoleToken` of the browser."""

READING: Final = frozenset({"GET", "HEAD"})


class ConsoleGuard(AddressGuard):
    """Requires a token, except for the static page and the login."""

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
            # A link from another page may open the shell, and nothing else.
            if path.startswith(API) or not reads:
                raise HTTPException(403, "pages of other origins are not let in")
        if not reads and not any(name == b"origin" for name, _ in headers):
            raise HTTPException(403, "the Origin is missing")
        if not path.startswith(API):
            if not reads:
                raise HTTPException(405, "there is nothing to change here")
            return
        if path == LOGIN:
            return
        token = None
        for secret in _cookies(headers, self._access.cookie):
            token = token or self._access.find(secret)
        if token is None:
            raise HTTPException(401, "the token is missing, too old or revoked")
        if not (reads or is_socket or path == LOGOUT):
            if self._read_only or token.rights != "act":
                raise HTTPException(403, "this token may only read")
        self.admit(scope)
        scope.setdefault("state", {})[TOKEN] = token

    def refused(self, scope: Scope, error: HTTPException) -> None:
        client = scope.get("client") or ("?", 0)
        # Without the query and the headers: they may hold a secret.
        what = "WEBSOCKET" if scope["type"] == "websocket" else scope["method"]
        log.warning(
            "refused %s %.200r from %s: %s %s",
            what,
            scope["path"],
            client[0],
            error.status_code,
            error.detail,
        )


def _cookies(headers: list[tuple[bytes, bytes]], name: str) -> list[str]:
    found = []
    for header, value in headers:
        if header == b"cookie":
            try:
                jar = SimpleCookie(value.decode("latin-1"))
            except CookieError:
                continue
            if name in jar:
                found.append(jar[name].value)
    return found
