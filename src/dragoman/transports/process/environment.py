"""Build the environment of a child: its variables, its owner's mark, and its PATH.

An allow-list of variables keeps secrets out. Relative PATH entries are dropped, for the child and
where its program is looked for: they lead into the working directory, which may be a checkout with
its own `git`. The mark is one variable that names the dragoman process that started a child and the
child's number; `strays`, `guard` and `warden` find leftover processes by it. It is always replaced,
never inherited, because a dragoman process below us is responsible for its own children. `windows`
handles PATHEXT and `.cmd` files; `stream` starts the program.
"""

from __future__ import annotations

import fnmatch
import itertools
import ntpath
import os
import posixpath
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from typing import Final

from dragoman.errors import ProgramNotFound, SpawnError

MARK_NAME: Final = "DRAGOMAN_MARK"
"""The variable that holds the mark. `warden` repeats the name: it must not import dragoman, and a
program that only builds an environment need not load `warden`."""

POSIX_NAMES = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM",
    "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TEMP", "TMP", "XDG_*",
    "SSH_AUTH_SOCK", "SSH_AGENT_PID",
)  # fmt: skip
"""Variables for programs, user, terminal, language, directories, and the user's ssh agent."""

NETWORK_NAMES = (
    "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
"""Proxy and certificate variables: without them a child behind a company proxy cannot reach its
model."""

WINDOWS_NAMES = (
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "OS",
    "USERPROFILE", "USERNAME", "USERDOMAIN", "HOMEDRIVE", "HOMEPATH",
    "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "ALLUSERSPROFILE", "PUBLIC",
    "PROGRAMFILES*", "COMMONPROGRAMFILES*", "PROGRAMW6432", "COMMONPROGRAMW6432",
    "PROCESSOR_*", "NUMBER_OF_PROCESSORS",
)  # fmt: skip
"""Variables for Windows. Without SYSTEMROOT no socket can be opened; the others are well-known
directories."""

WILDCARD = re.compile(r"[*?[]")

_owner: dict[str, str] = {}
_serials = itertools.count(1)


def owner() -> str:
    """Return the random name that stands for this process in the marks of its children."""
    # `setdefault` is atomic: the first children of two threads must not get two owners, because the
    # warden would know only one. A lock would have to survive a fork.
    return _owner.get("name") or _owner.setdefault("name", os.urandom(8).hex())


def new_mark() -> str:
    """Return a mark for one more child: `<owner>.<serial>`."""
    return f"{owner()}.{next(_serials)}"


def _forget_owner() -> None:
    """Forget the owner in a forked copy of this process, whose children are not the original's."""
    global _serials
    _owner.clear()
    _serials = itertools.count(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_owner)


def build_environment(
    *,
    inherit: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
    base: Mapping[str, str] | None = None,
    platform: str = sys.platform,
) -> dict[str, str]:
    """Return the environment for a child: the allow-listed variables of `base` and what the caller
    adds, without the mark. PATH loses its relative entries.

    `inherit` names further variables of `base` (by default our environment) and may contain
    patterns such as `ACME_*`. `extra` sets values and takes precedence. Names are case-insensitive
    on Windows.
    """
    source = os.environ if base is None else base
    windows = platform == "win32"
    names = [*POSIX_NAMES, *NETWORK_NAMES, *(WINDOWS_NAMES if windows else ()), *inherit]
    if windows:
        names = [name.upper() for name in names]
    exact = {name for name in names if not WILDCARD.search(name)}
    patterns = [name for name in names if WILDCARD.search(name)]
    matches = re.compile("|".join(map(fnmatch.translate, patterns))).match
    built: dict[str, str] = {}
    for name, value in source.items():
        key = name.upper() if windows else name
        if key in exact or matches(key):
            built[name] = value
    for name, value in (extra or {}).items():
        if windows:
            # With two spellings of one name it would be undefined which one the child sees.
            for twin in [known for known in built if known.upper() == name.upper()]:
                del built[twin]
        built[name] = value
    for name in [name for name in built if (name.upper() if windows else name) == "PATH"]:
        # Programs the child starts by name, such as the interpreter of a script, must not come from
        # its working directory. An empty PATH would mean that very directory.
        built[name] = absolute_entries(built[name], platform=platform) or os.defpath
    built.pop(MARK_NAME, None)
    return built


# -- programs


def check_folder(folder: str | os.PathLike[str] | None) -> None:
    """Raise `SpawnError` if the working directory cannot be used. Otherwise the error of the start
    would blame the program."""
    if folder is None:
        return
    try:
        mode = os.stat(folder).st_mode
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SpawnError(
            f"cannot use the working directory {os.fspath(folder)!r}: {reason}"
        ) from error
    if not stat.S_ISDIR(mode):
        raise SpawnError(f"the working directory {os.fspath(folder)!r} is not a directory")


def absolute_entries(path: str, *, platform: str = sys.platform) -> str:
    """Return PATH without its relative and empty entries."""
    windows = platform == "win32"
    separator, is_absolute = (";", ntpath.isabs) if windows else (":", posixpath.isabs)
    # On Windows an entry may be in quotes.
    quote = '"' if windows else ""
    return separator.join(
        entry for entry in path.split(separator) if is_absolute(entry.strip(quote))
    )


def which(program: str, *, path: str | None = None, platform: str = sys.platform) -> str | None:
    """Return the path of the file that a command name resolves to on this PATH (by default ours),
    or None if there is none.

    Unlike `shutil.which`, it searches only the directories in which a child's program is looked
    for.
    """
    environment = {"PATH": os.environ.get("PATH", os.defpath) if path is None else path}
    try:
        if platform == "win32":
            from dragoman.transports.process import windows

            pathext = {"PATHEXT": os.environ.get("PATHEXT", "")}
            return windows.find_program(
                program, environment={**environment, **pathext}, files=windows.RealFiles()
            )
        return find_program(program, environment=environment)
    except SpawnError:
        return None


def find_program(
    program: str, *, environment: Mapping[str, str], folder: str | os.PathLike[str] | None = None
) -> str:
    """Return the path of the file that a command name resolves to for a child with this
    environment.

    A name with a slash is a path; a relative one is resolved against the child's working directory,
    `folder`. Raises `ProgramNotFound`, or `SpawnError` if the file cannot be executed.
    """
    if "\0" in program:
        raise SpawnError(f"the program {program!r} has a null character in its name")
    if os.sep in program:
        path = os.path.join(os.path.abspath(folder or ""), program)
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ProgramNotFound(program, f"there is no {path}") from error
        except OSError as error:
            raise SpawnError(f"{path} could not be started: {error.strerror}") from error
        _check_executable(path)
        return path
    search = absolute_entries(environment.get("PATH", os.defpath), platform="posix")
    candidates = [os.path.join(place, program) for place in search.split(os.pathsep) if place]
    for path in candidates:
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
    for path in candidates:
        if os.path.isfile(path):
            _check_executable(path)
    count = len(candidates)
    searched = "1 directory" if count == 1 else f"{count} directories"
    raise ProgramNotFound(program, f"it is not on the PATH, which has {searched}")


def _check_executable(path: str) -> None:
    if os.path.isdir(path):
        raise SpawnError(f"{path} is a directory, not a program")
    if not os.access(path, os.X_OK):
        raise SpawnError(f"{path} is not executable")
