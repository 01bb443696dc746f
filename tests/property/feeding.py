"""The other side of a client, played by a property test: what it sends, and what must follow.

A `Wire` keeps what the client writes and is fed by hand. `Heard` watches the events and the log of
a connection while lines are fed, and checks what must hold for any lines: every line is the `raw`
of an event, in wire order, and no exception reaches a callback or the loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any, Self

import msgspec
from hypothesis import settings

from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.transports.base import Receiver, Stream

FEWER = settings(max_examples=max(50, settings().max_examples // 40))
"""For examples that are whole conversations, in each of several dialects."""


def line(message: Any) -> bytes:
    return json.dumps(message).encode()


class Wire(Stream):
    """A stream whose other side is the test: written bytes are kept, and bytes are fed by hand."""

    def __init__(self) -> None:
        self.receiver: Receiver | None = None
        self.sent = b""
        self._asked = 0

    def start(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def write(self, data: bytes) -> None:
        self.sent += data

    @property
    def unsent_size(self) -> int:
        return 0

    async def drain(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    async def aclose(self) -> None:
        pass

    def feed(self, *lines: bytes) -> None:
        assert self.receiver is not None
        self.receiver.data_received(b"".join(line + b"\n" for line in lines))

    async def asked(self, method: str, times: int = 1) -> int:
        """Return the id of the newest request with this method, once there were this many."""
        async with asyncio.timeout(10):
            while True:
                sent = [json.loads(text) for text in self.sent.splitlines()]
                found: list[int] = [each["id"] for each in sent if each.get("method") == method]
                if len(found) >= times:
                    return found[-1]
                await asyncio.sleep(0)

    async def next_request(self) -> tuple[str, int]:
        """Return the method and the id of the next request that was not examined yet."""
        async with asyncio.timeout(10):
            while True:
                lines = self.sent.splitlines()
                while self._asked < len(lines):
                    message = json.loads(lines[self._asked])
                    self._asked += 1
                    if "method" in message and "id" in message:
                        return message["method"], message["id"]
                await asyncio.sleep(0)


class Heard(logging.Handler):
    """What resulted from the lines that were fed."""

    def __init__(self, wire: Wire, *, jsonrpc: bool = True) -> None:
        super().__init__(logging.ERROR)
        self.wire = wire
        self.received: list[bytes] = []
        self.events: list[model.Event] = []
        self.logged: list[str] = []
        self._head = {"jsonrpc": "2.0"} if jsonrpc else {}

    def emit(self, record: logging.LogRecord) -> None:
        self.logged.append(self.format(record))

    def __enter__(self) -> Self:
        logging.getLogger("dragoman").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("dragoman").removeHandler(self)

    def feed(self, *lines: bytes) -> None:
        """Return the lines as one piece."""
        self.received += lines
        self.wire.feed(*lines)

    def answer(self, id: int, body: dict[str, Any]) -> bytes:
        return line({**self._head, "id": id, **body})

    def tell(self, method: str, params: Any) -> bytes:
        return line({**self._head, "method": method, "params": params})

    def transcript(self, counts: Callable[[model.Event], bool] = lambda event: True) -> list[bytes]:
        """Return the lines that the events came from; a line with several events is there once."""
        found: list[bytes] = []
        last: bytes | None = None
        for event in self.events:
            if event.raw is not None and event.raw is not last and counts(event):
                found.append(event.raw)
                last = event.raw
        return found

    def check(self, counts: Callable[[model.Event], bool] = lambda event: True) -> None:
        """Check what must hold after any lines."""
        assert self.logged == []
        assert self.transcript(counts) == self.received
        assert [event.seq for event in self.events] == sorted(event.seq for event in self.events)
        asked = [e.request_id for e in self.events if isinstance(e, model.PermissionAsked)]
        assert len(set(asked)) == len(asked)
        # Every event can be stored and read back, and a stored session looks as it did live.
        stored = msgspec.json.decode(msgspec.json.encode(self.events), type=list[model.Event])
        assert [event.raw for event in stored] == [event.raw for event in self.events]
        assert fold(stored) == fold(self.events)
