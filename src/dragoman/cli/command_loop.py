"""Run the event loop in one thread while the main thread reads the keyboard and handles signals.

Reading in the main thread lets Ctrl-C interrupt a waiting prompt while the agent is still served.
The first and second interrupts go to the `listen` callback, in the loop. The third ends the process
at once, even if the loop blocks on a full pipe; the process warden then ends the agent.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from types import FrameType
from typing import Any, Final, TypeAlias

from msgspec import Struct

from dragoman.cli.exit_codes import ExitCode
from dragoman.cli.output.escape import neutral
from dragoman.cli.output.terminal import drop_typed, held, put_question
from dragoman.errors import UsageError

LAST_INTERRUPT: Final = 3
"""The number of the Ctrl-C that exits at once; the first two go to the `listen` callback."""


WAKE_AGAIN: Final = 0.1
"""Seconds until a Ctrl-C that did not interrupt a prompt is sent again."""


class Interrupted(Exception):
    """Ctrl-C was typed while a line was read."""


class _Wanted(Struct, eq=False):
    """The loop's request for a line."""

    prompt: str
    answer: asyncio.Future[str | None]
    question: str = ""
    fresh: bool = False
    hidden: bool = False
    abandoned: bool = False

    @property
    def exclusive(self) -> bool:
        """Whether other output waits until this line is read."""
        return self.hidden or bool(self.question)


