"""Start a broker as a detached process and wait until it listens; replace a hung one.

Sends the spec on a pipe, reads one line back (ready, name taken, or failed and why) and directs
stderr to the broker's log. No secret is on the command line or in the environment. Callers that
arrive at the same time start only one broker (the `.starting` lock). A broker is alive if its lock
is held and it answers hello; a process is killed only if its identity is proven.
`broker.client.find_or_start` looks for a running broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman import version
from dragoman.broker.endpoint import Endpoint, make_private
from dragoman.broker.error_codec import revive
from dragoman.broker.lock import holder_of, is_held, read_text, try_lock
from dragoman.broker.spec import BrokerSpec
from dragoman.errors import BrokerUnavailable, ConnectionLost, SpawnError, UsageError
from dragoman.transports.pipes import open_read_pipe, open_write_pipe
from dragoman.transports.process.identity import ProcessState, kill, state_of
from dragoman.transports.process.stream import end_detached, reap_detached, start_detached
from dragoman.wire.framing import Framer
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.broker.client.find_or_start import BrokerSearch, FoundBroker, Prepare

PROGRAM: Final = (sys.executable, "-P", "-m", "dragoman.broker")
"""The command line of a broker. The working directory is not on the import path: a checkout must
not bring its own dragoman."""

ROOT: Final = os.path.abspath(os.sep)

LOOK_INTERVAL: Final = 0.02
"""Seconds between two checks of another process that starts, drains or ends."""

MAX_STARTS: Final = 3
"""Maximum number of starts per caller. A broker that dies at once this often will not recover."""

REAP_TIMEOUT: Final = 1.0
"""Seconds to wait for the exit of the process we started. It forks the broker and exits at once, so
it has usually ended when the broker reports."""

REAP_INTERVAL: Final = 0.005

MAX_LOG_SIZE: Final = 1024 * 1024
"""Size in bytes above which the next start rotates the log."""

TAIL_SIZE: Final = 4 * 1024
"""Number of bytes at the end of a log to show with an error."""

MAX_WORD_SIZE: Final = 256 * 1024
"""Maximum length of the line with which a new broker reports its start."""

log = logging.getLogger(__name__)


async def start_until_found(
    search: BrokerSearch, prepare: Prepare | None, program: Sequence[str]
) -> FoundBroker:
    """Start the broker, unless another caller starts it at the same time, and connect to it. Raises
    `BrokerUnavailable` after `MAX_STARTS` starts in vain, and what `start` and `prepare` raise."""
    endpoint = search.endpoint
    starts = 0
    while True:
        mine = try_lock(endpoint.starting)
        if mine is None:
            # Another caller is starting the broker; it will listen in a moment.
            await asyncio.sleep(LOOK_INTERVAL)
        else:
            with mine:
                if not await _clear(search):
                    spec = search.spec if prepare is None else await prepare(search.spec)
                    await start(spec, endpoint, timeout=search.times.start, program=program)
                    starts += 1
                    # While the lock is held, no other caller starts a broker.
                    found = await search.call(started=True)
                    if found is not None:
                        return found
                    if starts >= MAX_STARTS:
                        raise BrokerUnavailable(
                            f"the broker {endpoint.name} ended {starts} times right after its "
                            f"start; its log: {endpoint.log}",
                            log_tail=log_tail(endpoint.log),
                        )
        found = await search.call(started=starts > 0)
        if found is not None:
            return found


async def _clear(search: BrokerSearch) -> bool:
    """Ensure that the name is free. Called while this caller holds the `.starting` lock.

    Returns True if a broker answers after all. A holder that neither answers nor ends is killed.
    """
    lock = search.endpoint.lock
    if search.hung is not None and search.hung == read_text(lock) and is_held(lock):
        await _remove_holder(search, search.hung)
        return False
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + search.times.name
    while is_held(lock):
        found = await search.call(started=False)
        if found is not None:
            await found.connection.aclose()
            return True
        if search.hung is not None or loop.time() >= give_up_at:
            await _remove_holder(search, read_text(lock))
            return False
        await asyncio.sleep(LOOK_INTERVAL)
    return False


async def _remove_holder(search: BrokerSearch, text: bytes) -> None:
    """Kill a broker that holds its name and does not answer. Raises `BrokerUnavailable` if the
    holder is not proven to be a broker, or cannot be killed."""
    holder = holder_of(text)
    lock = search.endpoint.lock
    if holder is None or state_of(holder) is not ProcessState.ALIVE:
        if not is_held(lock):
            return
        raise BrokerUnavailable(
            f"{lock} is held by an unknown process that does not answer; "
            "remove the file if you are sure that no broker is running"
        )
    log.warning("the broker %s does not answer; killing process %d", lock.stem, holder.pid)
    kill(holder, signal.SIGKILL)
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + search.times.death
    while is_held(lock):
        if loop.time() >= give_up_at:
            raise BrokerUnavailable(
                f"the broker {lock.stem} (process {holder.pid}) hangs and cannot be killed"
            )
        await asyncio.sleep(LOOK_INTERVAL)
    search.hung = None


async def start(
    spec: BrokerSpec, endpoint: Endpoint, *, timeout: float, program: Sequence[str] = PROGRAM
) -> None:
    """Start a broker and wait until it listens, or has ended because another one has the name.

    Raises `BrokerUnavailable` with the end of its log, or the error that the broker reports.
    """
    text = spec.encode() + b"\n"
    told: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    word = _Word(told)
    theirs: list[int] = []
    with contextlib.ExitStack() as ours:
        try:
            stderr, log_size = open_log(endpoint.log)
            theirs.append(stderr)
            stdin, spec_end = os.pipe()
            theirs.append(stdin)
            writer = open_write_pipe(spec_end, _ignore)
            ours.callback(writer.close)
            word_end, stdout = os.pipe()
            theirs.append(stdout)
            reader = open_read_pipe(word_end, word.heard, word.ended)
            ours.callback(reader.close)
            pid = start_detached(
                program,
                # Not the workspace, which may be removed while the broker runs.
                cwd=ROOT,
                env=_own_python(),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
        except (OSError, SpawnError, UsageError) as error:
            why = getattr(error, "strerror", None) or error
            raise BrokerUnavailable(f"the broker's program cannot be started: {why}") from error
        finally:
            # Copies of the child's ends would keep the pipes open after its death.
            for fd in theirs:
                os.close(fd)
        reader.start()
        try:
            async with asyncio.timeout(timeout):
                # If the process dies before it has read everything, the reason is on stderr.
                with contextlib.suppress(ConnectionLost):
                    writer.write(text)
                    await writer.aclose(timeout)
                answer = await told
        except TimeoutError:
            end_detached(pid)
            await _reap(pid)
            tail = log_tail(endpoint.log, log_size)
            raise BrokerUnavailable(
                f"the broker for {spec.peer} did not start within {timeout:g} s{_shown(tail)}",
                log_tail=tail,
            ) from None
    await _reap(pid)
    _judge(answer, spec, endpoint, log_size)


async def _reap(pid: int) -> None:
    """Reap the process we started: it exits after it has forked the broker, or was killed."""
    give_up_at = asyncio.get_running_loop().time() + REAP_TIMEOUT
    while pid in reap_detached():
        if asyncio.get_running_loop().time() >= give_up_at:
            return
        await asyncio.sleep(REAP_INTERVAL)


def _ignore(error: OSError) -> None:
    """Ignore that the new process stopped reading: its status line or its log has the reason."""


class _Word:
    """Collects the status line of a new broker."""

    def __init__(self, told: asyncio.Future[bytes]) -> None:
        self._told = told
        self._framer = Framer(MAX_WORD_SIZE)

    def heard(self, data: bytes) -> None:
        lines = self._framer.feed(data)
        if lines or self._framer.overflowed:
            self._settle(lines[0] if lines else b"")

    def ended(self, error: OSError | None) -> None:
        self._settle(self._framer.end() or b"")

    def _settle(self, line: bytes) -> None:
        if not self._told.done():
            self._told.set_result(line)


def _judge(answer: bytes, spec: BrokerSpec, endpoint: Endpoint, log_size: int) -> None:
    word: Any = None
    with contextlib.suppress(*UNDECODABLE):
        word = msgspec.json.decode(answer)
    if isinstance(word, dict) and word.get("ready"):
        return
    if isinstance(word, dict) and word.get("taken"):
        # Another broker has the name; the next attempt will find it.
        return
    error = revive(word.get("failed")) if isinstance(word, dict) else None
    if error is not None:
        raise error
    tail = log_tail(endpoint.log, log_size)
    raise BrokerUnavailable(
        f"the broker for {spec.peer} ended during its start{_shown(tail)}", log_tail=tail
    )


def _shown(tail: str) -> str:
    lines = tail.strip().splitlines()
    return f"; its log ends with: {lines[-1].strip()}" if lines else ""


# -- the log


def open_log(path: Path) -> tuple[int, int]:
    """Return a descriptor of the log file, and its current size. A log that is too long is rotated
    first.

    If the file cannot be opened, the descriptor is that of the null device: the broker runs without
    a log.
    """
    try:
        make_private(path.parent)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > MAX_LOG_SIZE:
                path.replace(path.with_suffix(".log.1"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        fd = os.open(path, flags, 0o600)
        return fd, os.fstat(fd).st_size
    except (OSError, BrokerUnavailable):
        return os.open(os.devnull, os.O_WRONLY), 0


def log_tail(path: Path, start: int = 0) -> str:
    """Return the end of a log, at most `TAIL_SIZE` bytes of what was written after offset `start`;
    empty if the log cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - TAIL_SIZE))
            return file.read(TAIL_SIZE).decode("utf-8", "replace")
    except OSError:
        return ""


def _own_python() -> dict[str, str]:
    """Return the variables that let the new program find this dragoman: none if it is installed."""
    home = Path(version.__file__).resolve().parents[1]
    installed = any(part in ("site-packages", "dist-packages") for part in home.parts)
    return {} if installed else {"PYTHONPATH": str(home)}
