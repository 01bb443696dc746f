"""``events.jsonl``: the log of delegation events, one JSON line each, for other programs.

A line is redacted and written whole or not at all, under a file lock (not on Windows). Full files
are rotated. Fields are only ever added. The ledger next to it is the permanent record.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from dragoman.client.folders import make_private
from dragoman.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreRefused
from dragoman.redaction.redactor import Redactor
from dragoman.store.ledger.records import AttemptRecord, RuntimeRole
from dragoman.store.values import Provenance
from dragoman.transports.file_lock import take_lock

FILE_NAME: Final = "events.jsonl"

MAX_SIZE: Final = 10 * 1024 * 1024
"""Maximum size of a file in bytes: about thirty thousand lines. It is rotated before a line that
would exceed this."""

KEPT: Final = 3
"""Number of rotated files to keep: ``events.1.jsonl`` is the most recent."""

LOCK_TIMEOUT: Final = 5.0
"""Seconds to wait for other writers: each takes microseconds, so a longer wait means that one
is stopped."""

LOCK_INTERVAL: Final = 0.005

TEXT_SIZE: Final = 2000
"""Maximum number of characters of a text to keep."""

_TEXTS: Final = (
    *("job", "decision", "peer_id", "role", "tier", "model", "outcome", "error_class"),
    *("currency", "detail", "machine"),
)


class EventName(enum.StrEnum):
    """Names of the events in the log."""

    DELEGATION_DECIDED = "delegation_decided"
    PEER_CALL_STARTED = "peer_call_started"
    PEER_CALL_COMPLETED = "peer_call_completed"
    PEER_CALL_FAILED = "peer_call_failed"
    PEER_CALL_FELL_BACK = "peer_call_fell_back"
    PROTOCOL_MISMATCH = "protocol_mismatch"
    PEER_PARKED = "peer_parked"
    VERDICT_RECORDED = "verdict_recorded"


class LoggedEvent(Struct, frozen=True, kw_only=True):
    """One line of the log. Every line has every field; a field is null if unknown or not
    applicable."""

    time: str
    """ISO 8601, in UTC."""
    event: EventName
    job: str | None = None
    decision: str | None = None
    attempt: int | None = None
    """The number of the attempt within its job, from 1."""
    runtime_role: RuntimeRole | None = None
    """`peer`, or `host` if this process itself did the work."""
    peer_id: str | None = None
    role: str | None = None
    tier: str | None = None
    model: str | None = None
    outcome: str | None = None
    error_class: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_provenance: Provenance | None = None
    cost: float | None = None
    currency: str | None = None
    cost_provenance: Provenance | None = None
    duration: float | None = None
    """Seconds."""
    detail: str | None = None
    """A sentence: why this peer, what went wrong, until when it is parked."""
    machine: str | None = None
    """The machine on which the peer works; null is this one."""


def logged(
    event: EventName,
    attempt: AttemptRecord | None = None,
    *,
    at: float,
    job: str | None = None,
    role: str | None = None,
    peer: str | None = None,
    error_class: str | None = None,
    detail: str | None = None,
) -> LoggedEvent:
    """Return a line about an attempt or, if `attempt` is None, about an event before the first one.
    The attempt's own values replace `job`, `role` and `peer`."""
    line = LoggedEvent(
        time=datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        event=event,
        job=job,
        role=role,
        peer_id=peer,
        error_class=error_class,
        detail=detail,
    )
    if attempt is None:
        return line
    return structs.replace(
        line,
        job=attempt.job,
        decision=attempt.decision_id,
        attempt=attempt.number,
        runtime_role=attempt.runtime_role,
        peer_id=attempt.peer,
        role=attempt.role,
        tier=attempt.tier,
        model=attempt.model,
        outcome=attempt.outcome,
        error_class=error_class or attempt.error_class,
        tokens_in=attempt.tokens.input,
        tokens_out=attempt.tokens.output,
        tokens_provenance=attempt.tokens.provenance,
        cost=attempt.cost.amount,
        currency=attempt.cost.currency,
        cost_provenance=attempt.cost.provenance,
        duration=attempt.seconds,
        machine=attempt.machine,
    )


