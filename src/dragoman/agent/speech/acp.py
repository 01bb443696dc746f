"""The interface between a turn and a dialect, and its implementation for ACP v1.

Puts updates and questions on the wire in ACP. The client's requests are handled by
`dragoman.agent.server`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from msgspec import Raw

from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import decoder
from dragoman.dialects.acp.v1.methods import Method
from dragoman.rpc import Connection

P = TypeVar("P")
R = TypeVar("R")

_UPDATE: Final = acp.SESSION_UPDATE.name


class Speech(Protocol):
    """Sends an agent's updates and questions in one dialect."""

    def new_id(self) -> str:
        """Return the id of a new session."""

    def update(
        self, session_id: str, update: acp.SessionUpdate
    ) -> Coroutine[Any, Any, None] | None:
        """Send an update. If the result is not None, the caller must await it: some dialects send
        nothing until then, and the client may be reading too slowly."""

    def ask(self, method: Method[P, R], params: P) -> Coroutine[Any, Any, R]:
        """Send a request to the client. Await the result, which is the decoded response."""


class AcpSpeech:
    """Sends an agent's updates and questions in ACP v1, on one connection."""

    __slots__ = ("_connection", "_decoders")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._decoders: dict[str, Callable[[Raw], Any]] = {}

    def new_id(self) -> str:
        return os.urandom(16).hex()

    def update(
        self, session_id: str, update: acp.SessionUpdate
    ) -> Coroutine[Any, Any, None] | None:
        message = acp.SessionNotification(session_id=session_id, update=update)
        return self._connection.tell(_UPDATE, message)

    def ask(self, method: Method[P, R], params: P) -> Coroutine[Any, Any, R]:
        name = method.name
        decode = self._decoders.get(name)
        if decode is None:
            decode = self._decoders[name] = decoder(method.result)
        return self._connection.ask(name, params, decode)
