"""Load the context of a directory: settings, paths, catalogue, agent files.

Surfaces use `load_context`, so all of them see the same. It does not raise for invalid files;
`RunContext.troubles` lists what is wrong with them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.catalogue import Catalogue, load_catalogue
from dragoman.catalogue.card_store import CARDS, CardStore
from dragoman.config import Config, Paths, find_paths, load_config

if TYPE_CHECKING:
    # Most commands have no use for agent files, and the reader of YAML takes its time to load.
    from dragoman.catalogue.agent_files import Problem

ALWAYS_ENABLED: Final = frozenset({"scout"})
"""Comes with dragoman, calls no model, and only looks: nobody has to allow it."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """Settings, paths and catalogue of one directory."""

    cwd: Path
    environ: Mapping[str, str]
    paths: Paths
    config: Config
    catalogue: Catalogue

    @property
    def agent_folder(self) -> Path:
        """What the patterns for agent files count from: the project, or the folder itself."""
        return self.config.project or self.cwd

    def agent_files(self) -> list[Path]:
        """Every agent file of the project."""
        return self.find_agent_files(())

    def find_agent_files(self, named: tuple[str, ...]) -> list[Path]:
        """The agent files that a user names; all of them where nothing is named."""
        from dragoman.catalogue.agent_files import find_files

        return find_files(
            named,
            folder=self.agent_folder,
            patterns=self.config.settings.agent_files,
            cwd=self.cwd,
        )

    def cards(self) -> CardStore:
        """What was measured of peers on this machine."""
        return CardStore(self.paths.data / CARDS)

    def is_enabled(self, peer: str) -> bool:
        """Whether routing and delegation may use a peer."""
        return peer in ALWAYS_ENABLED or peer in self.config.settings.enabled_peers

    def troubles(self) -> list[Problem]:
        """Everything that is wrong with settings, descriptors and agent files."""
        from dragoman.catalogue.agent_files import Problem, validate

        broken = [*self.config.problems, *self.catalogue.problems]
        return [
            *(
                Problem(Path(error.origin), None, _told(error.key, error.problem))
                for error in broken
            ),
            *validate(self.agent_files(), self.catalogue),
        ]

    def again(self) -> RunContext:
        """The same directory, loaded again."""
        return load_context(self.cwd, environ=self.environ)


def load_context(
    cwd: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> RunContext:
    """Read the settings, descriptors and packages that count in a folder."""
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    paths = find_paths(environ)
    config = load_config(cwd, paths, environ, flags, strict=False)
    return RunContext(cwd, environ, paths, config, load_catalogue(config))


def _told(key: str, problem: str) -> str:
    return f"{key}: {problem}" if key else problem
