"""The WebSocket of the console: the state of all work, and the events of the sessions followed.

A browser that does not read is sent away instead of collecting what waits for it: it connects
again, gets the state as it is then, and goes on behind the last event that it has.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct
from starlette.websockets import WebSocketDisconnect

from dragoman.console.session_feed import Send, SessionFeed
from dragoman.errors import UsageError
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
"""Messages about the state that wait for a browser."""

MAX_FEEDS: Final = 16
"""Sessions that one browser follows at once."""

POLICY_VIOLATION: Final = 1008
TRY_AGAIN: Final = 1013

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class _Command(Struct):
    """What a browser sends."""

    type: Literal["follow", "unfollow"]
    session: str
    after: str | None = None


class EventSocket:
    """One browser."""

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
        """Serve until the browser has gone, or `close` is called."""
        await self._socket.accept()
        forget = self._state.subscribe(self._put)
        try:
            self._put(self._snapshot())
            work: set[asyncio.Future[Any]] = {
                self._tasks.start(self._send_waiting(), "send"),
                self._tasks.start(self._receive(), "receive"),
                self._over,
            }
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            forget()
            await self._tasks.aclose()
            with suppress(RuntimeError, WebSocketDisconnect, OSError):
                await self._socket.close(self._over.result() if self._over.done() else 1000)

    def close(self, code: int = POLICY_VIOLATION) -> None:
        """End it, such as after its token was revoked."""
        if not self._over.done():
            self._over.set_result(code)

    def _snapshot(self) -> dict[str, Any]:
        return {
            "type": "snapshot",
            "version": __version__,
            "rights": "act" if self._may_act else "read",
            "questions": self._state.questions,
            "work": self._state.work,
        }

    def _put(self, message: dict[str, Any]) -> None:
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            self.close(TRY_AGAIN)

    async def _send_waiting(self) -> None:
        with suppress(WebSocketDisconnect, OSError, RuntimeError):
            while True:
                await self._send(await self._waiting.get())

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._sending:
            await self._socket.send_text(_encode(message).decode())

    async def _receive(self) -> None:
        with suppress(WebSocketDisconnect, OSError, RuntimeError):
            while True:
                text = await self._socket.receive_text()
                try:
                    self._obey(msgspec.json.decode(text, type=_Command))
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
            raise UsageError(f"a browser follows {MAX_FEEDS} sessions at most")
        after = None if command.after is None else EventCursor.parse(command.after)
        if after is not None and after.session != key:
            raise UsageError(f"{after} is a cursor of another session")

        async def send(events: list[dict[str, Any]], caught_up: bool) -> None:
            told = {"type": "events", "session": key, "events": events, "caughtUp": caught_up}
            await self._send(told)

        self._feeds[key] = self._tasks.start(self._feed(key, send, after), f"feed {key}")

    async def _feed(self, key: str, send: Send, after: EventCursor | None) -> None:
        record = await self._state.find_session(key)
        if record is None:
            self._put({"type": "error", "message": f"there is no session {key[:100]!r}"})
            return
        with suppress(WebSocketDisconnect, OSError, RuntimeError):
            await SessionFeed(record, self._state, send, after).run()
