"""Half-duplex JSON-RPC connection: one request at a time, with a callback for notifications.

Base class of the typed clients in `oneshot` and `threads`, which define the methods. A second
request while one is pending is refused, as the specifications require.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from dragoman import transports  # Not its names: only starting a program needs them.
from dragoman.client.budgets import Budgets
from dragoman.decoders import decode_typed
from dragoman.errors import ConnectionClosed, DragomanError, InvalidAnswer
from dragoman.rpc import Connection, ConnectionSettings, End, boundary
from dragoman.transports.base import Stream
from dragoman.wire.messages import UNDECODABLE, Notification, Request
from dragoman.wire.peer import Noise, Stray

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.client")

MAX_LINE_SIZE: Final = 16 * 1024 * 1024
"""The maximum line size in both specifications; a longer line ends the connection."""

OnNotification: TypeAlias = Callable[[str, Any], None]
"""Called with the method and params of every notification during a call."""


class Exchange:
    """A connection with one request at a time. It starts reading at the first call."""

    def __init__(
        self,
        stream: Stream,
        *,
        budgets: Budgets | None = None,
        max_line_size: int = MAX_LINE_SIZE,
    ) -> None:
        self.budgets = budgets or Budgets()
        self._started = False
        self._listener: OnNotification | None = None
        self._connection = Connection(
            stream,
            End.CLIENT,
            self,
            settings=ConnectionSettings(half_duplex=True, max_line_size=max_line_size),
        )

    @classmethod
    async def open(
        cls,
        argv: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        inherit: Iterable[str] = (),
        budgets: Budgets | None = None,
    ) -> Self:
        """Start a program and connect to it."""
        stream = await transports.spawn(argv, cwd=cwd, env=env, inherit=inherit)
        try:
            return cls(stream, budgets=budgets)
        except BaseException:
            await stream.aclose()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection, and the process behind it."""
        await self._connection.aclose()

    async def _call(
        self,
        method: str,
        params: Any,
        result: type[T],
        on_notification: OnNotification | None,
        timeout: float | None,
    ) -> T:
        if not self._started:
            self._started = True
            self._connection.start()
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

        def settle(raw: Raw | None, error: DragomanError | None) -> None:
            self._listener = None
            if future.done():
                return
            if raw is None:
                assert error is not None
                future.set_exception(error)
            else:
                future.set_result(raw)

        # Refuse a second request before anything else happens.
        call = self._connection.begin(method, params, settle=settle, timeout=timeout)
        self._listener = on_notification
        try:
            raw = await future
        except asyncio.CancelledError:
            call.give_up(ConnectionClosed("the caller was cancelled"))
            raise
        try:
            return decode_typed(raw, result)
        except UNDECODABLE as error:
            raise InvalidAnswer(f"invalid response to {method}: {error}") from error

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        pass

    def request(self, request: Request) -> Any:
        raise boundary.method_not_found(request.method)

    def notification(self, notification: Notification) -> None:
        if self._listener is None:
            log.debug("a notification without a request: %.200r", notification.line)
            return
        try:
            params = msgspec.json.decode(notification.params)
        except UNDECODABLE:
            params = None
        self._listener(notification.method, params)

    def noise(self, noise: Noise | Stray) -> None:
        log.debug("noise: %.200r", noise.line)
