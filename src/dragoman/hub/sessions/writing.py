"""Writing without making anybody wait.

Owns the thread that does the writing for an event loop, the queue before it and its bound. Small
writes that come close together go to the disk as one. When the disk fails, that is told once and
storing ends, while the work whose events were to be stored goes on. What is written belongs to
`store`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias, TypeVar

from dragoman.errors import DragomanError, StoreConflict, StoreError, UnknownJob, UnknownSession
from dragoman.hub.sessions.store import Store

log: Final = logging.getLogger("dragoman.hub")

T = TypeVar("T")
Operation: TypeAlias = Callable[[Store], object]

BATCH_INTERVAL: Final = 0.05
"""Seconds that a write may wait for others: what a killed process can lose, and nobody sees."""

QUEUE_SIZE: Final = 16 * 1024 * 1024
"""Bytes that wait before `is_full` asks for patience."""

HARD_SIZE: Final = 4 * QUEUE_SIZE
"""Bytes that wait at most. Who goes on beyond loses the store, and not the memory."""

_LOCAL: Final = (StoreConflict, UnknownSession, UnknownJob)
"""What is wrong with one session or job, and says nothing of the others."""


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
    result: Any = field(default=None)
    error: BaseException | None = None


class Writer:
    """Writes into a store from a thread of its own. Use it as `async with`.

    `on_trouble` is called in the loop: once with the error that ended storing, and once for every
    session or job that could not be stored although others can.
    """

    def __init__(
        self, store: Store, *, on_trouble: Callable[[DragomanError], None] | None = None
    ) -> None:
        self.store = store
        self.trouble: StoreError | None = None
        """Why nothing is stored any more."""
        self._on_trouble = on_trouble
        self._queue: deque[_Append | _Work | None] = deque()
        self._work = threading.Event()
        self._hurry = threading.Event()
        # Each of the two is written by one thread only.
        self._put_size = 0
        self._done_size = 0
        self._mute: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to write. Call it in the loop that the writer serves."""
        self._loop = asyncio.get_running_loop()
        # A process that ends without closing must not wait for a disk.
        self._thread = threading.Thread(target=self._run, name="dragoman-store", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether more waits than should. `drain` waits until less does."""
        return self._put_size - self._done_size > QUEUE_SIZE

    async def drain(self) -> None:
        """Wait until there is room."""
        if self.is_full:
            await self.flush()

    def append(self, key: str, first: int, lines: Sequence[bytes], job: str | None = None) -> None:
        """Store events soon (`Store.append`). They have no secrets in them."""
        size = sum(map(len, lines))
        self._put(_Append(key, first, list(lines), job, size), size)

    def put(self, operation: Operation, *, size: int = 0) -> None:
        """Do something with the store soon, behind everything that was put before."""
        self._put(_Work(operation, size), size)

    async def call(self, operation: Callable[[Store], T]) -> T:
        """Do something with the store now, behind everything that was put before, and return what
        it returns, once it is on the disk. Raises what it raises."""
        if self._loop is None or self._thread is None:
            raise RuntimeError("the writer was not started, or is closed")
        loop, future = self._loop, self._loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def done(result: Any, error: BaseException | None) -> None:
            _tell(loop, settle, result, error)

        self._queue.append(_Work(operation, 0, done))
        self._wake()
        result: T = await future
        return result

    async def flush(self) -> bool:
        """Wait until everything that was put is on the disk. False: it is not, see `trouble`."""
        if self.trouble is not None or self._thread is None:
            return self.trouble is None
        try:
            await self.call(lambda store: None)
        except StoreError:
            return False
        return True

    async def close(self) -> bool:
        """Write what waits, and end. The store stays open. Returns what `flush` returns."""
        if self._thread is None or self._loop is None:
            return self.trouble is None
        thread, self._thread = self._thread, None
        self._ended = self._loop.create_future()
        self._queue.append(None)
        self._wake()
        # Where this is cancelled, the thread writes what waits all the same, and then ends.
        await self._ended
        thread.join()
        return self.trouble is None

    def _wake(self) -> None:
        self._hurry.set()
        self._work.set()

    def _put(self, item: _Append | _Work, size: int) -> None:
        if self.trouble is not None:
            return
        self._put_size += size
        self._queue.append(item)
        if not self._work.is_set():
            self._work.set()
        waiting = self._put_size - self._done_size
        if waiting > QUEUE_SIZE // 4:
            self._hurry.set()
            if waiting > HARD_SIZE:
                self._end(
                    StoreError(
                        str(self.store.path),
                        "the disk is too slow for what is to be stored",
                        remedy="nothing more of this is stored",
                    )
                )

    # -- in the thread

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._hurry.wait(BATCH_INTERVAL)
            self._hurry.clear()
            # Cleared before the queue is emptied: what comes later sets it again.
            self._work.clear()
            batch: list[_Append | _Work] = []
            ended = False
            while self._queue:
                item = self._queue.popleft()
                if item is None:
                    ended = True
                else:
                    _gather(batch, item)
            self._write(batch)
            if ended:
                break
        if self._loop is not None and self._ended is not None:
            _tell(self._loop, _settle, self._ended)

    def _write(self, batch: list[_Append | _Work]) -> None:
        failed: StoreError | None = self.trouble
        if failed is None:
            try:
                with self.store.transaction():
                    for item in batch:
                        self._do(item)
            except StoreError as error:
                failed = error
                self._end(error)
        # Before anybody is told, who then may ask for the room there is.
        self._done_size += sum(item.size for item in batch)
        for item in batch:
            if isinstance(item, _Work) and item.done is not None:
                item.done(item.result, item.error or (failed.fresh() if failed else None))

    def _do(self, item: _Append | _Work) -> None:
        if isinstance(item, _Append):
            if item.key not in self._mute:
                try:
                    self.store.append(item.key, item.first, item.lines, item.job)
                except _LOCAL as error:
                    self._mute.add(item.key)
                    self._report(error)
            return
        try:
            with self.store.transaction():
                item.result = item.operation(self.store)
        except _LOCAL as error:
            item.error = error
            if item.done is None:
                self._report(error)
        except StoreError:
            raise
        except Exception as error:
            item.error = error
            if item.done is None:
                log.exception("something could not be stored")

    def _end(self, error: StoreError) -> None:
        if self.trouble is None:
            self.trouble = error
            self._report(error)

    def _report(self, error: DragomanError) -> None:
        log.warning("sessions are not stored: %s", error)
        if self._on_trouble is not None and self._loop is not None:
            _tell(self._loop, self._on_trouble, error)


def _gather(batch: list[_Append | _Work], item: _Append | _Work) -> None:
    """Events that follow each other become one write."""
    last = batch[-1] if batch else None
    if (
        isinstance(item, _Append)
        and isinstance(last, _Append)
        and last.key == item.key
        and last.job == item.job
        and last.first + len(last.lines) == item.first
    ):
        last.lines += item.lines
        last.size += item.size
    else:
        batch.append(item)


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[..., None], *values: object) -> None:
    try:
        loop.call_soon_threadsafe(tell, *values)
    except RuntimeError:
        log.debug("the loop is gone before the store was")
