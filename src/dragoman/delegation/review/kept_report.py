"""The results of an attempt, stored with its session for a later review.

They are the result of the check, the path of the patch and its digest, and the reason if the patch
must not be applied. The patch itself is a separate file; the report is a note in the session store.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from dragoman.decoders import convert_typed
from dragoman.delegation.worktree.check_command import CheckResult
from dragoman.errors import FileFailed
from dragoman.store.records import REPORT

if TYPE_CHECKING:
    from dragoman.delegation.attempt_report import AttemptReport
    from dragoman.store.records import Note


class KeptReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The results of an attempt that a review needs."""

    job: str
    """The id of the attempt's job."""
    isolated: bool = False
    check: CheckResult | None = None
    patch: str | None = None
    """Path of the patch, if it was kept."""
    patch_top: str | None = None
    patch_digest: str | None = None
    obstacle: str = ""
    """Why the patch must not be applied; empty if it may."""


class KeptCheck(Struct, frozen=True, kw_only=True):
    """A check that was run in the workspace after the turn."""

    result: CheckResult


class KeptApplication(Struct, frozen=True, kw_only=True):
    """A record that the patch with this digest was applied."""

    digest: str


def kept_report(job: str, report: AttemptReport) -> KeptReport | None:
    """Return the report to store for an attempt, or None if it has neither a patch nor a check: a
    review then needs only the stored events."""
    applied = report.applied
    patch = report.patch or (None if applied is None else applied.kept)
    if patch is None and report.check is None:
        return None
    conflicts = () if applied is None or applied.ok else applied.conflicts
    return KeptReport(
        job=job,
        isolated=report.isolated,
        check=report.check,
        patch=patch,
        patch_top=report.patch_top,
        patch_digest=None if patch is None else digest_of(Path(patch)),
        # Conflicts do not count as an obstacle: they may be gone at the next attempt to apply.
        obstacle="" if conflicts else report.patch_obstacle(),
    )


def digest_of(patch: Path) -> str | None:
    """Return the SHA-256 of a patch in hexadecimal, or None if the file is gone.

    Raises `FileFailed` if it cannot be read.
    """
    try:
        return hashlib.sha256(patch.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileFailed(str(patch), error.strerror or str(error), error.errno) from error


def as_note(value: KeptReport | KeptCheck | KeptApplication) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(value)
    return told


def latest_report(notes: list[Note]) -> KeptReport | None:
    """Return the latest report of a session, or None if there is none or it is unreadable."""
    for note in reversed(notes):
        if note.kind == REPORT:
            try:
                return convert_typed(note.data, KeptReport)
            except msgspec.ValidationError:
                return None
    return None
