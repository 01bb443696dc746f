"""Note files about events that a broker could not store, for the next broker.

Written to the runtime directory, which is usually not on the same disk as the store. The next
broker that opens the same store records the gap there.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from dragoman.client.folders import make_private
from dragoman.config.safe_files import write_whole
from dragoman.decoders import decode_typed
from dragoman.store.store import Store
from dragoman.wire.messages import UNDECODABLE

log: Final = logging.getLogger("dragoman.broker")

FOLDER: Final = "gaps"
"""Directory of the notes, below the runtime directory."""

MAX_SIZE: Final = 1024 * 1024
"""Maximum number of bytes read from a note: a broker has a few hundred sessions at most."""


class UnstoredNote(Struct, frozen=True, kw_only=True):
    """How many events at the end of each session are not stored."""

    store: str
    """The store file in which they are missing."""
    why: str
    lost: dict[str, int]
    """Number of lost events, by session key."""


def leave(runtime: Path, store: Path, lost: Mapping[str, int], *, why: str) -> None:
    """Record how many events of each session (by key) are lost: in the log and, if possible, in a
    note file for the next broker. `why` is for the record in the store."""
    log.error("the last events of these sessions are not stored: %s", dict(lost))
    folder = runtime / FOLDER
    name = f"{time.time_ns()}-{os.getpid()}"
    try:
        make_private(folder)
        gap = UnstoredNote(store=str(store), why=why, lost=dict(lost))
        write_whole(folder / f"{name}.json", msgspec.json.encode(gap))
    except OSError as error:
        log.error("cannot write the note of lost events for the next broker: %s", error)


def take(runtime: Path, store: Path) -> list[UnstoredNote]:
    """Read and remove the notes for a store; each is returned to one broker only."""
    found: list[UnstoredNote] = []
    paths: list[Path] = []
    try:
        paths = sorted((runtime / FOLDER).glob("*.json"))
    except OSError as error:
        log.warning("%s: cannot read the notes of lost events: %s", runtime / FOLDER, error)
    for path in paths:
        try:
            with path.open("rb") as file:
                gap = decode_typed(file.read(MAX_SIZE), UnstoredNote)
        except (OSError, *UNDECODABLE) as error:
            log.warning("%s: cannot read the note of lost events: %s", path, error)
            continue
        if gap.store != str(store):
            continue
        try:
            path.unlink()
        except FileNotFoundError:
            # Another broker took it.
            continue
        except OSError as error:
            # It is used once it can be removed: each use counts its events as lost again.
            log.warning("%s: cannot remove the note of lost events: %s", path, error)
            continue
        found.append(gap)
    return found


def note(store: Store, slip: UnstoredNote) -> None:
    """Record the gaps of the note `slip` in the store: for each session, after its last stored
    event."""
    for key, count in slip.lost.items():
        session = store.session(key)
        if session is not None and count > 0:
            store.skip(key, session.next_event + count, slip.why)
