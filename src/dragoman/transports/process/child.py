"""Manage one child process, from its start to its shutdown and reaping.

Shutdown: close stdin, SIGTERM, SIGKILL, kill what the child left behind (`strays`), reap. `stream`
starts the process and handles its pipes; `guard` keeps the list of living children.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import functools
import logging
import os
import signal as signals
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dragoman.transports.process import strays
from dragoman.transports.process.guard import guard

ORPHAN_TIMEOUT = 0.5
"""Seconds in which output may still arrive after the direct child died. A launcher that dies before
the agent it launched leaves an orphan that can hold the pipe indefinitely."""

BRIEF_LIFE = 1.0
"""Maximum lifetime in seconds of a child for which only newer pids are searched. In this time a
system does not use up its range of pids, so every descendant got its pid after the child."""

NOW_TIMEOUT = 1.0
"""Seconds to block, without an event loop, until a killed child is dead."""

NOW_INTERVAL = 0.002
"""Seconds between two checks of a child that was just killed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShutdownTimes:
    """Timeouts of the steps of a shutdown, in seconds."""

    flush_timeout: float = 0.5
    """For flushing pending writes: a child that reads needs milliseconds."""
    exit_timeout: float = 2.0
    """From end of input to exit. Agents need up to 2.2 s; some never exit."""
    terminate_timeout: float = 2.0
    """From SIGTERM to exit. Some agents ignore it while they wait for a model."""
    kill_timeout: float = 2.0
    """From SIGKILL to exit; only a process stuck in a device outlasts it."""


HURRIED_TIMES = ShutdownTimes(flush_timeout=0.1, exit_timeout=0.2, terminate_timeout=0.2)
"""Shutdown timeouts for a child that no longer responds. Its user has already waited, and a hanging
agent hardly ever notices the end of its input."""


class Handle(abc.ABC):
    """What the operating system can do with one child. `PosixHandle` implements it here, and
    `windows` has the implementation for Windows."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.owner_pid = os.getpid()

    @abc.abstractmethod
    def signal_group(self, number: int) -> None:
        """Signal the child's process group, if it is certain to still be the child's."""

    @abc.abstractmethod
    def status(self) -> tuple[int | None, int | None] | None:
        """Return the exit code and the signal of a dead child (both None if unknown), or None for a
        living one. Does not reap it if the system can tell without that."""

    @abc.abstractmethod
    def wait(self) -> None:
        """Block until the child is dead."""

    @abc.abstractmethod
    def reap(self) -> None:
        """Reap a dead child, which frees its pid. Idempotent."""

    def sessions(self) -> tuple[int, ...]:
        """Return the id of the session that the child leads, in a tuple; empty if the id is unknown
        or could belong to another process."""
        return ()


class PosixHandle(Handle):
    """A child identified by its pid, which cannot be reused before it is reaped."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self._status: tuple[int | None, int | None] | None = None
        self._reaped = False

    def signal_group(self, number: int) -> None:
        if sys.platform == "linux" and not self.sessions():
            # Reaped by other code: the pid may be reused. The environment mark still identifies it.
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def status(self) -> tuple[int | None, int | None] | None:
        if self._status is None:
            self._look(block=False)
        return self._status

    def wait(self) -> None:
        self._look(block=True)

    def reap(self) -> None:
        if not self._reaped:
            self._reaped = True
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)

    def sessions(self) -> tuple[int, ...]:
        if self._reaped or sys.platform != "linux":
            return ()
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return ()
        return (self.pid,)

    def _look(self, *, block: bool) -> None:
        try:
            if sys.platform == "linux":
                options = os.WEXITED | os.WNOWAIT | (0 if block else os.WNOHANG)
                found = os.waitid(os.P_PID, self.pid, options)
                if found is not None and found.si_code == os.CLD_EXITED:
                    self._status = (found.si_status, None)
                elif found is not None:
                    self._status = (None, found.si_status)
            else:
                # Not every system can check without reaping.
                pid, status = os.waitpid(self.pid, 0 if block else os.WNOHANG)
                if pid:
                    self._reaped = True
                    code = os.waitstatus_to_exitcode(status)
                    self._status = (code, None) if code >= 0 else (None, -code)
        except ChildProcessError:
            self._reaped = True
            if self._status is None:
                self._status = (None, None)


