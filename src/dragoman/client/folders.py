"""Make a caller's paths absolute, and create dragoman's own directories as private ones.

Whether a workspace exists is not checked here; `services.workspace` controls access inside one.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from dragoman.errors import UsageError

INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Names of directories into which packages are installed, even inside a project."""

OWN_NAME: Final = "dragoman"
"""The name of our directory inside the platform's directories."""


def absolute(path: str | Path) -> Path:
    """Return the absolute path of a directory, with `~` expanded. A relative path starts in the
    current directory."""
    return Path(os.path.expanduser(path)).absolute()


def require_folder(path: object, option: str = "workspace") -> None:
    """Raise `UsageError` unless the value of this option is a path: a string, or an object such as
    a `Path`. The file system is not checked."""
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise UsageError(f"{option}= takes the path of a directory, not {path!r}")


def make_private(folder: Path) -> None:
    """Create a directory and its missing parents, each accessible only to its owner (0700).

    `Path.mkdir` sets the mode only of the last one and leaves the others to the umask. An existing
    directory is not changed.
    """
    missing: list[Path] = []
    while True:
        try:
            _make(folder)
        except FileNotFoundError:
            if folder.parent == folder:
                raise
            if not folder.parent.is_dir():
                missing.append(folder)
                folder = folder.parent
                continue
            # Another process has just created the parent. Or the file system reports this although
            # the parent exists, as /proc does: then the second attempt fails too.
            _make(folder)
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
        # Some systems report this for an existing directory in one that is not writable.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not folder.is_dir():
            raise
    else:
        # The umask may have removed a permission of the owner.
        os.chmod(folder, stat.S_IRWXU)


def make_state(folder: Path) -> None:
    """Create the directory for dragoman's data, accessible only to its owner.

    An existing one that other users can access, as earlier versions created it, is made private if
    it belongs to this user and has our name; a directory with another name may be shared on
    purpose.
    """
    make_private(folder)
    found = os.stat(folder)
    is_ours = os.name == "posix" and folder.name == OWN_NAME and found.st_uid == os.geteuid()
    if is_ours and stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(folder, stat.S_IRWXU)
