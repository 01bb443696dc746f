"""All peers that are known here, from four places.

Owns the catalogue: the peers that come with dragoman, those of installed packages, those in the
user's folder, and those of a trusted project. A name is unique; two peers of one name are an error
that names both. What is broken is left out and told, so that one bad file does not stop the rest.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

from dragoman.errors import ConfigInvalid, UnknownPeer
from dragoman.hub.catalogue.descriptor import Descriptor
from dragoman.hub.catalogue.validation import describe
from dragoman.hub.config.checking import nearest
from dragoman.hub.config.merging import Config
from dragoman.hub.config.project import parse

BUILT_IN: Final = "dragoman"
"""The origin of the peers that come with dragoman."""

GROUP: Final = "dragoman.peers"
"""The entry points by which packages register peers."""


@dataclass(frozen=True, slots=True)
class Known:
    """A peer with where it comes from."""

    descriptor: Descriptor
    origin: str
    project: bool = False
    folder: Path | None = None
    adapters: Mapping[Path, bytes] = field(default_factory=dict)


class Catalogue:
    """The peers that are known, by name."""

    def __init__(self, peers: Iterable[Known] = (), problems: Iterable[ConfigInvalid] = ()) -> None:
        self._peers: dict[str, Known] = {}
        self.problems: list[ConfigInvalid] = list(problems)
        """What was left out, and why."""
        for known in peers:
            try:
                self.add(known)
            except ConfigInvalid as error:
                self.problems.append(error)

    def add(self, known: Known) -> None:
        """Take one more in; a name that is taken is an error."""
        name = known.descriptor.name
        other = self._peers.get(name)
        if other is not None:
            raise ConfigInvalid(
                known.origin,
                f"there is already a peer {name!r}, from {_place(other.origin)}; names are unique",
                key="name",
            )
        self._peers[name] = known

    def get(self, name: str) -> Descriptor:
        """A peer by its name; `UnknownPeer` names the nearest."""
        return self.known(name).descriptor

    def known(self, name: str) -> Known:
        """The same with where it comes from."""
        known = self._peers.get(name)
        if known is None:
            raise UnknownPeer(name, nearest(name, self._peers))
        return known

    def origin(self, name: str) -> str:
        """Where a peer comes from: `BUILT_IN`, a file, or a package."""
        return self.known(name).origin

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._peers))

    @property
    def roles(self) -> tuple[str, ...]:
        """Every role that somebody claims."""
        return tuple(sorted({role for peer in self for role in peer.roles}))

    def claimants(self, role: str) -> tuple[str, ...]:
        """The names of the peers that claim a role."""
        return tuple(peer.name for peer in self if role in peer.roles)

    def __iter__(self) -> Iterator[Descriptor]:
        return (self._peers[name].descriptor for name in self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._peers

    def __len__(self) -> int:
        return len(self._peers)


def load_catalogue(
    config: Config,
    *,
    strict: bool = False,
    entry_points: Callable[[], Iterable[Any]] | None = None,
) -> Catalogue:
    """Everything that is known under these settings.

    If `strict`, the first thing that is wrong is raised; else it is in `Catalogue.problems`.
    """
    catalogue = Catalogue(built_in())
    for found in _found(config, entry_points or _entry_points(config)):
        try:
            catalogue.add(found())
        except ConfigInvalid as error:
            if strict:
                raise
            catalogue.problems.append(error)
    return catalogue


def built_in() -> Iterator[Known]:
    """The peers that come with dragoman. A mistake in one of them is ours and is raised."""
    folder = resources.files("dragoman.hub") / "peers"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            origin = f"{BUILT_IN}: {file.name}"
            table = parse(file.read_bytes(), origin=origin)
            yield Known(_named(table, file.name, origin), BUILT_IN)


def _named(table: dict[str, Any], file: str, origin: str) -> Descriptor:
    descriptor = describe(table, origin=origin)
    _check_file_name(descriptor, file, origin)
    return descriptor


def _check_file_name(descriptor: Descriptor, file: str, origin: str) -> None:
    if file != f"{descriptor.name}.toml":
        raise ConfigInvalid(
            origin,
            f"the file of the peer {descriptor.name!r} is {descriptor.name}.toml",
            key="name",
        )


def _place(origin: str) -> str:
    return "dragoman itself" if origin == BUILT_IN else origin


def _found(
    config: Config, entry_points: Callable[[], Iterable[Any]]
) -> Iterator[Callable[[], Known]]:
    for entry in entry_points():
        yield functools.partial(_registered, entry)
    for peer in config.peers:

        def read(peer: Any = peer) -> Known:
            if peer.problem is not None:
                raise peer.problem
            descriptor = describe(peer.table, origin=peer.origin, folder=peer.folder, key=peer.key)
            if not peer.project:
                _check_file_name(descriptor, Path(peer.origin).name, peer.origin)
            elif descriptor.name != peer.name:
                raise ConfigInvalid(
                    peer.origin, f"the table says {peer.name!r}", key=f"{peer.key}.name"
                )
            return Known(descriptor, peer.origin, peer.project, peer.folder, peer.adapters)

        yield read


def _entry_points(config: Config) -> Callable[[], Iterable[Any]]:
    """The entry points of installed packages.

    A folder named ``x.dist-info`` in a checkout would be one too, if the checkout is on the path of
    Python as the working folder is under ``python -m``: what lies in the project is left out unless
    the user has trusted it.
    """

    def find() -> Iterable[Any]:
        from importlib.metadata import entry_points

        places = [Path.cwd(), *([config.project] if config.project else [])]
        roots = [] if config.trusted else [os.path.realpath(place) for place in places]
        return [entry for entry in entry_points(group=GROUP) if not _inside(entry, roots)]

    return find


def _inside(entry: Any, roots: Iterable[str]) -> bool:
    dist = getattr(entry, "dist", None)
    if dist is None:
        return False
    info = getattr(dist, "_path", None)
    place = os.path.realpath(info if info is not None else dist.locate_file(""))
    if "site-packages" in place.split(os.sep) or "dist-packages" in place.split(os.sep):
        # A virtual environment inside of a project is installed, not checked out.
        return False
    return any(os.path.commonpath([place, root]) == root for root in roots)


def _registered(entry: Any) -> Known:
    """What a package registers: a descriptor, a table, a path of a TOML file, or a function that
    returns one of these."""
    dist = getattr(entry, "dist", None)
    origin = f"the package {dist.name if dist is not None else entry.value} ({entry.name})"
    try:
        value = entry.load()
        value = value() if callable(value) and not isinstance(value, type) else value
    except (ImportError, AttributeError, TypeError, ValueError, OSError) as error:
        raise ConfigInvalid(origin, f"it could not be loaded: {error}") from error
    if isinstance(value, str | os.PathLike):
        path = Path(value)
        try:
            table = parse(path.read_bytes(), origin=str(path))
        except OSError as error:
            raise ConfigInvalid(str(path), f"it cannot be read: {error.strerror}") from error
        descriptor = describe(table, origin=str(path), folder=path.parent)
    elif isinstance(value, Mapping):
        descriptor = describe(value, origin=origin)
    elif isinstance(value, Descriptor):
        descriptor = value
        from dragoman.hub.catalogue.validation import check

        check(descriptor, origin=origin)
    else:
        raise ConfigInvalid(origin, f"it gives a {type(value).__name__}, which is no descriptor")
    if descriptor.name != entry.name:
        raise ConfigInvalid(
            origin, f"it registers {entry.name!r} and describes {descriptor.name!r}"
        )
    return Known(descriptor, origin)
