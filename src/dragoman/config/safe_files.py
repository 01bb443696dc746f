"""Read, write and lock files: dragoman's own, those of other programs, and those that a user names.

Reads only regular files, up to a size limit. Creates a file exclusively, and replaces a file
atomically unless that would change its owner or break a hard link. `locked` serializes writers.
`client.services.files` writes files for an agent in its workspace.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from dragoman.client.folders import make_private
from dragoman.errors import ConfigInvalid, DragomanError, FileFailed, UsageError

MAX_FILE_SIZE: Final = 1024 * 1024
"""Default maximum size of a file to read, in bytes. No settings are larger, and a file of gigabytes
in a checkout must not be read into memory."""

LOCK_TIMEOUT: Final = 5.0
"""Seconds to wait for another writer. A write takes milliseconds, so one that takes longer
hangs."""


NEW_FILE_MODE: Final = 0o600

COPY_SIZE: Final = 1024 * 1024

_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | getattr(os, "O_BINARY", 0)
_PRESENT: Final = os.O_WRONLY | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)

_WRONG_NAMES: Final = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EINVAL,
        errno.EILSEQ,
        errno.ENXIO,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
    }
)
"""Errno values that mean the user gave a wrong path; any other is a system error."""


def read_file(
    path: Path,
    *,
    max_size: int = MAX_FILE_SIZE,
    invalid: Callable[[str, str], DragomanError] = ConfigInvalid,
) -> bytes | None:
    """Return the bytes of a regular file, or None if it does not exist. `invalid` creates the error
    for a file that cannot be read, is not regular or is larger than `max_size`.

    The file is opened without blocking, because a named pipe in a checkout would block forever.
    """
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise invalid(str(path), f"it cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise invalid(str(path), "it is not a regular file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(max_size + 1)
    except OSError as error:
        raise invalid(str(path), f"it cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)
    if len(data) > max_size:
        raise invalid(str(path), f"it is larger than {max_size} bytes")
    return data


# -- files that belong to the user or to another program


def write_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace a file completely, or leave it as it was. Creates its directory if needed. Raises
    `FileFailed`.

    A link is followed, so that its target is replaced and not the link. The file keeps its owner,
    and its mode unless one is given; a new one is private to its owner. If replacing would change
    its owner or break a second hard link, the file is written in place, which a crash can leave
    half done.
    """
    target = Path(os.path.realpath(path))
    try:
        try:
            info = os.stat(target)
        except FileNotFoundError:
            make_private(target.parent)
            with _fresh(target, (data,), mode=mode) as fresh:
                os.replace(fresh.path, target)
            return
        if not os.access(target, os.W_OK):
            # Replacing would work, because that only needs write access to the directory.
            raise FileFailed(str(path), "it is read-only")
        with _fresh(target, (data,), like=info, mode=mode) as fresh:
            _put_in_place(fresh, target)
    except OSError as error:
        raise FileFailed(str(path), error.strerror or str(error), error.errno) from error


def export_file(path: Path, chunks: Iterable[bytes], *, replace: bool = False) -> None:
    """Write output to the file that the user named.

    Devices and pipes are opened and written, links are followed, directories are refused. A new
    file is created exclusively and private to its owner. An existing one is replaced only with
    `replace`, and keeps its owner and mode. Raises `UsageError` if the path cannot be used,
    `FileFailed` if the disk fails.
    """
    try:
        info = _found(path)
        if info is None:
            create_file(Path(os.path.realpath(path)), chunks)
        elif stat.S_ISDIR(info.st_mode):
            raise UsageError(f"{path} is a directory; name a file")
        elif not stat.S_ISREG(info.st_mode):
            _write_to_device(path, chunks)
        elif not replace:
            raise UsageError(f"{path} exists; --force replaces it")
        elif not os.access(path, os.W_OK):
            raise UsageError(f"{path} is read-only")
        else:
            target = Path(os.path.realpath(path))
            with _fresh(target, chunks, like=info) as fresh:
                _put_in_place(fresh, target)
    except FileExistsError:
        raise UsageError(f"{path} exists; --force replaces it") from None
    except (OSError, ValueError) as error:
        detail = getattr(error, "strerror", None) or str(error)
        number = getattr(error, "errno", None)
        if number is None or number in _WRONG_NAMES:
            raise UsageError(f"{path} cannot be written: {detail}") from error
        raise FileFailed(str(path), f"it cannot be written: {detail}", number) from error


