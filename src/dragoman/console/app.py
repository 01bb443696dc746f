"""The ASGI application of the console: the page, the HTTP API and the WebSocket.

The page is a shell without data. docs/reference/http-api.md describes the API. Who may call what
is checked by `console.guard` before a request comes here.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from dragoman.console.actions import (
    RunningDelegations,
    continue_session,
    hand_over,
    start_run,
)
from dragoman.console.event_socket import EventSocket
from dragoman.console.guard import LOGIN, LOGOUT, TOKEN
from dragoman.console.questions import OpenPermission
from dragoman.errors import DragomanError, RemoteError, UnknownJob, UnknownSession, UsageError
from dragoman.runs.context import load_context
from dragoman.runs.jobs import cancel_job
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.console.access import ConsoleAccess, ConsoleToken
    from dragoman.console.live_state import LiveState
    from dragoman.store.records import SessionRecord

log: Final = logging.getLogger("dragoman.console")

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Files that are served, by their endings."""

HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}

MAX_ID: Final = 100

_IMPORT_MAP: Final = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class _Login(Struct):
    token: str


class _QuestionReply(Struct):
    digest: str
    option: str | None = None
    action: str | None = None
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


def static_files() -> dict[str, bytes]:
    """The files of the page by their paths."""
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
    """The Content-Security-Policy of the page. Its only inline script is the import map."""
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
    """Answers the requests of browsers."""

    def __init__(
        self, access: ConsoleAccess, state: LiveState, *, read_only: bool, secure: bool
    ) -> None:
        self._access = access
        self._state = state
        self._read_only = read_only
        self._secure = secure
        """Whether the cookie is for TLS only."""
        self._files = static_files()
        self._policy = content_policy(self._files["index.html"])
        self._sockets: set[EventSocket] = set()
        self.delegations = RunningDelegations()
        state.on_state_file(self._file_changed)
        self.asgi = Starlette(
            routes=[
                Route("/", self._page),
                Route("/static/{path:path}", self._file),
                Route(LOGIN, self._json(self._login), methods=["POST"]),
                Route(LOGOUT, self._json(self._logout), methods=["POST"]),
                Route("/api/v1/me", self._json(self._me)),
                Route("/api/v1/inbox", self._json(self._inbox)),
                Route("/api/v1/work", self._json(self._work)),
                Route("/api/v1/peers", self._json(self._peers)),
                Route("/api/v1/runs", self._json(self._start), methods=["POST"]),
                Route("/api/v1/delegations", self._json(self._delegate), methods=["POST"]),
                Route("/api/v1/questions/{id}/answer", self._json(self._answer), methods=["POST"]),
                Route("/api/v1/sessions/{key}", self._json(self._session)),
                Route("/api/v1/sessions/{key}/prompt", self._json(self._prompt), methods=["POST"]),
                Route(
                    "/api/v1/sessions/{key}/handover", self._json(self._handover), methods=["POST"]
                ),
                Route("/api/v1/jobs/{id}/cancel", self._json(self._cancel), methods=["POST"]),
                Route("/api/v1/jobs/{id}/seen", self._json(self._saw), methods=["POST"]),
                WebSocketRoute("/api/v1/events", self._events),
            ]
        )

    def close_sockets(self) -> None:
        """End every WebSocket, when the server ends."""
        for socket in list(self._sockets):
            socket.close(1001)

    def _file_changed(self, name: str) -> None:
        if name == self._access.path.name:
            for socket in list(self._sockets):
                if not self._access.is_valid(socket.token.id):
                    log.warning("the token %s was revoked: its connection ends", socket.token.id)
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
            # The next version has the same names.
            "cache-control": "no-cache",
        }
        return Response(data, 200, headers, TYPES[Path(name).suffix])

    # -- the API

    def _json(
        self, handler: Callable[[Request], Awaitable[Any]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """A handler that returns a value, or raises what becomes an error response."""

        async def answer(request: Request) -> Response:
            try:
                value = await handler(request)
            except UNDECODABLE as error:
                return _failure(400, "invalid_request", str(error))
            except (UnknownJob, UnknownSession) as error:
                return _failure(404, error.error_class, str(error))
            except (UsageError, RemoteError) as error:
                return _failure(400, error.error_class, str(error))
            except DragomanError as error:
                log.info("%s %s failed: %s", request.method, request.url.path, error)
                return _failure(502, error.error_class, str(error))
            if isinstance(value, Response):
                return value
            return _answer(200, value)

        return answer

    async def _login(self, request: Request) -> Any:
        asked = msgspec.json.decode(await request.body(), type=_Login)
        label = request.headers.get("user-agent", "")
        found = self._access.exchange(asked.token, label)
        if found is None:
            client = request.client.host if request.client else "?"
            log.warning("refused a login from %s: the link is unknown, used or too old", client)
            return _failure(
                401, "link_invalid", "this link was used, is too old, or is not of this console"
            )
        secret, token = found
        log.info("the token %s was given to %s", token.id, token.label)
        response = _answer(200, {"id": token.id, "rights": self._rights(token)})
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
        self._access.revoke(_token(request).id)
        response = _answer(200, {})
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
        found = next((item for item in self._state.work if item["session"] == key), None)
        return found or _failure(404, "unknown_session", f"there is no session {key[:100]!r}")

    async def _peers(self, request: Request) -> Any:
        place = load_context(Path.home())
        names = [name for name in place.catalogue.names if place.is_enabled(name)]
        workspaces = dict.fromkeys(item["root"] for item in self._state.work if item["root"])
        return {
            "peers": names,
            "roles": list(place.role_catalogue().roles),
            "workspaces": list(workspaces)[:50],
        }

    async def _answer(self, request: Request) -> Any:
        reply = msgspec.json.decode(await request.body(), type=_QuestionReply)
        id = request.path_params["id"]
        question = self._state.question(id)
        gone = _failure(409, "question_settled", "this question was answered already")
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
        asked = msgspec.json.decode(await request.body(), type=_Prompt)
        session, job = await continue_session(self._record(request), asked.text)
        return {"session": session, "job": job}

    async def _handover(self, request: Request) -> Any:
        asked = msgspec.json.decode(await request.body(), type=_Handover)
        session, job = await hand_over(self._record(request), asked.peer, asked.text)
        return {"session": session, "job": job}

    def _record(self, request: Request) -> SessionRecord:
        key = request.path_params["key"]
        record = self._state.session(key)
        if record is None:
            raise UnknownSession(f"there is no session {key[:MAX_ID]!r}")
        return record

    async def _start(self, request: Request) -> Any:
        asked = msgspec.json.decode(await request.body(), type=_NewRun)
        session, job = await start_run(asked.peer, asked.prompt, Path(asked.workspace))
        return {"session": session, "job": job}

    async def _delegate(self, request: Request) -> Any:
        asked = msgspec.json.decode(await request.body(), type=_NewDelegation)
        job = await self.delegations.start(asked.role, asked.prompt, Path(asked.workspace))
        return {"job": job}

    async def _cancel(self, request: Request) -> Any:
        return {"cancelled": await cancel_job(request.path_params["id"], paths=self._state.paths)}

    async def _saw(self, request: Request) -> Any:
        self._state.mark_seen(request.path_params["id"][:MAX_ID])
        return {}

    # -- the WebSocket

    async def _events(self, socket: WebSocket) -> None:
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


def _answer(status: int, value: Any) -> Response:
    headers = HEADERS | {"cache-control": "no-store"}
    return Response(_encode(value), status, headers, "application/json")


def _failure(status: int, word: str, message: str) -> Response:
    return _answer(status, {"error": word, "message": message})
