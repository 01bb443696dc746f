"""Folders: what a caller's path means, and how a folder of our own is made.

Owns what a relative path or a `~` means, and the modes of the folders that dragoman makes for
itself. Whether a workspace exists is for the agent to find out; what may be read and written inside
one is in `services.workspace`.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from dragoman.errors import UsageError

OWN_NAME: Final = "dragoman"
"""What our folder is called in those of the platform."""


def absolute(path: str | Path) -> Path:
    """The folder from the root, seen from where we are."""
    return Path(path).expanduser().absolute()


def require_folder(path: object, option: str = "workspace") -> None:
    """Raise `UsageError` for what cannot be the path of a folder."""
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise UsageError(f"{option}= takes the path of a folder, not {path!r}")


def make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, each for its owner alone (0700).

    `Path.mkdir` gives the mode to the last one only and leaves the others to the umask. A folder
    that is there stays as it is.
    """
    missing: list[Path] = []
    while True:
        try:
            _make(folder)
        except FileNotFoundError:
            # Some places, such as /proc, say this of a folder whose parent is there.
            if folder.parent == folder or folder.parent.is_dir():
                raise
            missing.append(folder)
            folder = folder.parent
            continue
        if not missing:
            return
        folder = missing.pop()


def _make(folder: Path) -> None:
    try:
        os.mkdir(folder, stat.S_IRWXU)
    except FileExistsError:
        if not folder.is_dir():
            raise
    except OSError as error:
        # Some systems say this of a folder that is there, in one that cannot be written to.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not folder.is_dir():
            raise
    else:
        # The umask may have taken a right of the owner's.
        os.chmod(folder, stat.S_IRWXU)


def make_state(folder: Path) -> None:
    """Make the folder with what is stored. One that others can read, as earlier versions made it,
    is closed to them if it has the name that we give it: any other may be shared by choice."""
    make_private(folder)
    found = os.stat(folder)
    is_ours = os.name == "posix" and folder.name == OWN_NAME and found.st_uid == os.geteuid()
    if is_ours and stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(folder, stat.S_IRWXU)
