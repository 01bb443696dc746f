"""Load the peers that installed packages register as ``dragoman.peers`` entry points.

Loading an entry point runs code, so those inside an untrusted checkout are skipped.
`catalogue.load` adds the peers to the catalogue.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dragoman.catalogue.descriptor import Descriptor
from dragoman.config.load import Config
from dragoman.config.project import parse
from dragoman.errors import ConfigInvalid

GROUP: Final = "dragoman.peers"

INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Folders into which packages are installed, also where they lie inside of a project."""

BROKEN: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What the code of a package may raise while it is loaded."""


def find_entry_points(config: Config) -> list[Any]:
    """The entry points of installed packages.

    A folder named ``x.dist-info`` in a checkout is one too, if the checkout is on the path of
    Python as the working folder is under ``python -m``: what lies in the project is left out
    unless the user has trusted it.
    """
    if not _is_mentioned():
        return []
    from importlib.metadata import entry_points

    places = [Path.cwd(), *([config.project] if config.project else [])]
    roots = [] if config.trusted else [os.path.realpath(place) for place in places]
    return [entry for entry in entry_points(group=GROUP) if not _lies_in(entry, roots)]


def _is_mentioned() -> bool:
    """Whether any package could have such an entry point.

    Asking the metadata of every package properly costs more than all the rest of the catalogue, and
    most machines have no such package.
    """
    group = GROUP.encode()
    return any(group in text for text in _tables())


def _tables() -> Iterator[bytes]:
    for place in sys.path:
        try:
            with os.scandir(place or ".") as found:
                infos = [each.path for each in found if each.name.endswith("-info")]
        except NotADirectoryError:
            # An archive, which has to be asked properly.
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
    """What a package registers, and its origin: a descriptor, a table, a path of a TOML file, or a
    function that returns one of these."""
    from dragoman.catalogue.validate import check, describe

    dist = getattr(entry, "dist", None)
    origin = f"the package {dist.name if dist is not None else entry.value} ({entry.name})"
    try:
        value = entry.load()
        value = value() if callable(value) and not isinstance(value, type) else value
    except BROKEN as error:
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
        raise ConfigInvalid(origin, f"it gives a {type(value).__name__}, which is no descriptor")
    if descriptor.name != entry.name:
        raise ConfigInvalid(
            origin, f"it registers {entry.name!r} and describes {descriptor.name!r}"
        )
    return descriptor, origin
