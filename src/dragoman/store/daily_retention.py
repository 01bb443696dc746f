"""Run retention at most once a day: delete old sessions, ledger attempts and damaged files.

An idle broker or a command without a broker calls it. Only the user's own settings set the limits,
never a project's. `store.retention` and `store.ledger` select what to delete. Patches are never
deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dragoman.config.load import load_own
from dragoman.errors import ConfigInvalid, StoreError
from dragoman.store.damage import COMPANIONS, aside_of, set_aside_at
from dragoman.store.ledger.ledger import Ledger, ledger_path
from dragoman.store.store import Store, store_path

log: Final = logging.getLogger("dragoman.retention")

INTERVAL: Final = 24 * 3600.0
"""Seconds between two runs on one machine."""

LONG_AGO: Final = 30 * 24 * 3600.0
"""If the last run was more than this many seconds ago, the first command deletes nothing. A clock
that is years ahead for an hour would make everything look old; with a correct clock the deletion
runs a day later."""

RETENTION_TIMEOUT: Final = 600.0
"""Timeout in seconds for one run. A store of gigabytes is rewritten in a few minutes."""

STAMP: Final = "retention.stamp"
"""File in the state directory whose mtime is the time of the last run."""

CONFIG_FILE: Final = "config.toml"

DAY: Final = 24 * 3600.0


def retain(
    state: Path,
    config: Path,
    *,
    environ: Mapping[str, str] | None = None,
    now: float | None = None,
) -> bool:
    """Delete what exceeds the age and size limits in the state directory, according to the settings
    in the config directory, unless that was done in the last day.

    Returns False if nothing was tried, because there are no files, retention is not due, its last
    run is more than `LONG_AGO` ago, or the settings are invalid. Blocks on the disk.
    """
    now = time.time() if now is None else now
    files = (store_path(state), ledger_path(state))
    done_at = _done_at(state / STAMP)
    if not any(os.path.exists(path) for path in files) or not _is_due(state / STAMP, now):
        return False
    if done_at is not None and now - done_at > LONG_AGO:
        log.info("retention deletes nothing before tomorrow: its last run was long ago")
        return False
    try:
        settings = load_own(config / CONFIG_FILE, environ)
    except ConfigInvalid as error:
        # The settings may say to keep everything.
        log.warning("retention is skipped: %s", error)
        return False
    age = settings.keep_days * DAY
    # A file that cannot be used must not keep the other from being cleaned up.
    with _skipped_on_failure():
        _retain_sessions(files[0], age, settings.max_store_size, now)
    with _skipped_on_failure():
        _retain_attempts(files[1], age, now)
    if age:
        for path in files:
            _delete_aside(path, now - age)
    return True


@contextlib.contextmanager
def _skipped_on_failure() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        log.warning("retention is skipped: %s", error)


def _retain_attempts(path: Path, age: float, now: float) -> None:
    if not age or not os.path.exists(path):
        return
    with Ledger.open(path) as ledger:
        ledger.check_kept()
        gone = ledger.prune(now - age)
    if gone:
        log.info("deleted %d attempts older than %g days", gone, age / DAY)


def _retain_sessions(path: Path, age: float, max_size: int, now: float) -> None:
    if not os.path.exists(path):
        return
    with Store.open(path) as store:
        store.check_kept()
        if age:
            old = store.prune(age, closed_only=True, now=now)
            if old.sessions or old.jobs:
                log.info("deleted %d old sessions and %d jobs", old.sessions, old.jobs)
        if max_size:
            large = store.shrink(max_size, now=now)
            if large.sessions:
                text = "deleted %d sessions: the store was larger than %d bytes"
                log.info(text, large.sessions, max_size)


def _delete_aside(path: Path, before: float) -> None:
    """Delete the damaged files that were set aside from this path before this time."""
    for aside in aside_of(path):
        with contextlib.suppress(OSError):
            if set_aside_at(aside) < before:
                for suffix in ("", *COMPANIONS):
                    aside.with_name(aside.name + suffix).unlink(missing_ok=True)


def _done_at(stamp: Path) -> float | None:
    try:
        return stamp.stat().st_mtime
    except OSError:
        return None


def _is_due(stamp: Path, now: float) -> bool:
    """Return whether retention is due. If so, record in the stamp file that it was run; False if
    that file cannot be used."""
    try:
        done_at = stamp.stat().st_mtime
        # A clock that was set back must not postpone retention for years.
        if now - INTERVAL < done_at <= now + INTERVAL:
            return False
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("retention is skipped: cannot read %s: %s", stamp, error)
        return False
    try:
        os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600))
        os.utime(stamp, (now, now))
    except OSError as error:
        log.warning("retention is skipped: cannot write %s: %s", stamp, error)
        return False
    return True
