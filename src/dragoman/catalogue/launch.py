"""Resolve a peer's name or a command line to a `LaunchSpec`: command or address, and environment.

Chooses the first launch that is installed on this machine (else `NotInstalled`) and refuses
command lines that are known to be wrong (`WrongLaunch`). Looks at files and starts nothing.
`node_runtime` checks the version of Node.js; `catalogue.open` connects.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from dragoman.catalogue.command_unwrap import program_name, readings, runs_anything
from dragoman.catalogue.descriptor import PYTHON, Descriptor, Launch, Platform, Quirks, WrongForm
from dragoman.catalogue.load import BUILT_IN, Catalogue
from dragoman.client.budgets import Budgets
from dragoman.client.options import AUTO
from dragoman.config.schema import Settings
from dragoman.errors import NotInstalled, WrongLaunch
from dragoman.transports.process import programs

Which = Callable[..., str | None]

PLATFORMS: Final[Mapping[str, Platform]] = {
    "linux": "linux",
    "darwin": "macos",
    "win32": "windows",
    "cygwin": "windows",
}


MARK_SIZE: Final = 16
"""Characters of the hash of `surroundings_of`: it tells a handful of shells of one user apart."""


def current_platform() -> Platform:
    """What descriptors call this machine's system."""
    return PLATFORMS.get(sys.platform, "linux")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """How to start or reach one agent, with its environment, dialect options and quirks."""

    command: tuple[str, ...] | None = None
    """The words to start it with, the program as a path. None if there is an address."""
    address: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Set for the program."""
    inherit: tuple[str, ...] = ()
    """Names of our variables that the program may see besides the usual ones."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Options of its dialect."""
    quirks: Quirks = Quirks()
    protocol: str = AUTO
    descriptor: Descriptor | None = None
    deprecated: bool = False
    """Whether the agent's vendor has deprecated this launch."""

    @property
    def name(self) -> str:
        """The peer's name, or the name of the program or the address."""
        if self.descriptor is not None:
            return self.descriptor.name
        return program_name(self.command[0]) if self.command else str(self.address)

    @property
    def has_adapter(self) -> bool:
        """Whether a Python adapter does the work of the peer."""
        return self.descriptor is not None and self.descriptor.adapter is not None

    @property
    def shown(self) -> str:
        """The command line or the address, for people."""
        return shlex.join(self.command) if self.command else str(self.address)

    def budgets(self) -> Budgets:
        """The default budgets for this peer, with the time that its handshake needs."""
        timeout = None if self.descriptor is None else self.descriptor.handshake_timeout
        return Budgets() if timeout is None else Budgets(initialize=timeout)


