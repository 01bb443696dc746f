"""Run a dragoman command for another machine, and read its output from files.

A command with an id survives the connection: it is started once, and every request with the same
id can read its output from any offset. A command without an id is a child of this process, which
`transports.process.child` ends with the connection. `runs.host_server` sends the output.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from dragoman.broker.host_protocol import HostCommand
from dragoman.broker.lock import HeldLock, is_held, lock_within, try_lock
from dragoman.config.safe_files import write_whole
from dragoman.errors import BrokerError, FileFailed, UsageError
from dragoman.paths import Paths
from dragoman.rpc.tasks import finish, in_thread
from dragoman.runs.host_files import is_id, make_folder, working_directory
from dragoman.store.records import new_job_id
from dragoman.transports.process.child import ChildProcess, ShutdownTimes
from dragoman.transports.process.identity import own_identity
from dragoman.transports.process.stream import start_child, start_detached

FOLDER: Final = "host-commands"
FIRST_INTERVAL: Final = 0.005
MAX_INTERVAL: Final = 0.05
"""Minimum and maximum seconds between reads of the output."""

LOCK_TIMEOUT: Final = 30.0
"""Seconds to wait for an earlier connection that starts the same command."""

INTERRUPTED: Final = 130
"""The exit code of a command that was interrupted before it was started."""

ROOM_SIZE: Final = 16 * 1024
"""Bytes that have to be free for the output of a command when it starts."""

READ_SIZE: Final = 64 * 1024
END_TIMES: Final = ShutdownTimes(terminate_timeout=5.0)
"""Timeouts for ending a command when the connection has ended. The command may have to cancel a job
first."""

SCRIPT: Final = (
    "trap : INT TERM; out=$1 err=$2 code=$3 in=$4 pid=$5 machine=$6; shift 6; "
    'echo "$$ $machine" >"$pid" || exit; '
    '"$@" <"$in" >"$out" 2>"$err"; echo $? >"$code"'
)
"""Runs a command and stores its pid before and its exit code after it, with one write each.
`interrupt` signals the whole process group, and the shell has to survive that, or the exit code
would be lost. No other program is needed: what is on the PATH of a remote command is not known.

