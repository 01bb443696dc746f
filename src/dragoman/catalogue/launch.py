"""Resolve a peer's name to a `LaunchSpec`: command or address, and environment.

Chooses the first launch that is installed on this machine (else `NotInstalled`). Examines files and
starts nothing. `command_unwrap` analyses command lines, `node_runtime` checks the version of
Node.js; `catalogue.open` connects.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from msgspec import Struct, field, structs

from dragoman.catalogue.descriptor import PYTHON, Descriptor, Launch, Platform, Quirks
from dragoman.catalogue.load import BUILT_IN, Catalogue
from dragoman.client.budgets import Budgets
from dragoman.client.options import AUTO
from dragoman.config.schema import Settings
from dragoman.errors import NotInstalled
from dragoman.paths import VARIABLES, find_paths
from dragoman.transports.process.environment import absolute_entries
from dragoman.transports.process.environment import which as find_on_path

Which = Callable[..., str | None]

PLATFORMS: Final[Mapping[str, Platform]] = {
    "linux": "linux",
    "darwin": "macos",
    "win32": "windows",
    "cygwin": "windows",
}


SUFFIXES: Final = (".exe", ".cmd", ".bat", ".ps1", ".js", ".mjs", ".cjs")
"""Suffixes of program files that are not part of the usual name."""

MARK_SIZE: Final = 16
"""Length of the hash from `surroundings_of`: it only has to distinguish a handful of shells of one
user."""


def current_platform() -> Platform:
    """Return the name of this platform in descriptors."""
    return PLATFORMS.get(sys.platform, "linux")


class LaunchSpec(Struct, frozen=True, kw_only=True):
    """How to start or reach one agent, with its environment, dialect options and quirks."""

    command: tuple[str, ...] | None = None
    """The command line, with the program as a path. None if there is an address."""
    address: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables to set for the program."""
    inherit: tuple[str, ...] = ()
    """Names of variables of this process that the program also gets, besides the usual ones."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Options of the dialect's client."""
    quirks: Quirks = Quirks()
    protocol: str = AUTO
    descriptor: Descriptor | None = None
    deprecated: bool = False
    """Whether the agent's vendor has deprecated this launch."""

    @property
    def name(self) -> str:
        """The peer's name; without a descriptor, the name of the program, or the address."""
        if self.descriptor is not None:
            return self.descriptor.name
        return program_name(self.command[0]) if self.command else str(self.address)

    @property
    def has_adapter(self) -> bool:
        """Whether the peer has a Python adapter, which handles its prompts."""
        return self.descriptor is not None and self.descriptor.adapter is not None

    @property
    def shown(self) -> str:
        """The command line or the address, for display."""
        return shlex.join(self.command) if self.command else str(self.address)

    def budgets(self) -> Budgets:
        """Return the default budgets for this peer, with its handshake timeout."""
        timeout = None if self.descriptor is None else self.descriptor.handshake_timeout
        return Budgets() if timeout is None else Budgets(initialize=timeout)


def resolve(
    descriptor: Descriptor,
    *,
    environ: Mapping[str, str] | None = None,
    platform: Platform | None = None,
    which: Which = find_on_path,
) -> LaunchSpec:
    """Return, as a launch spec, the first of the peer's launches that is for this platform and is
    installed. An address counts as installed; deprecated launches are tried last. Raises
    `NotInstalled`, which names the platforms that the peer runs on, or the programs that were not
    found. Only looks at files; starts nothing."""
    environ = os.environ if environ is None else environ
    platform = platform or current_platform()
    launches = [one for one in descriptor.launch if not one.platforms or platform in one.platforms]
    if not launches:
        where = ", ".join(sorted({name for one in descriptor.launch for name in one.platforms}))
        raise NotInstalled(descriptor.name, f"it only runs on {where}; this is {platform}")
    looked_for: list[str] = []
    # A deprecated launch is the last resort.
    for launch in sorted(launches, key=lambda launch: launch.deprecated):
        if launch.address is not None:
            return spec_for(descriptor, launch, None)
        program = _find(launch.command[0], environ, which)
        if program is not None:
            return spec_for(descriptor, launch, (program, *launch.command[1:]))
        if launch.command[0] not in looked_for:
            looked_for.append(launch.command[0])
    hint = descriptor.install.hint
    raise NotInstalled(
        descriptor.name,
        f"{' or '.join(looked_for)} is not on the PATH",
        remedy=f"install it with `{hint}`" if hint else "install it first",
        looked_for=looked_for,
    )


