"""Load the catalogue: the peers of dragoman, of installed packages, of the user and of the project.

Names are unique: a second peer with a name is left out, with an error that names the origins of
both. A broken descriptor is left out and listed in `Catalogue.problems`, so that one bad file does
not stop the others. Packages register peers as ``dragoman.peers`` entry points; loading one runs
code, so those inside an untrusted checkout are skipped.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from dragoman.catalogue.descriptor import Descriptor
from dragoman.client.folders import INSTALLED
from dragoman.config.load import Config, PeerTable
from dragoman.config.project import parse
from dragoman.config.validate import convert
from dragoman.errors import ConfigInvalid, UnknownPeer
from dragoman.errors.usage import BROKEN_CODE, nearest

GROUP: Final = "dragoman.peers"


def find_entry_points(config: Config) -> list[Any]:
    """Return the ``dragoman.peers`` entry points of installed packages.

    A directory named ``x.dist-info`` in a checkout provides them too, if the checkout is on
    Python's path, as the working directory is under ``python -m``: entry points inside the project
    are left out unless the user has trusted it.
    """
    if not _is_mentioned():
        return []
    from importlib.metadata import entry_points

    places = [Path.cwd(), *([config.project] if config.project else [])]
    roots = [] if config.trusted else [os.path.realpath(place) for place in places]
    return [entry for entry in entry_points(group=GROUP) if not _lies_in(entry, roots)]


def _is_mentioned() -> bool:
    """Return whether any package could have such an entry point.

    Reading the metadata of every package costs more than the rest of the catalogue, and most
    machines have no such package.
    """
    group = GROUP.encode()
    return any(group in text for text in _tables())


def _tables() -> Iterator[bytes]:
    for place in sys.path:
        try:
            with os.scandir(place or ".") as found:
                infos = [each.path for each in found if each.name.endswith("-info")]
        except NotADirectoryError:
            # An archive, which has to be read the usual way.
            yield GROUP.encode()
            continue
        except OSError:
            continue
        for info in infos:
            try:
                with open(os.path.join(info, "entry_points.txt"), "rb") as file:
                    yield file.read()
            except OSError:
                continue


def _lies_in(entry: Any, roots: Iterable[str]) -> bool:
    dist = getattr(entry, "dist", None)
    if dist is None:
        return False
    info = getattr(dist, "_path", None)
    place = os.path.realpath(info if info is not None else dist.locate_file(""))
    if INSTALLED & set(place.split(os.sep)):
        return False
    return any(os.path.commonpath([place, root]) == root for root in roots)


def read_entry(entry: Any) -> tuple[Descriptor, str]:
    """Return the descriptor that a package registers, and its origin. The entry point may be a
    descriptor, a table, the path of a TOML file, or a function that returns one of these. Raises
    `ConfigInvalid`."""
    from dragoman.catalogue.validate import check, describe

    dist = getattr(entry, "dist", None)
    origin = f"the package {dist.name if dist is not None else entry.value} ({entry.name})"
    try:
        value = entry.load()
        value = value() if callable(value) and not isinstance(value, type) else value
    except BROKEN_CODE as error:
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
        check(descriptor, origin=origin)
    else:
        raise ConfigInvalid(
            origin,
            f"it provides a {type(value).__name__}, which is not a descriptor, a table or a path",
        )
    if descriptor.name != entry.name:
        raise ConfigInvalid(
            origin,
            f"it registers the peer {entry.name!r} but describes the peer {descriptor.name!r}",
        )
    return descriptor, origin


BUILT_IN: Final = "dragoman"
"""The origin of built-in peers."""


class KnownPeer(Struct, frozen=True):
    """A peer and its origin. `folder` is the base of relative paths in its descriptor, and
    `adapters` has the Python files that its project's peers name, with the bytes that were read
    (`PeerTable.adapters`)."""

    descriptor: Descriptor
    origin: str
    project: bool = False
    folder: Path | None = None
    adapters: Mapping[Path, bytes] = field(default_factory=dict)


class Catalogue:
    """The known peers, by name."""

    def __init__(
        self,
        peers: Iterable[KnownPeer] = (),
        problems: Iterable[ConfigInvalid] = (),
        *,
        waiting: Mapping[str, Callable[[], KnownPeer]] | None = None,
        roles: Mapping[str, tuple[str, ...]] | None = None,
        untrusted: Mapping[str, ConfigInvalid] | None = None,
    ) -> None:
        self._untrusted = dict(untrusted or {})
        """Why peers of a project that the user has not trusted are left out, by the peer's name."""
        self._roles = dict(roles or {})
        """The roles that the user assigns to peers, replacing their own."""
        self._peers: dict[str, KnownPeer] = {}
        # Loaded on demand: most commands need one peer of many.
        self._waiting = dict(waiting or {})
        self.problems: list[ConfigInvalid] = list(problems)
        """Problems because of which peers were left out."""
        for known in peers:
            try:
                self.add(known)
            except ConfigInvalid as error:
                self.problems.append(error)

    def add(self, known: KnownPeer) -> None:
        """Add a peer. Raises `ConfigInvalid` if the name is taken."""
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
        """Return a peer by its name. Raises `UnknownPeer`, which suggests similar names."""
        return self.known(name).descriptor

    def known(self, name: str) -> KnownPeer:
        """Return a peer with its origin, by its name. Raises `UnknownPeer`, as `get` does."""
        known = self._peers.get(name)
        if known is None:
            if name not in self._waiting:
                problem = self.problem_of(name)
                raise UnknownPeer(
                    name, () if problem else nearest(name, self.names), problem=problem
                )
            known = self._peers[name] = self._with_roles(self._waiting.pop(name)())
        return known

    def problem_of(self, name: str) -> str:
        """Return why the peer with this name was left out. Empty if it is in the catalogue, or if
        no descriptor of it was found."""
        if name in self:
            return ""
        if name in self._untrusted:
            return str(self._untrusted[name])
        for problem in self.problems:
            table = problem.key == f"peers.{name}" or problem.key.startswith(f"peers.{name}.")
            if table or Path(problem.origin).name == f"{name}.toml":
                return str(problem)
        return ""

    def origin(self, name: str) -> str:
        """Return the origin of a peer: `BUILT_IN`, a file, or a package."""
        return self.known(name).origin

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted([*self._peers, *self._waiting]))

    @property
    def adapted(self) -> tuple[str, ...]:
        """The names of the peers with a Python adapter. Built-in peers have none."""
        return tuple(
            sorted(name for name, known in self._peers.items() if known.descriptor.adapter)
        )

    def with_roles(self, roles: Mapping[str, tuple[str, ...]]) -> Catalogue:
        """Return a copy in which the peers named in `roles` have these roles, in place of those
        they had."""
        return Catalogue(
            self._peers.values(),
            self.problems,
            waiting=self._waiting,
            roles={**self._roles, **roles},
            untrusted=self._untrusted,
        )

    @property
    def roles(self) -> tuple[str, ...]:
        """Every role that at least one peer claims."""
        return tuple(sorted({role for peer in self for role in peer.roles}))

    def claimants(self, role: str) -> tuple[str, ...]:
        """Return the names of the peers that claim a role."""
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
    entry_points: Callable[[], Iterable[Any]] | None = None,
) -> Catalogue:
    """Load all peers: built-in ones, and those of the user, the project and installed packages.

    Problems because of which peers are left out are in `Catalogue.problems`.
    """
    given = config.settings.peer.items()
    roles = {name: tuple(dict.fromkeys(own.roles)) for name, own in given if own.roles is not None}
    catalogue = Catalogue(waiting=_built_in(), roles=roles, untrusted=_untrusted(config))
    find = entry_points or functools.partial(find_entry_points, config)
    for read in _found(config, find):
        try:
            catalogue.add(read())
        except ConfigInvalid as error:
            catalogue.problems.append(error)
    return catalogue


