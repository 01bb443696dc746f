"""Find and read a project's ``dragoman.toml``, and record that the user trusts it.

Searches from a directory up to the root of its repository. `parse` is the bounded TOML parser of
all settings files. `config.schema` and `config.load` give the settings their meaning.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from dragoman.config.safe_files import read_file
from dragoman.config.validate import refuse_secrets
from dragoman.errors import ConfigInvalid, UsageError
from dragoman.paths import Paths

PROJECT_FILE: Final = "dragoman.toml"

DEEP_KEY: Final = re.compile(
    rb"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){50}"""
)
"""Matches a key with many parts. The parser's time grows with the square of their number."""

UNTRUSTED: Final = "this project is not trusted (review it with `dragoman config trust`)"

USER_ONLY: Final = "only your own config.toml can name machines"


class Project(Struct, frozen=True):
    """A project's ``dragoman.toml`` as it was read, and whether the user trusts it."""

    file: Path
    data: bytes
    table: Mapping[str, Any]
    trusted: bool
    problem: ConfigInvalid | None = None
    """Why the file cannot be used; the table is then empty."""
    adapters: Mapping[Path, bytes] = field(default_factory=dict)
    """The Python files that its peers name, with the bytes that would run."""

    @property
    def folder(self) -> Path:
        return self.file.parent


class IgnoredSetting(Struct, frozen=True):
    """A setting of a project that is ignored, with the reason."""

    file: Path
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key} is ignored: {self.reason}"


def find_project_file(cwd: Path) -> Path | None:
    """Return the nearest ``dragoman.toml`` from a directory up to the root of its repository, or
    None.

    Without a repository only the directory itself is searched: directories above it may belong to
    anyone.
    """
    cwd = cwd.absolute()
    passed: list[Path] = []
    for folder in (cwd, *cwd.parents):
        passed.append(folder)
        # Not `Path.exists`, which raises an error in a directory that must not be read.
        if os.path.exists(folder / ".git"):
            break
    else:
        passed = [cwd]
    for folder in passed:
        file = folder / PROJECT_FILE
        if os.path.lexists(file):
            return file
    return None


def read_project(cwd: Path, paths: Paths) -> Project | None:
    """Return the project of a directory, or None if it has no ``dragoman.toml``. If the file cannot
    be used, `Project.problem` says why."""
    file = find_project_file(cwd)
    if file is None:
        return None
    try:
        data = read_file(file)
    except ConfigInvalid as error:
        return Project(file, b"", {}, False, error)
    if data is None:
        return None
    # Not at the top: most projects have no file.
    from dragoman.config.trust import Trust

    trusted = Trust(paths).trusts(file, data)
    try:
        table = parse(data, origin=str(file))
        refuse_secrets(table, origin=str(file))
    except ConfigInvalid as error:
        return Project(file, data, {}, trusted, error)
    return Project(file, data, table, trusted, adapters=_adapters(file.parent, table))


def trust_project(cwd: Path, paths: Paths, *, shown: Project | None = None) -> Project:
    """Trust the current state of a directory's project.

    `shown` is the state that the user saw. Raises `UsageError` if the file or an adapter has
    changed since, or if there is no file, and `ConfigInvalid` if the file cannot be used.
    """
    project = read_project(cwd, paths)
    if project is None:
        raise UsageError(f"there is no {PROJECT_FILE} in {cwd} or above it in its repository")
    if project.problem is not None:
        raise project.problem
    if shown is not None and shown.data != project.data:
        raise UsageError(f"{project.file} has changed since it was shown; review it again")
    if shown is not None and shown.adapters != project.adapters:
        raise UsageError("an adapter has changed since it was shown; review it again")
    from dragoman.config.trust import Trust

    Trust(paths).trust(project.file, project.data, project.adapters)
    return project


def parse(data: bytes, *, origin: str) -> dict[str, Any]:
    """Parse TOML into a table. Raises `ConfigInvalid`, which names the file `origin`."""
    if DEEP_KEY.search(data) is not None:
        raise ConfigInvalid(origin, "it contains a key with more than 50 parts")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigInvalid(
            origin, f"it is not UTF-8 text: invalid byte at offset {error.start}"
        ) from error
    except RecursionError as error:
        raise ConfigInvalid(origin, "its lists or tables are nested too deeply") from error
    except ValueError as error:
        # Not only `TOMLDecodeError`: a number with thousands of digits raises a different error.
        raise ConfigInvalid(origin, f"it is not valid TOML: {error}") from error


def adapter_file(value: str, folder: Path) -> Path | None:
    """Return the path of the file that an `adapter` key names, resolved against `folder`, or None
    if it names a module, as ``module:attribute``."""
    name = value.rpartition(":")[0] if value.count(":") and not value.endswith(".py") else value
    if name.endswith(".py"):
        return folder / os.path.expanduser(name)
    return None


def _adapters(folder: Path, table: Mapping[str, Any]) -> dict[Path, bytes]:
    found: dict[Path, bytes] = {}
    peers = table.get("peers")
    for peer in peers.values() if isinstance(peers, Mapping) else ():
        value = peer.get("adapter") if isinstance(peer, Mapping) else None
        path = adapter_file(value, folder) if isinstance(value, str) else None
        if path is not None:
            try:
                code = read_file(path)
            except ConfigInvalid:
                continue
            if code is not None:
                found[path] = code
    return found