class CommandLoop:
    """Runs one command: its event loop in a second thread, keyboard input and signals in the main
    thread. Create it and call `run` in the main thread."""

    def __init__(self) -> None:
        self.interrupts = 0
        """Number of interrupts since the last `calm`."""
        self.terminated = False
        """Whether a signal other than Ctrl-C asked this process to end."""
        self.hung_up = False
        """Whether the terminal was closed. In that case a turn in a broker should continue."""
        self.suspend_prompt: Callable[[], AbstractAsyncContextManager[None]] | None = None
        """Returns a context manager that removes an open prompt from the terminal while a question
        is asked; None without a line editor."""
        self._on_interrupt: Callable[[int], None] | None = None
        self._wanted: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
        self._reading = 0
        """The number of the line that is being read; 0 if none."""
        self._read_so_far = 0
        self._wanted_now: _Wanted | None = None
        """The line that is being read."""
        self._waking = False
        """Whether the next interrupt is sent by us, to end an obsolete question."""
        self._heard_own = False
        self._over = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def interrupt_code(self) -> ExitCode:
        """The exit code of a command that an interrupt or another signal has ended."""
        return ExitCode.TERMINATED if self.terminated else ExitCode.INTERRUPTED

    # -- for the loop

    async def line(
        self, prompt: str = "", *, question: str = "", fresh: bool = False, hidden: bool = False
    ) -> str | None:
        """Read the next line without its newline; None at the end of input.

        `fresh` discards what was typed at a terminal before the prompt. `question` is shown when
        its turn comes; other output waits until it is answered, and what was typed before is
        discarded. `hidden` reads a secret: other output and earlier input are treated as for a
        question, and a terminal does not echo the line. Raises `Interrupted` if Ctrl-C is typed
        instead, and `UsageError` if stdin cannot be read.
        """
        future = asyncio.get_running_loop().create_future()
        wanted = _Wanted(prompt, future, question, fresh, hidden)
        if not wanted.exclusive or self.suspend_prompt is None:
            return await self._line(wanted)
        async with self.suspend_prompt():
            return await self._line(wanted)

    async def _line(self, wanted: _Wanted) -> str | None:
        if wanted.exclusive:
            held.settle_overlay()
        self._wanted.put(wanted)
        try:
            return await wanted.answer
        finally:
            wanted.abandoned = True
            if wanted.exclusive:
                self._drop(wanted)

    def listen(self, on_interrupt: Callable[[int], None]) -> None:
        """Set the callback for interrupts, which replaces an earlier one. It is called in the loop,
        with their number, for the first and the second interrupt, and at once if there has been one
        since the last `calm`."""
        self._on_interrupt = on_interrupt
        if self.interrupts:
            # Interrupted before a callback was set.
            on_interrupt(self.interrupts)

    def calm(self) -> None:
        """Reset the count after interrupted work has ended: the next interrupt is the first
        again."""
        self.interrupts = 0

    # -- in the main thread

    def run(self, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """Run `work` in an event loop in a second thread, and read the lines that it requests,
        until it ends. Returns its exit code or raises its exception."""
        with (
            _signals(self._interrupted, self._terminated, self._woken) as told,
            ThreadPoolExecutor(1) as pool,
        ):
            done = pool.submit(self._work, work, told)
            self._serve()
            return done.result()

    def _work(self, work: Callable[[], Coroutine[Any, Any, int]], told: int) -> int:
        async def main() -> int:
            self._loop = loop = asyncio.get_running_loop()
            if os.name == "posix":
                loop.add_reader(told, self._heard, told)
            try:
                return await work()
            finally:
                if os.name == "posix":
                    loop.remove_reader(told)

        try:
            return asyncio.run(main())
        finally:
            self._over = True
            self._wanted.put(None)
            # The main thread may be waiting, or about to wait, for a line that is no longer needed.
            while reading := self._reading:
                self._wake(reading)
                time.sleep(WAKE_AGAIN)

    def _heard(self, told: int) -> None:
        """Wake the main thread after a signal, which does not interrupt a wait if it arrives just
        before the wait starts. An empty request ends a wait for the queue; an interrupt that is
        sent again ends the read of a line. `told` is the descriptor that receives signal
        numbers."""
        loop = asyncio.get_running_loop()
        self._wanted.put(_Wanted("", loop.create_future(), abandoned=True))
        ours, self._heard_own = self._heard_own, False
        if signal.SIGINT in os.read(told, 4096) and self._reading and not ours:
            loop.call_later(WAKE_AGAIN, self._wake, self._reading)

    def _drop(self, wanted: _Wanted) -> None:
        """End the read of an answer that is no longer needed, because other output is held back
        until the read ends. Tries again until it has ended."""
        if self._wanted_now is wanted:
            self._waking = self._heard_own = True
            self._wake(self._reading)
            if self._loop is not None and not self._over:
                self._loop.call_later(WAKE_AGAIN, self._drop, wanted)

    def _wake(self, reading: int) -> None:
        """Interrupt the read of this line if it is still in progress."""
        if reading and self._reading == reading and hasattr(signal, "pthread_kill"):
            main_thread = threading.main_thread().ident
            assert main_thread is not None
            signal.pthread_kill(main_thread, signal.SIGINT)

    def _serve(self) -> None:
        """Read requested lines until the loop has ended."""
        while (wanted := self._wanted.get()) is not None:
            if wanted.abandoned:
                continue
            answer: str | Interrupted | UsageError | None
            try:
                self._read_so_far += 1
                self._wanted_now, self._reading = wanted, self._read_so_far
                if self._over:
                    return
                answer = _asked(wanted) if wanted.exclusive else _read(wanted)
            except KeyboardInterrupt:
                answer = Interrupted()
            except (OSError, ValueError) as error:
                # The terminal is gone, or stdin is not open for reading.
                why = error.strerror if isinstance(error, OSError) else None
                answer = UsageError(f"stdin cannot be read: {why or error}")
            finally:
                # On any exception: the loop's thread waits until no line is being read.
                self._wanted_now, self._reading = None, 0
            self._answer(wanted, answer)

    def _answer(self, wanted: _Wanted, answer: str | Interrupted | UsageError | None) -> None:
        def settle() -> None:
            if wanted.answer.done():
                return
            if isinstance(answer, Interrupted | UsageError):
                wanted.answer.set_exception(answer)
            else:
                wanted.answer.set_result(answer)

        self._tell(settle)

    def _tell(self, call: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not self._over:
            # The loop may just have been closed: then the signal has no receiver.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(call)

    # -- signals

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._is_own():
            return
        if self._reading:
            raise KeyboardInterrupt
        if self._over:
            return
        self.press()

    def _is_own(self) -> bool:
        """Return whether an interrupt was sent by us and needs no handling.

        Raises `KeyboardInterrupt` if it is meant to end the read of an answer that is no longer
        needed.
        """
        ours, self._waking = self._waking, False
        reading = self._wanted_now
        if ours and reading is not None and reading.abandoned:
            raise KeyboardInterrupt
        return ours and not self._over

    def _woken(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT while interrupts are ignored: only those that we send to ourselves have an
        effect."""
        if not self._is_own() and self._reading and self._over:
            raise KeyboardInterrupt

    def press(self) -> None:
        """Handle a request to stop, such as an interrupt: the third one exits at once. May be
        called in any thread."""
        self.interrupts += 1
        count = self.interrupts
        if count >= LAST_INTERRUPT:
            code = self.interrupt_code
            held.erase_overlay(lambda: os._exit(code))
        self._tell(lambda: self._on_interrupt(count) if self._on_interrupt else None)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
        self.hung_up = number == getattr(signal, "SIGHUP", None)
        self.press()


def _asked(wanted: _Wanted) -> str | None:
    with held.hold():
        put_question(wanted.question)
        try:
            return _read(wanted)
        except KeyboardInterrupt:
            # Held output starts on a new line.
            put_question("\n")
            raise


def _read(wanted: _Wanted) -> str | None:
    if wanted.fresh or wanted.exclusive:
        drop_typed(sys.stdin)
    prompt = wanted.prompt
    if wanted.hidden and sys.stdin.isatty():
        import getpass  # Few commands need it.

        try:
            return getpass.getpass(neutral(prompt))
        except EOFError:
            return None
    if sys.stdin.isatty() and sys.stdout.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401 - it gives `input` history and editing
        try:
            return input(neutral(prompt))
        except EOFError:
            return None
    if sys.stdin.isatty():
        # The output is redirected; the prompt must not be part of it.
        put_question(prompt)
    line = sys.stdin.readline()
    return line.removesuffix("\n") if line else None


Handler: TypeAlias = Callable[[int, FrameType | None], None]


class _signals:
    """Context manager that installs the signal handlers of a command."""

    def __init__(self, interrupted: Handler, terminated: Handler, woken: Handler) -> None:
        # Signals that the parent process ignores (nohup) stay ignored, except the interrupt, which
        # wakes the main thread.
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        self._handlers: dict[int, Handler] = {signal.SIGINT: woken if ignored else interrupted}
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                self._handlers[getattr(signal, name)] = terminated
        self._before: dict[int, Any] = {}

    def __enter__(self) -> int:
        """Install the handlers. Returns a descriptor that receives signal numbers at once, whatever
        the main thread is doing."""
        self._told, self._tell = os.pipe()
        for end in (self._told, self._tell):
            os.set_blocking(end, False)
        self._told_before = signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        for number, handler in self._handlers.items():
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, handler)
        return self._told

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._told_before)
        os.close(self._told)
        os.close(self._tell)


def perform(live: CommandLoop, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run `work` with the loop `live`, and leave no status line on the terminal. Returns the exit
    code of the work or, if an interrupt cancelled it, that of the interrupt."""

    async def guarded() -> int:
        try:
            return await work()
        except asyncio.CancelledError:
            if not live.interrupts:
                raise
            # The interrupt cancelled this task. No other task awaits it, so the cancellation need
            # not be passed on.
            return live.interrupt_code

    try:
        return live.run(guarded)
    finally:
        # In every case, leave no status line on the terminal.
        held.close_overlay()
