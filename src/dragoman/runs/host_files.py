"""The files that the remote side of `--host` keeps, and the directories that it works in.

`host_submission` and `host_commands` keep a few files per id, so that a request that is repeated
after a lost connection is not processed twice.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from dragoman.broker.lock import is_held
from dragoman.client.folders import make_private
from dragoman.errors import UsageError

KEPT_AGE: Final = 7 * 24 * 3600.0
"""Seconds for which a file is kept after its last change. The files of a running command are kept
longer. No client reconnects after that long."""

_ID: Final = re.compile(r"[A-Za-z0-9-]{4,64}")


def is_id(text: str) -> bool:
    """Return whether a text from the other side is a valid id, which may be used in a file name."""
    return _ID.fullmatch(text) is not None


def make_folder(folder: Path) -> None:
    """Create a private directory for the files of repeated requests, and remove old files in it
    that no running command uses. Raises `OSError`."""
    make_private(folder)
    before = time.time() - KEPT_AGE
    for file in folder.iterdir():
        with suppress(OSError):
            # The command of an id holds this lock while it runs.
            if file.stat().st_mtime < before and not is_held(file.with_suffix(".running")):
                file.unlink()


def working_directory(cwd: str) -> Path:
    """Return the directory that the other side names, resolved against the home directory. Raises
    `UsageError` if it is not a directory."""
    folder = Path.home() / os.path.expanduser(cwd)
    if not os.path.isdir(folder):
        raise UsageError(
            f"{folder} is not a directory on the host: correct --cwd, or `workspace` in the host's "
            "settings"
        )
    return folder
