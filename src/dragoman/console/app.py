"""The ASGI application of the console: the page, the HTTP API and the WebSocket.

The page itself contains no data. docs/reference/http-api.md describes the API. `console.guard`
authorizes requests before they get here.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from dragoman.console.access import new_key
from dragoman.console.actions import (
    RunningDelegations,
    continue_session,
    hand_over,
    start_run,
)
from dragoman.console.event_socket import EventSocket
from dragoman.console.fleet_routes import FleetRoutes
from dragoman.console.guard import LOGIN, LOGOUT, TOKEN
from dragoman.console.host_routes import HostRoutes
from dragoman.console.json_routes import (
    HEADERS,
    MAX_ID,
    answer,
    body_of,
    failure,
    json_route,
    session_of,
)
from dragoman.console.ledger_routes import LedgerRoutes
from dragoman.console.peer_routes import PeerRoutes
from dragoman.console.questions import OpenPermission
from dragoman.console.review_routes import ReviewRoutes
from dragoman.errors import DragomanError
from dragoman.rpc.tasks import all_ended, in_thread
from dragoman.runs.context import load_context
from dragoman.runs.jobs import cancel_job

if TYPE_CHECKING:
    from dragoman.console.access import ConsoleAccess, ConsoleToken
    from dragoman.console.fleet_watch import FleetWatch
    from dragoman.console.live_state import LiveState

log: Final = logging.getLogger("dragoman.console")

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Content types of static files, by suffix."""

MAX_SOCKETS: Final = 200
"""Maximum number of open WebSockets: more than a user has tabs."""

_IMPORT_MAP: Final = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)


class _Login(Struct):
    token: str
    bind: bool = False
    """Whether the token needs a key in addition to the cookie: see `token_secret`."""


class _QuestionReply(Struct):
    digest: str
    option: str | None = None
    action: Literal["accept", "decline", "cancel"] | None = None
    content: dict[str, Any] | None = None


class _Prompt(Struct):
    text: str


class _Handover(Struct):
    peer: str
    text: str


class _NewRun(Struct):
    peer: str
    prompt: str
    workspace: str


class _NewDelegation(Struct):
    role: str
    prompt: str
    workspace: str
    isolate: bool = False


def static_files() -> dict[str, bytes]:
    """Return the static files of the page, by path."""
    found: dict[str, bytes] = {}

    def add(folder: Any, prefix: str) -> None:
        for each in folder.iterdir():
            if each.is_dir():
                add(each, f"{prefix}{each.name}/")
            elif Path(each.name).suffix in TYPES:
                found[prefix + each.name] = each.read_bytes()

    add(files("dragoman.console") / "static", "")
    return found


def content_policy(page: bytes) -> str:
    """Return the Content-Security-Policy of the page. The only inline script is the import map."""
    hashes = [
        "'sha256-" + base64.b64encode(hashlib.sha256(text).digest()).decode() + "'"
        for text in _IMPORT_MAP.findall(page)
    ]
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'self' {' '.join(hashes)}".rstrip(),
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


