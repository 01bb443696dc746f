"""Load the adapter of a peer: its own Python code, or one built from its descriptor.

A project's Python code runs only if the user trusted exactly these bytes. `dragoman.adapters` is
the contract that an adapter implements.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from dragoman.adapters import Adapter, Assignment, Notified, judge, open_peer
from dragoman.catalogue.descriptor import Descriptor
from dragoman.catalogue.load import KnownPeer
from dragoman.client.results import Result
from dragoman.config.load import Config
from dragoman.config.project import adapter_file
from dragoman.config.safe_files import read_file
from dragoman.config.trust import Trust
from dragoman.errors import ConfigInvalid, RoleNotClaimed


class DescribedAdapter:
    """The adapter of a peer that has none in Python, built from its descriptor."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.name = descriptor.name
        self.protocol = descriptor.protocol
        self.ROLES_CLAIMED: Sequence[str] = descriptor.roles
        self.ROLE_PREFIX: Mapping[str, str] = {
            role: descriptor.role_prefixes.get(role, "") for role in descriptor.roles
        }

    def claims(self, role: str) -> bool:
        return role in self.ROLES_CLAIMED

    async def dispatch(
        self, launch: Assignment, role: str, text: str, on_notification: Notified | None = None
    ) -> Result:
        if not self.claims(role):
            raise RoleNotClaimed(self.name, role, self.ROLES_CLAIMED)
        async with (
            open_peer(launch.way, launch.options(on_notification), workspace=launch.cwd) as peer,
            peer.session(mode=launch.mode, model=launch.model) as session,
        ):
            result = await session.ask(self.ROLE_PREFIX[role] + text)
        return judge(result, launch.way.quirks)


# -- adapters in Python

BROKEN: Final = (Exception, SystemExit)
"""The exceptions to catch while an adapter's code is loaded: it may raise anything."""


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """The adapter of a peer, its file or module for messages, and its roles."""

    adapter: Adapter
    source: str
    """Its file or module."""
    roles: tuple[str, ...]
    """The roles that it claims."""


def load(known: KnownPeer, config: Config) -> LoadedAdapter:
    """Load the adapter of a peer, and return it with its source and roles. Raises what
    `load_adapter` raises."""
    adapter = load_adapter(known, config)
    return LoadedAdapter(adapter, adapter_source(known, config), tuple(adapter.ROLES_CLAIMED))


def load_adapter(known: KnownPeer, config: Config) -> Adapter:
    """Load the adapter of a peer: its own in Python, or else one built from its descriptor. Raises
    `ConfigInvalid` if the Python code is missing, not trusted, or does not define a valid
    adapter."""
    descriptor = known.descriptor
    if descriptor.adapter is None:
        return DescribedAdapter(descriptor)
    value = descriptor.adapter
    file = adapter_file(value, known.folder or config.paths.config)
    if file is not None:
        attribute = value.rpartition(":")[2] if not value.endswith(".py") else ""
        module: Any = _run_file(file, _trusted_code(file, known, config), known)
    else:
        name, colon, attribute = value.partition(":")
        if not colon or not name or not attribute:
            raise _invalid(known, f"{value!r} is neither module:attribute nor a Python file")
        module = _import(name, known, config)
    return _made(module, attribute, known)


def adapter_source(known: KnownPeer, config: Config) -> str:
    """Return the file of a peer's Python adapter, or its `module:attribute`, for messages."""
    value = str(known.descriptor.adapter)
    return str(adapter_file(value, known.folder or config.paths.config) or value)


def _invalid(known: KnownPeer, problem: str) -> ConfigInvalid:
    peer = known.descriptor
    return ConfigInvalid(
        known.origin, f"the adapter {peer.adapter} of {peer.name}: {problem}", key="adapter"
    )


