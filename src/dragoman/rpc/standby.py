"""Work that is begun at once, inside the callback that asks for it, and ends up in a task.

Owns the first step of a coroutine. A task begins one turn of the event loop after it was made, and
that turn costs as much as answering a small request does; most requests are answered without
waiting for anything. It does not know what the work is; `connection` does.

Python 3.12 can start a task like that. In 3.11 one task of each connection stands by: the first
step runs in its name and in its context, and if the work has to wait, that task takes it over and
another one stands by. Nobody can tell the difference: whatever a step may leave behind in the task
(a reference, a callback, a changed context, a cancellation) is looked for, and a task with any of
it is not used a second time.
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
"""What is begun. It lets no error out, and if it was given a task it says so to the `TaskOwner`
with `forget` as the last thing it does."""


# These two are documented for those who extend asyncio.
_enter_task: Final = asyncio._enter_task
_leave_task: Final = asyncio._leave_task
_references: Final = sys.getrefcount
_weak_references: Final = weakref.getweakrefcount


class OrdinaryStart:
    """Begins work one turn of the event loop later, in a task: any interpreter can do that."""

    __slots__ = ("_tasks",)

    def __init__(self, tasks: TaskOwner) -> None:
        self._tasks = tasks

    def begin(self, work: Work, name: str) -> asyncio.Task[None] | None:
        """Begin `work`; returns its task, or None if it has already ended."""
        return self._tasks.start(work, name, ends_itself=True)

    def dismiss(self) -> None:
        """Nothing more will be begun."""


class EagerStart(OrdinaryStart):
    """Begins work in a task that starts at once, as Python 3.12 has them."""

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
    """Begins work in the name of a task that waits for it."""

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
            # Whoever stands by has to have begun: a task that is cancelled before its first step
            # never gets to what it was handed.
            self._hire()
            return super().begin(work, name)
        references = _references(worker)
        weak_references = _weak_references(worker)
        try:
            _enter_task(loop, worker)
        except RuntimeError:
            # What arrives was brought by a task, and no other can stand in its place.
            return super().begin(work, name)
        context = self._context
        waited: Any = _ENDED
        try:
            waited = context.run(work.send, None)
        except (StopIteration, asyncio.CancelledError):
            # The ends of a task that is done, and of one that cancelled itself.
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
        """The task that stands by goes on: with what it was handed, or to its end."""
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
            # With something in hand it is the work that is meant, and the work has to hear of it.
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
    """Go on with work that was begun and waits for `waited`, as the task would that began it."""
    thrown: BaseException | None = cancelled
    if cancelled is not None and waited is not None and waited.cancel(*cancelled.args):
        # What a cancelled task waits for is cancelled, and tells the task.
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
    """The best that this interpreter can do."""
    if sys.version_info >= (3, 12):
        return EagerStart(tasks)
    return Standby(tasks) if sys.implementation.name == "cpython" else OrdinaryStart(tasks)
