"""Where dragoman keeps its files on this machine.

Owns the five folders and the variables that move them. It creates nothing: whoever writes a file
makes its folder. It does not know what is in the folders.
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
        # Where the system has no such folder, the usual stand-in is a name in the folder for
        # temporary files, which anybody could have taken before us.
        needs_variable = sys.platform not in ("win32", "darwin")
        missing = needs_variable and not os.environ.get(RUNTIME)
        found["runtime"] = found["state"] / "run" if missing else dirs.user_runtime_path


def _add_plain(found: dict[str, Path]) -> None:
    """Those of Linux that are beyond doubt, without the library: every command needs them, and
    loading it takes longer than reading the settings. Whatever is odd is left to it."""
    for name, (variable, folder) in USUAL.items():
        above = os.environ.get(variable) or os.path.expanduser(folder)
        if name not in found and os.path.isabs(above):
            found[name] = Path(above, "dragoman")
    if "runtime" in found:
        return
    runtime = os.environ.get(RUNTIME)
    if not runtime and "state" in found:
        found["runtime"] = found["state"] / "run"
    elif runtime and _is_private(runtime):
        found["runtime"] = Path(runtime, "dragoman")


def _is_private(runtime: str) -> bool:
    """Whether this is the folder that the system made for us, and nobody else gets into it."""
    if runtime != f"/run/user/{os.geteuid()}":
        return False
    try:
        own = os.lstat(runtime)
        above = [os.lstat(folder) for folder in ("/run/user", "/run")]
    except OSError:
        return False
    return (
        stat.S_ISDIR(own.st_mode)
        and own.st_uid == os.geteuid()
        and stat.S_IMODE(own.st_mode) == stat.S_IRWXU
        and not any(each.st_mode & stat.S_IWOTH for each in above)
    )