class ConsoleApp:
    """The routes of the console and their handlers."""

    def __init__(
        self,
        access: ConsoleAccess,
        state: LiveState,
        *,
        fleet: FleetWatch,
        read_only: bool,
        secure: bool,
    ) -> None:
        self._access = access
        self._state = state
        self._read_only = read_only
        self._secure = secure
        """Whether the cookie has the Secure attribute."""
        self._files = static_files()
        self._policy = content_policy(self._files["index.html"])
        self._sockets: set[EventSocket] = set()
        self.delegations = RunningDelegations()
        self.reviews = ReviewRoutes(state)
        self.peers = PeerRoutes(state)
        self.hosts = HostRoutes(state)
        ledger = LedgerRoutes(state)
        state.on_state_file(self._file_changed)
        self.asgi = Starlette(
            routes=[
                Route("/", self._page),
                Route("/static/{path:path}", self._file),
                Route(LOGIN, json_route(self._login), methods=["POST"]),
                Route(LOGOUT, json_route(self._logout), methods=["POST"]),
                Route("/api/v1/me", json_route(self._me)),
                Route("/api/v1/inbox", json_route(self._inbox)),
                Route("/api/v1/work", json_route(self._work)),
                Route("/api/v1/peers", json_route(self._peers)),
                Route("/api/v1/runs", json_route(self._start), methods=["POST"]),
                Route("/api/v1/delegations", json_route(self._delegate), methods=["POST"]),
                Route("/api/v1/questions/{id}/answer", json_route(self._answer), methods=["POST"]),
                Route("/api/v1/sessions/{key}", json_route(self._session)),
                Route("/api/v1/sessions/{key}/prompt", json_route(self._prompt), methods=["POST"]),
                Route(
                    "/api/v1/sessions/{key}/handover", json_route(self._handover), methods=["POST"]
                ),
                Route("/api/v1/jobs/{id}/cancel", json_route(self._cancel), methods=["POST"]),
                Route("/api/v1/jobs/{id}/seen", json_route(self._saw), methods=["POST"]),
                *self.reviews.routes(),
                *self.peers.routes(),
                *self.hosts.routes(),
                *ledger.routes(),
                *FleetRoutes(state, fleet).routes(),
                WebSocketRoute("/api/v1/events", self._events),
            ]
        )

    def close_sockets(self) -> None:
        """Close every WebSocket. Called when the server shuts down."""
        for socket in list(self._sockets):
            socket.close(1001)

    async def aclose(self) -> None:
        """Stop the delegations, verifications and checks that run in this process."""
        await all_ended(
            self.delegations.aclose(),
            self.reviews.aclose(),
            self.peers.aclose(),
            self.hosts.aclose(),
        )

    def _file_changed(self, name: str) -> None:
        if name != self._access.path.name:
            return
        try:
            revoked = [each for each in self._sockets if not self._access.is_valid(each.token.id)]
        except DragomanError as error:
            # Without the access file, no token can be checked.
            log.warning("closing all connections: %s", error)
            revoked = list(self._sockets)
        else:
            for socket in revoked:
                log.warning("token %s was revoked; closing its connection", socket.token.id)
        for socket in revoked:
            socket.close()

    # -- the page

    async def _page(self, request: Request) -> Response:
        return self._static("index.html")

    async def _file(self, request: Request) -> Response:
        return self._static(request.path_params["path"])

    def _static(self, name: str) -> Response:
        data = self._files.get(name)
        if data is None:
            return Response("not found\n", 404, HEADERS, "text/plain")
        headers = HEADERS | {
            "content-security-policy": self._policy,
            # The files of the next version will have the same names.
            "cache-control": "no-cache",
        }
        return Response(data, 200, headers, TYPES[Path(name).suffix])

    # -- the API

    async def _login(self, request: Request) -> Any:
        asked = await body_of(request, _Login)
        label = request.headers.get("user-agent", "")
        access = self._access
        expired = access.has_expired(asked.token)
        key = new_key() if asked.bind else ""
        # In a thread: another process may hold the lock of the file.
        found = await in_thread(
            str(access.path),
            lambda _: access.exchange(asked.token, label, key=key),
            changes_disk=True,
        )
        if found is None:
            client = request.client.host if request.client else "?"
            why = "has expired" if expired else "is unknown or was used"
            log.warning("refused a login from %s: the link %s", client, why)
            return failure(
                401,
                "link_invalid",
                "this link was already used, has expired, or belongs to another console",
            )
        secret, token = found
        log.info("issued token %s to %s", token.id, token.label)
        told = {"id": token.id, "rights": self._rights(token)}
        response = answer(200, told | {"key": key} if asked.bind else told)
        response.set_cookie(
            self._access.cookie,
            secret,
            max_age=int(token.expires_at - token.created_at),
            httponly=True,
            samesite="strict",
            secure=self._secure,
            path="/",
        )
        return response

    async def _logout(self, request: Request) -> Any:
        access, id = self._access, _token(request).id
        await in_thread(str(access.path), lambda _: access.revoke(id), changes_disk=True)
        response = answer(200, {})
        response.delete_cookie(self._access.cookie, httponly=True, samesite="strict", path="/")
        return response

    def _rights(self, token: ConsoleToken) -> str:
        return "read" if self._read_only else token.rights

    async def _me(self, request: Request) -> Any:
        token = _token(request)
        return {"id": token.id, "rights": self._rights(token), "expiresAt": token.expires_at}

    async def _inbox(self, request: Request) -> Any:
        return {"questions": self._state.questions}

    async def _work(self, request: Request) -> Any:
        return {"work": self._state.work}

    async def _session(self, request: Request) -> Any:
        key = request.path_params["key"]
        found = await self._state.find_item(key)
        return found or failure(404, "unknown_session", f"there is no session {key[:100]!r}")

    async def _peers(self, request: Request) -> Any:
        place = await in_thread(str(Path.home()), lambda _: load_context(Path.home()))
        names = [name for name in place.catalogue.names if place.is_enabled(name)]
        workspaces = dict.fromkeys(item["root"] for item in self._state.work if item["root"])
        return {
            "peers": names,
            "roles": list(place.role_catalogue().roles),
            "workspaces": list(workspaces)[:50],
        }

    async def _answer(self, request: Request) -> Any:
        reply = await body_of(request, _QuestionReply)
        id = request.path_params["id"]
        question = self._state.question(id)
        gone = failure(409, "question_settled", "this question was already answered or cancelled")
        if question is None:
            return gone
        result: dict[str, Any]
        if isinstance(question, OpenPermission):
            result = {"outcome": {"outcome": "selected", "optionId": reply.option}}
        else:
            result = {"action": reply.action}
            if reply.content is not None:
                result["content"] = reply.content
        if not await self._state.answer(id, reply.digest, result):
            return gone
        return {"answered": True}

    async def _prompt(self, request: Request) -> Any:
        asked = await body_of(request, _Prompt)
        record = await session_of(request, self._state)
        return await continue_session(record, asked.text)

    async def _handover(self, request: Request) -> Any:
        asked = await body_of(request, _Handover)
        record = await session_of(request, self._state)
        return await hand_over(record, asked.peer, asked.text)

    async def _start(self, request: Request) -> Any:
        asked = await body_of(request, _NewRun)
        return await start_run(asked.peer, asked.prompt, Path(asked.workspace))

    async def _delegate(self, request: Request) -> Any:
        asked = await body_of(request, _NewDelegation)
        return await self.delegations.start(
            asked.role, asked.prompt, Path(asked.workspace), isolate=asked.isolate
        )

    async def _cancel(self, request: Request) -> Any:
        return {"cancelled": await cancel_job(request.path_params["id"], paths=self._state.paths)}

    async def _saw(self, request: Request) -> Any:
        await self._state.mark_seen(request.path_params["id"][:MAX_ID])
        return {}

    # -- the WebSocket

    async def _events(self, socket: WebSocket) -> None:
        if len(self._sockets) >= MAX_SOCKETS:
            log.warning("refused a WebSocket: %d are open", len(self._sockets))
            await socket.close()
            return
        token: ConsoleToken = socket.scope["state"][TOKEN]
        may_act = self._rights(token) == "act"
        served = EventSocket(socket, token, self._state, may_act=may_act)
        self._sockets.add(served)
        try:
            await served.serve()
        finally:
            self._sockets.discard(served)


def _token(request: Request) -> ConsoleToken:
    token: ConsoleToken = request.scope["state"][TOKEN]
    return token
