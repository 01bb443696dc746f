"""The broker process: read the spec from stdin, take the lock, listen, serve, shut down cleanly.

Also handles the record file, the idle timeout, signals and the redacted log. Writes one line to
stdout for the process that started it: ready, name taken, or failed and why. `broker` serves the
connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from dragoman.broker.client import reap
from dragoman.broker.endpoint import Endpoint, endpoint_of
from dragoman.broker.error_codec import describe
from dragoman.broker.lock import HeldLock, lock_for_life
from dragoman.broker.records import BrokerRecord, RecordFile
from dragoman.broker.server import idle
from dragoman.broker.spec import BrokerSpec, decode, endpoint_name, shared_terms
from dragoman.errors import AddressInUse, BrokerUnavailable, DragomanError, UsageError
from dragoman.rpc.tasks import TaskOwner, finish, in_thread
from dragoman.transports.listener import Listener, listen_unix
from dragoman.transports.process import environment
from dragoman.transports.process.identity import own_identity
from dragoman.transports.process.subreaper import supervise
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.broker.server.broker import Broker

Make: TypeAlias = "Callable[[BrokerSpec, BrokerProcess], Broker]"

SPEC_TIMEOUT: Final = 30
"""Timeout in seconds to read the spec. It arrives at once, unless the starting process was stopped;
such a process no longer waits for a broker."""

MAX_SPEC_SIZE: Final = 16 * 1024 * 1024
"""Maximum size of a spec, in bytes: far more than the largest environment that a system allows."""

LOCK_TIMEOUT: Final = 2.0
"""Seconds to retry taking the lock. Other processes hold it for a moment while they check it or
clean up."""

NAME_INTERVAL: Final = 30.0
"""Seconds between two checks that the lock file still exists. A broker without one cannot be found,
but is harmless and only uses memory, so it need not be noticed at once."""

log = logging.getLogger(__name__)


class BrokerProcess:
    """Hosts one broker in this process."""

    def __init__(self, spec: BrokerSpec, say: Callable[[dict[str, Any]], None]) -> None:
        self.spec = spec
        self.endpoint: Endpoint = endpoint_of(endpoint_name(spec), spec.paths)
        self._say = say
        self._lock: HeldLock | None = None
        self._listener: Listener | None = None
        self._record: RecordFile | None = None
        self._clock: idle.IdleClock | None = None
        self._tasks = TaskOwner("broker process")
        self._serving: Broker | None = None
        self._over = False

    async def run(self, make: Make) -> None:
        """Serve until the broker ends, or return if another broker still has the name after
        `LOCK_TIMEOUT`. Raises `BrokerUnavailable` if it cannot start."""
        self.endpoint.make_safe()
        self._lock = await lock_for_life(self.endpoint, timeout=LOCK_TIMEOUT)
        if self._lock is None:
            log.info("%s is taken by another broker", self.endpoint.name)
            self._say({"taken": True})
            return
        try:
            self._serving = serving = make(self.spec, self)
            self._clock = idle.IdleClock(self.spec.ttl, self._idle_too_long)
            self._write_record()
            await self._listen(serving)
            with _signals(self._asked_to_end):
                self._say({"ready": True, "pid": os.getpid()})
                log.info("%s is ready for %s", self.endpoint.name, self.spec.workspace)
                self._clock.start()
                self._tasks.start(self._clean_up(), "sweep")
                self._tasks.start(self._watch_name(self._lock), "watch")
                await serving.run()
        finally:
            self._over = True
            await finish(self._end())

    async def _listen(self, serving: Broker) -> None:
        try:
            self._listener = await listen_unix(self.endpoint.address, serving.serve)
        except AddressInUse as error:
            # We hold the lock, so whatever listens here is not a broker, or is one that lost its
            # lock file.
            raise BrokerUnavailable(
                f"{error} by a process that does not hold this broker's lock"
            ) from error
        except UsageError as error:
            raise BrokerUnavailable(str(error)) from error

    def _write_record(self) -> None:
        record = BrokerRecord(
            name=self.endpoint.name,
            address=self.endpoint.address,
            peer=self.spec.peer,
            workspace=self.spec.workspace,
            version=self.spec.version,
            broker=own_identity(),
            owner=environment.owner(),
            started_at=time.time(),
            log=str(self.endpoint.log),
            terms=shared_terms(self.spec),
        )
        self._record = RecordFile(self.endpoint.record(os.getpid()), record)
        self._record.write()

    async def _clean_up(self) -> None:
        for reaped in await in_thread(
            str(self.endpoint.runtime), lambda _: reap.sweep(self.endpoint.runtime)
        ):
            log.info(
                "cleaned up after %s: %d processes, %s",
                reaped.name,
                reaped.processes,
                ", ".join(reaped.files) or "no files",
            )

    async def _watch_name(self, lock: HeldLock) -> None:
        """Drain the broker if its lock file is removed: without the file no caller can find the
        broker."""
        while True:
            await asyncio.sleep(NAME_INTERVAL)
            if not lock.held:
                return
            if not lock.in_place:
                log.warning("%s ends: its lock %s was removed", self.endpoint.name, lock.path)
                if self._serving is not None:
                    self._serving.stop(drain=True)
                return

    async def _end(self) -> None:
        # The last step added runs first, and a step that fails does not skip the others.
        async with contextlib.AsyncExitStack() as closing:
            if self._record is not None:
                closing.callback(self._record.remove)
            if self._listener is not None:
                closing.push_async_callback(self._listener.aclose)
            closing.push_async_callback(self._tasks.aclose)
            closing.callback(self.release)
            if self._clock is not None:
                self._clock.stop()
        log.info("%s has ended", self.endpoint.name)

    def _asked_to_end(self) -> None:
        log.info("%s was asked to end", self.endpoint.name)
        if self._serving is not None:
            self._serving.stop(drain=False)

    def _idle_too_long(self) -> None:
        ttl = self.spec.ttl if self._clock is None else self._clock.ttl
        log.info("%s ends: idle for %g s", self.endpoint.name, ttl)
        if self._serving is not None:
            self._serving.stop(drain=True)

    # -- host of the broker

    def release(self) -> None:
        try:
            if self._listener is not None:
                self._listener.stop_accepting()
        finally:
            if self._lock is not None and self._lock.held:
                self._lock.release()
                if self._record is not None and not self._over:
                    self._record.drain()

    def peer_started(self, pid: int) -> None:
        if self._record is not None:
            self._record.add(pid)

    def peer_ended(self, pid: int) -> None:
        if self._record is not None:
            self._record.drop(pid)

    def idle_changed(self, idle: bool) -> None:
        if self._clock is None or self._over:
            return
        if not idle:
            self._clock.stop()
        elif self._clock.idle_for is None:
            self._clock.start()
            self._tasks.start(self._trim(), "trim")

    async def _trim(self) -> None:
        await idle.trim(self.endpoint.runtime, own_pid=os.getpid(), max_idle=self.spec.max_idle)
        folders = self.spec.paths
        if folders.config:
            # Imported here: rarely needed.
            from dragoman.store.daily_retention import RETENTION_TIMEOUT, retain

            state, config = Path(folders.state), Path(folders.config)
            await in_thread(
                folders.state,
                lambda _: retain(state, config),
                changes_disk=True,
                timeout=RETENTION_TIMEOUT,
            )

    def keep_for(self, ttl: float) -> None:
        if self._clock is not None:
            self._clock.keep_for(ttl)


class _signals:
    """Context manager: call `end` when SIGTERM or SIGINT arrives, and ignore SIGHUP. No effect on
    Windows."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        if sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._end)
            # The broker continues when the terminal that started it is closed.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def __exit__(self, *_: object) -> None:
        if sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.remove_signal_handler(number)


