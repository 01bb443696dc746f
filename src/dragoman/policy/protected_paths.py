"""Protected paths, which are not written without a permission question: .git, shell start files.

An agent that can write one of them, or dragoman's own directories, can run commands later, outside
of the policy: through a git hook, a line in ``.bashrc``, a rule in dragoman's settings. Only a rule
that names the path allows the write without a question (`names`). `policy.evaluation` decides.
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
"""The folder of a repository, and its short name on Windows."""

REPOSITORY: Final = ("HEAD", "objects", "commondir")
"""By these names git knows the folder of a repository that is not called `.git`."""

START_FILES: Final = frozenset(
    """
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile
    .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout .shrc
    .xprofile .xsessionrc .pam_environment .config/fish/config.fish
    """.split()
)
"""What shells run when they start, in the home folder."""

START_FOLDERS: Final = (".config/fish/conf.d", ".config/fish/functions", ".bashrc.d", ".zshrc.d")

GIT_SETTINGS: Final = (".gitconfig", ".config/git")
"""Settings of git in the home folder: they name programs as those of a repository do."""

MOVED: Final = {"ZDOTDIR": ".z", "XDG_CONFIG_HOME": ".config/"}
"""Variables that name another folder for start files, and how the files begin that move there."""


def protected(places: ResolvedPaths, root: str) -> str | None:
    """The path of a protected file or folder that `places` may lead into; None if there is none.

    `root` is the real path of the workspace. The folder of dragoman that it lies in is left out:
    a delegation may work in a copy there.
    """
    starts = _starts()
    own = [folder for folder in own_folders() if not is_inside(root, folder)]
    for place in sorted(places.real | places.spelled):
        parts = place.split("/")
        for at, part in enumerate(parts):
            if _plain(part) in GIT:
                return "/".join(parts[: at + 1])
        for path in (*starts, *own):
            # Many file systems do not tell letters by their case.
            if is_inside(place.casefold(), path.casefold()):
                return path
    return None


def spelled_protected(text: str) -> bool:
    """Whether a path that cannot be followed, such as one below ``/proc``, names such a file."""
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
    # A shell that is not asked for a person reads the file that one of these names.
    named = (os.environ.get(variable, "") for variable in ("BASH_ENV", "ENV"))
    return found + [root_of(path) for path in named if os.path.isabs(path)]


def names(patterns: Sequence[str], path: str, root: str) -> bool:
    """Whether one of the patterns of a rule names a protected path itself, without a star."""
    wanted = plain(path).split("/")
    for pattern in patterns:
        for whole in real_patterns(absolute(pattern, root)):
            parts = whole.split("/")
            # A name with a dot is told by itself: `**/.git/config` names the folder of git.
            if parts[: len(wanted)] == wanted or (wanted[-1][:1] == "." and wanted[-1] in parts):
                return True
    return False


def foreign_repository(folder: str, root: str) -> bool:
    """Whether git would take its settings, which name programs, from where others may write them.

    In a folder without `.git`, git takes the folder itself for a repository if it looks like one:
    plain files, which are not protected. Both paths are real. Outside of the workspace every
    repository is foreign.
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
    """The real paths of the folders in which dragoman keeps its files."""
    from dragoman.paths import find_paths

    try:
        paths = find_paths()
    except ConfigInvalid:
        # Without a home there are none.
        return ()
    found = (paths.config, paths.data, paths.cache, paths.state, paths.runtime)
    return tuple(dict.fromkeys(root_of(str(folder)) for folder in found))


def _plain(part: str) -> str:
    """A name as every file system may see it: without case, characters that cannot be seen, dots
    and spaces at the end, and what stands behind a colon."""
    seen = "".join(char for char in part if unicodedata.category(char) != "Cf")
    return seen.partition(":")[0].rstrip(". ").casefold()
