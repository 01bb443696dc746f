"""List all files below a directory, skipping what .gitignore excludes, and read text files whole.

Never follows symbolic links, never waits for a device, and counts what it cannot read. Blocking:
call it in a thread; it checks regularly whether it was cancelled.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dragoman.rpc.tasks import check
from dragoman.scout import languages
from dragoman.scout.gitignore import SKIPPED, IgnoreFile

MAX_FILES: Final = 1_000_000
"""Maximum number of files: ten times the largest repositories. Without a limit the root of a
machine would be walked to its end."""

MAX_IGNORE_SIZE: Final = 256 * 1024
"""Maximum number of bytes read from a .gitignore."""

KERNEL_FOLDERS: Final = ("proc", "sys", "dev") if os.name == "posix" else ()
"""Directories of "/" without ordinary files; reading one of them may never end."""

MAX_FILE_SIZE: Final = 32 * 1024 * 1024
"""Maximum size in bytes of a searched file: no source code is larger."""

READ_SIZE: Final = 64 * 1024
"""Size of the first read. Nearly every source file fits, and a larger buffer is slower: it is
allocated from the operating system for each file (measured: five times as long)."""

BINARY_SIZE: Final = 8 * 1024
"""Number of bytes of a file to search for a NUL byte, which no text has."""

_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    # If a FIFO or a device has replaced the file, opening it returns at once.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)

Scope = tuple[str, IgnoreFile]


@dataclass(slots=True)
class Walk:
    """The files of a directory. The counts are valid once `files` has finished."""

    root: str
    under: str = ""
    """The directory to walk, relative to the root, without a trailing slash."""
    unreadable: int = field(default=0, init=False)
    cut: bool = field(default=False, init=False)
    """Whether there are more files than the limit."""

    def files(self, stop: threading.Event) -> Iterator[str]:
        """Yield the paths of all ordinary files that are not ignored, relative to the root, with
        slashes."""
        seen = 0
        for _, names in self._folders(stop):
            yield from names
            seen += len(names)
            if seen > MAX_FILES:
                self.cut = True
                return

    def _folders(self, stop: threading.Event) -> Iterator[tuple[str, list[str]]]:
        """Yield each directory with the paths of its files."""
        scopes = self._scopes_above()
        waiting: list[tuple[str, tuple[Scope, ...]]] = [(self.under, scopes)]
        while waiting:
            check(stop)
            folder, above = waiting.pop()
            inner: list[str] = []
            files: list[str] = []
            prefix = f"{folder}/" if folder else ""
            try:
                with os.scandir(os.path.join(self.root, folder)) as entries:
                    found = list(entries)
            except OSError:
                self.unreadable += 1
                continue
            scopes = self._with_own(folder, above, found)
            for entry in found:
                name = entry.name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if name in SKIPPED or (
                            self.root == "/" and prefix + name in KERNEL_FOLDERS
                        ):
                            continue
                        if not scopes or not _ignored(scopes, prefix + name, name, is_folder=True):
                            inner.append(prefix + name)
                    elif entry.is_file(follow_symlinks=False):
                        if not scopes or not _ignored(scopes, prefix + name, name, is_folder=False):
                            files.append(prefix + name)
                except OSError:
                    self.unreadable += 1
            files.sort()
            yield folder, files
            inner.sort(reverse=True)
            waiting.extend((path, scopes) for path in inner)

    def _scopes_above(self) -> tuple[Scope, ...]:
        """Return the ignore rules of the directories between the root and the start of the walk."""
        scopes: tuple[Scope, ...] = ()
        names = self.under.split("/") if self.under else []
        for depth in range(len(names)):
            folder = "/".join(names[:depth])
            scopes = self._read_scope(folder, scopes)
        return scopes

    def _with_own(
        self, folder: str, above: tuple[Scope, ...], found: list[os.DirEntry[str]]
    ) -> tuple[Scope, ...]:
        if any(entry.name == ".gitignore" for entry in found):
            return self._read_scope(folder, above)
        return above

    def _read_scope(self, folder: str, above: tuple[Scope, ...]) -> tuple[Scope, ...]:
        try:
            data = read_text(self.root, os.path.join(folder, ".gitignore"))
        except OSError:
            data = b""
        ignored = IgnoreFile(data[:MAX_IGNORE_SIZE].decode("utf-8", "replace"))
        return (*above, (f"{folder}/" if folder else "", ignored)) if ignored else above


def _ignored(scopes: tuple[Scope, ...], path: str, name: str, *, is_folder: bool) -> bool:
    """Return whether a path is ignored. The nearest ignore file with a matching rule decides."""
    for prefix, ignored in reversed(scopes):
        decided = ignored.decide(path[len(prefix) :], name, is_folder=is_folder)
        if decided is not None:
            return decided
    return False


def read_text(root: str, path: str) -> bytes:
    """Return the content of a text file; empty if the file is not text. Never follows a link and
    never waits. Raises `OSError` if the file cannot be read or is too large."""
    if path.rpartition(".")[2] in languages.BINARY_ENDINGS:
        return b""
    fd = os.open(os.path.join(root, path), _FLAGS)
    try:
        data = os.read(fd, READ_SIZE)
        if b"\0" in data[:BINARY_SIZE]:
            return b""
        if len(data) < READ_SIZE:
            return data
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return b""
        if info.st_size > MAX_FILE_SIZE:
            raise OSError(f"more than {MAX_FILE_SIZE} bytes")
        # Read, not mapped: a file that shrinks while it is mapped kills the process.
        chunks = [data]
        while data and sum(map(len, chunks)) <= MAX_FILE_SIZE:
            data = os.read(fd, 1024 * 1024)
            chunks.append(data)
        return b"".join(chunks)
    finally:
        os.close(fd)
