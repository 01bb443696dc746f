"""Find the directories for dragoman's config, data, cache, state and runtime files (XDG paths).

Environment variables such as ``DRAGOMAN_CONFIG_HOME`` override the platform's directories. This
module creates no directory.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.errors import ConfigInvalid

VARIABLES: Final[Mapping[str, str]] = {
    "config": "DRAGOMAN_CONFIG_HOME",
    "data": "DRAGOMAN_DATA_HOME",
    "cache": "DRAGOMAN_CACHE_HOME",
    "state": "DRAGOMAN_STATE_HOME",
    "runtime": "DRAGOMAN_RUNTIME_DIR",
}
"""The variable for each directory. It names the directory itself, not its parent."""

USUAL: Final[Mapping[str, tuple[str, str]]] = {
    "config": ("XDG_CONFIG_HOME", "~/.config"),
    "data": ("XDG_DATA_HOME", "~/.local/share"),
    "cache": ("XDG_CACHE_HOME", "~/.cache"),
    "state": ("XDG_STATE_HOME", "~/.local/state"),
}
"""For each directory on Linux: the variable that names its parent, and the default parent."""

RUNTIME: Final = "XDG_RUNTIME_DIR"
"""The variable that names the parent of the directory for sockets and locks, on systems that set
it."""

LASTING: Final = "lasting"
"""Name of a marker file in ``run``, a directory in the state directory. If the file exists, ``run``
is used for sockets and locks instead of the directory that `RUNTIME` names. `dragoman broker stdio`
creates the file on systems that remove the latter at log-out."""

ANDROID: Final = frozenset({"ANDROID_DATA", "ANDROID_ROOT"})
"""Variables that are set on Android, which calls itself Linux but keeps files elsewhere."""


class Paths(Struct, frozen=True, kw_only=True):
    """Dragoman's directories."""

    config: Path
    """Files that a user writes: ``config.toml`` and ``peers/``."""
    data: Path
    """Files worth a backup: peer cards, the record of trusted projects, and a fleet server's
    data."""
    cache: Path
    """Files that can be recreated."""
    state: Path
    """Stored sessions and jobs, the ledger, and logs."""
    runtime: Path
    """Sockets and locks, which nothing needs after a restart of the machine."""

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def peers_folder(self) -> Path:
        """The directory with the descriptors of the user's own peers."""
        return self.config / "peers"

    @property
    def trust_file(self) -> Path:
        return self.data / "trust.json"


def _expanded(value: str) -> str:
    """Return the directory that a variable's value names, as an absolute path with ``~`` expanded.
    If the home directory is unknown, ``~`` is left as it is."""
    expanded = os.path.expanduser(value)
    return expanded if expanded.startswith("~") else os.path.abspath(expanded)


def find_paths(environ: Mapping[str, str] | None = None) -> Paths:
    """Return the directories: the platform's defaults, unless a variable overrides them.

    `environ` replaces the process's environment only for the names in `VARIABLES`; the defaults
    always follow the process's own. Raises `ConfigInvalid` if the home directory is needed but
    unknown.
    """
    environ = os.environ if environ is None else environ
    given = {name: environ.get(variable) for name, variable in VARIABLES.items()}
    found: dict[str, Path] = {
        name: Path(_expanded(value)) for name, value in given.items() if value
    }
    try:
        _add_usual(found)
    except RuntimeError as error:
        raise ConfigInvalid("HOME", f"{error}") from error
    for name, path in found.items():
        # Without a home directory they would be in the working directory, and a checkout could
        # provide them.
        if not path.is_absolute():
            raise ConfigInvalid(
                VARIABLES[name],
                f"the home directory is unknown ({path}): set HOME, or this variable, to an "
                "absolute path",
            )
    return Paths(**found)


def _add_usual(found: dict[str, Path]) -> None:
    """Add the platform's directories where no variable names one.

    Raises `RuntimeError` if the home directory is needed but unknown.
    """
    # If the home directory is not an absolute path, `expanduser` returns unintended directories.
    plain = os.path.isabs(os.environ.get("HOME", "/")) and not ANDROID & os.environ.keys()
    if sys.platform == "linux" and plain:
        _add_plain(found)
    if len(found) == len(VARIABLES):
        return
    from platformdirs import PlatformDirs

    dirs = PlatformDirs("dragoman", appauthor=False)
    for name in USUAL:
        if name not in found:
            found[name] = getattr(dirs, f"user_{name}_path")
    if "runtime" not in found:
        # If a directory cannot be used, the library falls back to a name in the temporary
        # directory, which another user could have taken before us, and it warns every time.
        has_own = sys.platform in ("win32", "darwin")
        found["runtime"] = dirs.user_runtime_path if has_own else _runtime(found["state"])


def _add_plain(found: dict[str, Path]) -> None:
    """Add the Linux directories without `platformdirs`: every command needs them, and loading that
    library takes longer than reading the settings.

    Unusual cases are left to the library.
    """
    for name, (variable, folder) in USUAL.items():
        above = os.environ.get(variable) or os.path.expanduser(folder)
        if name not in found and os.path.isabs(above):
            found[name] = Path(above, "dragoman")
    if "runtime" not in found and "state" in found:
        found["runtime"] = _runtime(found["state"])


def _runtime(state: Path) -> Path:
    """Return the directory for sockets and locks: ``dragoman`` in the directory that `RUNTIME`
    names. If the variable is not set, `LASTING` exists or `runtime_problem` finds a problem, it is
    ``run`` in the state directory."""
    given = os.environ.get(RUNTIME)
    own = state / "run"
    if not given or os.path.lexists(own / LASTING) or runtime_problem(given):
        return own
    return Path(given, "dragoman")


def runtime_problem(folder: str) -> str | None:
    """Return why a directory must not be used for sockets, or None if it may be.

    The specification of `RUNTIME` requires a directory that the user owns, with mode 0700. In
    addition, no other user may be able to replace it.
    """
    if not os.path.isabs(folder):
        return "it is not an absolute path"
    try:
        own = os.lstat(folder)
        above = [(os.lstat(parent), os.stat(parent)) for parent in Path(folder).parents]
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    if not stat.S_ISDIR(own.st_mode):
        return "it is not a directory"
    if own.st_uid != os.geteuid():
        return f"it belongs to another user (uid {own.st_uid})"
    if stat.S_IMODE(own.st_mode) != stat.S_IRWXU:
        return f"its mode is {stat.S_IMODE(own.st_mode):04o}, not 0700"
    for link, parent in above:
        # In a sticky directory such as /tmp only the owner of an entry may rename it.
        wide = parent.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not parent.st_mode & stat.S_ISVTX
        if wide or not {link.st_uid, parent.st_uid} <= {0, os.geteuid()}:
            return "another user can replace it"
    return None