def _trusted_code(file: Path, known: KnownPeer, config: Config) -> bytes:
    """Return the bytes of an adapter's file if they may run. Raises `ConfigInvalid` otherwise."""
    if known.project:
        assert config.project_file is not None
        code = known.adapters.get(file)
        if code is None:
            raise _invalid(known, f"there is no {file}, or it cannot be read")
        # The bytes read here are those that are checked and run: a change of the file in between
        # has no effect.
        if not Trust(config.paths).trusts_adapter(config.project_file, file, code):
            raise _invalid(
                known,
                f"{file} is not trusted, or has changed since: review it, "
                "then run `dragoman config trust`",
            )
        return code
    home = os.path.realpath(config.paths.config)
    if os.path.commonpath([home, os.path.realpath(file)]) != home:
        raise _invalid(known, f"{file} is outside {home}; move it there")
    found = read_file(file)
    if found is None:
        raise _invalid(known, f"there is no {file}")
    return found


def _run_file(file: Path, code: bytes, known: KnownPeer) -> ModuleType:
    name = f"dragoman_adapter_{known.descriptor.name.replace('-', '_')}"
    module = ModuleType(name)
    module.__file__ = str(file)
    # Dataclasses look up their own module.
    sys.modules[name] = module
    try:
        exec(compile(code, str(file), "exec"), module.__dict__)
    except BROKEN as error:
        del sys.modules[name]
        raise _invalid(
            known, f"{file} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return module


def _import(name: str, known: KnownPeer, config: Config) -> ModuleType:
    """Import an installed module.

    A module in an untrusted directory is not imported, even if the directory is on Python's path,
    as the working directory often is.
    """
    top = name.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top) if top not in sys.modules else None
        if spec is not None and _lies_in_project(spec, config):
            raise _invalid(known, f"the module {top} is in a directory that is not trusted")
        return importlib.import_module(name)
    except ConfigInvalid:
        raise
    except BROKEN as error:
        raise _invalid(
            known, f"{name} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _lies_in_project(spec: Any, config: Config) -> bool:
    if config.trusted:
        return False
    places = [str(Path.cwd()), *([str(config.project)] if config.project else [])]
    origins = [spec.origin, *(spec.submodule_search_locations or ())]
    for origin in origins:
        if not isinstance(origin, str) or not os.path.isabs(origin):
            continue
        real = os.path.realpath(origin)
        if "site-packages" in real.split(os.sep):
            continue
        for place in places:
            root = os.path.realpath(place)
            if os.path.commonpath([root, real]) == root:
                return True
    return False


def _made(module: Any, attribute: str, known: KnownPeer) -> Adapter:
    """Return the adapter defined in a module. A class or function is called with the descriptor."""
    try:
        value: Any = module
        for part in attribute.split(".") if attribute else ():
            value = getattr(value, part)
        if inspect.isclass(value) or inspect.isfunction(value):
            make: Callable[[Descriptor], Any] = value
            value = make(known.descriptor)
        problem = _problem_of(value, known.descriptor.name)
    except BROKEN as error:
        raise _invalid(known, f"it cannot be created: {type(error).__name__}: {error}") from error
    if problem:
        raise _invalid(known, problem)
    adapter: Adapter = value
    return adapter


def _problem_of(value: Any, name: str) -> str:
    """Return why an object is not an adapter of the peer `name`, or an empty string if it is. Its
    attributes may raise anything."""
    missing = [part for part in _PARTS if not hasattr(value, part)]
    if missing:
        return f"the adapter lacks {', '.join(missing)}"
    if not inspect.iscoroutinefunction(value.dispatch):
        return "its dispatch is not an `async def`"
    if value.name != name:
        return f"its name is {value.name!r}, not {name!r}"
    if not _are_roles(value.ROLES_CLAIMED):
        return "its ROLES_CLAIMED is not a list of roles"
    return ""


def _are_roles(value: Any) -> bool:
    is_collection = isinstance(value, Collection) and not isinstance(value, str)
    return is_collection and all(isinstance(role, str) for role in value)


_PARTS: Final = ("name", "protocol", "ROLES_CLAIMED", "ROLE_PREFIX", "claims", "dispatch")
