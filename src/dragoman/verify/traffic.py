"""Count what a peer sends during a verification: noise, stray answers, id formats, services used.

Receives the events of all connections of one verification and sends nothing. `listening` collects
the events of a limited time, such as a turn and the time after its end, up to a size limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from msgspec import Raw

from dragoman.dialects.acp import v1 as acp
from dragoman.events import model
from dragoman.verify.rung import MAX_WORD, one_line
from dragoman.wire import messages
from dragoman.wire.messages import UNDECODABLE

SHOWN_SIZE: Final = 120
"""Maximum number of characters of a line of noise to keep as evidence."""

TURN_ID_NAMES: Final = frozenset({"turnId", "turn_id", "promptId", "prompt_id"})
"""Possible names of the turn id in an update, in any dialect."""


MAX_HEARD: Final = 50_000
"""Maximum number of events to keep per turn, because a peer may send without end."""

MAX_HEARD_SIZE: Final = 64 * 1024 * 1024
"""Maximum total size of the lines of these events, in bytes."""


MAX_KINDS: Final = 100
"""Maximum number of kinds of notifications to record, because a peer may make up names without
end."""

MAX_KEYS: Final = 50
"""Maximum number of keys to keep per kind of notification."""

SAMPLES: Final = 20
"""Maximum number of notifications of one kind whose keys are examined, because most have the same
ones."""


class EventBuffer(list[model.Event]):
    """List of received events; those beyond `MAX_HEARD` or `MAX_HEARD_SIZE` are not kept, except
    the end of a turn."""

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
        self.notifications: dict[str, list[str]] = {}
        """The notifications received, by name, with the keys of their params."""
        self._samples: Counter[str] = Counter()
        self.greeting = b""
        """The line that contains the response to the last handshake."""
        self._listeners: list[EventBuffer] = []
        self._last: bytes | None = None

    def hear(self, event: model.Event) -> None:
        """Count an event, and add it to the buffers of `listening`. This is the event callback of
        every connection, called in the wire order of each."""
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
        elif self._is_sampled(event.native[:MAX_WORD]):
            self._sample(event.native, messages.decode(line))
        # One line may become several events, and the first of them may be of another kind.
        if line is not self._last and isinstance(
            event, model.Unknown | model.PermissionAsked | model.ServiceCalled
        ):
            self._last = line
            self._look_at(messages.decode(line), line)

    def _is_sampled(self, name: str) -> bool:
        """Return whether the keys of an event of this kind are examined, and if so, count it."""
        count = self._samples[name]
        if count >= SAMPLES or (not count and len(self._samples) >= MAX_KINDS):
            return False
        self._samples[name] += 1
        return True

    def _sample(self, native: str, message: messages.Message) -> None:
        """Keep the name and the keys of a notification."""
        if not isinstance(message, messages.Notification):
            return
        # Some names say more than the method: they include the kind of update.
        name = native if native.startswith(message.method) else message.method
        keys = self.notifications.get(name[:MAX_WORD])
        if keys is None:
            if len(self.notifications) >= MAX_KINDS:
                return
            keys = self.notifications[name[:MAX_WORD]] = []
        keys += [key for key in _keys(message.params) if key not in keys]
        del keys[MAX_KEYS:]

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
        """Context manager: collect the events received while the block runs."""
        heard = EventBuffer()
        self._listeners.append(heard)
        try:
            yield heard
        finally:
            self._listeners = [each for each in self._listeners if each is not heard]


def shown(line: bytes) -> str:
    """Return a line as text in quotes, shortened for a message."""
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= SHOWN_SIZE else f"{text[:SHOWN_SIZE]}…")


def _keys(params: bytes | Raw) -> list[str]:
    """Return the keys of params; those of nested objects as `parent.key`, one level deep."""
    try:
        body = msgspec.json.decode(params)
    except UNDECODABLE:
        return []
    found: list[str] = []
    for key, value in body.items() if isinstance(body, dict) else ():
        inner = [f"{key}.{name}" for name in value] if isinstance(value, dict) else []
        found += [one_line(each, MAX_WORD) for each in inner or [key]]
    return found


def has_turn_id(line: bytes) -> bool:
    """Return whether a message has the id of a turn in its params."""
    try:
        message = msgspec.json.decode(messages.mend(line))
    except UNDECODABLE:
        return False
    return isinstance(message, dict) and _names(message.get("params"), depth=3)


def _names(value: Any, *, depth: int) -> bool:
    if not isinstance(value, dict):
        return False
    if any(name in TURN_ID_NAMES and value[name] is not None for name in value):
        return True
    return depth > 0 and any(_names(inner, depth=depth - 1) for inner in value.values())
