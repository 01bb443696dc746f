"""Record files: which processes a broker has started, for cleanup after the broker is killed.

`RecordFile` replaces the whole file at every change and removes it at an orderly shutdown. A
record whose broker is dead is input for `broker.client.reap`. This module kills nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from dragoman.broker.endpoint import RECORD
from dragoman.config.safe_files import write_whole
from dragoman.decoders import decode_typed
from dragoman.transports.process.identity import ProcessIdentity, identify
from dragoman.wire.messages import UNDECODABLE

MAX_SIZE: Final = 256 * 1024
"""Maximum size of a record, in bytes: a record has a few hundred, so a larger file is not a
record."""

log = logging.getLogger(__name__)


class BrokerRecord(Struct, frozen=True, kw_only=True):
    """One broker's process and its children."""

    name: str
    """Name of the endpoint."""
    address: str
    peer: str
    workspace: str
    version: str
    """The version of dragoman."""
    broker: ProcessIdentity
    owner: str
    """The name in the marks of its children; their descendants are found by it."""
    children: tuple[ProcessIdentity, ...] = ()
    """The peer's processes. Each leads a process group and a session with its pid."""
    started_at: float
    """Seconds since 1970, for people."""
    log: str = ""
    terms: dict[str, str] = {}
    """Digests of what callers must have in common to share the broker (`spec.shared_terms`)."""
    draining: bool = False
    """Whether the broker no longer accepts callers and only finishes its turns."""


class RecordFile:
    """The record file of this process.

    A disk error is only logged, because the process warden guards its children as well.
    """

    def __init__(self, path: Path, record: BrokerRecord) -> None:
        self.path = path
        self.record = record

    def write(self) -> None:
        """Write the record atomically."""
        try:
            write_whole(self.path, msgspec.json.encode(self.record))
        except OSError as error:
            log.warning("cannot write the record of this broker: %s", error)

    def add(self, pid: int) -> None:
        """Record that a process of the peer was started."""
        found = identify(pid)
        if found is not None:
            self._change(children=(*self.record.children, found))

    def drop(self, pid: int) -> None:
        """Record that a process of the peer has ended."""
        self._change(children=tuple(one for one in self.record.children if one.pid != pid))

    def drain(self) -> None:
        """Record that this broker has released its name but still runs its turns."""
        self._change(draining=True)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _change(self, **changes: object) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        self.write()


def read_record(path: Path) -> BrokerRecord | None:
    """Return a record, or None if the file is missing or invalid."""
    try:
        with path.open("rb") as file:
            return decode_typed(file.read(MAX_SIZE), BrokerRecord)
    except (OSError, *UNDECODABLE):
        return None


def read_records(folder: Path) -> Iterator[tuple[Path, BrokerRecord | None]]:
    """Yield every record file in a directory with its record, or with None if it is invalid."""
    try:
        files = sorted(path for path in folder.iterdir() if path.name.endswith(RECORD))
    except OSError:
        return
    for path in files:
        yield path, read_record(path)
