"""Split a byte stream into lines.

Every connection splits its input into messages with a `Framer`, which also enforces the maximum
size of a message. What a line means is up to `messages`. Time is linear in the number of bytes:
none is copied more than twice, except for a chunk that begins with a byte order mark. At most about
twice the unfinished line is held in memory, however small or large its pieces are.
"""

from __future__ import annotations

from typing import Final

from dragoman.errors import UsageError

DEFAULT_MAX_LINE_SIZE: Final = 16 * 1024 * 1024
"""The maximum line size in bytes without the newline; exactly this many are allowed."""

MIN_LINE_SIZE: Final = 4096
"""The smallest limit that users may set, in bytes: the handshake has to fit."""

_BOM: Final = b"\xef\xbb\xbf"
_NEWLINE: Final = 0x0A
_RETURN: Final = 0x0D
"""An int like `_NEWLINE`: searching bytes for an int is ten times as fast as searching for
bytes."""
_LONG_SIZE: Final = 512
"""A chunk longer than this is searched for a newline before it is split, because splitting takes
thirty times as long per byte."""
_FREE_PARTS: Final = 16
_BLOCK_SIZE: Final = 64 * 1024


def require_line_size(size: object) -> None:
    """Raise `UsageError` unless a `max_line_size` is None or an int of at least `MIN_LINE_SIZE`."""
    if size is None:
        return
    if not isinstance(size, int) or isinstance(size, bool):
        raise UsageError(f"max_line_size= takes a number of bytes, not {size!r}")
    if size < MIN_LINE_SIZE:
        raise UsageError(f"max_line_size= must be {MIN_LINE_SIZE} bytes or greater, not {size}")


class Framer:
    """Collects bytes and returns complete lines.

    A line ends with ``\\n`` or ``\\r\\n``, neither of which is part of it. One byte order mark at
    the very beginning of the stream is skipped. Blank lines are returned as they are.

    `overflowed` becomes true when a line exceeds the limit. The lines before it have been returned;
    nothing after it will be returned, because it is uncertain where the next line begins.
    """

    __slots__ = (
        "_block",
        "_block_used",
        "_limit",
        "_mark",
        "_parts",
        "_size",
        "copied",
        "overflowed",
    )

    def __init__(self, max_line_size: int = DEFAULT_MAX_LINE_SIZE) -> None:
        if max_line_size < 1:
            raise ValueError("max_line_size must be at least 1")
        self._limit = max_line_size
        # The unfinished line. Large pieces are kept as they came, without a copy; if there are many
        # small ones they are gathered in blocks, because a million one-byte objects would need
        # forty times the memory of their bytes.
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._block = bytearray()
        self._block_used = 0
        # The beginning of the stream, as long as it may still become a byte order mark.
        self._mark: bytes | None = b""
        self.overflowed = False
        self.copied = 0
        """Number of bytes copied so far, so that a test can prove that framing is linear."""

    def feed(self, data: bytes) -> list[bytes]:
        """Feed the next bytes. Returns the lines that they complete."""
        if self.overflowed:
            return []
        if self._mark is not None:
            data = self._skip_mark(data)
        size = len(data)
        if size > _LONG_SIZE and (end := data.find(_NEWLINE)) in (-1, size - 1):
            # A long line or a part of one.
            lines, tail = ([], data) if end < 0 else ([data[:end]], b"")
        else:
            lines = data.split(b"\n")
            tail = lines.pop()
        if lines:
            self.copied += size
            unfinished = self._size
            if unfinished:
                lines[0] = self._take(lines[0])
            if _RETURN in data:
                # A joined line has already lost its carriage return.
                self._strip_returns(lines, 1 if unfinished else 0)
            # No line cut from a chunk is longer than the chunk, so usually the lines need not be
            # checked.
            if unfinished + size > self._limit and self._too_long(lines):
                return lines
        if tail:
            self._hold(tail)
        return lines

    def end(self) -> bytes | None:
        """End the stream. Returns the last line if it had no newline, else None."""
        if self._mark:
            # It did not become a byte order mark, so it is data.
            mark, self._mark = self._mark, None
            self._hold(mark)
        return self._take(b"") if self._size else None

    def _skip_mark(self, data: bytes) -> bytes:
        """Return the data without a byte order mark at the beginning of the stream. Bytes that may
        be the first part of a mark are held back until more arrives."""
        held = self._mark or b""
        start = held + data[: len(_BOM)]
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._mark = start
            return b""
        self._mark = None
        if start.startswith(_BOM):
            data = data[len(_BOM) - len(held) :]
            self.copied += len(data)
        elif held:
            data = held + data
            self.copied += len(data)
        return data

    def _hold(self, piece: bytes) -> None:
        """Keep a piece of the unfinished line."""
        self._size += len(piece)
        if self._size > self._limit and not (
            # A carriage return at the limit may be the first half of the line's end.
            self._size == self._limit + 1 and piece.endswith(b"\r")
        ):
            self._overflow()
        elif len(self._parts) < _FREE_PARTS or len(piece) >= _BLOCK_SIZE:
            self._seal()
            self._parts.append(piece)
        else:
            self._gather(piece)

    def _gather(self, piece: bytes) -> None:
        """Copy a small piece into the open block, and open the next one when it is full."""
        if self._block_used + len(piece) > len(self._block):
            self._seal()
            self._block = bytearray(_BLOCK_SIZE)
        end = self._block_used + len(piece)
        self._block[self._block_used : end] = piece
        self._block_used = end
        self.copied += len(piece)

    def _seal(self) -> None:
        """Turn the open block, if there is one, into a part like the others."""
        if self._block_used:
            self._parts.append(memoryview(self._block)[: self._block_used])
            self._block = bytearray()
            self._block_used = 0

    def _take(self, last: bytes) -> bytes:
        """Return the unfinished line completed by its last piece, without a trailing carriage
        return, and begin a new line."""
        self._seal()
        parts = self._parts
        if last:
            parts.append(last)
        if parts[-1][-1] == _RETURN:
            # A view, because slicing a line that is already joined would copy all of it again.
            parts[-1] = memoryview(parts[-1])[:-1]
        line = b"".join(parts)
        self.copied += len(line)
        parts.clear()
        self._size = 0
        return line

    def _strip_returns(self, lines: list[bytes], start: int) -> None:
        """Strip the carriage return from the end of each line, from index `start` on."""
        for index in range(start, len(lines)):
            line = lines[index]
            if line.endswith(b"\r"):
                lines[index] = line[:-1]
                self.copied += len(line) - 1

    def _too_long(self, lines: list[bytes]) -> bool:
        """Cut the list before the first line over the limit. Returns whether there was such a
        line."""
        for index, line in enumerate(lines):
            if len(line) > self._limit:
                del lines[index:]
                self._overflow()
                return True
        return False

    def _overflow(self) -> None:
        self.overflowed = True
        self._parts.clear()
        self._block = bytearray()
        self._block_used = 0
        self._size = 0