Its standard input is the locked file `ID.running`. So the command runs as long as that lock is
held, even if the process that started it was killed before it could store anything."""

Put = Callable[[int, str, bool], Awaitable[None] | None]


class RunningCommand:
    """A command that runs on this host. It may have been started by an earlier connection."""

    def __init__(self, program: tuple[str, ...], asked: HostCommand, *, paths: Paths) -> None:
        if asked.id and not is_id(asked.id):
            raise UsageError(f"not a command id: {asked.id!r}")
        self._program = program
        self._asked = asked
        self._folder = paths.state / FOLDER
        self._id = asked.id or new_job_id()
        self._child: ChildProcess | None = None
        """The process of a command without an id, which ends with the connection."""
        self._interrupted = False
        self._signalled = False

    def _file(self, ending: str) -> Path:
        return self._folder / f"{self._id}.{ending}"

    async def run(self, put: Put) -> int:
        """Start the command unless it was already started, and pass its output to `put` until it
        has ended. Returns its exit code."""
        if self._asked.id:
            await self._start()
            return await self._follow(put)
        try:
            await in_thread(str(self._folder), lambda _: self._prepare(), changes_disk=True)
            if self._interrupted:
                return INTERRUPTED
            self._child = self._start_child()
            return await self._follow(put)
        finally:
            await finish(self._end())

    def interrupt(self) -> None:
        """Interrupt the command like Ctrl-C; the second time, terminate it. A command that was not
        started yet will not be started."""
        number = signal.SIGTERM if self._interrupted else signal.SIGINT
        self._interrupted = True
        self._signalled = self._signal(number)

    def _signal(self, number: int) -> bool:
        """Signal the command. Returns whether it was started."""
        if self._child is not None:
            self._child.send_signal(number)
            return True
        try:
            pid, machine = self._file("pid").read_text().rstrip("\n").split(" ", 1)
        except (OSError, ValueError):
            return False
        # While the lock is held, the process that stored the pid is alive.
        if machine == _machine() and is_held(self._file("running")):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(pid), number)
        return True

    # -- starting

    def _prepare(self) -> None:
        try:
            make_folder(self._folder)
            self._write_input()
        except OSError as error:
            raise self._failed(error) from error

    def _write_input(self) -> None:
        self._file("in").write_text(self._asked.stdin, encoding="utf-8")
        for ending in ("out", "err"):
            self._file(ending).touch(mode=0o600)
        # On a full disk the command could not even write why it fails.
        write_whole(self._file("new"), bytes(ROOM_SIZE))
        self._file("new").unlink()

    def _failed(self, error: OSError) -> FileFailed:
        return FileFailed(str(self._folder), error.strerror or str(error), error.errno)

    def _start_child(self) -> ChildProcess:
        with (
            self._file("in").open("rb") as stdin,
            self._file("out").open("ab") as stdout,
            self._file("err").open("ab") as stderr,
        ):
            child = start_child(
                [*self._program, *self._asked.argv],
                stdin=stdin.fileno(),
                stdout=stdout.fileno(),
                stderr=stderr.fileno(),
                cwd=working_directory(self._asked.cwd or ""),
                env=self._environment(),
                inherit=tuple(os.environ),
                times=END_TIMES,
            )
        # The output goes to files, so there is no pipe to read to its end.
        child.output_ended()
        return child

    def _environment(self) -> dict[str, str]:
        asked = self._asked
        env = {"COLUMNS": str(asked.columns)} if asked.columns else {}
        return env | ({"FORCE_COLOR": "1"} if asked.colour else {})

    async def _start(self) -> None:
        """Start the command, unless an earlier connection has started it."""
        folder = str(self._folder)
        try:
            await in_thread(folder, lambda _: make_folder(self._folder), changes_disk=True)
            lock = await lock_within(self._file("lock"), timeout=LOCK_TIMEOUT)
        except OSError as error:
            raise self._failed(error) from error
        if lock is None:
            slow = BrokerError(
                "another connection has been starting this command for more than "
                f"{LOCK_TIMEOUT:g} s"
            )
            slow.may_have_run = True
            raise slow
        await in_thread(folder, lambda _: self._start_once(lock), changes_disk=True)

    def _start_once(self, starting: HeldLock) -> None:
        # The thread releases the lock: if the disk hangs, it may outlive the request.
        with starting:
            try:
                running = try_lock(self._file("running"))
                if running is None:
                    return
                with running:
                    if not self._file("pid").exists() and not self._file("code").exists():
                        self._launch(running)
            except OSError as error:
                raise self._failed(error) from error

    def _launch(self, running: HeldLock) -> None:
        asked = self._asked
        self._write_input()
        if self._interrupted:
            write_whole(self._file("code"), b"%d" % INTERRUPTED, sync=True)
            return
        files = [str(self._file(ending)) for ending in ("out", "err", "code", "in", "pid")]
        command = [*self._program, *asked.argv]
        start_detached(
            ["/bin/sh", "-c", SCRIPT, "dragoman", *files, _machine(), *command],
            stdin=running.fileno(),
            cwd=working_directory(asked.cwd or ""),
            env=self._environment(),
            inherit=tuple(os.environ),
        )
        # The shell holds it from now on.
        running.release(remove=False)

    # -- output

    async def _follow(self, put: Put) -> int:
        out, err = self._asked.after
        tails = (_Tail(self._file("out"), out), _Tail(self._file("err"), err))
        interval = FIRST_INTERVAL
        while True:
            if self._interrupted and not self._signalled:
                # Interrupted while it was started.
                self._signalled = self._signal(signal.SIGINT)
            # Checked before the output is read, so that the last output is not missed.
            code = self._exit_code()
            some = False
            for is_error, tail in enumerate(tails):
                while text := tail.read(final=code is not None):
                    some = True
                    waiting = put(tail.offset, text, bool(is_error))
                    if waiting is not None:
                        await waiting
            if code is not None:
                return code
            interval = FIRST_INTERVAL if some else min(2 * interval, MAX_INTERVAL)
            await asyncio.sleep(interval)

    def _exit_code(self) -> int | None:
        """Return the exit code of the command, or None while it runs."""
        if self._child is not None:
            child = self._child
            if not child.exited:
                return None
            return 128 + (child.signal or 0) if child.exit_code is None else child.exit_code
        # Checked before the code is read: the code is stored before the process ends.
        running = is_held(self._file("running"))
        try:
            return int(self._file("code").read_text())
        except (OSError, ValueError):
            # Without a code it was killed, or the machine was restarted.
            return None if running else 128 + signal.SIGKILL

    async def _end(self) -> None:
        """End a command without an id with everything it has started, and remove its files."""
        with ExitStack() as closing:
            for ending in ("in", "err", "out"):
                closing.callback(self._file(ending).unlink, missing_ok=True)
            if self._child is not None:
                await self._child.shutdown()


class _Tail:
    """Reads a growing file in whole characters."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self.offset = offset
        """Number of bytes read so far."""

    def read(self, *, final: bool = False) -> str:
        """Return new text. An incomplete character at the end is kept for the next call, unless the
        file is complete (`final`)."""
        with self._path.open("rb") as file:
            file.seek(self.offset)
            data = file.read(READ_SIZE)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data, final=final and len(data) < READ_SIZE)
        self.offset += len(data) - len(decoder.getstate()[0])
        return text


def _machine() -> str:
    """Return a text that identifies this boot and pid namespace: a home directory may be on several
    machines."""
    own = own_identity()
    return f"{own.boot} {own.namespace}"
