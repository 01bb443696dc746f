"""Notify browsers when peers or the ledger have changed, and keep track of parked peers.

Other commands change the settings, descriptors, cards, host checks and the ledger too. After each
change, and when a parked peer becomes available again, the parked peers are read again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.catalogue.card import CARDS
from dragoman.catalogue.host_checks import CHECKS
from dragoman.client.folders import make_private
from dragoman.console.retry import changed_or_due
from dragoman.delegation.parked import parked_peers
from dragoman.errors import DragomanError
from dragoman.rpc.tasks import TaskOwner, in_thread
from dragoman.runs.context import load_context
from dragoman.store.ledger.ledger import FILE_NAME, ledger_path
from dragoman.transports.file_watch import FileWatch

if TYPE_CHECKING:
    from dragoman.console.live_state import LiveState
    from dragoman.store.values import Park

log: Final = logging.getLogger("dragoman.console")

READ_INTERVAL: Final = 0.2
"""Seconds during which changes are combined."""


class PeerWatch:
    """Follows the status of the peers. Call `start`, and always `aclose`."""

    def __init__(self, state: LiveState, *, clock: Callable[[], float] = time.time) -> None:
        self._state = state
        self._clock = clock
        self._tasks = TaskOwner("peer watch")
        self._watch: FileWatch | None = None
        self._changed = asyncio.Event()
        self._ledger = self._ledger_mark()
        self._timer: asyncio.TimerHandle | None = None
        state.on_state_file(self._state_file_changed)

    async def start(self) -> None:
        self._follow_files()
        await self._read_parked()
        self._wake_at_end()
        self._tasks.start(self._follow(), "follow the peers")

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.close()
        await self._tasks.aclose()

    def _follow_files(self) -> None:
        paths = self._state.paths
        cards = paths.data / CARDS
        checks = paths.state / CHECKS
        for folder in (paths.config, cards, checks):
            # Only existing directories can be watched.
            make_private(folder)
        if self._watch is not None:
            self._watch.close()
        folders = [paths.config, paths.peers_folder, checks, cards, *cards.iterdir()]
        self._watch = FileWatch(folders, lambda folder, name: self._changed.set())

    def _state_file_changed(self, name: str) -> None:
        if name.startswith(FILE_NAME):
            mark = self._ledger_mark()
            if mark != self._ledger:
                self._ledger = mark
                self._changed.set()

    def _ledger_mark(self) -> tuple[int, ...]:
        """Return a value that changes when the ledger is written. Empty files are ignored: a reader
        also creates an empty log next to the ledger and removes it again."""
        path = ledger_path(self._state.paths.state)
        found: list[int] = []
        for file in (path, path.with_name(f"{FILE_NAME}-wal")):
            try:
                info = file.stat()
            except OSError:
                continue
            if info.st_size:
                found += [info.st_mtime_ns, info.st_size]
        return tuple(found)

    async def _follow(self) -> None:
        failed = 0
        while True:
            await changed_or_due(self._changed, failed)
            await asyncio.sleep(READ_INTERVAL)
            self._changed.clear()
            try:
                # There may be new directories, such as that of a peer's first card.
                self._follow_files()
                await self._read_parked()
                failed = 0
            except (DragomanError, OSError) as error:
                if not failed:
                    log.warning("cannot follow the status of the peers: %s", error)
                failed += 1
            self._wake_at_end()
            self._state.tell({"type": "peers"})

    async def _read_parked(self) -> None:
        self._state.set_parked(await in_thread(str(Path.home()), lambda _: self._parked()))

    def _parked(self) -> dict[str, Park]:
        return parked_peers(load_context(Path.home()), now=self._clock())

    def _wake_at_end(self) -> None:
        """Schedule a read for the time when the first parked peer becomes available, if any is
        parked."""
        if self._timer is not None:
            self._timer.cancel()
        ends = [park.until for park in self._state.parked.values()]
        if ends:
            delay = max(min(ends) - self._clock(), 0.0) + READ_INTERVAL
            self._timer = asyncio.get_running_loop().call_later(delay, self._changed.set)
