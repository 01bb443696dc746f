"""What a broker had to let go of unstored, written where there is room, for the next one.

Owns the slips: a small file in the runtime folder, which is on another disk than the store as a
rule, for a broker that ends while the store takes nothing. The next one that opens the same store
notes the gap there. What a gap is, is in `dragoman.store`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from dragoman.client.folders import make_private
from dragoman.config.files import write_whole
from dragoman.store.store import Store

log: Final = logging.getLogger("dragoman.broker")

FOLDER: Final = "gaps"
"""Where slips lie, below the runtime folder."""

MAX_SIZE: Final = 1024 * 1024
"""Bytes of a slip that is read: a broker has a few hundred sessions at most."""


class UnstoredNote(Struct, frozen=True, kw_only=True):
    """How many of the last events of sessions are not stored."""

    store: str
    """The file in which they are missing."""
    why: str
    lost: dict[str, int]
    """By the key of the session."""


def leave(runtime: Path, store: Path, lost: Mapping[str, int], *, why: str) -> None:
    """Write down what is lost. Where that is not possible either, the log has it."""
    log.error("not stored, at the end of sessions: %s", dict(lost))
    folder = runtime / FOLDER
    name = f"{time.time_ns()}-{os.getpid()}"
    try:
        make_private(folder)
        slip = UnstoredNote(store=str(store), why=why, lost=dict(lost))
        write_whole(folder / f"{name}.json", msgspec.json.encode(slip))
    except OSError as error:
        log.error("this could not be written down for the next broker: %s", error)


def take(runtime: Path, store: Path) -> list[UnstoredNote]:
    """The slips for a store, each of which is given to one broker only."""
    found: list[UnstoredNote] = []
    with contextlib.suppress(OSError):
        for path in sorted((runtime / FOLDER).glob("*.json")):
            try:
                with path.open("rb") as file:
                    slip = msgspec.json.decode(file.read(MAX_SIZE), type=UnstoredNote)
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if slip.store == str(store):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
                    found.append(slip)
    return found


def note(store: Store, slip: UnstoredNote) -> None:
    """Note the gaps of which a slip tells, behind what is stored of each session by now."""
    for key, count in slip.lost.items():
        session = store.session(key)
        if session is not None and count > 0:
            store.skip(key, session.next_event + count, slip.why)