# -- the program


def main(make: Make | None = None) -> int:
    """Run the broker program, and return its exit code. The callback `make` creates the broker; by
    default it is `Broker`."""
    _begin_log(None)
    try:
        spec = decode(_read_spec())
    except UNDECODABLE as error:
        log.error("cannot read a spec from standard input: %s", error)
        return 2
    _begin_log(spec)
    _leave_parent()
    word = _Word()
    process = BrokerProcess(spec, word.say)
    try:
        if make is None:
            from dragoman.broker.server.broker import Broker

            make = Broker
        asyncio.run(process.run(make))
    except DragomanError as error:
        log.error("%s", error)
        word.say({"failed": describe(error)})
        return 1
    except OSError as error:
        # For example a full disk, on which the log cannot be written either.
        log.exception("the broker failed")
        failed = BrokerUnavailable(f"the broker for {spec.peer} cannot start: {error}")
        word.say({"failed": describe(failed)})
        return 1
    except Exception:
        # Top of the process: an exception not caught here would be lost.
        log.exception("the broker failed")
        return 1
    finally:
        word.close()
    return 0


def _read_spec() -> bytes:
    if sys.platform != "win32":
        signal.alarm(SPEC_TIMEOUT)
    text = sys.stdin.buffer.read(MAX_SPEC_SIZE)
    if sys.platform != "win32":
        signal.alarm(0)
    # A child must not inherit this pipe by accident.
    _replace(0, os.O_RDONLY)
    return text


def _leave_parent() -> None:
    """Continue in a detached process: the starting process need not reap it, and it cannot acquire
    a terminal by accident, because it is not a session leader. On Linux a supervisor process
    remains as its parent and kills any processes left behind, however this process ends."""
    if sys.platform != "win32" and os.fork():
        os._exit(0)
    supervise()


class _Word:
    """The status line for the starting process."""

    def __init__(self) -> None:
        self._open = True

    def say(self, word: dict[str, Any]) -> None:
        if self._open:
            # If the starting process is gone, other callers can still use the broker.
            with contextlib.suppress(OSError):
                os.write(1, msgspec.json.encode(word) + b"\n")
            self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            _replace(1, os.O_WRONLY)


def _replace(fd: int, flags: int) -> None:
    null = os.open(os.devnull, flags)
    try:
        os.dup2(null, fd, inheritable=True)
    finally:
        os.close(null)


def _begin_log(spec: BrokerSpec | None) -> None:
    """Log to stderr, which is the log file; with secrets redacted once the spec is known."""
    formatter: logging.Formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    if spec is not None:
        formatter = _Redacting(spec)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


class _Redacting(logging.Formatter):
    """Redacts log lines as in a bug report."""

    def __init__(self, spec: BrokerSpec) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(message)s")
        from dragoman.config.secrets import report_redactor

        self._redact = report_redactor(spec.env, values=spec.secret_values)

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record))