def way_to(
    name: str,
    *,
    catalogue: Catalogue,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> LaunchSpec:
    """Return the launch spec of a peer by its name, with the variables that the settings allow it
    to see.

    Raises `UnknownPeer`, `NotInstalled`, and `WrongLaunch` if the chosen launch of a peer that is
    not built in is known to be wrong.
    """
    spec = resolve(catalogue.get(name), environ=environ)
    if catalogue.origin(name) != BUILT_IN:
        # Not at the top: built-in peers were tested and are not checked again.
        from dragoman.catalogue.command_unwrap import refuse_described

        refuse_described(spec, catalogue)
    return spec if settings is None else with_env(spec, settings.for_peer(name).env)


def with_env(spec: LaunchSpec, names: Iterable[str]) -> LaunchSpec:
    """Return the launch spec with `names` added to the environment variables that the program gets
    from this process."""
    return structs.replace(spec, inherit=tuple(dict.fromkeys([*spec.inherit, *names])))


def surroundings_of(
    descriptor: Descriptor | None,
    *,
    env: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> str:
    """Return a hash of the names of the credential variables that are set for a peer: those that
    its descriptor names, and those that the user lets through (`env`, with ``*`` at the end of a
    pattern). Their values do not matter. Empty without a descriptor."""
    environ = os.environ if environ is None else environ
    if descriptor is None:
        return ""
    named = {*descriptor.credentials.env, *descriptor.credentials.endpoints}
    for name in env:
        if name.endswith("*"):
            named.update(each for each in environ if each.startswith(name[:-1]))
        else:
            named.add(name)
    present = "\0".join(sorted(name for name in named if environ.get(name)))
    return hashlib.sha256(present.encode()).hexdigest()[:MARK_SIZE]


def spec_for(descriptor: Descriptor, launch: Launch, command: tuple[str, ...] | None) -> LaunchSpec:
    """Return the launch spec of a peer that is started with this command line, or reached at its
    address."""
    env = dict(descriptor.env)
    if launch.command and launch.command[0] == PYTHON:
        env |= _own_python()
    return LaunchSpec(
        command=command,
        address=launch.address,
        env=env,
        inherit=(*descriptor.credentials.env, *descriptor.credentials.endpoints),
        details=descriptor.details,
        quirks=descriptor.quirks,
        protocol=descriptor.protocol,
        descriptor=descriptor,
        deprecated=launch.deprecated,
    )


def _own_python() -> dict[str, str]:
    """Return the environment variables that let another interpreter import this copy of dragoman if
    it is not installed for that interpreter, and that name our state directory if the user has
    moved it."""
    home = str(Path(__file__).resolve().parents[2])
    installed = any(part in ("site-packages", "dist-packages") for part in Path(home).parts)
    found = {} if installed else {"PYTHONPATH": home}
    if os.environ.get(VARIABLES["state"]):
        # Absolute: the program works in another directory.
        found[VARIABLES["state"]] = str(find_paths().state)
    return found


def _find(program: str, environ: Mapping[str, str], which: Which) -> str | None:
    if program == PYTHON:
        return sys.executable
    # A relative directory on the PATH would let a checkout choose the program.
    path = absolute_entries(environ.get("PATH", os.defpath))
    found = which(program, path=path)
    return None if found is None else os.path.abspath(found)


def program_name(program: str) -> str:
    """Return the usual name of a program: its file name without directory and suffix."""
    name = PurePath(program.replace("\\", "/")).name
    lower = name.lower()
    for suffix in SUFFIXES:
        if lower.endswith(suffix):
            return name[: -len(suffix)]
    return name


__all__ = [
    "LaunchSpec",
    "current_platform",
    "program_name",
    "resolve",
    "surroundings_of",
    "way_to",
    "with_env",
]
