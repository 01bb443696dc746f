"""Load the catalogue: the peers of dragoman, of installed packages, of the user and of the project.

A name is unique: two peers with one name are an error that names both. A broken descriptor is left
out and listed in `Catalogue.problems`, so that one bad file does not stop the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from dragoman.catalogue.descriptor import Descriptor
from dragoman.catalogue.entry_points import find_entry_points, read_entry
from dragoman.config.load import Config, PeerTable
from dragoman.config.project import parse
from dragoman.config.validate import convert, nearest
from dragoman.errors import ConfigInvalid, UnknownPeer

BUILT_IN: Final = "dragoman"
"""The origin of the peers that come with dragoman."""


class KnownPeer(Struct, frozen=True):
    """A peer with where it comes from."""

    descriptor: Descriptor
    origin: str
    project: bool = False
    folder: Path | None = None
    adapters: Mapping[Path, bytes] = field(default_factory=dict)


class Catalogue:
    """The peers that are known, by name."""

    def __init__(
        self,
        peers: Iterable[KnownPeer] = (),
        problems: Iterable[ConfigInvalid] = (),
        *,
        waiting: Mapping[str, Callable[[], KnownPeer]] | None = None,
        roles: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._roles = dict(roles or {})
        """The roles that the user gives to peers, in place of their own."""
        self._peers: dict[str, KnownPeer] = {}
        # Read when somebody asks for them: most commands need one peer of many.
        self._waiting = dict(waiting or {})
        self.problems: list[ConfigInvalid] = list(problems)
        """What was left out, and why."""
        for known in peers:
            try:
                self.add(known)
            except ConfigInvalid as error:
                self.problems.append(error)

    def add(self, known: KnownPeer) -> None:
        """Take one more in; a name that is taken is an error."""
        name = known.descriptor.name
        if name in self:
            raise ConfigInvalid(
                known.origin,
                f"there is already a peer {name!r}, from {_place(self.origin(name))}; "
                "names are unique",
                key="name",
            )
        self._peers[name] = self._with_roles(known)

    def _with_roles(self, known: KnownPeer) -> KnownPeer:
        roles = self._roles.get(known.descriptor.name)
        if roles is None:
            return known
        return replace(known, descriptor=replace(known.descriptor, roles=roles))

    def get(self, name: str) -> Descriptor:
        """A peer by its name; `UnknownPeer` names the nearest."""
        return self.known(name).descriptor

    def known(self, name: str) -> KnownPeer:
        """The same with where it comes from."""
        known = self._peers.get(name)
        if known is None:
            if name not in self._waiting:
                problem = self._problem_of(name)
                raise UnknownPeer(
                    name, () if problem else nearest(name, self.names), problem=problem
                )
            known = self._peers[name] = self._with_roles(self._waiting.pop(name)())
        return known

    def _problem_of(self, name: str) -> str:
        """Why a peer that is described somewhere was left out."""
        for problem in self.problems:
            table = problem.key == f"peers.{name}" or problem.key.startswith(f"peers.{name}.")
            if table or Path(problem.origin).name == f"{name}.toml":
                return str(problem)
        return ""

    def origin(self, name: str) -> str:
        """Where a peer comes from: `BUILT_IN`, a file, or a package."""
        return self.known(name).origin

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted([*self._peers, *self._waiting]))

    @property
    def adapted(self) -> tuple[str, ...]:
        """The names of the peers with a Python adapter. Those of dragoman itself have none."""
        return tuple(
            sorted(name for name, known in self._peers.items() if known.descriptor.adapter)
        )

    def with_roles(self, roles: Mapping[str, tuple[str, ...]]) -> Catalogue:
        """The same peers, some of them with other roles."""
        return Catalogue(
            self._peers.values(),
            self.problems,
            waiting=self._waiting,
            roles={**self._roles, **roles},
        )

    @property
    def roles(self) -> tuple[str, ...]:
        """Every role that somebody claims."""
        return tuple(sorted({role for peer in self for role in peer.roles}))

    def claimants(self, role: str) -> tuple[str, ...]:
        """The names of the peers that claim a role."""
        return tuple(peer.name for peer in self if role in peer.roles)

    def __iter__(self) -> Iterator[Descriptor]:
        return (self.get(name) for name in self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._peers or name in self._waiting

    def __len__(self) -> int:
        return len(self._peers) + len(self._waiting)


def load_catalogue(
    config: Config,
    *,
    strict: bool = False,
    entry_points: Callable[[], Iterable[Any]] | None = None,
) -> Catalogue:
    """Everything that is known under these settings.

    If `strict`, the first thing that is wrong is raised; else it is in `Catalogue.problems`.
    """
    given = config.settings.peer.items()
    roles = {name: tuple(dict.fromkeys(own.roles)) for name, own in given if own.roles is not None}
    catalogue = Catalogue(waiting=_built_in(), roles=roles)
    find = entry_points or functools.partial(find_entry_points, config)
    for read in _found(config, find):
        try:
            catalogue.add(read())
        except ConfigInvalid as error:
            if strict:
                raise
            catalogue.problems.append(error)
    return catalogue


def built_in() -> Iterator[KnownPeer]:
    """The peers that come with dragoman. A mistake in one of them is ours, and is raised."""
    from dragoman.catalogue.validate import check

    for read in _built_in().values():
        known = read()
        check(known.descriptor, origin=known.origin)
        yield known


def _built_in() -> dict[str, Callable[[], KnownPeer]]:
    # Not by `importlib.resources`, whose import takes longer than reading all of the files.
    files = sorted((Path(__file__).parent / "peers").glob("*.toml"))
    return {file.stem: functools.partial(_read_built_in, file) for file in files}


def _read_built_in(file: Path) -> KnownPeer:
    origin = f"{BUILT_IN}: {file.name}"
    # Their keys are checked, and not their values: `built_in` does that, in our tests.
    descriptor = convert(parse(file.read_bytes(), origin=origin), Descriptor, origin=origin)
    _check_file_name(descriptor, file.name, origin)
    return KnownPeer(descriptor, BUILT_IN)


def _check_file_name(descriptor: Descriptor, file: str, origin: str) -> None:
    name = descriptor.name
    if file != f"{name}.toml":
        raise ConfigInvalid(origin, f"the file of the peer {name!r} is {name}.toml", key="name")


def _place(origin: str) -> str:
    return "dragoman itself" if origin == BUILT_IN else origin


def _found(
    config: Config, entry_points: Callable[[], Iterable[Any]]
) -> Iterator[Callable[[], KnownPeer]]:
    """The user's own peers first: what a package brings along has to give way to them."""
    for peer in config.peers:
        yield functools.partial(_written, peer)
    for entry in entry_points():
        yield functools.partial(_registered, entry)


def _written(peer: PeerTable) -> KnownPeer:
    """A peer in a file of the user or of a trusted project."""
    if peer.problem is not None:
        raise peer.problem
    from dragoman.catalogue.validate import describe

    descriptor = describe(peer.table, origin=peer.origin, folder=peer.folder, key=peer.key)
    if not peer.project:
        _check_file_name(descriptor, Path(peer.origin).name, peer.origin)
    elif descriptor.name != peer.name:
        raise ConfigInvalid(peer.origin, f"the table says {peer.name!r}", key=f"{peer.key}.name")
    return KnownPeer(descriptor, peer.origin, peer.project, peer.folder, peer.adapters)


def _registered(entry: Any) -> KnownPeer:
    """A peer that an installed package brings along."""
    return KnownPeer(*read_entry(entry))
