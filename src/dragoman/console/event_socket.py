"""The WebSocket of the console: the state of all work, and the events of the followed sessions.

A browser that stops reading is disconnected when too many messages wait for it. When it reconnects,
it gets the current state and continues after its last event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct
from starlette.websockets import WebSocketDisconnect

from dragoman.console.retry import delay_after
from dragoman.console.session_feed import Send, SessionFeed
from dragoman.decoders import decode_typed
from dragoman.errors import DragomanError, FileFailed, StoreError, UsageError
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.job_events import EventCursor
from dragoman.version import __version__
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from dragoman.console.access import ConsoleToken
    from dragoman.console.live_state import LiveState

log: Final = logging.getLogger("dragoman.console")

MAX_WAITING: Final = 2000
"""Maximum number of state messages queued for one browser."""

MAX_FEEDS: Final = 16
"""Maximum number of sessions and fleet jobs that one connection can follow at the same time."""

ALIVE_INTERVAL: Final = 15.0
"""Seconds between two keep-alive messages. A page cannot see the pings of a WebSocket, and after a
sleep or a lost tunnel its connection may be dead without an error."""

CLOSE_TIMEOUT: Final = 5.0
"""Seconds to wait for the closing handshake. A browser that stopped reading never answers it."""

PROTOCOL: Final = "dragoman.v1"
"""The subprotocol that the server selects. A browser offers it together with its key, and closes
the connection if the server selects none."""

POLICY_VIOLATION: Final = 1008
INTERNAL_ERROR: Final = 1011
TRY_AGAIN: Final = 1013

_GONE: Final = (WebSocketDisconnect, OSError, RuntimeError)
"""Exceptions that mean that the browser has disconnected. starlette raises `RuntimeError` if the
socket is used again after the first one. Caught only around socket calls, because other code may
raise the same exceptions."""

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class _Command(Struct):
    """A message in which a browser asks for the events of a session or fleet job, or says that it
    no longer wants them."""

    type: Literal["follow", "unfollow"]
    session: str
    after: str | None = None
    feed: int | None = None
    """A number chosen by the browser, repeated in the messages with these events."""


class EventSocket:
    """The connection of one browser."""

    def __init__(
        self, socket: WebSocket, token: ConsoleToken, state: LiveState, *, may_act: bool
    ) -> None:
        self.token = token
        self._socket = socket
        self._state = state
        self._may_act = may_act
        self._tasks = TaskOwner("event socket")
        self._feeds: dict[str, asyncio.Task[None]] = {}
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_WAITING)
        self._sending = asyncio.Lock()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(self) -> None:
        """Serve until the browser disconnects, its token expires or `close` is called."""
        offered = self._socket.scope.get("subprotocols", ())
        await self._socket.accept(PROTOCOL if PROTOCOL in offered else None)
        forget = self._state.subscribe(self._put)
        left = max(self.token.expires_at - time.time(), 0.0)
        expiry = asyncio.get_running_loop().call_later(left, self.close)
        try:
            self._put(self._snapshot())
            work: set[asyncio.Future[Any]] = {
                self._tasks.start(self._send_waiting(), "send"),
                self._tasks.start(self._receive(), "receive"),
                self._tasks.start(self._beat(), "beat"),
                self._over,
            }
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            forget()
            expiry.cancel()
            await self._tasks.aclose()
            with suppress(*_GONE, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self._socket.close(self._over.result() if self._over.done() else 1000)

    def close(self, code: int = POLICY_VIOLATION) -> None:
        """Close the connection with this status code, for example after its token was revoked."""
        if not self._over.done():
            self._over.set_result(code)

    def _snapshot(self) -> dict[str, Any]:
        return {
            "type": "snapshot",
            "version": __version__,
            "rights": "act" if self._may_act else "read",
            "questions": self._state.questions,
            "work": self._state.work,
            **self._state.snapshot(),
        }

    def _put(self, message: dict[str, Any]) -> None:
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            self.close(TRY_AGAIN)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_INTERVAL)
            self._put({"type": "alive"})

    async def _send_waiting(self) -> None:
        with suppress(WebSocketDisconnect):
            while True:
                await self._send(await self._waiting.get())

    async def _send(self, message: dict[str, Any]) -> None:
        text = _encode(message).decode()
        async with self._sending:
            try:
                await self._socket.send_text(text)
            except _GONE as error:
                raise WebSocketDisconnect from error

    async def _receive(self) -> None:
        while True:
            try:
                message = await self._socket.receive()
            except _GONE:
                return
            if message["type"] != "websocket.receive":
                return
            sent = message.get("text") or message.get("bytes") or b""
            try:
                self._obey(decode_typed(sent, _Command))
            except (*UNDECODABLE, UsageError) as error:
                self._put({"type": "error", "message": str(error)})

    def _obey(self, command: _Command) -> None:
        key = command.session
        before = self._feeds.pop(key, None)
        if before is not None:
            before.cancel()
        if command.type == "unfollow":
            return
        if len(self._feeds) >= MAX_FEEDS:
            raise UsageError(f"a page can follow at most {MAX_FEEDS} sessions and fleet jobs")
        after = None if command.after is None else EventCursor.parse(command.after)
        if after is not None and after.session != key:
            raise UsageError(f"{after} is a cursor of another session")

        async def send(events: list[dict[str, Any]], caught_up: bool) -> None:
            told = {"type": "events", "session": key, "events": events, "caughtUp": caught_up}
            await self._send(told if command.feed is None else told | {"feed": command.feed})

        feed = self._feeds[key] = self._tasks.start(self._feed(key, send, after), f"feed {key}")
        feed.add_done_callback(lambda _: self._feed_ended(key, feed))

    def _feed_ended(self, key: str, feed: asyncio.Task[None]) -> None:
        if self._feeds.get(key) is feed:
            del self._feeds[key]
        if not feed.cancelled() and feed.exception() is not None:
            # Logged by the owner. The browser reconnects and continues, instead of waiting.
            self.close(INTERNAL_ERROR)

    async def _feed(self, key: str, send: Send, after: EventCursor | None) -> None:
        failed, shown = 0, ""
        while True:
            try:
                await self._follow(key, send, after)
                return
            except WebSocketDisconnect:
                return
            except (StoreError, FileFailed) as error:
                # Nothing was sent yet: once a feed has begun, it handles these errors itself.
                failed += 1
                if str(error) != shown:
                    shown = str(error)
                    self._put({"type": "error", "message": f"{shown}; trying again"})
            except DragomanError as error:
                self._put({"type": "error", "message": str(error)})
                return
            await asyncio.sleep(delay_after(failed))

    async def _follow(self, key: str, send: Send, after: EventCursor | None) -> None:
        further = self._state.feed_of(key)
        if further is not None:
            await further(key, send)
            return
        record = await self._state.find_session(key)
        if record is None:
            self._put({"type": "error", "message": f"there is no session {key[:100]!r}"})
        else:
            await SessionFeed(record, self._state, send, after).run()
