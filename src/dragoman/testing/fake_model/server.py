"""The server of the fake model: routes requests to formats and paces the answers.

Has the listening socket, its connections and the record of requests. `triggers` decides what to
answer, the format modules encode it, and `http` has HTTP itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import Counter, deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from dragoman.errors import UsageError
from dragoman.rpc.tasks import TaskOwner, finish
from dragoman.testing.fake_model import chat, gemini, http, messages, responses
from dragoman.testing.fake_model.formats import Format
from dragoman.testing.fake_model.triggers import Asked, Reply, reply_to

KEPT_REQUESTS: Final = 1000
"""Maximum number of requests remembered; the oldest are dropped first."""

CHECK_INTERVAL: Final = 0.05
"""Seconds between two checks of whether the client is still connected, while an answer waits."""

HOLD_LIMIT: Final = 60.0
"""Maximum number of seconds for which an answer is held or withheld, in case it is never
released."""

CLOSE_TIMEOUT: Final = 5.0
"""Timeout in seconds for closing a loopback socket, which takes no time unless the event loop is
stuck."""

MODELS: Final = ("fake-model",)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as received."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    """The headers by lower-case name."""
    body: Any
    """The body decoded from JSON; an empty object without a body."""
    asked: Asked | None = None
    """The parsed question, if it was a request to the model."""


class FakeModel:
    """A model on loopback. Use with ``async with``. The package docstring describes its answers."""

    def __init__(self, *, port: int = 0, models: tuple[str, ...] = MODELS) -> None:
        self._port = port
        self._models = models
        self._server: asyncio.Server | None = None
        self._tasks = TaskOwner("fake model")
        self._recorded: deque[Recorded] = deque(maxlen=KEPT_REQUESTS)
        self._count = 0
        self._changed = asyncio.Condition()
        self._released = asyncio.Event()
        self._failed: Counter[str] = Counter()

    # -- start and end

    async def __aenter__(self) -> Self:
        if self._server is not None:
            raise UsageError("the fake model is already serving")
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self._port, limit=http.MAX_HEAD_SIZE
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            await finish(self._close(self._server))

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        await self._tasks.aclose()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await server.wait_closed()

    @property
    def url(self) -> str:
        """The address, without the version that some APIs have in their paths. Raises `UsageError`
        if the fake model is not running."""
        if self._server is None or not self._server.sockets:
            raise UsageError("the fake model is not running: use `async with`")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    # -- for tests

    @property
    def requests(self) -> list[Recorded]:
        """The last `KEPT_REQUESTS` requests, oldest first."""
        return list(self._recorded)

    @property
    def questions(self) -> list[Asked]:
        """The questions among `requests`: those to the model itself, not those for lists of models
        or token counts."""
        return [recorded.asked for recorded in self._recorded if recorded.asked is not None]

    async def wait_requests(self, count: int) -> None:
        """Wait until there have been this many requests. The caller sets the timeout."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._count >= count)

    def release(self) -> None:
        """End the waits in all answers, now and later: held answers continue, and slow ones become
        fast."""
        self._released.set()

    # -- connections

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(self._serve(reader, writer), "connection")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # An agent that is killed or cancels its turn disconnects without notice.
            pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and answer it. Returns whether the connection can be reused."""
        try:
            request = await http.read_request(reader, writer)
            if request is None:
                return False
            body = _decoded(request)
        except http.BadRequest as error:
            value = {"error": {"message": str(error)}}
            http.write_json(writer, value, error.status, keep_alive=False)
            await writer.drain()
            return False
        form = _format_of(request)
        asked = None if form is None else form.read(body, request.path)
        await self._record(request, body, asked)
        if form is None or asked is None:
            self._answer_rest(request, body, writer)
            await writer.drain()
            return request.keep_alive
        return await self._answer(form, asked, request, reader, writer)

    async def _record(self, request: http.Request, body: Any, asked: Asked | None) -> None:
        recorded = Recorded(
            request.method, request.path, request.query, dict(request.headers), body, asked
        )
        async with self._changed:
            self._recorded.append(recorded)
            self._count += 1
            self._changed.notify_all()

    async def _answer(
        self,
        form: Format,
        asked: Asked,
        request: http.Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        reply = self._reply(asked)
        keep = request.keep_alive
        if reply.status != 200:
            value = form.error(reply.status, f"fake error {reply.status}")
            http.write_json(writer, value, reply.status, keep_alive=keep)
            await writer.drain()
            return keep
        if reply.hang:
            await self._wait(reader, writer, HOLD_LIMIT)
            return False
        # The same question gets the same id, and a growing conversation never repeats one.
        id = hashlib.sha256(request.body).hexdigest()[:16]
        if not asked.stream:
            if reply.hold or reply.interval:
                await self._wait(reader, writer, HOLD_LIMIT)
            http.write_json(writer, form.whole(reply, asked, id), keep_alive=keep)
            await writer.drain()
            return keep
        http.begin_stream(writer, keep_alive=keep)
        first = True
        for piece in form.stream(reply, asked, id):
            http.write_piece(writer, piece.data)
            if not piece.text:
                continue
            await writer.drain()
            if first and reply.cut:
                return False
            if first and reply.hold:
                await self._wait(reader, writer, HOLD_LIMIT)
            elif reply.interval:
                await self._wait(reader, writer, reply.interval)
            first = False
        http.end_stream(writer)
        await writer.drain()
        return keep

    def _reply(self, asked: Asked) -> Reply:
        reply = reply_to(asked)
        if reply.times is None:
            return reply
        self._failed[asked.text] += 1
        if self._failed[asked.text] <= reply.times:
            return reply
        return reply_to(asked, ignore_errors=True)

    async def _wait(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, time: float
    ) -> None:
        """Wait for the release, or for at most `time` seconds. Raises `ConnectionResetError` if the
        client disconnects."""
        loop = asyncio.get_running_loop()
        over_at = loop.time() + time
        while not self._released.is_set() and (left := over_at - loop.time()) > 0:
            if reader.at_eof() or writer.transport.is_closing():
                raise ConnectionResetError("the other side has gone")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, CHECK_INTERVAL)):
                    await self._released.wait()

    def _answer_rest(
        self, request: http.Request, body: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        """Answer a request that is not a question to the model: for models, for a token count, or
        for the root, which shows that the server is up. Anything else gets a 404."""
        path, status = request.path.rstrip("/"), 200
        value: Any
        if path.endswith(("countTokens", "count_tokens")):
            tokens = len(json.dumps(body)) // 4
            value = {"totalTokens": tokens, "input_tokens": tokens}
        elif path.endswith("/models"):
            value = self._model_list(gemini_style="v1beta" in path)
        elif path.rpartition("/")[0].endswith("/models"):
            value = {"id": path.rpartition("/")[2], "object": "model", "owned_by": "fake"}
        elif path == "":
            # Some agents first check whether the server is up.
            value = {"name": "fake model"}
        else:
            status, value = 404, {"error": {"message": f"there is no {path} here"}}
        with_body = request.method != "HEAD"
        http.write_json(writer, value, status, keep_alive=request.keep_alive, with_body=with_body)

    def _model_list(self, *, gemini_style: bool) -> Any:
        if gemini_style:
            methods = ["generateContent", "streamGenerateContent", "countTokens"]
            return {
                "models": [
                    {"name": f"models/{name}", "supportedGenerationMethods": methods}
                    for name in self._models
                ]
            }
        return {
            "object": "list",
            "data": [
                {"id": name, "object": "model", "created": 0, "owned_by": "fake", "type": "model"}
                for name in self._models
            ],
            "has_more": False,
            # Codex requests its own kind of list at the same path, and needs this key.
            "models": [],
        }


def _decoded(request: http.Request) -> Any:
    if not request.body:
        return {}
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise http.BadRequest(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise http.BadRequest(400, "the body is not an object")
    return body


_FORMATS: Final[tuple[tuple[str, Format], ...]] = (
    ("/chat/completions", chat),
    ("/responses", responses),
    ("/messages", messages),
    (":streamGenerateContent", gemini),
    (":generateContent", gemini),
)


def _format_of(request: http.Request) -> Format | None:
    if request.method != "POST":
        return None
    path = request.path.rstrip("/")
    return next((form for ending, form in _FORMATS if path.endswith(ending)), None)