class ChildProcess:
    """One child in its own session, from its start until all its processes are gone.

    Its owner may set three callbacks: `farewell`, which asks the child to end (usually by closing
    its input; without one a shutdown begins with SIGTERM), `on_exit`, called once when the direct
    child is dead, and `on_gone`, called once when everything it left behind is dead too, or cannot
    be killed.
    """

    # Death is observed on the process itself (a pidfd, or a waiting thread), never by the end of a
    # pipe: an orphan may hold the pipe, and a living process may close it. Signal handlers are not
    # touched; if other code in this program reaps our child, only its exit code is lost.

    def __init__(self, handle: Handle, mark: str, *, times: ShutdownTimes) -> None:
        loop = asyncio.get_running_loop()
        self.pid = handle.pid
        self.mark = mark
        self.times = times
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.farewell: Callable[[], Awaitable[None]] | None = None
        self.on_exit: Callable[[], None] | None = None
        self.on_gone: Callable[[], None] | None = None
        self._handle = handle
        self._loop = loop
        self._began = loop.time()
        self._asked: asyncio.Future[None] = loop.create_future()
        self._death: asyncio.Future[None] = loop.create_future()
        self._output: asyncio.Future[None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        self._pidfd = -1
        self._warden_fd = -1
        self._keeper: asyncio.Task[None] | None = None
        self._end_now = functools.partial(end_now, handle, mark)
        # For a child whose loop was closed first. `guard` handles the end of the program.
        self._finalizer = weakref.finalize(self, self._end_now)
        self._finalizer.atexit = False

    @property
    def exited(self) -> bool:
        """Whether the direct child is dead."""
        return self._death.done()

    @property
    def gone(self) -> bool:
        """Whether the shutdown is over: the child and everything it left behind are dead, or cannot
        be killed."""
        return self._gone.done()

    def watch(self) -> None:
        """Start watching the child. Called once, by the code that started it."""
        guard.register(self.pid, self._end_now)
        if not self._watch_by_pidfd():
            threading.Thread(
                target=self._watch_in_thread, name="dragoman-wait", daemon=True
            ).start()
        self._watch_warden()
        self._keeper = self._loop.create_task(self._keep(), name=f"dragoman-child-{self.pid}")

    def output_ended(self) -> None:
        """Called when the child's output has ended, so that the shutdown need not wait for more."""
        if not self._output.done():
            self._output.set_result(None)

    def send_signal(self, number: int) -> None:
        """Signal the child's whole process group. No effect if the child is dead."""
        if not self.exited:
            self._handle.signal_group(number)

    async def wait_exited(self) -> None:
        """Wait until the direct child is dead."""
        await asyncio.wait((self._death,))

    async def wait_gone(self) -> None:
        """Wait until the child and everything it left behind are dead, or cannot be killed."""
        await asyncio.wait((self._gone,))

    async def shutdown(self) -> None:
        """End the child and everything below it, in bounded time.

        Continues in the background if the caller is cancelled, and runs once however many callers
        there are.
        """
        if not self._asked.done():
            self._asked.set_result(None)
        await self.wait_gone()

    async def _keep(self) -> None:
        """Wait until the child dies or `shutdown` is called, end the child if it still lives, and
        kill what it left behind. This object owns the task; the loop keeps this object alive while
        it watches the child."""
        try:
            await asyncio.wait((self._death, self._asked), return_when=asyncio.FIRST_COMPLETED)
            if not self.exited:
                await self._bring_down()
            await asyncio.wait((self._output,), timeout=ORPHAN_TIMEOUT)
            self._handle.signal_group(signals.SIGKILL)
            # Do not examine every process of the machine for a short-lived child: that took most of
            # the time of a short git command.
            brief = self._loop.time() - self._began < BRIEF_LIFE
            await strays.kill_strays(
                self.mark,
                sessions=self._handle.sessions(),
                since=self.pid if brief else None,
            )
        except BaseException:
            # The loop is being torn down, or the farewell failed: nothing can be awaited.
            kill_now(self._handle, self.mark)
            if self._handle.status() is not None:
                self._died()
            raise
        finally:
            self._settle()

    async def _bring_down(self) -> None:
        """End the child in steps: the callback `farewell`, SIGTERM, SIGKILL. After each step, wait
        for the exit that it may cause."""
        if self.farewell is not None:
            await self.farewell()
            if await self._dies_within(self.times.exit_timeout):
                return
        self.send_signal(signals.SIGTERM)
        if await self._dies_within(self.times.terminate_timeout):
            return
        self.send_signal(signals.SIGKILL)
        if not await self._dies_within(self.times.kill_timeout):
            log.warning("process %d cannot be killed", self.pid)

    async def _dies_within(self, seconds: float) -> bool:
        await asyncio.wait((self._death,), timeout=seconds)
        return self._death.done()

    def _watch_by_pidfd(self) -> bool:
        if sys.platform != "linux":
            return False
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            # Already reaped, by other code in this program that waits for any child.
            self._loop.call_soon(self._died)
            return True
        except OSError:
            # An old kernel, or out of descriptors.
            return False
        self._loop.add_reader(self._pidfd, self._died)
        return True

    def _watch_warden(self) -> None:
        """Have the warden replaced if it is killed while the child lives."""
        self._warden_fd = guard.open_warden()
        if self._warden_fd >= 0:
            self._loop.add_reader(self._warden_fd, self._warden_died)

    def _unwatch_warden(self) -> None:
        if self._warden_fd >= 0:
            self._loop.remove_reader(self._warden_fd)
            os.close(self._warden_fd)
            self._warden_fd = -1

    def _warden_died(self) -> None:
        self._unwatch_warden()
        if guard.replace_warden():
            self._watch_warden()

    def _watch_in_thread(self) -> None:
        self._handle.wait()
        # The loop refuses the call if it was closed in the meantime; then there is no receiver
        # left.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._died)

    def _died(self) -> None:
        """Called when the direct child is dead. It is not reaped yet, so its pid is not reused."""
        if self._death.done():
            return
        self._unwatch_warden()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self.exit_code, self.signal = self._handle.status() or (None, None)
        self._death.set_result(None)
        if self._gone.done():
            # Even SIGKILL was not enough in time, and the shutdown is over.
            self._release()
        if self.on_exit is not None:
            self.on_exit()

    def _settle(self) -> None:
        if self.exited:
            self._release()
        try:
            if self.on_gone is not None:
                self.on_gone()
        finally:
            if not self._gone.done():
                self._gone.set_result(None)

    def _release(self) -> None:
        self._handle.reap()
        guard.forget(self.pid)
        self._finalizer.detach()


def kill_now(handle: Handle, mark: str) -> None:
    """Kill a child and everything below it without an event loop, and wait briefly for its death.
    No effect in a forked copy of the process that started the child."""
    if os.getpid() != handle.owner_pid:
        # This is a forked copy of the process that finalizes its copies of our objects. The child
        # belongs to the original process.
        return
    handle.signal_group(signals.SIGKILL)
    strays.kill_strays_now(mark, sessions=handle.sessions())
    deadline = time.monotonic() + NOW_TIMEOUT
    while handle.status() is None and time.monotonic() < deadline:
        time.sleep(NOW_INTERVAL)


def end_now(handle: Handle, mark: str) -> None:
    """Kill a child and everything below it without an event loop, and reap it: for a child that can
    no longer be awaited."""
    kill_now(handle, mark)
    handle.reap()
    guard.forget(handle.pid)
