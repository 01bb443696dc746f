"""Where dragoman keeps its files on this machine.

Owns the five folders and the variables that move them. It creates nothing: whoever writes a file
makes its folder. It does not know what is in the folders.
"""

from __future__ import annotations

import os
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
    if len(found) == len(VARIABLES):
        return
    from platformdirs import PlatformDirs

    dirs = PlatformDirs("dragoman", appauthor=False)
    for name in ("config", "data", "cache", "state"):
        if name not in found:
            found[name] = getattr(dirs, f"user_{name}_path")
    if "runtime" not in found:
        # Where the system has no such folder, the usual stand-in is a name in the folder for
        # temporary files, which anybody could have taken before us.
        needs_variable = sys.platform not in ("win32", "darwin")
        missing = needs_variable and not os.environ.get("XDG_RUNTIME_DIR")
        found["runtime"] = found["state"] / "run" if missing else dirs.user_runtime_path
