"""Settings: schema, loading and merging, validation, edits, and trust in project files.

Order: defaults, the user's ``config.toml``, a project's ``dragoman.toml``, the environment, flags.
A project cannot set commands, endpoints, environment or wider permissions until the user trusts
it. No settings file may contain a secret.
"""

from dragoman.config.load import Config, IgnoredSetting, PeerTable, load_config
from dragoman.config.project import Project, find_project_file, read_project, trust_project
from dragoman.config.schema import HostSettings, PeerSettings, Settings, Timeouts
from dragoman.paths import Paths, find_paths

__all__ = [
    "Config",
    "HostSettings",
    "IgnoredSetting",
    "Paths",
    "PeerSettings",
    "PeerTable",
    "Project",
    "Settings",
    "Timeouts",
    "find_paths",
    "find_project_file",
    "load_config",
    "read_project",
    "trust_project",
]
