"""Results of the last `dragoman hosts check` of other machines: their agents and versions.

Stored in the state directory, for `dragoman hosts list` and for routing, which must not connect to
a machine to make a decision. `setup.hosts` runs the checks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from dragoman.client.folders import make_private
from dragoman.config.safe_files import write_whole
from dragoman.decoders import decode_typed
from dragoman.errors import FileFailed
from dragoman.paths import Paths
from dragoman.wire.messages import UNDECODABLE

CHECKS: Final = "hosts"
"""Directory of the stored checks in the state directory."""


class Finding(Struct, frozen=True):
    """The result for one part of a check."""

    name: str
    state: Literal["ok", "missing", "warning"]
    text: str
    remedy: str = ""


class HostAgent(Struct, frozen=True, kw_only=True):
    """An agent on another machine."""

    name: str
    installed: bool
    enabled: bool = False
    version: str | None = None
    roles: tuple[str, ...] = ()
    login: str = "unknown"
    """What is known about its login, as text."""


class HostCheck(Struct, frozen=True, kw_only=True):
    """The result of `dragoman hosts check` for one machine."""

    host: str
    destination: str
    findings: tuple[Finding, ...]
    agents: tuple[HostAgent, ...] = ()
    python: str = ""
    platform: str = ""
    dragoman: str | None = None
    """The absolute path of dragoman there, if it works."""
    version: str | None = None
    """The version of dragoman there."""
    checked_at: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing that dragoman needs there is missing."""
        return all(each.state != "missing" for each in self.findings)


def _file(paths: Paths, host: str) -> Path:
    return paths.state / CHECKS / f"{host}.json"


def store_check(paths: Paths, found: HostCheck) -> None:
    """Store the result of a check. It replaces the last one of the same host. Raises
    `FileFailed`."""
    path = _file(paths, found.host)
    try:
        make_private(path.parent)
        write_whole(path, msgspec.json.encode(found))
    except OSError as error:
        raise FileFailed(
            str(path), f"the check could not be stored: {error.strerror}", error.errno
        ) from error


def last_check(paths: Paths, host: str) -> HostCheck | None:
    """Return the last check of a host, or None if there is none that can be read."""
    try:
        return decode_typed(_file(paths, host).read_bytes(), HostCheck)
    except (OSError, *UNDECODABLE):
        return None


def forget_check(paths: Paths, host: str) -> None:
    """Delete the last check of a host, if there is one. Raises `FileFailed`."""
    path = _file(paths, host)
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise FileFailed(
            str(path), f"it cannot be deleted: {error.strerror}", error.errno
        ) from error
