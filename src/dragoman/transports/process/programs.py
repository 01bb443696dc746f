"""Find a program on the child's PATH, or raise an error that says why it cannot be started.

Relative PATH entries are ignored: they lead into the working directory, which may be a checkout
with its own `git`. `windows` handles PATHEXT and `.cmd` files; `stream` starts the program.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import stat
import sys
from collections.abc import Mapping

from dragoman.errors import ProgramNotFound, SpawnError


def check_folder(folder: str | os.PathLike[str] | None) -> None:
    """Raise if the working directory does not exist. Otherwise the program would be blamed."""
    if folder is None:
        return
    try:
        mode = os.stat(folder).st_mode
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SpawnError(f"the working folder {os.fspath(folder)!r}: {reason}") from error
    if not stat.S_ISDIR(mode):
        raise SpawnError(f"the working folder {os.fspath(folder)!r} is not a folder")


def absolute_entries(path: str, *, platform: str = sys.platform) -> str:
    """PATH without its relative and empty entries."""
    windows = platform == "win32"
    separator, is_absolute = (";", ntpath.isabs) if windows else (":", posixpath.isabs)
    # Quotes around an entry are a habit of Windows.
    quote = '"' if windows else ""
    return separator.join(
        entry for entry in path.split(separator) if is_absolute(entry.strip(quote))
    )


def which(program: str, *, path: str | None = None, platform: str = sys.platform) -> str | None:
    """The file a command name resolves to on this PATH (by default ours); None if not found.

    Unlike `shutil.which` it searches only where a child would be started from.
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
    """The path of the file a command name resolves to for a child with this environment.

    A name with a slash is a path; a relative one is resolved against the child's working directory.
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
    searched = "1 folder" if len(candidates) == 1 else f"{len(candidates)} folders"
    raise ProgramNotFound(program, f"it is not on the PATH, which has {searched}")


def _check_executable(path: str) -> None:
    if os.path.isdir(path):
        raise SpawnError(f"{path} is a folder, not a program")
    if not os.access(path, os.X_OK):
        raise SpawnError(f"{path} is not executable")
