"""Read and write text files of the workspace for a peer.

Defines what a line is, what counts as text and the size limits, and makes every write atomic.
`workspace` decides which paths are allowed. No protocol is used here.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dragoman.client.services.path_walk import NO_FOLLOW, WalkedPath, failed
from dragoman.client.services.workspace import Workspace, require_file
from dragoman.errors import ArgumentInvalid, FileMissing, NotText, TooLarge
from dragoman.rpc.tasks import check, in_thread

MAX_FILE_SIZE: Final = 10 * 1024 * 1024
"""Maximum number of bytes per read or write: far more than source code needs, and still
harmless."""

MAX_SCAN_SIZE: Final = 1024 * 1024 * 1024
"""Maximum number of bytes that are read from a file in search of the requested lines. A sparse file
can have any size at no cost, and without a limit a request for its last line would read for
years."""

CHUNK_SIZE: Final = 256 * 1024
"""Chunk size of reads and writes: it sets how soon a cancelled operation stops."""

_WRITE_FLAGS: Final = (
    os.O_WRONLY
    | NO_FOLLOW
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)

ReadOverlay = Callable[[Path], str | None]
"""Callback that returns the unsaved text of a file that is open in an editor, or None. Called with
the real path, on the event loop's thread; the file need not exist."""


class Files:
    """Reads and writes text files inside a workspace. Nothing stays open between calls."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        max_file_size: int = MAX_FILE_SIZE,
        missing_file_is_empty: bool = False,
        read_overlay: ReadOverlay | None = None,
    ) -> None:
        """`missing_file_is_empty`: read a missing file as an empty text, for peers that read a file
        before they create it and treat any error as a failed write."""
        self._workspace = workspace
        self._max_size = max_file_size
        self._missing_file_is_empty = missing_file_is_empty
        self._read_overlay = read_overlay

    async def read_text(
        self,
        path: str | os.PathLike[str],
        *,
        line: int | None = None,
        limit: int | None = None,
    ) -> str:
        """Return the text of a file, or up to `limit` lines of it starting at line number `line`.

        The text is decoded as strict UTF-8. Line endings and a byte order mark are kept, so that
        writing back what was read changes nothing. Only a line feed ends a line. `line` counts from
        1 (0 means the same); a line past the end returns an empty string. Only the requested part
        has to be text and within the size limit.
        """
        text = os.fspath(path)
        skip = max(_require_count("line", line) or 1, 1) - 1
        limit = _require_count("limit", limit)
        if self._read_overlay is not None:
            real = await in_thread(text, lambda _: self._workspace.resolve_for_write(text))
            unsaved = self._read_overlay(real)
            if unsaved is not None:
                return await in_thread(
                    text, lambda stop: self._cut(text, unsaved, skip, limit, stop)
                )
        return await in_thread(text, lambda stop: self._read(text, skip, limit, stop))

    async def write_text(self, path: str | os.PathLike[str], content: str) -> None:
        """Replace the text of a file with `content`; a missing file is created.

        Readers see the old text or the new one, never a mixture. After an error the old text is
        still there, unless the error's `may_have_run` is set; after a cancellation it may be
        either. Missing parent directories are created (and stay). Permissions of an existing file
        are kept, and its owner if the system allows it; other hard links and extended attributes
        are not. A symbolic link is followed and stays a link.
        """
        text = os.fspath(path)
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise ArgumentInvalid(f"the text cannot be written as UTF-8: {error}") from None
        if len(data) > self._max_size:
            raise TooLarge(text, self._max_size, f"the new text is {len(data)} bytes long")
        await in_thread(text, lambda stop: self._write(text, data, stop), changes_disk=True)

    def _cut(
        self, text: str, unsaved: str, skip: int, limit: int | None, stop: threading.Event
    ) -> str:
        try:
            source = io.BytesIO(unsaved.encode())
        except UnicodeEncodeError as error:
            raise NotText(text, str(error)) from None
        chunks = _chunks(text, source.read, stop)
        return _decoded(text, _take(text, chunks, skip, limit, self._max_size))

    def _read(self, text: str, skip: int, limit: int | None, stop: threading.Event) -> str:
        try:
            with self._workspace.open_for_read(text) as (fd, info):
                if not skip and limit is None and info.st_size > self._max_size:
                    raise TooLarge(
                        text, self._max_size, f"it is {info.st_size} bytes long (request a part)"
                    )
                chunks = _chunks(text, lambda size: os.read(fd, size), stop)
                data = _take(text, chunks, skip, limit, self._max_size)
        except FileMissing:
            if self._missing_file_is_empty:
                return ""
            raise
        return _decoded(text, data)

    def _write(self, text: str, data: bytes, stop: threading.Event) -> None:
        check(stop)
        with self._workspace.find(text, missing="make") as place:
            if place.info is not None:
                require_file(text, place.info)
            try:
                _replace(place, data, stop)
            except OSError as error:
                raise failed(text, error) from error


def _chunks(text: str, read: Callable[[int], bytes], stop: threading.Event) -> Iterator[bytes]:
    """Yield the chunks of a file from its start. Raises `TooLarge` after `MAX_SCAN_SIZE` bytes."""
    scanned_size = 0
    while True:
        check(stop)
        try:
            chunk = read(CHUNK_SIZE)
        except OSError as error:
            raise failed(text, error) from error
        if not chunk:
            return
        scanned_size += len(chunk)
        if scanned_size > MAX_SCAN_SIZE:
            raise TooLarge(text, MAX_SCAN_SIZE, "the requested part begins too far into the file")
        yield chunk


def _take(text: str, chunks: Iterator[bytes], skip: int, limit: int | None, max_size: int) -> bytes:
    """Return `limit` lines, or all, after skipping `skip` lines, as bytes.

    Takes linear time and bounded memory. Raises `TooLarge` for more than `max_size` bytes.
    """
    if limit == 0:
        return b""
    chunk = b""
    while skip:
        chunk = next(chunks, b"")
        if not chunk:
            return b""
        count = chunk.count(b"\n")
        if count < skip:
            skip -= count
        else:
            chunk = chunk[_end_of_line(chunk, skip) :]
            skip = 0
    taken = [chunk]
    size = 0
    while True:
        if limit is not None:
            count = chunk.count(b"\n")
            if count >= limit:
                chunk = taken[-1] = chunk[: _end_of_line(chunk, limit)]
                limit = 0
            else:
                limit -= count
        size += len(chunk)
        if size > max_size:
            raise TooLarge(text, max_size, f"the requested part has more than {max_size} bytes")
        if limit == 0:
            break
        chunk = next(chunks, b"")
        if not chunk:
            break
        taken.append(chunk)
    return b"".join(taken)


def _end_of_line(chunk: bytes, number: int) -> int:
    """Return the offset after line feed number `number` in `chunk`, which has at least that many.

    Bisection keeps it linear and in C, even with very short lines.
    """
    start, end = 0, len(chunk)
    while end - start > 1:
        middle = (start + end) // 2
        count = chunk.count(b"\n", start, middle)
        if count >= number:
            end = middle
        else:
            number -= count
            start = middle
    return end


def _decoded(text: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        detail = f"{error.reason} (byte {error.start} of the requested part)"
        raise NotText(text, detail) from None


def _require_count(name: str, value: int | None) -> int | None:
    # True is an int, but `true` as a line number is an error of the peer.
    if value is not None and (isinstance(value, bool) or value < 0):
        raise ArgumentInvalid(f"{name} must be a non-negative integer, not {value!r}")
    return value


def _replace(place: WalkedPath, data: bytes, stop: threading.Event) -> None:
    """Replace a file by rename, or leave everything unchanged."""
    old = _old_file(place)
    # Not derived from the file's name, which may already have the maximum length.
    temporary = place.sibling(f".dragoman-{secrets.token_hex(8)}.tmp")
    fd = os.open(
        temporary,
        _WRITE_FLAGS | os.O_CREAT | os.O_EXCL,
        0o666 if old is None else 0o600,
        dir_fd=place.folder_fd,
    )
    try:
        try:
            if old is not None and hasattr(os, "fchmod"):
                with contextlib.suppress(OSError):
                    os.fchown(fd, old.st_uid, old.st_gid)
                # Without the set-user-id bits, which writing to a file clears as well.
                os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)
            view = memoryview(data)
            while view:
                check(stop)
                view = view[os.write(fd, view[:CHUNK_SIZE]) :]
            # Without fsync, a machine crash after the rename could leave an empty file.
            os.fsync(fd)
        finally:
            os.close(fd)
        check(stop)
        os.replace(temporary, place.name, src_dir_fd=place.folder_fd, dst_dir_fd=place.folder_fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=place.folder_fd)
        raise


def _old_file(place: WalkedPath) -> os.stat_result | None:
    """Return the state of the file to be replaced, after checking that it is writable; None if
    there is no file.

    A rename needs only permission on the directory, and would replace a read-only file.
    """
    if place.info is None:
        return None
    try:
        fd = os.open(place.name, _WRITE_FLAGS, dir_fd=place.folder_fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ETXTBSY:
            return place.info  # A running program cannot be written to, but can be replaced.
        raise
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)
