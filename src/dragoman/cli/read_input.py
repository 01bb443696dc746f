"""Read stdin and the files that options name, with size limits and a timeout.

After a second of waiting for stdin a notice is shown. The callers `cli.prompt`,
`cli.mcp_config_option` and `cli.sessions` interpret the bytes.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from dragoman.cli.output.terminal import is_terminal
from dragoman.errors import InputTimeout, UsageError
from dragoman.errors.usage import shown

MAX_PROMPT_SIZE: Final = 10 * 1024 * 1024
"""Bytes of a prompt. No model takes more, and the line that carries it may have 16 MiB."""

MAX_CONFIG_SIZE: Final = 1024 * 1024
"""Bytes of a settings file that an option names."""

MAX_LINE_SIZE: Final = 64 * 1024 * 1024
"""Bytes of one line of an exported session; a message of a peer has 16 MiB at most."""

NOTICE_DELAY: Final = 1.0
"""Seconds after which a person is told what is waited for. A program that pipes something is done
by then, or known to be slow."""

CHUNK_SIZE: Final = 64 * 1024

WAITING: Final = "reading stdin until its end; --no-stdin leaves it alone"


def is_piped() -> bool:
    """Whether something may have been piped to stdin: it is not a terminal, null or closed."""
    if sys.stdin is None or sys.stdin.closed or is_terminal(sys.stdin):
        return False
    try:
        found = os.fstat(sys.stdin.fileno())
    except ValueError:
        return True  # It is in memory.
    except OSError:
        return False
    null = os.stat(os.devnull)
    return not (stat.S_ISCHR(found.st_mode) and found.st_rdev == null.st_rdev)


def read_stdin(
    *, timeout: float | None = None, on_wait: Callable[[str], object] | None = None
) -> bytes:
    """All of stdin. Raises `UsageError` if it is too large, `InputTimeout` if it does not end.

    `on_wait` is called once if it has not ended after a second.
    """
    try:
        fd = sys.stdin.fileno()
    except ValueError:
        data = sys.stdin.buffer.read(MAX_PROMPT_SIZE + 1)  # It is in memory.
    else:
        data = _drain(fd, timeout, on_wait)
    return _of_size("stdin", data, MAX_PROMPT_SIZE)


def _drain(fd: int, timeout: float | None, on_wait: Callable[[str], object] | None) -> bytes:
    import queue
    import threading

    # A thread, for no system call waits for a time for every kind of stdin on every system. It may
    # be left behind waiting: the process ends without it. `_pump` bounds what the queue holds.
    pieces: queue.SimpleQueue[bytes | OSError] = queue.SimpleQueue()
    reader = threading.Thread(target=_pump, args=(fd, pieces.put), name="stdin", daemon=True)
    reader.start()
    began_at = time.monotonic()
    data = bytearray()
    while True:
        spent = time.monotonic() - began_at
        if timeout is not None and spent >= timeout:
            raise InputTimeout(timeout)
        if on_wait is not None and spent >= NOTICE_DELAY:
            on_wait(WAITING)
            on_wait = None
        waits = [timeout - spent] if timeout is not None else []
        waits += [NOTICE_DELAY - spent] if on_wait is not None else []
        try:
            piece = pieces.get(timeout=min(waits, default=None))
        except queue.Empty:
            continue
        if isinstance(piece, OSError):
            raise UsageError(f"stdin cannot be read: {piece.strerror or piece}")
        data += piece
        if not piece or len(data) > MAX_PROMPT_SIZE:
            break
    reader.join()
    return bytes(data)


def _pump(fd: int, put: Callable[[bytes | OSError], object]) -> None:
    """Read to the end, or a little more than may be."""
    size = 0
    while size <= MAX_PROMPT_SIZE:
        try:
            piece = os.read(fd, CHUNK_SIZE)
        except BlockingIOError:
            # Another process that shares stdin has set it to non-blocking.
            import select

            select.select([fd], [], [])
            continue
        except OSError as error:
            put(error)
            return
        size += len(piece)
        put(piece)
        if not piece:
            return


def remaining(timeout: float | None, spent: float) -> float | None:
    """What is left of a time limit, in tenths of a second, and never nothing."""
    if timeout is None or spent < 0.1:
        return timeout
    return max(round(timeout - spent, 1), 0.1)


def read_named(path: Path, *, max_size: int) -> bytes:
    """The bytes of a file that the user named: also of a pipe, which ``<(…)`` of a shell makes."""
    try:
        with path.open("rb") as file:
            data = file.read(max_size + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return _of_size(shown(str(path)), data, max_size)


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file that the user named, without their ends; ``-`` is stdin."""
    try:
        if str(path) == "-":
            yield from _lines("stdin", sys.stdin.buffer)
            return
        with path.open("rb") as file:
            yield from _lines(shown(str(path)), file)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _lines(what: str, file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_SIZE + 1):
        yield _of_size(f"a line of {what}", line, MAX_LINE_SIZE).rstrip(b"\r\n")


def _of_size(what: str, data: bytes, max_size: int) -> bytes:
    if len(data) > max_size:
        raise UsageError(f"{what} has more than {max_size} bytes")
    return data


def _unreadable(path: Path, error: OSError | ValueError) -> UsageError:
    detail = getattr(error, "strerror", None) or str(error)
    return UsageError(f"{shown(str(path))} cannot be read: {detail}")
