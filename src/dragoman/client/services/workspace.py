"""The directories that a peer may access, and path resolution inside them.

Decides whether a path stays inside the roots. A link that is swapped in between check and use
cannot lead outside. `files` reads and writes at the paths resolved here, `terminals` starts
commands in them. `path_walk` resolves paths. Where the operating system cannot walk (Windows),
`named_paths` compares real paths instead; its docstring describes the remaining race.
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

NOT_A_DIRECTORY: Final = "it is not a directory"
"""The reason in the `PathRefused` error that `Workspace.resolve_folder` raises for a file."""

MAX_TRIES: Final = 10
"""How often to look up a file again because it changed between the check and the open."""

_READ_FLAGS: Final = (
    os.O_RDONLY
    | NO_FOLLOW
    # If the file became a FIFO or a terminal since the check, opening it returns at once.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)


class Workspace:
    """The root directories of a session: its working directory first, then the additional ones.

    Not covered, on any system: a hard link is an ordinary file of the workspace, whatever other
    names it has (a write replaces the name, so the others keep their text); a directory mounted
    inside a root is inside; a directory moved out of the workspace during the walk takes the
    operation with it. Names are compared exactly: on a system that ignores case, a root spelled in
    another case is refused, which is safe. `named_paths` has the limits on Windows.
    """

    def __init__(self, roots: Sequence[str | os.PathLike[str]]) -> None:
        """At least one root is needed, and all must be absolute, existing directories; anything
        else raises `UsageError`."""
        if not roots:
            raise UsageError("a workspace needs at least one root directory")
        real_roots: list[Path] = []
        entries: dict[tuple[str, ...], tuple[str, ...]] = {}
        for root in roots:
            spelled = os.fspath(root)
            real = _real_root(spelled)
            parts = real.parts[1:]
            real_roots.append(real)
            entries[parts] = parts
            # Peers use the spelling that the session was opened with, which may contain links.
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
        """Return the real path of an existing ordinary file.

        Links are followed inside the roots.
        """
        with self.find(path) as place:
            require_file(path, place.info)
            return place.real_path

    def resolve_for_write(self, path: str | os.PathLike[str]) -> Path:
        """Return the real path that a write would create or replace. Creates nothing. Raises
        `PathRefused` if something other than an ordinary file is there."""
        with self.find(path, missing="imagine") as place:
            if place.info is not None:
                require_file(path, place.info)
            return place.real_path

    def resolve_folder(self, path: str | os.PathLike[str]) -> Path:
        """Return the real path of an existing directory."""
        with self.find(path) as place:
            if place.info is None:
                raise FileMissing(_text(path))
            if not stat.S_ISDIR(place.info.st_mode):
                raise PathRefused(_text(path), NOT_A_DIRECTORY)
            return place.real_path

    @contextlib.contextmanager
    def open_for_read(self, path: str | os.PathLike[str]) -> Iterator[tuple[int, os.stat_result]]:
        """Open an ordinary file and yield its descriptor and state.

        Links are followed only as in `find`, and opening never blocks.
        """
        for _ in range(MAX_TRIES):
            with self.find(path) as place:
                require_file(path, place.info)
                try:
                    fd = os.open(place.name, _READ_FLAGS, dir_fd=place.folder_fd)
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.ELOOP, errno.EMLINK):
                        continue  # The file was replaced since it was examined: look again.
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
        raise FileFailed(_text(path), "it was replaced repeatedly while being opened")

    def find(self, path: str | os.PathLike[str], *, missing: Missing = "fail") -> WalkedPath:
        """Resolve a path, following links inside the roots. `missing` says how to handle a missing
        parent directory. Raises `PathRefused` for a path outside the roots."""
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
    """Raise `FileMissing` or `PathRefused` unless `info` is the state of an ordinary file."""
    if info is None:
        raise FileMissing(_text(path))
    if not stat.S_ISREG(info.st_mode):
        raise PathRefused(_text(path), f"it is {_kind(info.st_mode)}, not a regular file")


def _kind(mode: int) -> str:
    names = (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((name for test, name in names if test(mode)), "a special file")


def _text(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise ArgumentInvalid("a path must be a string")
    return text


def _real_root(spelled: str) -> Path:
    if not os.path.isabs(spelled):
        raise UsageError(f"the workspace directory {spelled!r} is not an absolute path")
    try:
        real = Path(os.path.realpath(spelled, strict=True))
        is_folder = stat.S_ISDIR(real.stat().st_mode)
    except (OSError, ValueError) as error:
        raise UsageError(f"the workspace directory {spelled!r} cannot be used: {error}") from error
    if not is_folder:
        raise UsageError(f"the workspace directory {spelled!r} is not a directory")
    if real.parts[1:2] and real.parts[1] in KERNEL_TREES:
        raise UsageError(f"the workspace directory {spelled!r} belongs to the operating system")
    return real


def _devices_of(trees: Sequence[str]) -> frozenset[int]:
    """Return the device numbers of the kernel's trees, which may also be mounted elsewhere."""
    devices = set()
    for tree in trees:
        with contextlib.suppress(OSError):
            devices.add(os.stat(f"/{tree}").st_dev)
    # If /proc or /sys is not mounted, its directory is on the root device, which stays allowed.
    return frozenset(devices - {os.stat("/").st_dev})
