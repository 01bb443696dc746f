"""Start child processes, and the byte stream to a child's stdin and stdout.

The only module that starts children. Stderr is always read, and its tail is attached to errors.
`start_child` takes other pipes, `start_detached` starts a process that outlives this one. Shutdown
is in `child`; variables and finding the file are in `environment` and `windows`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    ProcessExited,
    SpawnError,
    UsageError,
)
from dragoman.transports.base import Receiver, Stream
from dragoman.transports.pipes import (
    AnyReadPipe,
    AnyWritePipe,
    KeepAlive,
    open_read_pipe,
    open_write_pipe,
)
from dragoman.transports.process.child import (
    HURRIED_TIMES,
    ChildProcess,
    Handle,
    PosixHandle,
    ShutdownTimes,
    end_now,
)
from dragoman.transports.process.environment import (
    build_environment,
    check_folder,
    find_program,
    new_mark,
)
from dragoman.transports.process.guard import guard
from dragoman.transports.process.warden import DETACHED, MARK_NAME

END_TO_EXIT_TIMEOUT = 1.0
"""Seconds between the end of the output and the exit that usually follows: enough to report the
exit instead, with its code and the tail of stderr."""

BROKEN_TO_EXIT_TIMEOUT = 2.0
"""Seconds after the child stopped reading its input in which a last response, an error text or the
exit may still arrive. After that the stream is useless, because nothing can be sent to the child.
Time in which the receiver does not accept output does not count.
"""

REST_SIZE = 1024 * 1024
"""Maximum number of bytes read from an abandoned pipe: the largest pipe size on Linux. That is
everything the dead child wrote, but not everything an orphan keeps writing."""

STDERR_TAIL_SIZE = 64 * 1024
"""Default size of the tail of stderr that is kept, in bytes."""

DEFAULT_TIMES = ShutdownTimes()

Folder = str | os.PathLike[str] | None

log = logging.getLogger(__name__)


async def spawn(
    argv: Sequence[str],
    *,
    cwd: Folder = None,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    stderr_tail_size: int = STDERR_TAIL_SIZE,
    on_stderr: Callable[[bytes], None] | None = None,
    times: ShutdownTimes = DEFAULT_TIMES,
    platform: str = sys.platform,
    keep_alive: KeepAlive | None = None,
) -> ProcessStream:
    """Start a program and return the stream to it.

    The child's environment consists of the allow-listed variables of ours (see `environment`),
    those named by `inherit`, and `env`, which takes precedence. Never awaits, so a cancellation
    cannot come between the start and the stream. Raises `SpawnError` if the program cannot be
    started.
    """
    tail = StderrTail(stderr_tail_size, on_stderr)
    return start_stream(
        argv,
        tail=tail,
        cwd=cwd,
        env=env,
        inherit=inherit,
        times=times,
        platform=platform,
        keep_alive=keep_alive,
    )[0]


def start_stream(
    argv: Sequence[str],
    *,
    tail: StderrTail,
    cwd: Folder = None,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    times: ShutdownTimes = DEFAULT_TIMES,
    platform: str = sys.platform,
    keep_alive: KeepAlive | None = None,
) -> tuple[ProcessStream, ChildProcess]:
    """Like `spawn`, but return the process as well as the stream, and keep stderr in `tail`."""
    with spawn_ends() as ends:
        for _ in range(3):
            ends += os.pipe()
        child = start_child(
            argv,
            stdin=ends[0],
            stdout=ends[3],
            stderr=ends[5],
            cwd=cwd,
            env=env,
            inherit=inherit,
            times=times,
            platform=platform,
        )
    stdin, stdout, stderr = ends[1], ends[2], ends[4]
    for fd in (ends[0], ends[3], ends[5]):
        os.close(fd)
    stream = ProcessStream(
        child, stdin=stdin, stdout=stdout, stderr=stderr, tail=tail, keep_alive=keep_alive
    )
    return stream, child


@contextlib.contextmanager
def spawn_ends() -> Iterator[list[int]]:
    """Context manager that yields an empty list, to which the caller adds the descriptors of a
    child that is about to start.

    If the body fails they are closed, and an `OSError` becomes a `SpawnError`.
    """
    ends: list[int] = []
    try:
        yield ends
    except BaseException as error:
        for fd in ends:
            os.close(fd)
        if isinstance(error, OSError):
            raise SpawnError(f"no pipe could be created: {error.strerror}") from error
        raise


def start_child(
    argv: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    cwd: Folder = None,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    times: ShutdownTimes = DEFAULT_TIMES,
    platform: str = sys.platform,
) -> ChildProcess:
    """Start a program on descriptors that the caller owns, reads, writes and closes.

    The same descriptor for `stdout` and `stderr` interleaves them. The caller reports the end of
    the output (`ChildProcess.output_ended`) and ends the child with `ChildProcess.shutdown`. Raises
    `SpawnError` if the program cannot be started.
    """
    mark = new_mark()
    environment = build_environment(inherit=inherit, extra=env, platform=platform)
    environment[MARK_NAME] = mark
    guard.protect()
    popen = _start(argv, environment, cwd, (stdin, stdout, stderr), platform=platform)
    handle: Handle
    if sys.platform == "win32":
        from dragoman.transports.process import windows

        handle = windows.WindowsHandle(popen)
    else:
        # `child` reaps it by pid; Popen must neither wait for it nor warn about it.
        popen.returncode = 0
        handle = PosixHandle(popen.pid)
    try:
        child = ChildProcess(handle, mark, times=times)
        child.watch()
    except BaseException:
        # The child would have no owner: the loop cannot watch it, or there is no loop.
        end_now(handle, mark)
        raise
    return child


def start_detached(
    argv: Sequence[str],
    *,
    cwd: Folder = None,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
    platform: str = sys.platform,
) -> int:
    """Start a program that outlives this process, and return its pid.

    It has its own session and the mark `DETACHED`, so neither a shutdown, nor the warden, nor a
    supervisor above us ends it. The caller has to bound its lifetime by other means, such as a
    lease. Raises `SpawnError` if the program cannot be started.
    """
    environment = build_environment(inherit=inherit, extra=env, platform=platform)
    environment[MARK_NAME] = DETACHED
    popen = _start(argv, environment, cwd, (stdin, stdout, stderr), platform=platform)
    reap_detached()
    if sys.platform != "win32":
        _detached.add(popen.pid)
        popen.returncode = 0
    return popen.pid


def reap_detached() -> frozenset[int]:
    """Reap the detached children that have ended. Returns those still running."""
    for pid in list(_detached):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _detached.discard(pid)
    return frozenset(_detached)


def end_detached(pid: int) -> None:
    """Kill a detached child that is still ours to reap, so its pid cannot have been reused.

    Does not wait until it has ended, which may take long while a disk does not respond:
    `reap_detached` reaps it.
    """
    if pid in reap_detached():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


_detached: set[int] = set()
"""Detached children, checked at each start so that only a few stay unreaped."""


def _start(
    argv: Sequence[str],
    environment: dict[str, str],
    cwd: Folder,
    ends: tuple[int, int, int],
    *,
    platform: str,
) -> subprocess.Popen[bytes]:  # noqa: TID251 - the one place where children are started
    if not argv or not argv[0]:
        raise UsageError("there is no program to start: the command is empty")
    check_folder(cwd)
    command: Sequence[str] | str
    if platform == "win32":
        # Not needed elsewhere, and start-up time counts.
        from dragoman.transports.process import windows

        plan = windows.plan_command(argv, environment=environment, folder=cwd)
        program, command = plan.program, plan.command_line
        environment.update(plan.environment)
    else:
        program, command = find_program(argv[0], environment=environment, folder=cwd), argv
    stdin, stdout, stderr = ends
    try:
        return subprocess.Popen(  # noqa: TID251 - the one place where children are started
            command,
            executable=program,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=environment,
            start_new_session=True,
            creationflags=windows.CREATION_FLAGS if platform == "win32" else 0,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # The file exists but was not found: its interpreter is missing.
        missing = isinstance(error, FileNotFoundError)
        found = getattr(error, "strerror", None) or str(error)
        reason = "its interpreter was not found" if missing else found
        raise SpawnError(f"{program} could not be started: {reason}") from error


class StderrTail:
    """The tail of stderr, bounded, for error messages. The callback `listener` gets all of
    stderr."""

    def __init__(self, size: int, listener: Callable[[bytes], None] | None = None) -> None:
        self._size = size
        self._listener = listener
        self._chunks: deque[bytes] = deque()
        self._held_size = 0
        self._cut = False
        self.total_size = 0
        """Number of bytes received so far, including those no longer kept."""

    def add(self, data: bytes) -> None:
        """Append output, and pass it to the listener, which is not called again after it has
        failed."""
        self._chunks.append(data)
        self._held_size += len(data)
        self.total_size += len(data)
        while self._chunks and self._held_size - len(self._chunks[0]) >= self._size:
            self._held_size -= len(self._chunks.popleft())
            self._cut = True
        if self._listener is not None:
            # A failing listener must not stop the child.
            try:
                self._listener(data)
            except Exception:
                self._listener = None
                log.exception("the on_stderr callback failed and will not be called again")

    def text(self, since: int = 0) -> str:
        """Return as text the part of the tail that was written after `since` bytes.

        Invalid bytes are replaced.
        """
        data = b"".join(self._chunks)
        wanted = self.total_size - since
        if wanted < len(data):
            return data[-wanted:].decode("utf-8", "replace") if wanted > 0 else ""
        if len(data) > self._size or self._cut:
            data = data[-self._size :] if self._size else b""
            # The cut may have split a character: drop its remains instead of showing a replacement.
            start = 0
            while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
                start += 1
            data = data[start:]
        return data.decode("utf-8", "replace")


class ProcessStream(Stream):
    """The stream to a child process: stdin, stdout, the tail of stderr, and the exit.

    The stream ends with `ProcessExited` after the death of the child, even if an orphan holds the
    pipe; with `ConnectionEnded` if the child closed its output and lives on; with
    `ConnectionBroken` if it stopped reading its input and lives on; with `ConnectionClosed` if we
    closed it first.
    """

    def __init__(
        self,
        child: ChildProcess,
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        tail: StderrTail,
        keep_alive: KeepAlive | None = None,
    ) -> None:
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._failure: ConnectionLost | None = None
        self._paused = False
        self._held_up = False
        """Whether output had to wait for the receiver since the timer started."""
        self._concluding = False
        self._timer: asyncio.TimerHandle | None = None
        self._tail = tail
        self._stdin: AnyWritePipe = open_write_pipe(
            stdin, self._input_broken, keep_alive=keep_alive
        )
        self._stdout: AnyReadPipe = open_read_pipe(stdout, _discard, self._output_ended)
        self._stderr: AnyReadPipe = open_read_pipe(stderr, tail.add, _ignore_end)
        self._stderr.start()
        child.farewell = self._close_input
        child.on_exit = self._child_exited
        child.on_gone = self._child_gone

    @property
    def pid(self) -> int:
        """The pid of the direct child."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the child; None while it lives, if a signal killed it, or if it is
        unknown."""
        return self._child.exit_code

    @property
    def signal(self) -> int | None:
        """The signal that killed the child, or None."""
        return self._child.signal

    def stderr_tail(self, since: int = 0) -> str:
        """Return the tail of stderr so far, including what is still in the pipe; with `since`, only
        what was written after that many bytes."""
        if not self._stderr.closed:
            self._stderr.deliver_available(REST_SIZE)
        return self._tail.text(since)

    @property
    def stderr_size(self) -> int:
        """Number of bytes read from stderr so far."""
        return self._tail.total_size

    async def wait_exited(self) -> None:
        """Wait until the direct child is dead."""
        await self._child.wait_exited()

    def kill(self) -> None:
        """Kill the child and its process group at once. The stream ends with the child's death."""
        self._child.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))

    def start(self, receiver: Receiver) -> None:
        if self._receiver is not None:
            raise UsageError("the stream was already started")
        self._receiver = receiver
        if self._failure is not None:
            self._loop.call_soon(receiver.stream_ended, self._failure)
            return
        self._stdout.on_data = receiver.data_received
        self._stdout.start()
        if self._concluding:
            self._loop.call_soon(self._conclude)

    def write(self, data: bytes) -> None:
        if self._failure is not None:
            raise self._failure.fresh()
        self._stdin.write(data)

    @property
    def unsent_size(self) -> int:
        return self._stdin.unsent_size

    async def drain(self) -> None:
        if self._failure is None:
            try:
                await self._stdin.drain()
            except ConnectionLost:
                if self._failure is None:
                    raise
        if self._failure is not None:
            raise self._failure.fresh()

    def pause_reading(self) -> None:
        if self._failure is None:
            self._paused = self._held_up = True
            self._stdout.pause()

    def resume_reading(self) -> None:
        if self._paused and self._failure is None:
            self._paused = False
            self._stdout.resume()
            if self._concluding:
                self._loop.call_soon(self._conclude)

    def hurry(self) -> None:
        self._child.times = HURRIED_TIMES

    async def aclose(self) -> None:
        try:
            if self._child.exited and self._failure is None:
                # It died before we closed: report the death, with what came before it.
                self._conclude()
                self._end(self._exit())
            else:
                self._end(ConnectionClosed())
        finally:
            await self._child.shutdown()

    async def _close_input(self) -> None:
        """Ask the child to end by closing its input."""
        await self._stdin.aclose(self._child.times.flush_timeout)

    def _child_exited(self) -> None:
        self._cancel_timer()
        if self._stdout.closed:
            self._end(self._exit())

    def _child_gone(self) -> None:
        """Called when the child and all that it left behind are gone. Output in the pipe is still
        delivered."""
        self._stdin.close()
        self._stderr.deliver_available(REST_SIZE)
        self._stderr.close()
        if self._failure is None:
            self._conclude()
        else:
            self._stdout.close()

    def _output_ended(self, error: OSError | None) -> None:
        self._child.output_ended()
        if self._failure is not None:
            return
        if self._child.exited:
            self._end(self._exit())
        elif error is not None:
            self._end(ConnectionBroken(f"reading failed: {error.strerror}"))
        else:
            still_running = "the process closed its output but is still running"
            self._end_later(END_TO_EXIT_TIMEOUT, ConnectionEnded(still_running))

    def _input_broken(self, error: OSError) -> None:
        # Not the end yet: the last response or the reason may still arrive.
        if not self._child.exited and self._timer is None and self._failure is None:
            self._held_up = self._waits()
            self._timer = self._loop.call_later(BROKEN_TO_EXIT_TIMEOUT, self._give_up, error)

    def _give_up(self, error: OSError) -> None:
        """End the stream to a child that stopped reading, unless output waits for the receiver."""
        self._timer = None
        try:
            if not self._waits():
                self._stdout.deliver_available(REST_SIZE)
        finally:
            # The delivery may have reached the end of the output, which starts its own timer.
            if self._timer is None:
                if self._held_up or self._waits():
                    # A child that was blocked by a full pipe has more to write after a pause.
                    self._input_broken(error)
                else:
                    stopped = "the process stopped reading its input but is still running"
                    self._end(ConnectionBroken(f"{stopped}: {error.strerror}"))

    def _waits(self) -> bool:
        """Return whether output has to wait for the receiver."""
        return self._paused or self._receiver is None

    def _end_later(self, seconds: float, failure: ConnectionLost) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(seconds, self._end, failure)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _conclude(self) -> None:
        """Deliver what is in the pipe, and end the stream as soon as the receiver accepts the
        rest."""
        self._concluding = True
        try:
            if self._receiver is not None:
                self._stdout.deliver_available(REST_SIZE)
        finally:
            # The receiver may be paused; then the rest waits for it.
            if self._receiver is not None and not self._paused:
                self._end(self._exit())

    def _exit(self) -> ProcessExited:
        if not self._stderr.closed:
            # The dead child's last output is in the pipe, though perhaps not read yet.
            self._stderr.deliver_available(REST_SIZE)
        return ProcessExited(
            exit_code=self._child.exit_code,
            signal=self._child.signal,
            stderr_tail=self._tail.text(),
        )

    def _end(self, failure: ConnectionLost) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._cancel_timer()
        if not isinstance(failure, ConnectionClosed):
            # If we close the stream ourselves, pending writes are still flushed.
            self._stdin.close()
        if self._child.exited:
            self._child.output_ended()
            self._stdout.close()
        else:
            # Keep reading and drop the data: a full pipe would keep the child from exiting.
            self._stdout.on_data = _discard
            if self._receiver is None:
                self._stdout.start()
            self._stdout.resume()
        if self._receiver is not None:
            # A receiver that fails must not keep the child from being ended and reaped.
            try:
                self._receiver.stream_ended(failure)
            except Exception:
                log.exception("the receiver of process %d failed at the end", self.pid)


def _discard(data: bytes) -> None:
    """Drop output that is no longer wanted."""


def _ignore_end(error: OSError | None) -> None:
    """Do nothing: the end of stderr does not mean the end of the child."""
