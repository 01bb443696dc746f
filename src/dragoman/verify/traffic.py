"""Count what a peer sends during a verification: noise, stray answers, id formats, services used.

Receives the events of all connections of one verification and sends nothing. A listener gets the
events of one turn, also those after its end, up to a size limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from dragoman.dialects.acp import v1 as acp
from dragoman.events import model
from dragoman.wire import messages

SHOWN_SIZE: Final = 120
"""Characters of a line of noise that are kept as evidence."""

TURN_ID_NAMES: Final = frozenset({"turnId", "turn_id", "promptId", "prompt_id"})
"""Possible names of the turn id in an update, in any dialect."""


MAX_HEARD: Final = 50_000
"""Maximum events of one turn that are kept: a peer may send without end."""

MAX_HEARD_SIZE: Final = 64 * 1024 * 1024
"""Maximum bytes of their lines."""


class EventBuffer(list[model.Event]):
    """List of received events, up to a size limit. The end of a turn is always kept."""

    def __init__(self) -> None:
        super().__init__()
        self.lines_size = 0
        self.total = 0
        """Number of events, including those that were not kept."""

    def take(self, event: model.Event) -> None:
        self.total += 1
        size = 0 if event.raw is None else len(event.raw)
        full = len(self) >= MAX_HEARD or self.lines_size + size > MAX_HEARD_SIZE
        if full and not isinstance(event, model.TurnEnded):
            return
        self.lines_size += size
        self.append(event)


class TrafficCounts:
    """Counts the events of all connections of one verification."""

    def __init__(self) -> None:
        self.noise_lines = 0
        self.noise_sample = ""
        self.stray_answers = 0
        self.stray_sample = ""
        self.id_formats: set[str] = set()
        self.services: Counter[str] = Counter()
        self.protocol_version: str | None = None
        self.greeting = b""
        """The line of the last handshake's answer."""
        self._listeners: list[EventBuffer] = []
        self._last: bytes | None = None

    def hear(self, event: model.Event) -> None:
        """Count an event. Called in wire order for each connection."""
        for heard in self._listeners:
            heard.take(event)
        match event:
            case model.ConnectionReady(protocol_version=version):
                self.protocol_version = version
            case model.ServiceCalled(service=service):
                self.services[service] += 1
            case _:
                pass
        line = event.raw
        if line is None:
            return
        if event.native == acp.INITIALIZE.name:
            self.greeting = line
        # One line may become several events, and the first of them may be of another kind.
        if line is not self._last and isinstance(
            event, model.Unknown | model.PermissionAsked | model.ServiceCalled
        ):
            self._last = line
            self._look_at(messages.decode(line), line)

    def _look_at(self, message: messages.Message, line: bytes) -> None:
        match message:
            case messages.Request(id=id):
                self.id_formats.add("string" if isinstance(id, str) else "integer")
            case messages.ResultResponse() | messages.ErrorResponse():
                self.stray_answers += 1
                self.stray_sample = self.stray_sample or shown(line)
            case messages.Malformed():
                self.noise_lines += 1
                self.noise_sample = self.noise_sample or shown(line)
            case messages.Notification():
                pass

    @contextmanager
    def listening(self) -> Iterator[EventBuffer]:
        """Collect the events from here on in a list."""
        heard = EventBuffer()
        self._listeners.append(heard)
        try:
            yield heard
        finally:
            self._listeners = [each for each in self._listeners if each is not heard]


def shown(line: bytes) -> str:
    """A line shortened for a message."""
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= SHOWN_SIZE else f"{text[:SHOWN_SIZE]}…")


def has_turn_id(line: bytes) -> bool:
    """Whether an update says to which turn it belongs."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(message, dict) and _names(message.get("params"), depth=3)


def _names(value: Any, *, depth: int) -> bool:
    if not isinstance(value, dict):
        return False
    if any(name in TURN_ID_NAMES and value[name] is not None for name in value):
        return True
    return depth > 0 and any(_names(inner, depth=depth - 1) for inner in value.values())
