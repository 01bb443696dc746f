"""Settings: where they stand, what they are, how they are merged, and who is trusted.

The order is defaults, the user's ``config.toml``, a project's ``dragoman.toml``, the environment,
flags. A project may not name commands, endpoints, environment or wider permissions until the user
has trusted it. No file holds a secret.
"""

from dragoman.config.load import Config, IgnoredSetting, PeerTable, load_config
from dragoman.config.project import Project, find_project_file, read_project, trust_project
from dragoman.config.schema import PeerSettings, Settings, Timeouts
from dragoman.config.trust import Trust
from dragoman.paths import Paths, find_paths

__all__ = [
    "Config",
    "IgnoredSetting",
    "Paths",
    "PeerSettings",
    "PeerTable",
    "Project",
    "Settings",
    "Timeouts",
    "Trust",
    "find_paths",
    "find_project_file",
    "load_config",
    "read_project",
    "trust_project",
]
