"""Make sure that no child process outlives this one, however it ends.

Keeps a list of living children, kills them at exit, and runs the warden process (`warden`), which
kills them if this process is killed. The warden starts with the first child, never at import. On
Windows there is no warden, so only an orderly exit cleans up.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable

from dragoman.transports.process import environment, warden

EXIT_TIMEOUT = 1.0
"""Seconds that the exit of the program may be delayed by searching for leftover processes."""

MAX_REPLACED = 20
"""Maximum number of wardens that are replaced while children live. If more are killed than that, it
is deliberate."""

log = logging.getLogger(__name__)


class Guard:
    """Tracks the living children of this process, and the warden that ends them if this process
    dies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._living: dict[int, Callable[[], None]] = {}
        self._entries: dict[int, int] = {}
        self._warden_pid = 0
        self._pipe_fd = -1
        self._register_fd = -1
        self._used = False
        self._warned = False
        self._replaced = 0

    @property
    def warden_pid(self) -> int:
        """The pid of the warden; 0 while there is none."""
        return self._warden_pid

    def protect(self) -> None:
        """Start the warden if none runs; if that fails, log it. Call before a child is started."""
        with self._lock:
            if not self._used:
                self._used = True
                # A forked copy has inherited the registration, and must not run it twice.
                atexit.unregister(self.finish)
                atexit.register(self.finish)
            if not self._warden_lives():
                self._start_warden()

    def open_warden(self) -> int:
        """Return a descriptor that becomes readable when the warden dies, or -1 if there is no
        warden or the system has no such descriptors. The caller closes it."""
        with self._lock:
            try:
                return os.pidfd_open(self._warden_pid) if self._warden_pid else -1
            except (AttributeError, OSError):
                return -1

    def replace_warden(self) -> bool:
        """Replace the warden if it died early. Returns False if no warden runs now: none was needed
        yet, too many were killed, or it could not be started."""
        with self._lock:
            if self._warden_lives():
                return True
            if not self._used or self._replaced >= MAX_REPLACED:
                return False
            self._replaced += 1
            log.warning("the warden process was killed; starting another one")
            self._start_warden()
            return self._warden_pid != 0

    def register(self, pid: int, end_now: Callable[[], None]) -> None:
        """Register a child that leads its own session. The callback `end_now` kills it without an
        event loop."""
        with self._lock:
            self._living[pid] = end_now
            taken = set(self._entries.values())
            entry = next(number for number in itertools.count() if number not in taken)
            self._entries[pid] = entry
            self._write_entry(entry, pid)

    def forget(self, pid: int) -> None:
        """Forget a child when it and everything it left behind are gone. Idempotent."""
        with self._lock:
            if self._living.pop(pid, None) is not None:
                self._write_entry(self._entries.pop(pid), 0)

    def finish(self) -> None:
        """End all children and release the warden, at the orderly exit of this process."""
        for end_now in list(self._living.values()):
            # A child that cannot be ended must not keep the others from being ended.
            with contextlib.suppress(OSError):
                end_now()
        with self._lock:
            if self._used and sys.platform == "linux":
                owner = environment.owner()
                warden.sweep(owner, (), sweep_timeout=EXIT_TIMEOUT, clean_sweeps=1)
            if self._pipe_fd >= 0:
                with contextlib.suppress(OSError):
                    os.write(self._pipe_fd, b"goodbye\n")
            self._close_files()

    def after_fork(self) -> None:
        """Reset the guard in a forked copy: the children and the warden belong to the original."""
        self._lock = threading.Lock()
        self._living = {}
        self._entries = {}
        self._warden_pid = 0
        self._used = False
        # A copy of the pipe's end would keep it open after the death of the original.
        self._close_files()

    def _warden_lives(self) -> bool:
        if not self._warden_pid:
            return False
        try:
            if os.waitpid(self._warden_pid, os.WNOHANG) == (0, 0):
                return True
        except ChildProcessError:
            # It is dead: other code in this program that waits for any child has reaped it.
            pass
        self._warden_pid = 0
        return False

    def _start_warden(self) -> None:
        self._close_files()
        if sys.platform == "win32":
            return
        program, script = sys.executable, warden.__file__
        if not program or getattr(sys, "frozen", False) or not os.path.isfile(script):
            if not self._warned:
                self._warned = True
                log.warning(
                    "no warden process, because this program cannot start a Python script: if this "
                    "program is killed, its child processes keep running"
                )
            return
        try:
            self._register_fd = _open_register()
            for pid, entry in self._entries.items():
                self._write_entry(entry, pid)
            self._warden_pid = self._start_program(program, script)
        except OSError as error:
            self._close_files()
            log.warning(
                "no warden process, because it cannot be started (%s): if this program is killed, "
                "its child processes keep running",
                error,
            )

    def _start_program(self, program: str, script: str) -> int:
        reader, self._pipe_fd = os.pipe()
        try:
            child = subprocess.Popen(  # noqa: TID251 - the warden is not a child with a protocol
                [program, "-I", "-S", script, environment.owner(), str(self._register_fd)],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[self._register_fd],
                # Without our mark, or the search would find the warden itself.
                env={warden.MARK_NAME: warden.DETACHED},
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(reader)
        # Reaped here by pid; Popen must neither wait for it nor warn about it.
        child.returncode = 0
        return child.pid

    def _write_entry(self, entry: int, pid: int) -> None:
        # A file and not the warden's pipe: the warden reads the file only after our death, so
        # registering does not wake it (a line on the pipe cost 2 ms on a busy machine, because
        # the warden got the processor first).
        if self._register_fd >= 0:
            size = warden.ENTRY_SIZE
            with contextlib.suppress(OSError):
                os.pwrite(self._register_fd, pid.to_bytes(size, "little"), entry * size)

    def _close_files(self) -> None:
        for fd in (self._pipe_fd, self._register_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._pipe_fd = self._register_fd = -1


def _open_register() -> int:
    """Return an unnamed file, in memory where the system supports it."""
    if sys.platform == "linux":
        return os.memfd_create("dragoman-register")
    # Not needed on Linux, and slow to import.
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


guard = Guard()
"""The guard of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=guard.after_fork)