def resolve(
    descriptor: Descriptor,
    *,
    environ: Mapping[str, str] | None = None,
    platform: Platform | None = None,
    which: Which = programs.which,
) -> LaunchSpec:
    """The first launch of a peer that is installed on this platform. Raises `NotInstalled`, which
    lists the programs that were looked for. Looks at files and starts nothing."""
    environ = os.environ if environ is None else environ
    platform = platform or current_platform()
    launches = [one for one in descriptor.launch if not one.platforms or platform in one.platforms]
    if not launches:
        where = ", ".join(sorted({name for one in descriptor.launch for name in one.platforms}))
        raise NotInstalled(descriptor.name, f"it only runs on {where}, and this is {platform}")
    looked_for: list[str] = []
    # A deprecated launch is the last resort.
    for launch in sorted(launches, key=lambda launch: launch.deprecated):
        if launch.address is not None:
            return _spec(descriptor, launch, None)
        program = _find(launch.command[0], environ, which)
        if program is not None:
            return _spec(descriptor, launch, (program, *launch.command[1:]))
        if launch.command[0] not in looked_for:
            looked_for.append(launch.command[0])
    hint = descriptor.install.hint
    raise NotInstalled(
        descriptor.name,
        f"there is no {' or '.join(looked_for)} on the PATH",
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
    """The launch spec of a peer by its name, with the variables that the settings let it see.

    Raises `WrongLaunch` if the descriptor has a launch that is known to be wrong.
    """
    spec = resolve(catalogue.get(name), environ=environ)
    refuse_described(spec, catalogue)
    return spec if settings is None else with_env(spec, settings.for_peer(name).env)


def with_env(spec: LaunchSpec, names: Iterable[str]) -> LaunchSpec:
    """The launch spec with more of our environment variables passed to the program."""
    return replace(spec, inherit=tuple(dict.fromkeys([*spec.inherit, *names])))


def surroundings_of(
    descriptor: Descriptor | None,
    *,
    env: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> str:
    """Hash of the credential variables that are set for a peer: those that its descriptor names,
    and those that the user lets through (`env`). Only the names count, never a value."""
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


def _spec(descriptor: Descriptor, launch: Launch, command: tuple[str, ...] | None) -> LaunchSpec:
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
    """What lets another interpreter find this very dragoman, where it is not installed."""
    home = str(Path(__file__).resolve().parents[2])
    installed = any(part in ("site-packages", "dist-packages") for part in Path(home).parts)
    return {} if installed else {"PYTHONPATH": home}


def _find(program: str, environ: Mapping[str, str], which: Which) -> str | None:
    if program == PYTHON:
        return sys.executable
    # A relative folder on the PATH would let a checkout choose the program.
    path = programs.absolute_entries(environ.get("PATH", os.defpath))
    found = which(program, path=path)
    return None if found is None else os.path.abspath(found)


# -- command lines


def describe_command(argv: Sequence[str], catalogue: Catalogue) -> LaunchSpec:
    """What is known about a command line that a user wrote.

    A program of a known peer gets that peer's environment and treatment. A form that is known to
    be wrong is refused with its effect and the remedy; nothing is started, because some programs
    take a wrong form for a prompt.
    """
    argv = tuple(argv)
    started = _started(argv, catalogue)
    _refuse_wrong(argv, started, catalogue)
    known = _started_so(argv, catalogue)
    if known is not None:
        return _spec(known, Launch(command=argv), argv)
    for plain, names in started:
        known = _peer_of(names, plain, catalogue)
        if known is not None:
            break
    else:
        return LaunchSpec(command=argv)
    if not _is_launch(known, names, plain[1:]):
        if any(form.dangerous for form in known.wrong_forms):
            right = shlex.join(_usual(known).command)
            raise WrongLaunch(
                shlex.join(argv),
                f"it is not how {known.title} is started as an agent, "
                "and it may send what it reads to its model as a prompt",
                f"`{right}`",
            )
        # It may be a form that nobody has written down: its program's environment does no harm,
        # and what it speaks is asked.
        return replace(_spec(known, Launch(command=argv), argv), protocol=AUTO, details={})
    return _spec(known, Launch(command=argv), argv)


def refuse_described(spec: LaunchSpec, catalogue: Catalogue) -> None:
    """Raise `WrongLaunch` for a described launch that another peer knows to be wrong.

    What comes with dragoman was tried, and looking at it again would cost every start.
    """
    peer = spec.descriptor
    if peer is None or spec.command is None or catalogue.origin(peer.name) == BUILT_IN:
        return
    _refuse_wrong(spec.command, _started(spec.command, catalogue), catalogue)


_Started: TypeAlias = list[tuple[tuple[str, ...], set[str]]]
"""Every reading of a command line, with what its program may be known by."""


def _started(argv: Sequence[str], peers: Iterable[Descriptor]) -> _Started:
    return [(plain, _all_names(plain, peers)) for plain in readings(argv)]


def wrong_form(argv: Sequence[str], peers: Collection[Descriptor]) -> WrongForm | None:
    """The form that one of the peers knows to be wrong and that a command line has; None if none
    does. A right form may contain the words of a wrong one."""
    return _wrong_form(_started(argv, peers), peers)


def _wrong_form(started: _Started, peers: Iterable[Descriptor]) -> WrongForm | None:
    for plain, names in started:
        for peer in peers:
            for form in peer.wrong_forms:
                if form.command[0] in names and _within(form.command[1:], plain[1:]):
                    if not _is_launch(peer, names, plain[1:]):
                        return form
    return None


def _refuse_wrong(argv: Sequence[str], started: _Started, catalogue: Catalogue) -> None:
    form = _wrong_form(started, catalogue)
    if form is not None:
        raise WrongLaunch(shlex.join(argv), form.effect, form.remedy)


def _all_names(plain: Sequence[str], peers: Iterable[Descriptor]) -> set[str]:
    """By what the program of a command line may be known, if there is one."""
    names = _names(plain[0]) if plain and plain[0] else set()
    for peer in peers:
        if names & _programs(peer):
            # A package that is run by its name is the program that people know.
            names |= _programs(peer)
    return names


def _names(program: str) -> set[str]:
    """By what a program may be known: its file's name, also behind links and in another case, and
    the package it is or belongs to."""
    names = {program_name(program), program_name(program).lower(), program}
    file = program if "/" in program or "\\" in program else programs.which(program)
    if file is not None and not runs_anything(program):
        names.add(program_name(os.path.realpath(file)))
        from dragoman.catalogue.npm_package import package_name

        package = package_name(Path(file))
        if package is not None:
            names.add(package)
    return names


def _started_so(argv: Sequence[str], catalogue: Catalogue) -> Descriptor | None:
    """The peer that this very command line starts, word for word."""
    for peer in catalogue:
        if any(launch.command and launch.command == argv for launch in peer.launch):
            return peer
    return None


def _peer_of(names: set[str], plain: Sequence[str], catalogue: Catalogue) -> Descriptor | None:
    """The peer that a program belongs to. Two peers may share one, so a whole launch is better."""
    found = [peer for peer in catalogue if names & _programs(peer)]
    exact = [peer for peer in found if _is_launch(peer, names, plain[1:])]
    return next(iter([*exact, *found]), None)


def _programs(peer: Descriptor) -> set[str]:
    """The names of a peer's programs, and of the package that they come in.

    An interpreter is none of them: what it runs otherwise is a stranger, who gets no credentials.
    """
    commands = (launch.command for launch in peer.launch if launch.command)
    programs = {
        program_name(command[0])
        for command in commands
        if command[0] != PYTHON and not runs_anything(command[0])
    }
    if peer.version.package is not None:
        programs.add(peer.version.package)
    return programs


def _usual(peer: Descriptor) -> Launch:
    return next((launch for launch in peer.launch if not launch.deprecated), peer.launch[0])


def _is_launch(peer: Descriptor, names: set[str], args: Sequence[str]) -> bool:
    """Whether these arguments are those of a launch of the peer, with others between them."""
    return bool(names & _programs(peer)) and any(
        launch.command and _within(launch.command[1:], args) for launch in peer.launch
    )


def _within(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Whether all of `wanted` stand in `words`, in this order."""
    rest = iter(words)
    return all(word in rest for word in wanted)


__all__ = [
    "LaunchSpec",
    "current_platform",
    "describe_command",
    "program_name",
    "refuse_described",
    "resolve",
    "surroundings_of",
    "way_to",
    "with_env",
    "wrong_form",
]
