"""Read and write the lines of a chaos agent, with the faults at that level.

The faults are split frames, noise, a very long line and a limit on line length. Messages are not
interpreted here.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any, Final

READ_SIZE: Final = 64 * 1024
PIECE_SIZE: Final = 11
"""Number of bytes written at once by an agent that splits its frames: never a whole message."""
SHORT_LINE: Final = 64 * 1024
"""The maximum line length of an agent that dies of a longer one."""
LONG_LINE: Final = 64 * 1024 * 1024

NOISE: Final = (b"Welcome to chaos!\n", b"\x1b[1m[info]\x1b[0m loading {not json\n")
"""Output of an agent that does not know that its stdout belongs to the protocol."""


class Pipe:
    """Standard input and output as lines."""

    def __init__(self, fault: str, *, source: int = 0, sink: int = 1) -> None:
        self._fault = fault
        self._source = source
        self._sink = sink
        self._held: list[bytes] = []
        self._held_size = 0

    def make_noise(self) -> None:
        for line in NOISE:
            self._write(line)

    def read(self, timeout: float | None) -> list[Any] | None:
        """Return the messages received: an empty list after the timeout, None at the end of the
        input. Anything but a JSON object is dropped, as most agents do."""
        ready, _, _ = select.select([self._source], [], [], timeout)
        if not ready:
            return []
        data = os.read(self._source, READ_SIZE)
        if not data:
            return None
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._held, lines[0]])
            self._held, self._held_size = [], 0
        self._held.append(rest)
        self._held_size += len(rest)
        longest = max([self._held_size, *map(len, lines)])
        if self._fault == "dies-on-long-line" and longest > SHORT_LINE:
            os.write(2, b"ValueError: Separator is not found, and chunk exceed the limit\n")
            sys.exit(1)
        return [message for message in map(_message, lines) if message is not None]

    def send(self, message: dict[str, Any]) -> None:
        self._write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def send_long_line(self) -> None:
        """Send a line that is not a message and does not end for a long time."""
        block = b"x" * (1024 * 1024)
        for _ in range(LONG_LINE // len(block)):
            self._write(block)
        self._write(b"\n")

    def _write(self, data: bytes) -> None:
        size = PIECE_SIZE if self._fault == "split-frames" else len(data)
        for start in range(0, len(data), size):
            view = memoryview(data)[start : start + size]
            while view:
                view = view[os.write(self._sink, view) :]


def _message(line: bytes) -> Any:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
