"""This process's standard input and output as a stream, for a program started by the other side.

Owns the two descriptors exclusively while the stream is open: what the rest of the program, its
libraries and its children print goes to stderr, and they find no input. Restores everything at the
end. Reading and writing is in `pipes`, the lifetime of the stream in `duplex`. Making a descriptor
non-blocking changes it for every process that shares it, for a terminal even after we exit. So the
stream uses its own descriptors where the system can create them, and threads on shared ones
otherwise.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from typing import TextIO

from dragoman.errors import UsageError
from dragoman.transports.base import Stream
from dragoman.transports.duplex import DuplexStream

STDIN, STDOUT, STDERR = 0, 1, 2

_stdio_taken = False
"""Whether the stream is open. A process has only one standard input and output, so this is global
state."""


async def open_stdio() -> Stream:
    """Take over standard input and output until the stream is closed. Raises `UsageError` if they
    are already taken, closed or unusable."""
    if _stdio_taken:
        raise UsageError("standard input and output are already in use")
    if sys.__stdin__ is None or sys.__stdout__ is None:
        # They were closed when the program began, so their numbers may now belong to any other
        # file, for example to the event loop's own descriptor.
        raise UsageError("standard input or output is closed")
    with contextlib.ExitStack() as undo:
        try:
            taken = _Taken()
            undo.callback(taken.give_back)
            read_fd, threaded_read = own_descriptor(taken.stdin, os.O_RDONLY)
            undo.callback(os.close, read_fd)
            write_fd, threaded_write = own_descriptor(taken.stdout, os.O_WRONLY)
            undo.callback(os.close, write_fd)
        except OSError as error:
            raise UsageError(
                f"standard input and output cannot be used: {error.strerror}"
            ) from error
        stream = StdioStream(
            taken,
            read_fd,
            write_fd,
            threaded_read=threaded_read,
            threaded_write=threaded_write,
        )
        undo.pop_all()
        return stream


class StdioStream(DuplexStream):
    """The stream over standard input and output. Created only by `open_stdio`."""

    def __init__(
        self,
        taken: _Taken,
        read_fd: int,
        write_fd: int,
        *,
        threaded_read: bool,
        threaded_write: bool,
    ) -> None:
        super().__init__(
            read_fd, write_fd, threaded_read=threaded_read, threaded_write=threaded_write
        )
        self._taken = taken

    def _release(self) -> None:
        super()._release()
        self._taken.give_back()


class _Taken:
    """The real standard input and output, moved to private descriptors until restored."""

    def __init__(self) -> None:
        global _stdio_taken
        with contextlib.ExitStack() as undo:
            self.stdin = _copy(STDIN)
            undo.callback(os.close, self.stdin)
            self.stdout = _copy(STDOUT)
            undo.callback(os.close, self.stdout)
            # Once stdin is redirected, only redirecting stdout can still fail.
            _point(STDIN, None, os.O_RDONLY)
            try:
                _point(STDOUT, None if sys.__stderr__ is None else STDERR, os.O_WRONLY)
            except OSError:
                os.dup2(self.stdin, STDIN)
                raise
            undo.pop_all()
        _stdio_taken = True
        self._text: TextIO | None = sys.stdout
        # Text printed before and not yet flushed must not appear between messages later. From here
        # on prints appear at once, as on stderr.
        _flush(sys.stdout)
        sys.stdout = sys.stderr

    def give_back(self) -> None:
        global _stdio_taken
        # Text that other code has printed to the old object must still go to stderr.
        _flush(self._text)
        _flush(sys.stdout)
        if sys.stdout is sys.stderr:
            sys.stdout = self._text
        for copy, place in ((self.stdin, STDIN), (self.stdout, STDOUT)):
            with contextlib.suppress(OSError):
                os.dup2(copy, place)
            os.close(copy)
        _stdio_taken = False


def own_descriptor(fd: int, access: int, *, platform: str = sys.platform) -> tuple[int, bool]:
    """Return a descriptor of our own for the file of `fd`, and whether it has to be read or written
    in a thread. `access` is `O_RDONLY` or `O_WRONLY`."""
    mode = os.fstat(fd).st_mode
    if platform == "linux" and (_is_nameless_pipe(fd) or os.isatty(fd)):
        # Opening it again gives an open file of our own, with its own mode. A named pipe is left
        # out: opened again after its last writer left, it never reports end of file.
        with contextlib.suppress(OSError):
            flags = access | os.O_NONBLOCK | os.O_NOCTTY
            return os.open(f"/proc/self/fd/{fd}", flags), False
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        # Two processes rarely share these, but stderr often is the same file, and code that prints
        # errors there expects it to block.
        return _copy(fd), platform == "win32" or _is_same(fd, STDERR)
    return _copy(fd), True


def _copy(fd: int) -> int:
    """Return a copy of a descriptor. It is above the three standard ones; children do not inherit
    it."""
    if sys.platform == "win32":
        import msvcrt

        copy = os.dup(fd)
        msvcrt.setmode(copy, os.O_BINARY)
        return copy
    import fcntl

    # A plain dup takes the lowest free number, which is a standard descriptor if one is closed.
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, STDERR + 1)


def _point(place: int, target: int | None, access: int) -> None:
    """Redirect a standard descriptor to another one, or to the null device if `target` is None."""
    if target is not None:
        os.dup2(target, place)
        return
    nothing = os.open(os.devnull, access)
    try:
        os.dup2(nothing, place)
    finally:
        os.close(nothing)


def _is_nameless_pipe(fd: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")
    except OSError:
        return False


def _is_same(fd: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(fd, other)
    except OSError:
        return False


def _flush(text: TextIO | None) -> None:
    # A text stream may be closed, detached or without a file; its owner will notice.
    if text is not None:
        with contextlib.suppress(OSError, ValueError):
            text.flush()
