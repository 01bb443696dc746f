"""Find the installed version of a peer without starting its server.

The version comes from the program's npm package or from a flag that the descriptor names; otherwise
it is unknown until the handshake. No other flag is tried: one real agent starts its server on
``--version``, and another one fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.npm_package import package_version
from dragoman.transports.process.query import ask_program

FLAG_TIMEOUT: Final = 15.0
"""Seconds for a program to print its version. Some load all their code first, which takes up to 12
s on a busy machine."""

VERSION: Final = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[-+.][0-9A-Za-z.-]+)?")


def own_version() -> str:
    """Return the version of dragoman."""
    from dragoman.version import __version__

    return __version__


def installed_version(spec: LaunchSpec) -> str | None:
    """Return the version of a peer from the files of its npm package, or dragoman's own for a peer
    that is part of dragoman. None if neither applies. Nothing is started."""
    if spec.descriptor is None or not spec.command:
        return None
    source = spec.descriptor.version
    if source.how == "ours":
        return own_version()
    if source.how == "package" and source.package is not None:
        return package_version(Path(spec.command[0]), source.package)
    return None


async def learn_version(spec: LaunchSpec) -> str | None:
    """Return the version of a peer as `installed_version` does, or else as printed for the flag
    that its descriptor names. None if neither shows it."""
    known = installed_version(spec)
    if known is not None or spec.descriptor is None or not spec.command:
        return known
    source = spec.descriptor.version
    if source.how != "flag" or source.flag is None:
        return None
    said = await ask_program([spec.command[0], source.flag], timeout=FLAG_TIMEOUT, env=spec.env)
    if said is None or said.exit_code != 0:
        return None
    found = VERSION.search(said.text) or VERSION.search(said.errors)
    return None if found is None else found[0]
