"""Paths of a broker's socket, lock, record and log files.

Creates the directories of the lock and the socket with mode 0700, and refuses one that belongs to
another user. Opens no socket and takes no lock; `broker.client.find_or_start` and
`broker.server.process` do. Also checks whether a console is open.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from dragoman.client import folders
from dragoman.errors import BrokerUnavailable
from dragoman.transports.sockets import PATH_LIMIT

if TYPE_CHECKING:
    from dragoman.broker.spec import Folders

SOCKET: Final = ".sock"
LOCK: Final = ".lock"
STARTING: Final = ".starting"
RECORD: Final = ".json"

MAX_CONSOLES: Final = 100
"""Maximum number of console locks to look at."""

SHORT_FOLDER: Final = "/tmp/dragoman-{user}"
"""Directory for sockets whose path would otherwise be too long. Not TMPDIR: all callers of a user
have to find the same directory."""

PIPE: Final = "\\\\.\\pipe\\dragoman-{name}-{key}"


class Endpoint(Struct, frozen=True, kw_only=True):
    """The paths of one broker."""

    name: str
    runtime: Path
    """Directory of the lock, the records and usually the socket."""
    logs: Path
    """Directory of the logs."""

    @property
    def address(self) -> str:
        """The path of the socket, or the name of the pipe."""
        if sys.platform == "win32":
            return PIPE.format(name=self.name, key=_key(self.runtime))
        path = str(self.runtime / f"{self.name}{SOCKET}")
        if len(os.fsencode(path)) <= PATH_LIMIT:
            return path
        # Other runtime directories of the same user use this directory too.
        return str(short_folder() / f"{self.name}-{_key(self.runtime)}{SOCKET}")

    @property
    def lock(self) -> Path:
        """The lock file that the broker holds as long as it accepts callers."""
        return self.runtime / f"{self.name}{LOCK}"

    @property
    def starting(self) -> Path:
        """The lock file that is held by the caller that starts the broker."""
        return self.runtime / f"{self.name}{STARTING}"

    @property
    def log(self) -> Path:
        return self.logs / f"broker-{self.name}.log"

    def record(self, pid: int) -> Path:
        """Return the path of this broker's record file, which names what to clean up if its
        process, `pid`, is killed."""
        return self.runtime / f"{self.name}.{pid}{RECORD}"

    def make_safe(self) -> None:
        """Create the directories of the lock and the socket and make them private. Raises what
        `make_private` does."""
        make_private(self.runtime)
        if sys.platform != "win32":
            folder = Path(self.address).parent
            if folder != self.runtime:
                make_private(folder, follow=False)


def endpoint_of(name: str, folders: Folders) -> Endpoint:
    """Return the paths of the broker with this name."""
    return Endpoint(
        name=name, runtime=brokers_folder(folders.runtime), logs=logs_folder(folders.state)
    )


def brokers_folder(runtime: str | os.PathLike[str]) -> Path:
    """Return the directory of locks, records and sockets."""
    return Path(runtime) / "brokers"


def consoles_folder(runtime: str | os.PathLike[str]) -> Path:
    """Return the directory of the locks that consoles hold while they can answer questions."""
    return Path(runtime) / "consoles"


def console_is_open(runtime: str | os.PathLike[str]) -> bool:
    """Return whether a console is open in which a person can answer questions. Removes the locks of
    killed consoles."""
    folder = consoles_folder(runtime)
    try:
        names = os.listdir(folder)[:MAX_CONSOLES]
    except OSError:
        return False
    for name in names:
        # Not at the top: usually no console is open.
        from dragoman.broker.lock import is_held

        with contextlib.suppress(OSError):
            if is_held(folder / name):
                return True
            # The console of this lock was killed.
            os.unlink(folder / name)
    return False


def logs_folder(state: str | os.PathLike[str]) -> Path:
    return Path(state) / "logs"


def short_folder() -> Path:
    """Return the directory for sockets whose path would otherwise be too long."""
    user = os.getuid() if sys.platform != "win32" else 0
    return Path(SHORT_FOLDER.format(user=user))


def make_private(folder: Path, *, follow: bool = True) -> None:
    """Create a directory that only this user may use, or make an existing one private.

    Raises `BrokerUnavailable` if it belongs to another user, is not a directory, or cannot be
    created or written to. Without `follow`, a symlink is refused: any user could have put it there.
    """
    try:
        with contextlib.suppress(FileExistsError):
            folders.make_private(folder)
        found = folder.stat() if follow else folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise BrokerUnavailable(f"{folder} is not a directory, but dragoman needs one there")
        if sys.platform == "win32":
            # On Windows a user's directories are private, and modes mean nothing.
            return
        if found.st_uid != os.geteuid():
            raise BrokerUnavailable(
                f"{folder} belongs to another user (uid {found.st_uid}): "
                "set DRAGOMAN_RUNTIME_DIR to a directory that you own"
            )
        if found.st_mode & 0o077:
            folder.chmod(0o700)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise BrokerUnavailable(f"{folder} cannot be written to: no broker can listen there")
    except OSError as error:
        raise BrokerUnavailable(
            f"{folder} cannot be used for a broker: {error.strerror or error}"
        ) from error


def _key(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.abspath(folder))).hexdigest()[:8]
