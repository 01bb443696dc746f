"""Load the context of a directory: settings, paths, catalogue, agent files.

All surfaces use `load_context`, so they all see the same context. It does not raise for invalid
files; `RunContext.troubles` lists what is wrong with them. `default_peer` chooses the peer if none
is named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.catalogue import Catalogue, load_catalogue
from dragoman.catalogue.card import CARDS, CardStore
from dragoman.config import Config, Paths, find_paths, load_config
from dragoman.config.schema import ON_HOST
from dragoman.errors import ConfigInvalid, DragomanError, StoreError, UsageError

if TYPE_CHECKING:
    # Most commands do not use agent files, and the YAML parser is slow to load.
    from dragoman.catalogue.agent_files import Problem
    from dragoman.runs.adapters import LoadedAdapter

ALWAYS_ENABLED: Final = frozenset({"scout"})
"""The peer that need not be enabled: it ships with dragoman, calls no model and only reads."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """The settings, paths and catalogue that apply in one directory."""

    cwd: Path
    environ: Mapping[str, str]
    paths: Paths
    config: Config
    catalogue: Catalogue
    _adapters: dict[str, LoadedAdapter | ConfigInvalid] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The loaded Python adapters, or their errors."""

    def adapter(self, peer: str) -> LoadedAdapter | None:
        """Return the Python adapter of a peer, or None if its descriptor names none. It is loaded
        once.

        Raises `ConfigInvalid` if it is missing, not trusted or does not load.
        """
        known = self.catalogue.known(peer)
        if known.descriptor.adapter is None:
            return None
        if peer not in self._adapters:
            from dragoman.runs import adapters

            try:
                self._adapters[peer] = adapters.load(known, self.config)
            except ConfigInvalid as error:
                self._adapters[peer] = error
        found = self._adapters[peer]
        if isinstance(found, ConfigInvalid):
            raise found
        return found

    def adapter_problem(self, peer: str) -> str:
        """Return why the Python adapter of a peer cannot be used, or an empty string if it can or
        there is none."""
        try:
            self.adapter(peer)
        except ConfigInvalid as error:
            return str(error)
        return ""

    def role_catalogue(self) -> Catalogue:
        """Return the catalogue, in which each enabled peer with a Python adapter has the roles that
        the adapter claims, unless the settings name its roles.

        Loads these adapters. One that cannot be used changes nothing.
        """
        claimed: dict[str, tuple[str, ...]] = {}
        settings = self.config.settings
        for name in self.catalogue.adapted:
            if self.is_enabled(name) and settings.for_peer(name).roles is None:
                if not self.adapter_problem(name) and (found := self.adapter(name)) is not None:
                    claimed[name] = found.roles
        return self.catalogue.with_roles(claimed) if claimed else self.catalogue

    @property
    def agent_folder(self) -> Path:
        """Base directory of the agent file patterns: the project, or the directory itself."""
        return self.config.project or self.cwd

    def agent_files(self) -> list[Path]:
        """Return every agent file of the project."""
        return self.find_agent_files(())

    def find_agent_files(self, named: tuple[str, ...]) -> list[Path]:
        """Return the agent files that a user names, or all of the project's if none is named."""
        from dragoman.catalogue.agent_files import find_files

        return find_files(
            named,
            folder=self.agent_folder,
            patterns=self.config.settings.agent_files,
            cwd=self.cwd,
        )

    def cards(self) -> CardStore:
        """Return the store of the cards that were measured on this machine."""
        return CardStore(self.paths.data / CARDS)

    def is_enabled(self, peer: str) -> bool:
        """Return whether routing and delegation may use a peer."""
        return peer in ALWAYS_ENABLED or peer in self.config.settings.enabled_peers

    def troubles(self) -> list[Problem]:
        """Return all problems in settings, descriptors and agent files."""
        from dragoman.catalogue.agent_files import Problem, validate

        broken = [*self.config.problems, *self.catalogue.problems]
        return [
            *(
                Problem(Path(error.origin), None, _told(error.key, error.problem))
                for error in broken
            ),
            *validate(self.agent_files(), self.role_catalogue()),
        ]

    def again(self) -> RunContext:
        """Return the context of the same directory, loaded again without the command-line flags."""
        return load_context(self.cwd, environ=self.environ)


def load_context(
    cwd: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> RunContext:
    """Return the context of a directory, by default the working directory: the settings and peers
    that apply there. `flags` are settings from the command line."""
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    paths = find_paths(environ)
    config = load_config(cwd, paths, environ, flags, strict=False)
    return RunContext(cwd, environ, paths, config, load_catalogue(config))


def _told(key: str, problem: str) -> str:
    return f"{key}: {problem}" if key else problem


def redacted_stderr(
    error: DragomanError | None, *, peer: str, place: RunContext, workspace: Path
) -> str:
    """Return the end of a peer's stderr contained in an error, redacted, or an empty string if
    there is none."""
    from dragoman.client.results import stderr_of
    from dragoman.config.secrets import redactor

    tail = stderr_of(error)
    if not tail:
        return ""
    credentials = place.catalogue.get(peer).credentials.env if peer in place.catalogue else ()
    handed = place.config.settings.for_peer(peer).env
    return redactor(credentials, place.environ, handed=handed, workspace=workspace).text(tail)


# -- the default peer


def default_peer(
    config: Config, catalogue: Catalogue, paths: Paths, *, word: str | None = None
) -> tuple[str, str]:
    """Return the peer to use if none is named, and the reason for it: the `default_peer` setting,
    the only enabled peer on this machine, or the one used last. `word` is what the user gave in
    place of a peer's name, for the error message.

    Raises `UsageError` if there is none.
    """
    settings = config.settings
    if settings.default_peer:
        return settings.default_peer, "default_peer"
    enabled = [name for name in settings.enabled_peers if ON_HOST not in name]
    if len(enabled) == 1:
        return enabled[0], "the only enabled peer"
    if (last := _last_used(paths)) in catalogue.names:
        return last, "the last one used"
    wrong = f"{word!r} is not a peer: " if word is not None and len(word.split()) == 1 else ""
    raise UsageError(
        f"{wrong}name a peer, or set a default",
        remedy="`dragoman init` sets up your agents; `dragoman peers` lists all peers; "
        "`dragoman config set default_peer NAME` sets the default",
    )


def _last_used(paths: Paths) -> str:
    """Return the peer of the latest job, or an empty string if there is none or it cannot be
    read."""
    # Not at the top: most commands name a peer.
    from dragoman.store.open import open_store

    try:
        with open_store(read_only=True, paths=paths) as store:
            return next((job.peer for job in store.jobs(limit=1)), "")
    except StoreError:
        return ""
