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
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dragoman.config.load import load_own
from dragoman.errors import ConfigInvalid, StoreError
from dragoman.store.damage import COMPANIONS, aside_of, set_aside_at
from dragoman.store.ledger.ledger import Ledger, ledger_path
from dragoman.store.store import Store, store_path

log: Final = logging.getLogger("dragoman.retention")

INTERVAL: Final = 24 * 3600.0
"""Seconds between two times, on one machine."""

LONG_AGO: Final = 30 * 24 * 3600.0
"""Seconds after which the first command deletes nothing yet. A clock that runs years ahead for an
hour would make everything old; with a clock that is right, it is done a day later."""

STAMP: Final = "retention.stamp"
"""The file in the state folder whose time says when it was done last."""

CONFIG_FILE: Final = "config.toml"

DAY: Final = 24 * 3600.0


def retain(
    state: Path,
    config: Path,
    *,
    environ: Mapping[str, str] | None = None,
    now: float | None = None,
) -> bool:
    """Delete what is too old or too much in the state folder, by the settings in the config folder,
    if that was not done today. False if it was, or if there is nothing. It blocks while the disk
    does."""
    now = time.time() if now is None else now
    files = (store_path(state), ledger_path(state))
    done_at = _done_at(state / STAMP)
    if not any(os.path.exists(path) for path in files) or not _is_due(state / STAMP, now):
        return False
    if done_at is not None and now - done_at > LONG_AGO:
        log.info("nothing old is deleted before tomorrow: the last time is long ago")
        return False
    try:
        settings = load_own(config / CONFIG_FILE, environ)
    except ConfigInvalid as error:
        # It may say that all is to be kept.
        log.warning("nothing old is deleted: %s", error)
        return False
    age = settings.keep_days * DAY
    try:
        _retain_sessions(files[0], age, settings.max_store_size, now)
        if age and os.path.exists(files[1]):
            with Ledger.open(files[1]) as ledger:
                ledger.check_kept()
                gone = ledger.prune(now - age)
            if gone:
                log.info("%d attempts went, which are older than %g days", gone, settings.keep_days)
    except StoreError as error:
        log.warning("nothing old is deleted: %s", error)
    if age:
        for path in files:
            _delete_aside(path, now - age)
    return True


def _retain_sessions(path: Path, age: float, max_size: int, now: float) -> None:
    if not os.path.exists(path):
        return
    with Store.open(path) as store:
        store.check_kept()
        if age:
            old = store.prune(age, closed_only=True, now=now)
            if old.sessions or old.jobs:
                log.info("%d sessions and %d jobs went for their age", old.sessions, old.jobs)
        if max_size:
            large = store.shrink(max_size, now=now)
            if large.sessions:
                log.info("%d sessions went: more than %d bytes", large.sessions, max_size)


def _delete_aside(path: Path, before: float) -> None:
    """Delete damaged files that were set aside long ago."""
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
    """Whether it is time; if so, the stamp says now that it was done."""
    try:
        done_at = stamp.stat().st_mtime
        # A clock that was set back must not put it off for years.
        if now - INTERVAL < done_at <= now + INTERVAL:
            return False
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("%s cannot be read, and nothing old is deleted: %s", stamp, error)
        return False
    try:
        os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600))
        os.utime(stamp, (now, now))
    except OSError as error:
        log.warning("%s cannot be written, and nothing old is deleted: %s", stamp, error)
        return False
    return True
