"""A record of both directions of a connection, for people who have to find out what happened.

Owns the trace file and the masking of secrets in it. Off unless asked for, by the environment
variable ``DRAGOMAN_TRACE`` or an argument; when off it costs one comparison for each chunk. One
line of JSON for each message: ``t`` (seconds since the trace began), ``conn``, ``dir`` (``send`` or
``recv``) and ``msg``, or ``text`` where a line was not JSON.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Any, Final

import msgspec

log: Final = logging.getLogger("dragoman.rpc")

VARIABLE: Final = "DRAGOMAN_TRACE"
MASK: Final = "***"

_SECRET_KEY: Final = re.compile(
    r"(?i)(token|secret|passw|api[_-]?key|access[_-]?key|private[_-]?key|authorization|credential"
    r"|cookie|bearer)"
)
_SECRET_TEXT: Final = re.compile(
    r"(?i)\b(?:sk|pk|rk)-[a-z0-9_-]{8,}|\bgh[pousr]_[a-z0-9]{16,}|\bgithub_pat_\w{16,}"
    r"|\bxox[abprs]-[a-z0-9-]{8,}|\bAKIA[0-9A-Z]{12,}|\bAIza[0-9a-z_-]{20,}"
    r"|\beyJ[a-z0-9_-]{8,}\.[a-z0-9_-]{8,}\.[a-z0-9_-]*|(?<=bearer )[a-z0-9._~+/=-]{8,}"
)


def mask(value: Any) -> Any:
    """A copy of a JSON value without its secrets.

    Masked are strings under a key that names a secret, the `value` beside a `name` that does (as
    environment variables and headers are sent), and text that looks like a well-known kind of key.
    Numbers stay: a count of tokens is not a token.
    """
    if isinstance(value, dict):
        named = value.get("name")
        pair = isinstance(named, str) and _SECRET_KEY.search(named) is not None
        return {
            key: MASK
            if isinstance(item, str)
            and item
            and (_SECRET_KEY.search(key) or (pair and key == "value"))
            else mask(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [mask(item) for item in value]
    if isinstance(value, str):
        return _SECRET_TEXT.sub(MASK, value)
    return value


class Trace:
    """An open trace file. Several connections, and several processes, may share one path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Each record is one write to a file opened for appending, so records do not interleave.
        self._fd: int | None = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600
        )
        self._began_at = time.monotonic()

    def record(self, conn: str, direction: str, line: bytes) -> None:
        """Write one line down. A full disk ends the trace, never the connection."""
        if self._fd is None:
            return
        entry: dict[str, Any] = {
            "t": round(time.monotonic() - self._began_at, 6),
            "conn": conn,
            "dir": direction,
        }
        try:
            entry["msg"] = mask(msgspec.json.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            entry["text"] = mask(line.decode(errors="replace"))
        try:
            os.write(self._fd, msgspec.json.encode(entry) + b"\n")
        except OSError as error:
            log.warning("the trace ends here: %s", error)
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def from_environment() -> Trace | None:
    """The trace that the environment asks for, if it does."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        return Trace(path)
    except OSError as error:
        log.warning("no trace is written: %s", error)
        return None
