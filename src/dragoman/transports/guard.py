"""Keeps the promise that no child outlives us, whatever ends this process.

It owns the list of living children, the warden process (`warden`, started at the first spawn and
never at import) that acts when we are killed, and the last act of an orderly exit: kill what is
left, then send the warden home. `process` registers a child here and forgets it when it is gone.

A fork of this process has neither our children nor our warden: it starts from nothing. On Windows
there is no warden, and only an orderly exit cleans up.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable

from dragoman.transports import environment, warden

EXIT_TIMEOUT = 1.0
"""Seconds that the end of a program may be held up by hunting for what its children left."""

log = logging.getLogger(__name__)


class Guard:
    """The living children of this process, and the warden that outlives us to end them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._living: dict[int, Callable[[], None]] = {}
        self._warden_pid = 0
        self._pipe_fd = -1
        self._used = False
        self._warned = False

    @property
    def warden_pid(self) -> int:
        """The process id of the warden; 0 while there is none."""
        return self._warden_pid

    def protect(self) -> None:
        """Make sure that a warden is there. To be called before a child is started."""
        with self._lock:
            if not self._used:
                self._used = True
                # A forked copy has inherited the registration, and must not run it twice.
                atexit.unregister(self.finish)
                atexit.register(self.finish)
            if not self._warden_lives():
                self._start_warden()

    def register(self, pid: int, end_now: Callable[[], None]) -> None:
        """A child that leads its own session lives. `end_now` kills it without a loop."""
        with self._lock:
            self._living[pid] = end_now
            if not self._tell(f"group {pid}\n"):
                self._start_warden()

    def forget(self, pid: int) -> None:
        """A child is gone, with all that it left behind. Idempotent."""
        with self._lock:
            if self._living.pop(pid, None) is not None:
                self._tell(f"forget {pid}\n")

    def finish(self) -> None:
        """The orderly end of this process: end all children, then release the warden."""
        for end_now in list(self._living.values()):
            # One child that cannot be ended must not save the others.
            with contextlib.suppress(OSError):
                end_now()
        with self._lock:
            if self._used and sys.platform == "linux":
                owner = environment.owner()
                warden.sweep(owner, (), sweep_timeout=EXIT_TIMEOUT, clean_sweeps=1)
            self._tell("goodbye\n")
            self._drop_pipe()

    def after_fork(self) -> None:
        """In a forked copy: the children and the warden are the original's, not ours."""
        self._lock = threading.Lock()
        self._living = {}
        self._warden_pid = 0
        self._used = False
        # A copy of the pipe's end would keep it open after the death of the original.
        self._drop_pipe()

    def _warden_lives(self) -> bool:
        if not self._warden_pid:
            return False
        try:
            if os.waitpid(self._warden_pid, os.WNOHANG) == (0, 0):
                return True
        except ChildProcessError:
            # Somebody in this program waits for any child and got ours: it was dead.
            pass
        self._warden_pid = 0
        return False

    def _start_warden(self) -> None:
        self._drop_pipe()
        if sys.platform == "win32":
            return
        program, script = sys.executable, warden.__file__
        if not program or getattr(sys, "frozen", False) or not os.path.isfile(script):
            if not self._warned:
                self._warned = True
                log.warning("no warden: this program cannot start a Python script of its own")
            return
        reader, writer = os.pipe()
        try:
            # An empty environment: no mark, or the hunt would find the hunter.
            child = subprocess.Popen(  # noqa: TID251 - the warden is no child that is talked to
                [program, "-I", "-S", script, environment.owner()],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            os.close(writer)
            log.warning("no warden: %s", error)
            return
        finally:
            os.close(reader)
        # It is reaped here by its number; Popen shall neither wait for it nor warn about it.
        child.returncode = 0
        self._warden_pid = child.pid
        self._pipe_fd = writer
        os.set_blocking(writer, False)
        for pid in self._living:
            self._tell(f"group {pid}\n")

    def _tell(self, line: str) -> bool:
        """One small write, if there is a warden. False if it is gone."""
        if self._pipe_fd < 0:
            return True
        try:
            os.write(self._pipe_fd, line.encode())
        except BlockingIOError:
            # A stopped warden does not read. What it misses it still finds by the mark.
            return True
        except OSError:
            return False
        return True

    def _drop_pipe(self) -> None:
        if self._pipe_fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._pipe_fd)
            self._pipe_fd = -1


guard = Guard()
"""The one guard of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=guard.after_fork)
