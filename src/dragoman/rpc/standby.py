"""Start work at once, inside the callback that requests it, and move it to a task if it waits.

Handles the first step of a coroutine. A task starts one iteration of the event loop after it was
created, and that iteration costs as much as answering a small request; most requests are answered
without waiting. `responder` defines the work itself.

Python 3.12 can start a task like that. In 3.11 one task of each connection stands by: the first
step runs as if in that task, and if the work has to wait, that task takes it over and another one
stands by. There is no visible difference: everything that a step may leave behind in the task (a
reference, a callback, a changed context, a cancellation) is checked, and a task with any of it is
not used a second time.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import types
import weakref
from collections.abc import Coroutine, Generator
from typing import Any, Final, TypeAlias

from dragoman.rpc.tasks import TaskOwner

Work: TypeAlias = Coroutine[Any, Any, None]
"""The work to start. It raises no exception, and if it was given a task it calls `forget` of the
`TaskOwner` as its last statement."""


# These two are documented for extensions of asyncio.
_enter_task: Final = asyncio._enter_task
_leave_task: Final = asyncio._leave_task
_references: Final = sys.getrefcount
_weak_references: Final = weakref.getweakrefcount


class OrdinaryStart:
    """Starts work in an ordinary task, one loop iteration later. This works on any interpreter."""

    __slots__ = ("_tasks",)

    def __init__(self, tasks: TaskOwner) -> None:
        self._tasks = tasks

    def begin(self, work: Work, name: str) -> asyncio.Task[None] | None:
        """Start `work`. Returns its task, or None if it has already ended."""
        return self._tasks.start(work, name, ends_itself=True)

    def dismiss(self) -> None:
        """Called when no more work will be started."""


class EagerStart(OrdinaryStart):
    """Starts work in a task that begins at once (Python 3.12 and later)."""

    __slots__ = ("_loop",)

    def __init__(self, tasks: TaskOwner) -> None:
        super().__init__(tasks)
        self._loop = asyncio.get_running_loop()

    def begin(self, work: Work, name: str) -> asyncio.Task[None] | None:
        eager: Any = asyncio.Task
        task: asyncio.Task[None] = eager(work, loop=self._loop, eager_start=True)
        if task.done():
            return None
        self._tasks.adopt(task, name)
        return task


class Standby(OrdinaryStart):
    """Starts work at once, in the context of a task that stands by (Python 3.11; see the
    module)."""

    __slots__ = ("_closed", "_context", "_gate", "_handed", "_hiring", "_loop", "_plain", "_worker")

    def __init__(self, tasks: TaskOwner) -> None:
        super().__init__(tasks)
        self._loop = asyncio.get_running_loop()
        self._worker: asyncio.Task[None] | None = None
        self._hiring = False
        self._closed = False

    def begin(self, work: Work, name: str) -> asyncio.Task[None] | None:
        worker = self._worker
        loop = self._loop
        if worker is None:
            # The standby task must have started: a task that is cancelled before its first step
            # never gets to its work.
            self._hire()
            return super().begin(work, name)
        references = _references(worker)
        weak_references = _weak_references(worker)
        try:
            _enter_task(loop, worker)
        except RuntimeError:
            # This callback runs inside a task, and a second task cannot run inside it.
            return super().begin(work, name)
        context = self._context
        waited: Any = _ENDED
        try:
            waited = context.run(work.send, None)
        except (StopIteration, asyncio.CancelledError):
            # The work has ended: it returned, or it raised `CancelledError` itself.
            pass
        finally:
            _leave_task(loop, worker)
        if waited is not _ENDED:
            self._tasks.adopt(worker, name)
            self._handed.append((work, waited))
            self._let_go()
            self._hire()
            return worker
        if (
            _references(worker) != references
            or _weak_references(worker) != weak_references
            or worker._callbacks is not None
            or self._gate.done()
            or context != self._plain
        ):
            self._let_go()
        return None

    def dismiss(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._tasks.adopt(self._worker, "stand by")
            self._let_go()

    def _hire(self) -> None:
        if self._hiring or self._closed:
            return
        self._hiring = True
        self._gate: asyncio.Future[None] = self._loop.create_future()
        self._handed: list[tuple[Work, Any]] = []
        self._context = contextvars.copy_context()
        self._plain = self._context.copy()
        self._loop.create_task(
            self._stand_by(self._gate, self._handed), name="stand by", context=self._context
        )

    def _let_go(self) -> None:
        """Resume the standby task: it continues its work, or ends if it has none."""
        self._worker = None
        if not self._gate.done():
            self._gate.set_result(None)

    async def _stand_by(self, gate: asyncio.Future[None], handed: list[tuple[Work, Any]]) -> None:
        here = asyncio.current_task()
        assert here is not None
        self._hiring = False
        if self._closed:
            return
        self._worker = here
        cancelled: asyncio.CancelledError | None = None
        try:
            await gate
        except asyncio.CancelledError as error:
            # If it has work, the cancellation is meant for the work, which must receive it.
            if not handed:
                raise
            cancelled = error
        finally:
            if self._worker is here:
                self._worker = None
            if not handed:
                self._tasks.forget(here)
        if handed:
            await _carry_on(*handed.pop(), cancelled)


_ENDED: Final = object()


@types.coroutine
def _carry_on(
    work: Work, waited: Any, cancelled: asyncio.CancelledError | None
) -> Generator[Any, Any, None]:
    """Continue work that was started and waits for `waited`, as its own task would."""
    thrown: BaseException | None = cancelled
    if cancelled is not None and waited is not None and waited.cancel(*cancelled.args):
        # Cancelling a task cancels what it waits for, which then wakes the task.
        thrown = None
    while True:
        if thrown is None:
            try:
                yield waited
            except BaseException as error:  # noqa: BLE001 - handed on
                thrown = error
            else:
                yield from work
                return
        try:
            waited = work.throw(thrown)
        except StopIteration:
            return
        thrown = None


def start_for(tasks: TaskOwner) -> OrdinaryStart:
    """Return the implementation with the lowest delay that works on this interpreter."""
    if sys.version_info >= (3, 12):
        return EagerStart(tasks)
    return Standby(tasks) if sys.implementation.name == "cpython" else OrdinaryStart(tasks)
