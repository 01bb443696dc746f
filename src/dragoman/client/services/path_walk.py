"""Resolve a path inside the workspace without following symbolic links out of it.

Opens one directory after another, from a root down, never letting the operating system follow a
link: a link is read, and its target is walked in the same way. Nothing outside the roots is ever
opened, so a link swapped in at any moment cannot lead outside, and an error does not reveal what
exists there. `workspace` knows the roots and what is allowed at a path.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dragoman.errors import ArgumentInvalid, FileFailed, FileMissing, PathRefused

MAX_PATH_SIZE: Final = 4096
"""Maximum number of bytes in a path: the limit of one Linux call. The walk could do more, but has
no reason to."""

MAX_LINKS: Final = 40
"""Maximum number of links followed in one walk; Linux reports a loop after the same number."""

MAX_STEPS: Final = 10_000
"""Maximum number of names walked for one path, including ".." and links: more than any real path
needs, and few enough that a path built to be slow takes only tens of milliseconds."""

CAN_WALK: Final = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
"""Whether this system can open a name inside an open directory without following links."""

KERNEL_TREES: Final = ("proc", "sys") if sys.platform == "linux" else ()
"""Directories of "/" whose files are kernel data (including our own environment) and kernel
switches. They are never entered, even if "/" itself is a root."""

NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags to open a name: do not follow a link, and close on exec."""

_FOLDER: Final = NO_FOLLOW | getattr(os, "O_PATH", 0) | getattr(os, "O_DIRECTORY", 0)

_NOT_A_FOLDER: Final = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)
"""Errors for opening a link or a file as a directory without following links."""

Missing = Literal["fail", "make", "imagine"]
"""How to handle a missing parent directory: raise `FileMissing`, create it, or continue without
touching anything, to name the path only."""

Entry = tuple[tuple[str, ...], tuple[str, ...]]
"""A root as two lists of path components: as callers may spell it, and its real path."""


@dataclass(frozen=True, slots=True)
class WalkedPath:
    """A name in an open directory of the workspace, and its state when it was examined.

    The name was not a link at that moment; open it without following links. Use as a context
    manager: it owns the open directory.
    """

    folder_fd: int | None
    """The open directory. None if the system cannot open names relative to a directory: `name` is
    then a whole path."""
    name: str
    real_path: Path
    info: os.stat_result | None
    """The state of what exists there; None if nothing does."""

    def sibling(self, name: str) -> str:
        """Return another name in the same directory, in the form of `self.name`."""
        return name if self.folder_fd is not None else os.path.join(self.real_path.parent, name)

    def close(self) -> None:
        if self.folder_fd is not None:
            os.close(self.folder_fd)

    def __enter__(self) -> WalkedPath:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def walk(text: str, entries: Sequence[Entry], missing: Missing) -> WalkedPath:
    """Resolve an absolute path inside the roots (`entries`); `missing` says how to handle a missing
    parent directory. Raises `PathRefused` for a path outside the roots."""
    names, as_folder = split(text)
    if as_folder and missing != "fail":
        raise PathRefused(text, "it names a directory")
    way = _Walk(text, entries)
    try:
        place = way.go(names, missing)
        if as_folder or way.as_folder:
            info = place.info
            if info is None or not stat.S_ISDIR(info.st_mode):
                raise PathRefused(text, "it names a directory that does not exist")
    except BaseException:
        way.close()
        raise
    return place


class _Walk:
    """One walk. It keeps the current directory open and hands it over with the result."""

    def __init__(self, text: str, entries: Sequence[Entry]) -> None:
        self.as_folder = False
        """Whether the last link was written as a link to a directory ("target/")."""
        self._text = text
        self._entries = entries
        self._fd = -1
        self._root: tuple[str, ...] = ()
        self._below: list[str] = []
        self._ahead: list[str] = []  # The names still to walk, the next one last.
        self._links = 0
        self._steps = 0

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def go(self, names: Sequence[str], missing: Missing) -> WalkedPath:
        self._enter(names)
        while self._ahead:
            self._count(1)
            name = self._ahead.pop()
            if name == "..":
                self._go_up()
                continue
            if name in KERNEL_TREES and not self._root and not self._below:
                raise PathRefused(self._text, "it belongs to the operating system")
            if not self._ahead:
                info, target = _look(self._text, name, self._fd)
                if target is None:
                    return self._place(name, info)
            else:
                inner, target = _open_folder(self._text, name, self._fd)
                if inner is not None:
                    self.close()
                    self._fd = inner
                    self._below.append(name)
                elif target is None:
                    if missing == "fail" or ".." in self._ahead:
                        raise FileMissing(self._text)
                    if missing == "imagine":
                        return self._place(name, None)
                    _make_folder(self._text, name, self._fd)
                    self._ahead.append(name)
            if target is not None:
                self._follow(target)
        return self._place(".", os.fstat(self._fd))

    def _place(self, name: str, info: os.stat_result | None) -> WalkedPath:
        real = Path("/", *self._root, *self._below, name, *reversed(self._ahead))
        return WalkedPath(self._fd, name, real, info)

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise PathRefused(self._text, "it is too long or has too many symbolic links")

    def _enter(self, names: Sequence[str]) -> None:
        """Start again at the root that contains this absolute path, given as its names. Raises
        `PathRefused` if no root does."""
        self.close()
        for spelled, root in self._entries:
            if tuple(names[: len(spelled)]) == spelled:
                self._count(len(root))
                self._root = root
                self._below = []
                self._ahead = list(reversed(names[len(spelled) :]))
                self._fd = _open_root(self._text, root)
                return
        raise PathRefused(self._text, "it is outside the workspace")

    def _go_up(self) -> None:
        # The walked names are real ones, so going up means dropping the last. Asking the system for
        # ".." would be wrong: the directory may have been moved outside since it was opened.
        up = [*self._root, *self._below][:-1]
        while self._ahead and self._ahead[-1] == "..":
            self._ahead.pop()
            del up[-1:]
        self._enter([*up, *reversed(self._ahead)])

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise PathRefused(self._text, "it has too many symbolic links")
        names, as_folder = split(target)
        self.as_folder |= as_folder and not self._ahead
        if target.startswith("/"):
            self._enter([*names, *reversed(self._ahead)])
        else:
            self._ahead.extend(reversed(names))