def built_in() -> Iterator[KnownPeer]:
    """Yield the built-in peers. A mistake in one of them is a bug, and raises `ConfigInvalid`."""
    from dragoman.catalogue.validate import check

    for read in _built_in().values():
        known = read()
        check(known.descriptor, origin=known.origin)
        yield known


def _built_in() -> dict[str, Callable[[], KnownPeer]]:
    # Not with `importlib.resources`, whose import takes longer than reading all of the files.
    files = sorted((Path(__file__).parent / "peers").glob("*.toml"))
    return {file.stem: functools.partial(_read_built_in, file) for file in files}


def _read_built_in(file: Path) -> KnownPeer:
    origin = f"{BUILT_IN}: {file.name}"
    # Only their keys are checked here. `built_in` checks the values, in our tests.
    descriptor = convert(parse(file.read_bytes(), origin=origin), Descriptor, origin=origin)
    _check_file_name(descriptor, file.name, origin)
    return KnownPeer(descriptor, BUILT_IN)


def _check_file_name(descriptor: Descriptor, file: str, origin: str) -> None:
    name = descriptor.name
    if file != f"{name}.toml":
        raise ConfigInvalid(
            origin, f"the file of the peer {name!r} must be named {name}.toml", key="name"
        )


def _place(origin: str) -> str:
    return "dragoman itself" if origin == BUILT_IN else origin


def _found(
    config: Config, entry_points: Callable[[], Iterable[Any]]
) -> Iterator[Callable[[], KnownPeer]]:
    """Yield, for each peer of the user, the project and installed packages, a function that loads
    it. Packages come last, because they must not shadow the other peers."""
    for peer in config.peers:
        yield functools.partial(_written, peer)
    for entry in entry_points():
        yield functools.partial(_registered, entry)


def _untrusted(config: Config) -> dict[str, ConfigInvalid]:
    """Return an error for each peer of an untrusted project, by the peer's name. It says how to
    trust the project."""
    found = {}
    for ignored in config.untrusted:
        table, _, name = ignored.key.partition(".")
        if table == "peers" and name:
            found[name] = ConfigInvalid(
                str(ignored.file),
                f"the project defines the peer {name} and is not trusted, so the peer is not run: "
                "look at the project's files, then run `dragoman config trust`",
                key=ignored.key,
            )
    return found


def _written(peer: PeerTable) -> KnownPeer:
    """Load a peer from a file of the user or of a trusted project."""
    if peer.problem is not None:
        raise peer.problem
    from dragoman.catalogue.validate import describe

    descriptor = describe(peer.table, origin=peer.origin, folder=peer.folder, key=peer.key)
    if not peer.project:
        _check_file_name(descriptor, Path(peer.origin).name, peer.origin)
    elif descriptor.name != peer.name:
        raise ConfigInvalid(
            peer.origin, f"it must be {peer.name!r}, the name of the table", key=f"{peer.key}.name"
        )
    return KnownPeer(descriptor, peer.origin, peer.project, peer.folder, peer.adapters)


def _registered(entry: Any) -> KnownPeer:
    """Load a peer from an installed package."""
    return KnownPeer(*read_entry(entry))
