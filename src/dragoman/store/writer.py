"""Write to the store from a background thread, so that the event loop never blocks on the disk.

The queue is bounded and small writes are batched. If the disk fails, a callback reports it once,
the turn continues, and the writer retries; events that exceed the queue are left out and recorded
as a gap (`Store.skip`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias, TypeVar

from dragoman.errors import (
    DragomanError,
    StoreConflict,
    StoreCorrupt,
    StoreError,
    StoreTooNew,
    UnknownJob,
    UnknownSession,
)
from dragoman.rpc.tasks import settle
from dragoman.store.records import counted
from dragoman.store.store import Store

log: Final = logging.getLogger("dragoman.store")

T = TypeVar("T")
Operation: TypeAlias = Callable[[Store], object]

BATCH_INTERVAL: Final = 0.05
"""Seconds that a write may wait for others, to share a transaction with them. A killed process
loses the writes that still wait."""

QUEUE_SIZE: Final = 16 * 1024 * 1024
"""Number of queued bytes above which `is_full` is set. While nothing can be stored, events beyond
it are left out."""

HARD_SIZE: Final = 4 * QUEUE_SIZE
"""Maximum number of queued bytes. Beyond that, events become a gap in the store and other writes
are dropped, so that the queue uses no more memory."""

PART_SIZE: Final = 4 * 1024 * 1024
"""Approximate number of bytes per transaction: a disk with little room accepts part of the
queue."""

OPERATION_SIZE: Final = 512
"""Minimum number of bytes that an operation counts for, since it takes memory while it waits, like
its data."""

RETRY_INTERVAL: Final = 1.0
"""Seconds after a failure before the disk is tried again, even on request."""

MAX_RETRY_INTERVAL: Final = 30.0
"""Seconds between two retries after many failures: short enough for a user who made room."""

DISK_TIMEOUT: Final = 30.0
"""Seconds that a caller waits for the disk. A transaction takes milliseconds, and another
process holds the file for at most `database.BUSY_TIMEOUT`; a hanging file system never answers."""

SLOW_TIME: Final = 1.0
"""If a caller gives up after it has waited for the disk for this many seconds, that is logged: a
transaction takes milliseconds."""

_LOCAL: Final = (StoreConflict, UnknownSession, UnknownJob)
"""Errors of one session or job that do not affect the others."""

_FINAL: Final = (StoreCorrupt, StoreTooNew)
"""Errors that a retry does not fix: the file is left alone, and nothing more is stored."""


@dataclass(slots=True)
class _Append:
    key: str
    first: int
    lines: list[bytes]
    job: str | None
    size: int


@dataclass(slots=True)
class _Work:
    operation: Operation
    size: int
    done: Callable[[Any, BaseException | None], None] | None = None
    reads: bool = False
    result: Any = field(default=None)
    error: BaseException | None = None


_Item: TypeAlias = _Append | _Work


class StoreWriter:
    """Writes to a store from its own thread. Use with `async with`.

    `on_trouble` is called in the loop: once with the error after which nothing is stored, and once
    for every session or job that could not be stored although others can. `on_recovery` is called
    there when the disk works again, with the number of events that were left out.

    Instead of a store it accepts a function that opens one. `trouble` is the error of an attempt
    that has already failed; the writer then tries again after `RETRY_INTERVAL`.
    """

    def __init__(
        self,
        store: Store | Callable[[], Store],
        *,
        on_trouble: Callable[[DragomanError], None] | None = None,
        on_recovery: Callable[[int], None] | None = None,
        trouble: StoreError | None = None,
    ) -> None:
        self._store = store if isinstance(store, Store) else None
        self._open = None if isinstance(store, Store) else store
        self.trouble: StoreError | None = trouble
        """The error because of which nothing is stored now; None if the disk works."""
        self._on_trouble = on_trouble
        self._on_recovery = on_recovery
        self._queue: deque[_Item | None] = deque()
        self._work = threading.Event()
        self._hurry = threading.Event()
        # Each of the two is written by one thread only.
        self._put_size = 0
        self._done_size = 0
        self._lost: dict[str, tuple[int, int]] = {}
        """For each session, the events that were left out since the last accepted one."""
        self._left_out = 0
        self._why = "" if trouble is None else trouble.problem
        """A short description of the last trouble."""
        self._mute: set[str] = set()
        self._over = False
        """Whether nothing will ever be stored again."""
        self._tried_at = time.monotonic()
        self._pause = None if trouble is None else RETRY_INTERVAL
        """Seconds from the last try to the next; None if there is no failure."""
        self._asked = False
        self._abandoned = False
        """Whether the thread was abandoned because the disk does not answer."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def start(self) -> None:
        """Start writing. Call it in the loop that the writer serves."""
        self._loop = asyncio.get_running_loop()
        # A process that exits without closing must not wait for a disk.
        self._thread = threading.Thread(target=self._run, name="dragoman-store", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether the store was opened, and `close` has not abandoned it."""
        return self._store is not None and not self._abandoned

    @property
    def store(self) -> Store:
        """The open store."""
        assert self._store is not None, "the store is not open yet"
        return self._store

    @property
    def is_full(self) -> bool:
        """Whether the queue is over its soft limit. If so, `drain` waits until it is written."""
        return self._put_size - self._done_size > QUEUE_SIZE

    @property
    def is_empty(self) -> bool:
        """Whether nothing is queued any more: every write was done, or has failed for good."""
        return self._put_size == self._done_size

    async def drain(self) -> None:
        """If the queue is over its limit, wait until it is written or the disk fails."""
        if self.is_full:
            await self.flush()

    def append(self, key: str, first: int, lines: Sequence[bytes], job: str | None = None) -> None:
        """Store events soon (`Store.append`). They must already be redacted. If the queue is full,
        they are left out and recorded as a gap."""
        if self._over or not lines:
            return
        size = sum(map(len, lines))
        limit = HARD_SIZE
        if self.trouble is not None:
            # Events that would fit after a gap are left out too: one long gap is better than many.
            limit = 0 if key in self._lost else QUEUE_SIZE
        if self._put_size - self._done_size + size > limit:
            self._lost[key] = (self._lost.get(key, (first, 0))[0], first + len(lines))
            self._left_out += len(lines)
            self._too_slow()
            return
        self._note_gap(key)
        self._put(_Append(key, first, list(lines), job, size))

    def put(self, operation: Operation, *, size: int = 0) -> None:
        """Run an operation on the store soon, after everything queued before. It is dropped if the
        queue is full."""
        if self._over:
            return
        size = max(size, OPERATION_SIZE)
        if self._put_size - self._done_size + size > HARD_SIZE:
            log.error("a write is dropped: the queue for the disk is full")
            self._too_slow()
            return
        self._put(_Work(operation, size))

    async def call(self, operation: Callable[[Store], T], *, reads: bool = False) -> T:
        """Run an operation on the store now, after everything queued before, and return its result
        once it is on disk. Raises what the operation raises, and `StoreError` if nothing can be
        written or the disk does not answer within `DISK_TIMEOUT`; after the timeout the operation
        may still run.

        With `reads`, it also runs while nothing can be written, without the queued writes, and does
        not itself wait for another process that writes.
        """
        if self._loop is None or self._thread is None:
            raise RuntimeError("the writer was not started, or is closed")
        if self.trouble is not None and not reads:
            raise self.trouble.fresh()
        loop, future = self._loop, self._loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            _tell(loop, settle, future, result, error)

        self._queue.append(_Work(operation, 0, done, reads))
        self._wake()
        await self._settled(future)
        result: T = future.result()
        return result

    async def _settled(self, future: asyncio.Future[Any]) -> None:
        """Wait until the thread settles this future. Raises `StoreError` if it writes nothing for
        `DISK_TIMEOUT`."""
        began_at = time.monotonic()
        try:
            while not future.done():
                done_size = self._done_size
                await asyncio.wait([future], timeout=DISK_TIMEOUT)
                if not future.done() and self._done_size == done_size:
                    raise self._unanswered()
        except asyncio.CancelledError:
            future.cancel()
            waited = time.monotonic() - began_at
            if waited >= SLOW_TIME:
                # The caller has its own timeout, continues, and may report that it is stored.
                log.log(self._level, "a caller gave up waiting for the disk after %.1f s", waited)
            raise
        except StoreError:
            future.cancel()
            raise

    @property
    def _where(self) -> str:
        return "the store" if self._store is None else str(self._store.path)

    def _unanswered(self) -> StoreError:
        error = StoreError(
            self._where,
            f"the disk has not answered for {DISK_TIMEOUT:g} s",
            remedy="check whether its file system hangs",
        )
        error.may_have_run = True
        log.error("%s", error)
        return error

    async def flush(self) -> bool:
        """Wait until everything queued is on disk. Returns False if it is not; see `trouble` and
        the log."""
        if self.trouble is not None or self._thread is None:
            return self.trouble is None
        try:
            await self.call(lambda store: None)
        except StoreError:
            return False
        return True

    def hurry(self) -> None:
        """Write the queue now, without waiting for more. No effect after a failure, until a retry
        succeeds."""
        if self._pause is None:
            self._hurry.set()

    def retry(self) -> None:
        """Retry a failed disk now, unless it was tried just before. Called when the store is
        about to be used."""
        if self.trouble is not None and not self._asked:
            self._asked = True
            self._hurry.set()

    async def close(self) -> bool:
        """Write the queue, and stop. The store stays open. Returns what `flush` returns.

        If the disk does not answer, the thread and its store are abandoned: `is_open` is False.
        """
        if self._thread is None or self._loop is None:
            return self.trouble is None
        thread, self._thread = self._thread, None
        self._ended = self._loop.create_future()
        for key in list(self._lost):
            self._note_gap(key)
        self._queue.append(None)
        self._wake()
        # If this is cancelled, the thread still writes the queue and then stops.
        try:
            await self._settled(self._ended)
        except StoreError as error:
            self.trouble = self.trouble or error
            self._abandoned = True
            return False
        thread.join()
        return self.trouble is None

    def _wake(self) -> None:
        self._hurry.set()
        self._work.set()

    def _put(self, item: _Item) -> None:
        self._put_size += item.size
        self._queue.append(item)
        if not self._work.is_set():
            self._work.set()
        if self._put_size - self._done_size > QUEUE_SIZE // 4:
            self._hurry.set()

    def _note_gap(self, key: str) -> None:
        """Record the events that were left out of a session, before what comes next."""
        lost = self._lost.pop(key, None)
        if lost is not None:
            next = lost[1]
            why = self._why
            log.warning("session %s: events %d to %d are not stored", key, lost[0], next - 1)
            self._put(_Work(lambda store: store.skip(key, next, why), OPERATION_SIZE))

    def _too_slow(self) -> None:
        if self.trouble is None:
            self._fall(
                StoreError(
                    self._where,
                    "the disk is too slow, so some events are not stored",
                    remedy="check the load of the disk",
                )
            )
            # Wake the thread even if nothing is queued, so that it notices that the disk works.
            self._wake()

    def _recovered(self) -> None:
        count, self._left_out = self._left_out, 0
        but = f", except for {counted(count)}" if count else ""
        log.log(self._level, "sessions are stored again%s", but)
        for key in list(self._lost):
            self._note_gap(key)
        if self._on_recovery is not None:
            self._on_recovery(count)

    # -- in the thread

    def _run(self) -> None:
        waiting: list[_Item] = []
        while True:
            self._wait()
            ended = False
            while self._queue:
                item = self._queue.popleft()
                if item is None:
                    ended = True
                elif self._pause is not None and isinstance(item, _Work) and item.done is not None:
                    self._answer(item)
                else:
                    _gather(waiting, item)
            if not self._over and (ended or self._is_due()):
                waiting = self._write(waiting)
            if ended:
                break
        if waiting:
            events = sum(len(item.lines) for item in waiting if isinstance(item, _Append))
            text = "%d events and the results of their jobs are lost: %s"
            log.log(self._level, text, events, self.trouble)
        if self._loop is not None and self._ended is not None:
            _tell(self._loop, settle, self._ended, None, None)

    def _wait(self) -> None:
        if self._pause is not None and not self._over:
            self._hurry.wait(max(0.0, self._tried_at + self._pause - time.monotonic()))
        else:
            self._work.wait()
            self._hurry.wait(BATCH_INTERVAL)
        self._hurry.clear()
        # Cleared before the queue is emptied: later items set it again.
        self._work.clear()

    def _is_due(self) -> bool:
        if self._pause is None:
            return True
        if self._asked:
            # A request that comes too early is served when the interval is over.
            self._pause = min(self._pause, RETRY_INTERVAL)
        return time.monotonic() >= self._tried_at + self._pause

    def _write(self, batch: list[_Item], *, again: bool = False) -> list[_Item]:
        """Write the batch, and return what failed and may be retried."""
        done = 0
        muted = set(self._mute)
        reports: list[DragomanError] = []
        try:
            store = self._opened()
            for part in _parts(batch):
                muted, reports = set(self._mute), []
                with contextlib.nullcontext() if self._only_reads(part) else store.transaction():
                    for item in part:
                        self._do(store, item, reports)
                done += len(part)
                # Before any caller is notified, which may then check for room.
                self._done_size += sum(item.size for item in part)
                for error in reports:
                    self._report(error)
                for item in part:
                    if isinstance(item, _Work) and item.done is not None:
                        item.done(item.result, item.error)
        except StoreError as error:
            # Errors found here were rolled back with the rest, and will be found again.
            self._mute = muted
            if _begun_anew(error) and not again:
                self._report(error)
                return self._write(batch[done:], again=True)
            return self._failed(error, batch[done:])
        self._pause = None
        self._asked = False
        if self.trouble is not None:
            self.trouble = None
            if self._loop is not None:
                _tell(self._loop, self._recovered)
        return []

    def _only_reads(self, part: list[_Item]) -> bool:
        """Return whether a part needs no transaction: reading need not wait for another process
        that writes. While there is trouble, even an empty part has to show that it is over."""
        reads = all(isinstance(item, _Work) and item.reads for item in part)
        return reads and bool(part) and self.trouble is None

    def _opened(self) -> Store:
        if self._store is None:
            assert self._open is not None
            self._store = self._open()
        return self._store

    def _failed(self, error: StoreError, rest: list[_Item]) -> list[_Item]:
        self._tried_at = time.monotonic()
        self._asked = False
        self._pause = min(max(2 * (self._pause or 0.0), RETRY_INTERVAL), MAX_RETRY_INTERVAL)
        self._over = isinstance(error, _FINAL) and not _begun_anew(error)
        self._fall(error)
        kept: list[_Item] = []
        for item in rest:
            if isinstance(item, _Work) and item.done is not None:
                self._answer(item)
            elif self._over:
                self._done_size += item.size
            else:
                kept.append(item)
        return kept

    def _answer(self, item: _Work) -> None:
        """Answer a call while nothing can be written: run it if it only reads, else report the
        trouble."""
        assert item.done is not None
        if self._store is None or self._over or not item.reads:
            item.done(None, None if self.trouble is None else self.trouble.fresh())
            return
        try:
            item.result, item.error = item.operation(self._store), None
        except DragomanError as error:
            item.error = error
        except Exception as error:
            log.exception("the store could not be read")
            item.error = error
        item.done(item.result, item.error)

    def _do(self, store: Store, item: _Item, reports: list[DragomanError]) -> None:
        if isinstance(item, _Append):
            if item.key not in self._mute:
                try:
                    store.append(item.key, item.first, item.lines, item.job)
                except _LOCAL as error:
                    self._mute.add(item.key)
                    reports.append(error)
            return
        item.error = None
        try:
            with contextlib.nullcontext() if item.reads else store.transaction():
                item.result = item.operation(store)
        except _LOCAL as error:
            item.error = error
            if item.done is None:
                reports.append(error)
        except StoreError:
            raise
        except Exception as error:
            item.error = error
            if item.done is None:
                log.exception("a write to the store failed")

    def _fall(self, error: StoreError) -> None:
        if self.trouble is None:
            self.trouble = error
            self._why = error.problem
            self._report(error)

    @property
    def _level(self) -> int:
        """The log level, which depends on whether `on_trouble` informs the user."""
        return logging.WARNING if self._on_trouble is None else logging.INFO

    def _report(self, error: DragomanError) -> None:
        log.log(self._level, "sessions are not stored: %s", error)
        if self._on_trouble is not None and self._loop is not None:
            _tell(self._loop, self._on_trouble, error)


def _begun_anew(error: StoreError) -> bool:
    """Return whether the file was damaged, moved or deleted, and a new one accepts writes."""
    return isinstance(error, StoreCorrupt) and error.replaced


def _gather(batch: list[_Item], item: _Item) -> None:
    """Add an item to a batch. Consecutive events are merged into one write."""
    last = batch[-1] if batch else None
    if (
        isinstance(item, _Append)
        and isinstance(last, _Append)
        and last.key == item.key
        and last.job == item.job
        and last.first + len(last.lines) == item.first
        and last.size < PART_SIZE
    ):
        last.lines += item.lines
        last.size += item.size
    else:
        batch.append(item)


def _parts(batch: list[_Item]) -> Iterator[list[_Item]]:
    """Split a batch into transactions: at least one, which may be empty."""
    part: list[_Item] = []
    size = 0
    for item in batch:
        part.append(item)
        size += item.size
        if size >= PART_SIZE:
            yield part
            part, size = [], 0
    if part or not batch:
        yield part


def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[..., None], *values: object) -> None:
    try:
        loop.call_soon_threadsafe(tell, *values)
    except RuntimeError:
        log.debug("the event loop closed before the store")
