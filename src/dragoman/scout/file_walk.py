"""List all files below a directory, skipping what .gitignore excludes.

Never follows symbolic links, opens only directories and .gitignore files, and counts what it cannot
read. Blocking: call it in a thread; it checks regularly whether it was cancelled.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dragoman.client.services.worker_thread import check
from dragoman.scout.gitignore import SKIPPED, IgnoreFile

MAX_FILES: Final = 1_000_000
"""Files that are looked at. Ten times the largest repositories; without a bound the root of a
machine would be walked to its end."""

MAX_IGNORE_SIZE: Final = 256 * 1024
"""Bytes of a .gitignore that are read."""

KERNEL_FOLDERS: Final = ("proc", "sys", "dev") if os.name == "posix" else ()
"""Folders of "/" whose files are no files: reading one of them may never end."""

_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

Scope = tuple[str, IgnoreFile]


@dataclass(slots=True)
class Walk:
    """The files of a folder. `files` walks; afterwards the numbers are right."""

    root: str
    under: str = ""
    """The folder to walk, from the root on, without a slash at its end."""
    unreadable: int = field(default=0, init=False)
    folders: int = field(default=0, init=False)
    cut: bool = field(default=False, init=False)
    """Whether there are more files than are looked at."""

    def files(self, stop: threading.Event) -> Iterator[str]:
        """The paths of all ordinary files, from the root on, with slashes between names."""
        seen = 0
        for _, names in self._folders(stop):
            yield from names
            seen += len(names)
            if seen > MAX_FILES:
                self.cut = True
                return

    def _folders(self, stop: threading.Event) -> Iterator[tuple[str, list[str]]]:
        """Each folder with the paths of its files."""
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
            self.folders += 1
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
        """What the folders between the root and where the walk begins keep out."""
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
        text = _read_text(os.path.join(self.root, folder, ".gitignore"))
        ignored = IgnoreFile(text)
        return (*above, (f"{folder}/" if folder else "", ignored)) if ignored else above


def _ignored(scopes: tuple[Scope, ...], path: str, name: str, *, is_folder: bool) -> bool:
    """Whether a path is kept out; the file nearest to it has the first word."""
    for prefix, ignored in reversed(scopes):
        decided = ignored.decide(path[len(prefix) :], name, is_folder=is_folder)
        if decided is not None:
            return decided
    return False


def _read_text(path: str) -> str:
    """A small ordinary file; nothing if it is none."""
    try:
        fd = os.open(path, _FLAGS)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        return os.read(fd, MAX_IGNORE_SIZE).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
