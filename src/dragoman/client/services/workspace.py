"""The folders a peer may touch, and the way from a path to a place inside them.

It owns one decision: whether a path stays inside the roots, judged so that a link swapped in
between the judgement and the use cannot lead outside. It knows nothing of text, sizes or
protocols: `files` reads and writes at the places found here, `terminals` asks for folders.

`path_walk` does the descent. Where the operating system cannot walk (Windows), `named_paths`
compares real names instead, and its docstring says what that leaves open.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dragoman.client.services import named_paths
from dragoman.client.services.path_walk import (
    CAN_WALK,
    KERNEL_TREES,
    NO_FOLLOW,
    Missing,
    WalkedPath,
    failed,
    require_sane,
    split,
    walk,
)
from dragoman.errors import ArgumentInvalid, FileFailed, FileMissing, PathRefused, UsageError

MAX_TRIES: Final = 10
"""How often a file is looked up again because it changed between the look and the opening."""

_READ_FLAGS: Final = (
    os.O_RDONLY
    | NO_FOLLOW
    # Should the file have become a FIFO or a terminal since the look, opening it returns at once.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)


class Workspace:
    """The root folders of a session: its working folder first, then the additional ones.

    Not covered, on any system: a hard link is an ordinary file of the workspace, wherever else it
    may also have a name (writing replaces the name, so the other one keeps its text); a folder
    mounted inside a root is inside; a folder that is moved out of the workspace during the walk
    takes the operation with it. Names are compared exactly: on a system that ignores case, a root
    spelled in another case is refused, and nothing is admitted by it. What Windows lacks is in
    `named_paths`.
    """

    def __init__(self, roots: Sequence[str | os.PathLike[str]]) -> None:
        """Roots are absolute, exist and are folders; anything else is a `UsageError`."""
        if not roots:
            raise UsageError("a workspace needs at least one root folder")
        real_roots: list[Path] = []
        entries: dict[tuple[str, ...], tuple[str, ...]] = {}
        for root in roots:
            spelled = os.fspath(root)
            real = _real_root(spelled)
            parts = real.parts[1:]
            real_roots.append(real)
            entries[parts] = parts
            # Peers use the spelling that the session was opened with, which may lead over links.
            if CAN_WALK and ".." not in (names := split(spelled)[0]):
                entries.setdefault(tuple(names), parts)
        self._roots = tuple(real_roots)
        self._entries = tuple(entries.items())
        self._kernel_devices = _devices_of(KERNEL_TREES)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The real paths of the roots, in the order given."""
        return self._roots

    def resolve_for_read(self, path: str | os.PathLike[str]) -> Path:
        """The real path of an existing ordinary file. Links are followed inside the roots."""
        with self.find(path) as place:
            require_file(path, place.info)
            return place.real_path

    def resolve_for_write(self, path: str | os.PathLike[str]) -> Path:
        """The real path that writing would create or replace. Nothing is made by asking."""
        with self.find(path, missing="imagine") as place:
            if place.info is not None:
                require_file(path, place.info)
            return place.real_path

    def resolve_folder(self, path: str | os.PathLike[str]) -> Path:
        """The real path of an existing folder."""
        with self.find(path) as place:
            if place.info is None:
                raise FileMissing(_text(path))
            if not stat.S_ISDIR(place.info.st_mode):
                raise PathRefused(_text(path), "it is not a folder")
            return place.real_path

    @contextlib.contextmanager
    def open_for_read(self, path: str | os.PathLike[str]) -> Iterator[tuple[int, os.stat_result]]:
        """The descriptor and the state of an ordinary file; opening it never blocks or follows."""
        for _ in range(MAX_TRIES):
            with self.find(path) as place:
                require_file(path, place.info)
                try:
                    fd = os.open(place.name, _READ_FLAGS, dir_fd=place.folder_fd)
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.ELOOP, errno.EMLINK):
                        continue  # It was replaced since the look; what is there now?
                    raise failed(_text(path), error) from error
            try:
                info = os.fstat(fd)
                require_file(path, info)
                self._refuse_kernel(_text(path), info)
                if not CAN_WALK:
                    named_paths.require_same(_text(path), place.real_path, info)
                yield fd, info
            finally:
                os.close(fd)
            return
        raise FileFailed(_text(path), "it was replaced again and again while being opened")

    def find(self, path: str | os.PathLike[str], *, missing: Missing = "fail") -> WalkedPath:
        """Where the path leads, links and all. Refuses whatever is not inside the roots."""
        text = _text(path)
        if not CAN_WALK:
            real, info = named_paths.find(text, self._roots, make=missing == "make")
            return WalkedPath(None, str(real), real, info)
        require_sane(text)
        place = walk(text, self._entries, missing)
        try:
            self._refuse_kernel(text, place.info)
        except PathRefused:
            place.close()
            raise
        return place

    def _refuse_kernel(self, text: str, info: os.stat_result | None) -> None:
        if info is not None and info.st_dev in self._kernel_devices:
            raise PathRefused(text, "it belongs to the operating system")


def require_file(path: str | os.PathLike[str], info: os.stat_result | None) -> None:
    """Raise unless `info` describes an ordinary file."""
    if info is None:
        raise FileMissing(_text(path))
    if not stat.S_ISREG(info.st_mode):
        raise PathRefused(_text(path), f"it is {_kind(info.st_mode)}, not an ordinary file")


def _kind(mode: int) -> str:
    names = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((name for test, name in names if test(mode)), "something special")


def _text(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise ArgumentInvalid("a path has to be text")
    return text


def _real_root(spelled: str) -> Path:
    if not os.path.isabs(spelled):
        raise UsageError(f"the workspace folder {spelled!r} is not an absolute path")
    try:
        real = Path(os.path.realpath(spelled, strict=True))
        is_folder = stat.S_ISDIR(real.stat().st_mode)
    except (OSError, ValueError) as error:
        raise UsageError(f"the workspace folder {spelled!r} cannot be used: {error}") from error
    if not is_folder:
        raise UsageError(f"the workspace folder {spelled!r} is not a folder")
    if real.parts[1:2] and real.parts[1] in KERNEL_TREES:
        raise UsageError(f"the workspace folder {spelled!r} belongs to the operating system")
    return real


def _devices_of(trees: Sequence[str]) -> frozenset[int]:
    """The device numbers of the kernel's trees: they may be mounted a second time elsewhere."""
    devices = set()
    for tree in trees:
        with contextlib.suppress(OSError):
            devices.add(os.stat(f"/{tree}").st_dev)
    # A machine without /proc has an ordinary empty folder there, on the device of everything else.
    return frozenset(devices - {os.stat("/").st_dev})
