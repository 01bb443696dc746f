"""A pair of connections in one process that encode each notification only once.

Order, back-pressure, limits and the end are those of any connection. A notification is encoded by
its sender, and the other end decodes only its params; requests and responses, of which there are
few, are passed as lines.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from msgspec import UNSET

from dragoman.errors import ConnectionLost
from dragoman.rpc.calls import Call
from dragoman.rpc.connection import Connection, ConnectionSettings
from dragoman.rpc.outbox import FLUSH_SIZE, Outbox
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.memory import LineStream, line_pair
from dragoman.wire.messages import Notification
from dragoman.wire.peer import End, LinkState


def linked(client: ConnectionSettings, agent: ConnectionSettings) -> tuple[LinkEnd, LinkEnd]:
    """Return the two ends of a new link, the client's first. Neither is started."""
    near, far = line_pair()
    return LinkEnd(near, End.CLIENT, client), LinkEnd(far, End.AGENT, agent)


class LinkEnd(Connection):
    """One end of a pair of linked connections. Created only by `linked`; `hand_to` sets its
    handlers."""

    _peer: LinkState[Call]
    _outbox: _MessageOutbox

    def __init__(self, stream: LineStream, end: End, settings: ConnectionSettings) -> None:
        super().__init__(stream, end, settings=settings)
        self._peer = LinkState(
            end, max_line_size=settings.max_line_size, reserved=settings.reserved
        )
        self._outbox = _MessageOutbox(stream, self.fail)

    def tell(self, method: str, params: Any) -> Coroutine[Any, Any, None] | None:
        if self._failure is None and self._outbox.crowded and self._outbox.is_full:
            return self.notify(method, params)
        self.post(method, params)
        return None

    def post(self, method: str, params: Any = UNSET) -> None:
        if self._failure is not None:
            raise self._failure.fresh()
        notification = self._peer.told(method, params)
        if self.trace is not None:
            self.trace.record(self.name, "send", notification.line)
        self._outbox.put_message(notification)


class _MessageOutbox(Outbox):
    """Collects notifications and lines, and delivers them without joining them."""

    __slots__ = ()
    _stream: LineStream
    _lines: list[Any]

    def put_message(self, message: Notification) -> None:
        """Like `put`, for a notification that is already encoded."""
        self._lines.append(message)
        self._size = size = self._size + len(message.line)
        if size >= FLUSH_SIZE or not self.held:
            self._leave(size)

    def flush(self) -> None:
        lines, size = self._lines, self._size
        if not lines:
            return
        self._lines, self._size = [], 0
        try:
            self._stream.write_lines(lines, size)
        except ConnectionLost:
            # The stream reports soon, and once, why it ended.
            return
        self._maybe_unsent_size = unsent_size = self._maybe_unsent_size + size
        if unsent_size > HIGH_WATER_SIZE:
            self._look(size)