def _found(path: Path) -> os.stat_result | None:
    """Return the stat of a path, following links, or None if nothing exists there."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _write_to_device(path: Path, chunks: Iterable[bytes]) -> None:
    """Write to a device or a pipe, as a shell's redirection does, but never create a file."""
    fd = os.open(path, _PRESENT)
    with os.fdopen(fd, "wb") as file:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            # The file was replaced between the stat and the open.
            raise FileExistsError
        file.writelines(chunks)


# -- new files, and files in our own folders


def create_file(path: Path, chunks: Iterable[bytes], *, mode: int | None = None) -> None:
    """Create a file with its whole content or not at all; on a file system without hard links, a
    crash can leave it empty. Raises `FileExistsError` if it exists."""
    with _fresh(path, chunks, mode=mode) as fresh:
        try:
            # Unlike a rename, this fails if the file was created in between.
            os.link(fresh.path, path)
        except FileExistsError:
            raise
        except OSError:
            # A file system without hard links: reserve the name first, then fill the file.
            os.close(os.open(path, _NEW, NEW_FILE_MODE))
            os.replace(fresh.path, path)


def write_whole(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replace a file in one of our own directories; a reader sees the old bytes or the new ones.

    A link in its place is replaced, not followed. With `sync`, the bytes are on disk before the
    file is replaced.
    """
    with _fresh(path, (data,), sync=sync) as fresh:
        os.replace(fresh.path, path)


class _Fresh(NamedTuple):
    """A new file that does not have its final name yet."""

    path: Path
    is_alike: bool
    """Whether it can be renamed over the old file without changing the owner or breaking a hard
    link."""


@contextlib.contextmanager
def _fresh(
    target: Path,
    chunks: Iterable[bytes],
    *,
    like: os.stat_result | None = None,
    mode: int | None = None,
    sync: bool = True,
) -> Iterator[_Fresh]:
    """Context manager: create a temporary file next to `target` with this content and, if `like` is
    given, with its owner and mode.

    The temporary file is removed at the end if it still exists.
    """
    # Not derived from the file's name, which may already have the maximum length.
    path = target.with_name(f".dragoman-{os.urandom(8).hex()}.tmp")
    fd = os.open(path, _NEW, NEW_FILE_MODE)
    try:
        with os.fdopen(fd, "wb") as file:
            is_alike = like is None or (like.st_nlink == 1 and _take_owner(fd, like))
            if mode is None and like is not None:
                mode = stat.S_IMODE(like.st_mode)
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, mode)
            file.writelines(chunks)
            file.flush()
            if sync:
                # Without fsync, a machine crash after the rename could leave an empty file.
                os.fsync(fd)
        yield _Fresh(path, is_alike)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _take_owner(fd: int, like: os.stat_result) -> bool:
    """Give a new file the owner of the one it will replace. Returns False if that is not
    allowed."""
    if not hasattr(os, "fchown"):
        return True
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
        try:
            os.fchown(fd, like.st_uid, like.st_gid)
        except PermissionError:
            return False
    return True


def _put_in_place(fresh: _Fresh, target: Path) -> None:
    """Replace a file by renaming the new one over it. If that would change the owner or break a
    hard link, copy the content into the existing file."""
    if fresh.is_alike:
        os.replace(fresh.path, target)
        return
    with fresh.path.open("rb") as source, target.open("r+b") as file:
        while chunk := source.read(COPY_SIZE):
            file.write(chunk)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


# -- locks


@contextlib.contextmanager
def locked(path: Path, *, timeout: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Context manager: hold the exclusive lock for changing a file. Raises `FileFailed` if the lock
    cannot be opened or is not free within `timeout` seconds.

    The lock is a separate file next to the other one and is not removed. It belongs to the open
    file descriptor, so it is released if its holder dies.
    """
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.lock")
    try:
        make_private(lock.parent)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | _NOFOLLOW, NEW_FILE_MODE)
    except OSError as error:
        raise FileFailed(str(lock), error.strerror or str(error), error.errno) from error
    try:
        if not _wait(fd, lock, timeout):
            raise FileFailed(str(path), f"another program has held its lock for {timeout:g} s")
        yield
    finally:
        os.close(fd)


def _wait(fd: int, lock: Path, timeout: float) -> bool:
    from dragoman.transports.file_lock import wait_for_lock

    try:
        return wait_for_lock(fd, timeout=timeout)
    except OSError as error:
        raise FileFailed(str(lock), error.strerror or str(error), error.errno) from error
