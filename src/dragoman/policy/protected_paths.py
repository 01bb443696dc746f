"""Protected paths (.git, git settings, shell start files, dragoman's own directories), which need a
permission question before they are written.

An agent that can write one of them can run commands later, outside of the policy: through a git
hook, a line in ``.bashrc``, a rule in dragoman's settings. Only a rule that names the path allows
the write without a question (`names`). `policy.evaluation` decides.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from typing import Final

from dragoman.errors import ConfigInvalid
from dragoman.policy.globs import plain
from dragoman.policy.path_patterns import ResolvedPaths, absolute, is_inside, real_patterns, root_of

GIT: Final = frozenset({".git", "git~1"})
"""The directory of a repository, and its short name on Windows."""

REPOSITORY: Final = ("HEAD", "objects", "commondir")
"""Entries by which git recognises the directory of a repository that is not called `.git`."""

START_FILES: Final = frozenset(
    """
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile
    .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout .shrc
    .xprofile .xsessionrc .pam_environment .config/fish/config.fish
    """.split()
)
"""Shell start files in the home directory."""

START_FOLDERS: Final = (".config/fish/conf.d", ".config/fish/functions", ".bashrc.d", ".zshrc.d")

GIT_SETTINGS: Final = (".gitconfig", ".config/git")
"""Git settings in the home directory, which name programs, like those of a repository."""

MOVED: Final = {"ZDOTDIR": ".z", "XDG_CONFIG_HOME": ".config/"}
"""Variables that move start files to another directory, and the prefixes of the files that move."""


def protected(places: ResolvedPaths, root: str) -> str | None:
    """Return the path of a protected file or directory that `places` may lead into, or None if
    there is none.

    `root` is the resolved path of the workspace. If it is inside one of dragoman's directories,
    that directory is exempt: a delegation may work in a copy there.
    """
    starts = _starts()
    own = [folder for folder in own_folders() if not is_inside(root, folder)]
    for place in sorted(places.real | places.spelled):
        parts = place.split("/")
        for at, part in enumerate(parts):
            if _plain(part) in GIT:
                return "/".join(parts[: at + 1])
        for path in (*starts, *own):
            # Many file systems ignore case.
            if is_inside(place.casefold(), path.casefold()):
                return path
    return None


def spelled_protected(text: str) -> bool:
    """Return whether a path that cannot be resolved, such as one below ``/proc``, names a protected
    file."""
    starts = {name.rpartition("/")[2] for name in START_FILES}
    return any(_plain(part) in GIT | starts for part in text.replace("\\", "/").split("/"))


def _starts() -> list[str]:
    home = root_of(os.path.expanduser("~"))
    files = (*START_FILES, *START_FOLDERS, *GIT_SETTINGS)
    found = [os.path.join(home, name) for name in files]
    for variable, beginning in MOVED.items():
        folder = os.environ.get(variable, "")
        if os.path.isabs(folder):
            found += [
                os.path.join(root_of(folder), name.removeprefix(".config/"))
                for name in files
                if name.startswith(beginning)
            ]
    # A non-interactive shell reads the file that one of these variables names.
    named = (os.environ.get(variable, "") for variable in ("BASH_ENV", "ENV"))
    return found + [root_of(path) for path in named if os.path.isabs(path)]


def names(patterns: Sequence[str], path: str, root: str) -> bool:
    """Return whether one of a rule's patterns names a protected path, or one below it, literally
    and not by a star. If the last name of the path begins with a dot, that name alone is enough,
    anywhere in a pattern."""
    wanted = plain(path).split("/")
    for pattern in patterns:
        for whole in real_patterns(absolute(pattern, root)):
            parts = whole.split("/")
            # A name with a dot is distinctive by itself: `**/.git/config` names git's directory.
            if parts[: len(wanted)] == wanted or (wanted[-1][:1] == "." and wanted[-1] in parts):
                return True
    return False


def foreign_repository(folder: str, root: str) -> bool:
    """Return whether git, run in `folder`, may read settings, which name programs, from unprotected
    files. `root` is the workspace. Both paths must be resolved.

    True outside the workspace, where others may write, and in a directory that has no `.git` but
    looks like a repository itself: git takes it for one, and its plain files are not protected.
    """
    if not is_inside(folder, root):
        return True
    while is_inside(folder, root):
        if os.path.lexists(os.path.join(folder, ".git")):
            return False
        known = {name for name in REPOSITORY if os.path.lexists(os.path.join(folder, name))}
        if "HEAD" in known and len(known) > 1:
            return True
        if folder == root:
            break
        folder = os.path.dirname(folder)
    return False


def own_folders() -> tuple[str, ...]:
    """Return the resolved paths of dragoman's own directories."""
    from dragoman.paths import find_paths

    try:
        paths = find_paths()
    except ConfigInvalid:
        # Without a home directory there are none.
        return ()
    found = (paths.config, paths.data, paths.cache, paths.state, paths.runtime)
    return tuple(dict.fromkeys(root_of(str(folder)) for folder in found))


def _plain(part: str) -> str:
    """Return a name in the form that any file system may see: without case, invisible characters,
    trailing dots and spaces, and anything after a colon."""
    seen = "".join(char for char in part if unicodedata.category(char) != "Cf")
    return seen.partition(":")[0].rstrip(". ").casefold()
