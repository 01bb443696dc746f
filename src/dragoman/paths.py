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
"""Each is the folder itself, not the one above it."""

USUAL: Final[Mapping[str, tuple[str, str]]] = {
    "config": ("XDG_CONFIG_HOME", "~/.config"),
    "data": ("XDG_DATA_HOME", "~/.local/share"),
    "cache": ("XDG_CACHE_HOME", "~/.cache"),
    "state": ("XDG_STATE_HOME", "~/.local/state"),
}
"""What names the folder above ours on Linux, and where that is if nothing does."""

RUNTIME: Final = "XDG_RUNTIME_DIR"
"""Names the folder above ours for sockets, on systems that have one."""

ANDROID: Final = frozenset({"ANDROID_DATA", "ANDROID_ROOT"})
"""Set on a system that calls itself Linux and keeps things elsewhere."""


class Paths(Struct, frozen=True, kw_only=True):
    """The folders of dragoman."""

    config: Path
    """What a user writes: ``config.toml`` and ``peers/``."""
    data: Path
    """What is worth a backup: peer cards, and which projects are trusted."""
    cache: Path
    """What can be made again."""
    state: Path
    """What happened: logs, sessions."""
    runtime: Path
    """Sockets and locks, gone with the next start of the machine."""

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def peers_folder(self) -> Path:
        """The descriptors of the user's own peers."""
        return self.config / "peers"

    @property
    def trust_file(self) -> Path:
        return self.data / "trust.json"


def _expanded(value: str) -> str:
    """A folder that a variable names. Where nobody knows the home it stays as it is."""
    expanded = os.path.expanduser(value)
    return expanded if expanded.startswith("~") else os.path.abspath(expanded)


def find_paths(environ: Mapping[str, str] | None = None) -> Paths:
    """The folders, as the platform has them unless a variable says otherwise."""
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
        # Without a home they would lie in the working folder, and a checkout could bring them.
        if not path.is_absolute():
            raise ConfigInvalid(
                VARIABLES[name],
                f"no home is known for it ({path}): set HOME, or this, to a full path",
            )
    return Paths(**found)


def _add_usual(found: dict[str, Path]) -> None:
    """The platform's folders for those that no variable names; `RuntimeError` without a home."""
    # With a home that is no full path, `expanduser` names folders that nobody meant.
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
        # The library's stand-in for a folder that cannot be used is a name in the folder for
        # temporary files, which another user could have taken before us; and it warns every time.
        has_own = sys.platform in ("win32", "darwin")
        found["runtime"] = dirs.user_runtime_path if has_own else _runtime(found["state"])


def _add_plain(found: dict[str, Path]) -> None:
    """Those of Linux that are beyond doubt, without the library: every command needs them, and
    loading it takes longer than reading the settings. Whatever is odd is left to it."""
    for name, (variable, folder) in USUAL.items():
        above = os.environ.get(variable) or os.path.expanduser(folder)
        if name not in found and os.path.isabs(above):
            found[name] = Path(above, "dragoman")
    if "runtime" not in found and "state" in found:
        found["runtime"] = _runtime(found["state"])


def _runtime(state: Path) -> Path:
    """The folder for sockets and locks: the system's, if only we get into it."""
    given = os.environ.get(RUNTIME)
    return Path(given, "dragoman") if given and not runtime_problem(given) else state / "run"


def runtime_problem(folder: str) -> str | None:
    """Why a folder is not used for sockets; None if it is.

    The specification of the variable wants a folder of ours with the mode 0700. Besides, no other
    user may be able to put another one in its place.
    """
    if not os.path.isabs(folder):
        return "it is not a full path"
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
        # In a sticky folder such as /tmp only the owner of an entry may rename it.
        wide = parent.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not parent.st_mode & stat.S_ISVTX
        if wide or not {link.st_uid, parent.st_uid} <= {0, os.geteuid()}:
            return "another user can replace it"
    return None
