"""A connection to streams in memory, for tests without a server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from dragoman.errors import FleetConflict, FleetUnreachable
from dragoman.fleet.connection import FleetConnection, StoredMessage


class MemoryConnection:
    """Stores messages in a list; `store` raises `fail` for subjects that begin with `fails`."""

    closed = False

    def __init__(self, name: str = "w1") -> None:
        self.name = name
        self.messages: list[StoredMessage] = []
        self.fail: Exception | None = None
        self.fails: str | tuple[str, ...] = ""
        self.fail_reads: Exception | None = None
        self.client: Any = SimpleNamespace(is_closed=False)
        self.stored = asyncio.Event()
        self.published: list[str] = []
        self.replies: list[bytes] = []
        self.handlers: dict[str, tuple[Any, dict[str, Any]]] = {}
        """The handlers of subscriptions, with their options."""

    def as_connection(self) -> FleetConnection:
        return cast(FleetConnection, self)

    async def store(
        self,
        subject: str,
        data: bytes,
        *,
        revision: int | None = None,
        timeout: float = 1.0,
    ) -> int:
        if self.fail is not None and subject.startswith(self.fails):
            raise self.fail
        if revision is not None:
            last = [one.sequence for one in self.messages if one.subject == subject]
            if (last[-1] if last else 0) != revision:
                raise FleetConflict(subject)
        self.messages.append(StoredMessage(subject, len(self.messages) + 1, data))
        sequence = len(self.messages)
        self.stored.set()
        for pattern, (handler, _) in list(self.handlers.items()):
            if _matches(subject, pattern):
                await handler(SimpleNamespace(subject=subject, data=data, reply=""))
        return sequence

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        if self.fail_reads is not None:
            raise self.fail_reads
        found = [one for one in self.messages if one.subject == subject]
        return found[-1] if found else None

    async def after(self, stream: str, sequence: int, subject: str) -> StoredMessage | None:
        if self.fail_reads is not None:
            raise self.fail_reads
        for one in self.messages[max(sequence - 1, 0) :]:
            if _matches(one.subject, subject):
                return one
        return None

    async def publish(self, subject: str, data: bytes) -> None:
        self.published.append(subject)
        self.replies.append(data)

    async def subscribe(self, subject: str, handler: Any, **more: Any) -> Any:
        self.handlers[subject] = (handler, more)

        async def unsubscribe() -> None:
            del self.handlers[subject]

        return unsubscribe

    async def request(self, subject: str, data: bytes = b"", **more: Any) -> Any:
        raise FleetUnreachable("no server")


def _matches(subject: str, pattern: str) -> bool:
    parts, wanted = subject.split("."), pattern.split(".")
    same = zip(parts, wanted, strict=False)
    return len(parts) == len(wanted) and all(b in ("*", a) for a, b in same)
