"""Count the requests that are still unanswered on one connection, in both directions.

After the client has closed its input it still gets every response; our own open requests to it
fail. `stdio` passes the messages and bounds the wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import mcp_types as types
from mcp.shared.message import SessionMessage

if TYPE_CHECKING:
    from collections.abc import Iterator


class PendingAnswers:
    """The open requests of one connection."""

    def __init__(self) -> None:
        # By their ids as text: a client that cancels 1 may well call it "1".
        self._by_us: Counter[str] = Counter()
        self._by_them: set[types.RequestId] = set()
        self.changed = asyncio.Event()
        """Set by every change; clear it before checking, then wait."""

    def __len__(self) -> int:
        """The number of requests that we have not answered."""
        return self._by_us.total()

    def received(self, message: SessionMessage) -> None:
        """A message has come from the client."""
        match message.message:
            case types.JSONRPCRequest(id=id):
                self._by_us[str(id)] += 1
            case types.JSONRPCNotification(method="notifications/cancelled", params=params):
                # A cancelled request gets no response.
                self._by_us.pop(str((params or {}).get("requestId")), None)
            case types.JSONRPCResponse(id=id) | types.JSONRPCError(id=id) if id is not None:
                self._by_them.discard(id)
        self.changed.set()

    def sent(self, message: SessionMessage) -> None:
        """A message is on its way to the client."""
        match message.message:
            case types.JSONRPCRequest(id=id):
                self._by_them.add(id)
            case types.JSONRPCResponse(id=id) | types.JSONRPCError(id=id):
                self._by_us[str(id)] -= 1
                self._by_us += Counter()
        self.changed.set()

    def unanswerable(self) -> Iterator[SessionMessage]:
        """Error responses to our own open requests, for a client that has closed its input."""
        while self._by_them:
            error = types.ErrorData(
                code=types.CONNECTION_CLOSED, message="the client has closed its side"
            )
            yield SessionMessage(
                types.JSONRPCError(jsonrpc="2.0", id=self._by_them.pop(), error=error)
            )
