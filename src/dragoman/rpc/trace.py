"""A record of both directions of a connection, for people who have to find out what happened.

Owns the trace file and the masking of secrets in it. Off unless asked for, by the environment
variable ``DRAGOMAN_TRACE`` or an argument; when off it costs one comparison for each chunk. One
line of JSON for each message: ``t`` (seconds since the trace began), ``conn``, ``dir`` (``send`` or
``recv``) and ``msg``, or ``text`` where a line was not JSON.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from dragoman.wire.peer import Event, Overrun, Repeated

log: Final = logging.getLogger("dragoman.rpc")

VARIABLE: Final = "DRAGOMAN_TRACE"
MASK: Final = "***"

_NAMES: Final = (
    r"token|secret|passw|api[_-]?key|access[_-]?key|private[_-]?key|authorization|credential"
    r"|cookie|bearer|passphrase"
)

_ENDINGS: Final = (
    r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key)"
)
"""What the name of a secret ends with in a text; `max_tokens=5` gives none away."""

_VALUE: Final = r"""(?:(?<=")[^"\\\r\n]{1,4096}|(?<=')[^'\\\r\n]{1,4096}|[^\s"'\\&]+)"""
"""What stands behind such a name, and behind the quote that may have come first."""


@functools.cache
def _secret_key() -> re.Pattern[str]:
    return re.compile(f"(?i)(?:{_NAMES})")


@functools.cache
def _secret_texts() -> tuple[re.Pattern[str], ...]:
    """What in a text is a secret, after a first group that stays.

    Compiled at first use: a program that writes no trace does not pay for it. Names are bounded in
    length, because an unbounded one makes the search quadratic.
    """
    return (
        # The shapes of well-known kinds of key, also right behind a letter of another script.
        re.compile(
            r"(?ia)()(?:\b(?:sk|pk|rk|xai|glpat)-[a-z0-9_-]{8,}|\b(?:gsk|hf|npm|gh[pousr])_[a-z0-9]{16,}"
            r"|\bgithub_pat_\w{16,}|\bxox[abprs]-[a-z0-9-]{8,}|\bAKIA[0-9A-Z]{12,}"
            r"|\bAIza[0-9a-z_-]{20,}|\bya29\.[a-z0-9_-]{16,}"
            r"|\beyJ[a-z0-9_-]{8,}\.[a-z0-9_-]{8,}\.[a-z0-9_-]*|(?<=bearer )[a-z0-9._~+/=-]{8,})"
        ),
        re.compile(
            r"(?s)()-----BEGIN [A-Z ]{0,32}PRIVATE KEY.*?(?:-----END [A-Z ]{0,32}KEY-----|\Z)"
        ),
        # A variable in a command or a file of settings, a part of an address, an option.
        re.compile(
            r"\b([A-Z0-9_]{0,64}(?:TOKEN|SECRET|PASSW|API_?KEY|ACCESS_KEY)[A-Z0-9_]{0,64}="
            rf"""\\*["']?){_VALUE}"""
        ),
        re.compile(rf"""(?i)((?<![a-z0-9_-])[a-z0-9_-]{{0,64}}{_ENDINGS}=\\*["']?){_VALUE}"""),
        re.compile(rf"""(?i)((?<!\S)--?[a-z0-9_-]{{0,64}}{_ENDINGS}\s+["']?){_VALUE}"""),
        # A header as it is given to curl, a password as it is told, a login in an address.
        re.compile(
            r"""(?i)((?<![a-z0-9_-])(?:proxy-)?authorization\s*:\s*"""
            r"""(?:(?:basic|bearer|digest|token)\s+)?)[^\s"'\\]+"""
        ),
        re.compile(r"""(?i)((?<![a-z0-9_-])(?:set-)?cookie\s*:\s*)[^"'\\\r\n]+"""),
        re.compile(
            r"""(?i)((?<![a-z0-9_-])(?:[a-z0-9-]{1,64}-(?:key|token|secret)|passw(?:or)?d)"""
            rf"""\s*:\s*["']?){_VALUE}"""
        ),
        re.compile(r"(://[^/\s:@]{1,64}:)[^/\s@]{1,256}(?=@)"),
        re.compile(r"(://)[^/\s:@]{16,256}(?=@)"),
        # JSON inside a string, or a line of it that was cut off.
        re.compile(
            rf'(?is)("[^"\\]{{0,64}}?(?:{_NAMES})[^"\\]{{0,64}}\\*"\s*:\s*\\*")(?:[^"\\]|\\.)+'
        ),
    )


@functools.cache
def _pair_texts() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A name that names a secret, in JSON inside a text, and the value that may stand beside it."""
    return (
        re.compile(rf'(?i)"name\\*"\s*:\s*\\*"[^"\\]{{0,64}}?(?:{_NAMES})'),
        re.compile(r'(?s)("value\\*"\s*:\s*\\*")(?:[^"\\]|\\.)+'),
    )


def mask(value: Any) -> Any:
    """A copy of a JSON value without its secrets.

    Masked are strings under a key that names a secret, the `value` beside a `name` that does (as
    environment variables and headers are sent), an argument behind an option that does, and in a
    text what looks like a well-known kind of key or stands behind such a name.
    Numbers stay: a count of tokens is not a token.
    """
    if isinstance(value, dict):
        is_secret = _secret_key().search
        named = value.get("name")
        pair = isinstance(named, str) and is_secret(named) is not None
        return {
            key: _mask_all(item) if is_secret(key) or (pair and key == "value") else mask(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            MASK if _follows_option(value, index) else mask(item)
            for index, item in enumerate(value)
        ]
    if isinstance(value, str):
        return _mask_text(value)
    return value


def _follows_option(items: list[Any], index: int) -> bool:
    """Whether an argument of a command stands behind an option that names a secret."""
    if not index:
        return False
    option, item = items[index - 1], items[index]
    return (
        isinstance(option, str)
        and isinstance(item, str)
        and option.startswith("-")
        and "=" not in option
        and len(option) <= 64
        and not item.isdecimal()
        and _secret_key().search(option) is not None
    )


def _mask_all(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _mask_all(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask_all(item) for item in value]
    return MASK if isinstance(value, str) and value else value


def _mask_text(text: str) -> str:
    for pattern in _secret_texts():
        text = pattern.sub(rf"\1{MASK}", text)
    name, value = _pair_texts()
    if name.search(text):
        text = value.sub(rf"\1{MASK}", text)
    return text


_hide: Callable[[bytes], bytes] | None = None


def conceal(hide: Callable[[bytes], bytes] | None) -> None:
    """Let `hide` take more out of every record of this process, which is one line of JSON.

    Which values are secrets, though they look like nothing, only those above this room know.
    """
    global _hide
    _hide = hide


class Trace:
    """An open trace file. Several connections, and several processes, may share one path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Each record is one write to a file opened for appending, so records do not interleave.
        # A pipe that nobody reads must not stop the event loop, neither here nor at a record.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
        self._fd: int | None = os.open(path, flags, 0o600)
        self._began_at = time.monotonic()

    def record_received(self, conn: str, events: Iterable[Event[Any]]) -> None:
        """Write down what came in."""
        for event in events:
            match event:
                case Overrun():
                    pass
                case Repeated(request=request):
                    self.record(conn, "recv", request.line)
                case _:
                    self.record(conn, "recv", event.line)

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
        record = msgspec.json.encode(entry)
        record = (record if _hide is None else _hide(record)) + b"\n"
        try:
            if os.write(self._fd, record) < len(record):
                raise OSError(errno.ENOSPC, "only a part of a record could be written")
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
