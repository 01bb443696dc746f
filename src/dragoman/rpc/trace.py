"""Trace file of both directions of a connection, for debugging.

Off by default; the environment variable ``DRAGOMAN_TRACE`` or an argument turns it on. When off it
costs one comparison for each message sent and each chunk received. The file has one line of JSON
per message: ``t`` (seconds since the trace began), ``conn``, ``dir`` (``send`` or ``recv``) and
``msg``, or ``text`` if a line was not JSON. Secrets are removed by `dragoman.redaction`, which
holds a message back while the end of its text may still become a secret.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from dragoman.errors import UsageError
from dragoman.rpc.connection import TRACE_VARIABLE
from dragoman.wire.peer import Event, Overrun, Repeated

if TYPE_CHECKING:
    from dragoman.redaction.redactor import Redactor

log: Final = logging.getLogger("dragoman.rpc")

_redactor: Redactor | None = None


def redact_with(redactor: Redactor) -> None:
    """Use this redactor for every trace that this process opens from now on.

    Only the packages above this one know which ordinary-looking values are secrets.
    """
    global _redactor
    _redactor = redactor


class TraceSink(Protocol):
    """Receives the lines of both directions of a connection. It is the connection's `trace`
    attribute, which may change at any time."""

    def record_received(self, conn: str, events: Iterable[Event[Any]]) -> None:
        """Record the lines of received events."""

    def record(self, conn: str, direction: str, line: bytes) -> None:
        """Record one line, in either direction: ``send`` or ``recv``."""

    def close(self) -> None:
        """Called when the connection has ended."""


def lines_of(events: Iterable[Event[Any]]) -> Iterator[bytes]:
    """Yield the lines of received events."""
    for event in events:
        match event:
            case Overrun():
                pass
            case Repeated(request=request):
                yield request.line
            case _:
                yield event.line


def check_file(path: str | os.PathLike[str]) -> None:
    """Check that a trace can be written to this file; it is created if it is missing. Raises
    `UsageError` if it cannot be opened."""
    try:
        os.close(_open(path))
    except OSError as error:
        raise UsageError(
            f"cannot write the trace file {path}: {error.strerror or error}"
        ) from error


def _open(path: str | os.PathLike[str]) -> int:
    # Each record is one write to a file opened for appending, so records do not interleave. A pipe
    # without a reader must not block the event loop, neither here nor at a record.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags, 0o600)


class Trace:
    """An open trace file. Several connections, and several processes, may share one path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd: int | None = _open(path)
        self._began_at = time.monotonic()
        # Not at the top: a program without a trace does not load it.
        from dragoman.redaction.messages import MessageRedactor, NotJson
        from dragoman.redaction.redactor import Redactor

        self._not_json = NotJson
        self._messages: MessageRedactor[dict[str, Any]] = MessageRedactor(_redactor or Redactor())

    def record_received(self, conn: str, events: Iterable[Event[Any]]) -> None:
        """Write the lines of received events."""
        for line in lines_of(events):
            self.record(conn, "recv", line)

    def record(self, conn: str, direction: str, line: bytes) -> None:
        """Write one line. If the disk is full or the line cannot be recorded, the trace ends, but
        not the connection."""
        if self._fd is None:
            return
        began = round(time.monotonic() - self._began_at, 6)
        entry = {"t": began, "conn": conn, "dir": direction}
        try:
            self._write(self._messages.feed(line, entry, stream=(conn, direction)))
        except Exception:
            # An observer must not stop the connection.
            log.exception("the trace ends here: a message could not be recorded")
            self._end()

    def _write(self, entries: Iterator[tuple[dict[str, Any], Any]]) -> None:
        for entry, message in entries:
            if self._fd is None:
                return
            if isinstance(message, self._not_json):
                entry["text"] = str(message)
            else:
                entry["msg"] = message
            record = msgspec.json.encode(entry) + b"\n"
            try:
                if os.write(self._fd, record) < len(record):
                    raise OSError(errno.ENOSPC, "only a part of a record could be written")
            except OSError as error:
                log.warning("the trace ends here: %s", error)
                self._end()

    def close(self) -> None:
        """Write what was held back, and close the file."""
        self._write(self._messages.flush())
        self._end()

    def _end(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def from_environment() -> Trace | None:
    """Return the trace that `TRACE_VARIABLE` requests. None if the variable is not set, or if the
    file cannot be opened, which is logged."""
    path = os.environ.get(TRACE_VARIABLE)
    if not path:
        return None
    try:
        return Trace(path)
    except OSError as error:
        log.warning("no trace is written: cannot write %s: %s", path, error.strerror or error)
        return None
