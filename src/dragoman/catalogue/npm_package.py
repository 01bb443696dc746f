"""Find the npm package that a program belongs to: its ``package.json``, name and version.

Follows links from the program's file and searches upwards. Starts nothing.
"""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.config.safe_files import read_file
from dragoman.errors import ConfigInvalid

MAX_STEPS: Final = 6
"""Maximum number of directories from a program up to its package: ``bin/``, ``dist/cli/`` and
the like."""

MAX_PACKAGE_SIZE: Final = 1024 * 1024


def find_package(program: Path, name: str | None = None) -> dict[str, Any] | None:
    """Return the ``package.json`` of the package that a program's real file belongs to, or None.
    With `name`, also None if it is a different package."""
    folder = Path(os.path.realpath(program)).parent
    for _ in range(MAX_STEPS):
        package = _read(folder / "package.json")
        # Some packages have a second file, without a name, that only sets the module type.
        if package is not None and isinstance(package.get("name"), str):
            return package if name is None or package["name"] == name else None
        if folder.name == "node_modules" or folder.parent == folder:
            return None
        folder = folder.parent
    return None


def package_name(program: Path) -> str | None:
    """Return the name of the package that a program belongs to, or None."""
    package = find_package(program)
    return None if package is None else str(package["name"])


def package_version(program: Path, name: str) -> str | None:
    """Return the version of the package `name`, or None if the program does not belong to it or the
    package has no version."""
    package = find_package(program, name)
    version = None if package is None else package.get("version")
    return version if isinstance(version, str) and version else None


def _read(file: Path) -> dict[str, Any] | None:
    try:
        data = read_file(file, max_size=MAX_PACKAGE_SIZE)
        value = None if data is None else msgspec.json.decode(data.removeprefix(BOM_UTF8))
    except (ConfigInvalid, ValueError, RecursionError, msgspec.DecodeError):
        return None
    return value if isinstance(value, dict) else None
