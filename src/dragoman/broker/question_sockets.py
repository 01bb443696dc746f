"""Addresses of the sockets on which runs without a broker offer their questions to a console.

`runs.inbox` listens on them, and `console.live_state` connects.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.broker.endpoint import SOCKET, make_private, short_folder
from dragoman.transports.sockets import PATH_LIMIT

if TYPE_CHECKING:
    from dragoman.paths import Paths


def questions_folder(paths: Paths) -> Path:
    """Return the directory of the question sockets."""
    return paths.runtime / "questions"


def new_address(paths: Paths) -> str:
    """Return a path for a new question socket, in a private directory. Raises `BrokerUnavailable`
    or `OSError` if the directory cannot be used."""
    folder = questions_folder(paths)
    make_private(folder)
    name = f"{os.getpid()}-{secrets.token_hex(4)}{SOCKET}"
    path = folder / name
    if len(os.fsencode(path)) <= PATH_LIMIT:
        return str(path)
    short = short_folder()
    make_private(short, follow=False)
    # The path would be too long for a socket: the console finds the short one through a link.
    os.symlink(short / name, path)
    return str(short / name)


def addresses(paths: Paths) -> list[str]:
    """Return the paths of all question sockets, with links resolved."""
    try:
        names = sorted(os.listdir(questions_folder(paths)))
    except OSError:
        return []
    folder = questions_folder(paths)
    return [os.path.realpath(folder / name) for name in names if name.endswith(SOCKET)]


def forget_address(paths: Paths, address: str) -> None:
    """Remove the socket of a run that no longer listens, and the link to it."""
    for path in (questions_folder(paths) / Path(address).name, Path(address)):
        with suppress(OSError):
            os.unlink(path)
