"""Report changes to files in directories.

Uses inotify on Linux. On other systems the directories are polled once a second.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

LOOK_INTERVAL: Final = 1.0
"""Seconds between two polls, on systems without inotify."""

_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_OVERFLOW: Final = 0x4000
"""Set if the kernel has dropped changes, because too many were waiting to be read."""
_MASK: Final = _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_HEAD: Final = struct.Struct("iIII")
_READ_SIZE: Final = 64 * 1024


class FileWatch:
    """Calls the callback `on_change` with a directory and a file's name whenever a file in one of
    `folders` changes, appears or disappears, until `close`.

    A change may be reported more than once. If there are too many at once, all files that still
    exist are reported, and deletions may be missed. Directories that do not exist yet are not
    watched, even if they are created later.
    """

    def __init__(self, folders: Sequence[Path], on_change: Callable[[Path, str], None]) -> None:
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._fd = -1
        self._folders: dict[int, Path] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._seen: dict[Path, dict[str, tuple[int, int]]] = {}
        present = [folder for folder in folders if folder.is_dir()]
        if not (sys.platform == "linux" and self._start_inotify(present)):
            self._seen = {folder: _stats(folder) for folder in present}
            self._timer = self._loop.call_later(LOOK_INTERVAL, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    # -- by inotify

    def _start_inotify(self, folders: Sequence[Path]) -> bool:
        library = ctypes.CDLL(None, use_errno=True)
        try:
            fd = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            add = library.inotify_add_watch
        except AttributeError:
            return False
        if fd < 0:
            return False
        watched = {add(fd, os.fsencode(folder), _MASK): folder for folder in folders}
        if -1 in watched:
            os.close(fd)
            return False
        self._fd, self._folders = fd, watched
        self._loop.add_reader(fd, self._readable)
        return True

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, _READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        changed: dict[tuple[int, str], None] = {}
        at = 0
        while at + _HEAD.size <= len(data):
            watch, mask, _, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            name = os.fsdecode(data[at : at + size].rstrip(b"\0"))
            at += size
            if mask & _OVERFLOW:
                # Any file may have changed: report all of them. Deleted files are missed.
                for each, path in self._folders.items():
                    changed |= dict.fromkeys((each, name) for name in _stats(path))
            else:
                changed[watch, name] = None
        for watch, name in changed:
            if (folder := self._folders.get(watch)) is not None and self._fd >= 0:
                self._on_change(folder, name)

    # -- by polling

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_INTERVAL, self._look)
        for folder, before in list(self._seen.items()):
            now = self._seen[folder] = _stats(folder)
            for name in sorted(before.keys() | now.keys()):
                if before.get(name) != now.get(name):
                    self._on_change(folder, name)


def _stats(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                found[entry.name] = (info.st_mtime_ns, info.st_size)
    except OSError:
        return {}
    return found
