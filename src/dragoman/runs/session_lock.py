"""Session locks: only one command at a time starts a session with a certain name, or starts a turn
of a session without a broker.

The locks are files in the runtime directory (`broker.lock`), so the end of a process releases them.
`runs.sessions` finds and opens the sessions.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.errors import FileFailed
from dragoman.rpc.tasks import in_thread
from dragoman.runs.sessions import RESTORED

if TYPE_CHECKING:
    from dragoman.paths import Paths
    from dragoman.runs.sessions import OpenedSession

log: Final = logging.getLogger(__name__)

BEGIN_TIMEOUT: Final = 90.0
"""Seconds to wait for another command that starts the same session: its agent may have to start
first."""


@asynccontextmanager
async def begun_once(
    name: str, *, peer: str, folder: Path, paths: Paths | None = None
) -> AsyncIterator[None]:
    """Context manager: lock the name of a session that is about to start. Other processes that want
    the same name wait, and then find the session. If locking fails or takes more than
    `BEGIN_TIMEOUT`, the session starts without the lock."""
    from dragoman.broker.lock import HeldLock, lock_within
    from dragoman.client.folders import make_private
    from dragoman.paths import find_paths
    from dragoman.store.records import root_of

    words = "\0".join((peer, str(root_of(folder)), name))
    names = (paths or find_paths()).runtime / "names"
    path = names / f"{hashlib.sha256(words.encode()).hexdigest()[:16]}.lock"
    lock: HeldLock | None = None
    # After the timeout the session starts without the lock: a user would not wait longer.
    why = f"another command has held it for {BEGIN_TIMEOUT:g} s"
    try:
        await in_thread(str(names), lambda _: make_private(names), changes_disk=True)
        lock = await lock_within(path, timeout=BEGIN_TIMEOUT)
    except (OSError, FileFailed) as error:
        why = str(error)
    if lock is None:
        log.warning("the name %s is not locked, and may be given to two sessions: %s", name, why)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


@asynccontextmanager
async def only_turn(
    opened: OpenedSession,
    *,
    named: bool,
    peer: str,
    folder: Path,
    store: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Context manager: lock a session while a job starts in it without a broker. `store`, which
    stores the job, is awaited before the lock is released. Raises `TurnInProgress` if a job of
    another process runs or is queued in the session. A new session without a name is not locked,
    because no other process knows it."""
    if not named and opened.context != RESTORED:
        # No other process knows this session.
        yield
        return
    from dragoman.broker.client.sessions import require_idle
    from dragoman.paths import find_paths

    async with begun_once(opened.key, peer=peer, folder=folder):
        await require_idle(opened.key, opened.key, besides=os.getpid(), paths=find_paths())
        yield
        await store()