class EventsFile:
    """The event log. It is opened for every line, so that it may be moved or deleted at any
    time."""

    def __init__(
        self, path: Path, redact: Redactor | None = None, *, max_size: int = MAX_SIZE
    ) -> None:
        self.path = path
        self.redact = redact or Redactor()
        self._max_size = max_size

    def write(self, event: LoggedEvent) -> None:
        """Append a line. If that fails, raises `StoreError`, and no part of the line is in the
        file."""
        line = msgspec.json.encode(self._clean(event)) + b"\n"
        try:
            make_private(self.path.parent)
            with self._locked(len(line)) as descriptor:
                _append(descriptor, line)
        except OSError as error:
            raise self._explained(error) from error

    def _clean(self, event: LoggedEvent) -> LoggedEvent:
        """Return the event, redacted. Texts are truncated only afterwards: half a secret does not
        look like one. Field names are ours, so only values are searched."""
        texts = {
            name: self.redact.text(value)[:TEXT_SIZE]
            for name in _TEXTS
            if (value := getattr(event, name)) is not None
        }
        return structs.replace(event, **texts)

    @contextlib.contextmanager
    def _locked(self, size: int) -> Iterator[int]:
        """Context manager: the locked file, with room for a line. A full file is rotated first."""
        give_up_at = time.monotonic() + LOCK_TIMEOUT
        while True:
            descriptor = os.open(self.path, _FLAGS, 0o600)
            try:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise StoreCorrupt(
                        str(self.path), "it is not a regular file", remedy="move it away"
                    )
                self._wait_for(descriptor, give_up_at)
                # While we waited, another process may have rotated this file.
                if _is_at(descriptor, self.path):
                    used = os.fstat(descriptor).st_size
                    fits = not used or used + size <= self._max_size
                    # If the file cannot be rotated, writing the line matters more than its size.
                    if fits or not self._move_away():
                        yield descriptor
                        return
            finally:
                # Closing releases the lock too.
                os.close(descriptor)

    def _wait_for(self, descriptor: int, give_up_at: float) -> None:
        while not take_lock(descriptor):
            if time.monotonic() > give_up_at:
                raise StoreBusy(
                    str(self.path),
                    f"another process has held it for more than {LOCK_TIMEOUT:g} s",
                    remedy="check for a stopped dragoman process",
                )
            time.sleep(LOCK_INTERVAL)

    def _move_away(self) -> bool:
        """Rotate the files. The caller must hold the lock of the current one. Returns False if the
        operating system denies moving one of them."""
        names = [self.path, *(older(self.path, number) for number in range(1, KEPT + 1))]
        for source, target in zip(names[-2::-1], names[:0:-1], strict=True):
            try:
                os.replace(source, target)
            except FileNotFoundError:
                continue
            except PermissionError:
                # The directory is read-only, or the system does not move open files.
                return False
        return True

    def _explained(self, error: OSError) -> StoreError:
        detail = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return StoreFull(str(self.path), detail, remedy="free some disk space")
        return StoreRefused(
            str(self.path),
            f"it cannot be written ({detail})",
            remedy="make it writable, or set DRAGOMAN_STATE_HOME to another directory",
        )


def events_path(state: Path) -> Path:
    """Return the path of the event log, in dragoman's state directory."""
    return state / FILE_NAME


def older(path: Path, number: int) -> Path:
    """Return the path of a rotated file; `number` 1 is the most recent."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


_FLAGS: Final = (
    os.O_RDWR
    | os.O_CREAT
    | os.O_APPEND
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


def _append(descriptor: int, line: bytes) -> None:
    """Write a line with one call, behind a line break if the file ends within a line. If that
    fails, remove the part that was written."""
    before = os.fstat(descriptor).st_size
    if before and not _ends_a_line(descriptor, before):
        # Another program, or a power loss, may have left half a line.
        line = b"\n" + line
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, before)
        raise


def _ends_a_line(descriptor: int, size: int) -> bool:
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) == b"\n"


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
