"""Where dragoman keeps its files on this machine.

Owns the five folders and the variables that move them. It creates nothing: whoever writes a file
makes its folder. It does not know what is in the folders.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VARIABLES: Final[Mapping[str, str]] = {
    "config": "DRAGOMAN_CONFIG_HOME",
    "data": "DRAGOMAN_DATA_HOME",
    "cache": "DRAGOMAN_CACHE_HOME",
    "state": "DRAGOMAN_STATE_HOME",
    "runtime": "DRAGOMAN_RUNTIME_DIR",
}
"""Each is the folder itself, not the one above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
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


def find_paths(environ: Mapping[str, str] | None = None) -> Paths:
    """The folders, as the platform has them unless a variable says otherwise."""
    environ = os.environ if environ is None else environ
    given = {name: environ.get(variable) for name, variable in VARIABLES.items()}
    found: dict[str, Path] = {
        name: Path(os.path.abspath(os.path.expanduser(value)))
        for name, value in given.items()
        if value
    }
    if len(found) < len(VARIABLES):
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
    return Paths(**found)