def require_sane(text: str) -> None:
    """Raise `ArgumentInvalid` or `PathRefused` for a path that is relative, too long, or not valid
    for the operating system."""
    if not text.startswith("/"):
        raise ArgumentInvalid(f"the path {text[:200]!r} is not absolute")
    if "\0" in text:
        raise ArgumentInvalid(f"the path {text[:200]!r} contains a NUL byte")
    try:
        size = len(os.fsencode(text))
    except UnicodeEncodeError:
        raise ArgumentInvalid(f"the path {text[:200]!r} is not valid Unicode") from None
    if size > MAX_PATH_SIZE:
        raise PathRefused(text, f"it is longer than {MAX_PATH_SIZE} bytes")


def split(text: str) -> tuple[list[str], bool]:
    """Return the names in a path, and whether its form means a directory."""
    names = [name for name in text.split("/") if name not in ("", ".")]
    return names, text.endswith(("/", "/.", "/..")) or text in (".", "..")


def failed(text: str, error: OSError) -> FileFailed | PathRefused:
    """Return the error to raise for an `OSError` at this path."""
    if error.errno == errno.ENAMETOOLONG:
        return PathRefused(text, "a name in it is too long")
    return FileFailed(text, error.strerror or str(error), error.errno)


def _open_root(text: str, root: Sequence[str]) -> int:
    """Open a root by its real path, and fail if any part of it has become a link."""
    fd = _open_at_once("/" + "/".join(root))
    if fd >= 0:
        return fd
    try:
        fd = os.open("/", _FOLDER)
        for name in root:
            inner = os.open(name, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        if error.errno == errno.ENOENT or error.errno in _NOT_A_FOLDER:
            raise PathRefused(text, "its workspace directory is gone or was moved") from error
        raise failed(text, error) from error
    return fd


def _open_at_once(path: str) -> int:
    """Open a directory by its whole path if the kernel confirms that this is its real path;
    otherwise return -1."""
    try:
        fd = os.open(path, _FOLDER)
    except OSError:
        return -1
    try:
        if os.readlink(f"/proc/self/fd/{fd}") == path:
            return fd
    except OSError:
        pass  # The system does not support it.
    os.close(fd)
    return -1


def _open_folder(text: str, name: str, fd: int) -> tuple[int | None, str | None]:
    """Return the descriptor of a directory, newly opened, or else the target of the link in its
    place. Both are None if nothing exists there."""
    try:
        return os.open(name, _FOLDER, dir_fd=fd), None
    except FileNotFoundError:
        return None, None
    except OSError as error:
        if error.errno not in _NOT_A_FOLDER:
            raise failed(text, error) from error
    try:
        return None, os.readlink(name, dir_fd=fd)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise PathRefused(text, f"{name!r} in it is not a directory") from error
        raise failed(text, error) from error


def _look(text: str, name: str, fd: int) -> tuple[os.stat_result | None, str | None]:
    """Examine the last name of a path: its state, and its target if it is a link."""
    try:
        info = os.lstat(name, dir_fd=fd)
        return info, os.readlink(name, dir_fd=fd) if stat.S_ISLNK(info.st_mode) else None
    except FileNotFoundError:
        return None, None
    except OSError as error:
        raise failed(text, error) from error


def _make_folder(text: str, name: str, fd: int) -> None:
    try:
        os.mkdir(name, dir_fd=fd)
    except FileExistsError:
        pass  # Another process created it, or a link was put there: the next step checks.
    except OSError as error:
        raise failed(text, error) from error
