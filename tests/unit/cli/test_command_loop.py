"""The loop in its thread, the person in the main one."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.cli.command_loop import CommandLoop, Interrupted, perform
from dragoman.cli.output.terminal import put_err
from dragoman.errors import UsageError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_work_runs_in_a_thread_of_its_own_and_its_code_comes_back() -> None:
    async def work() -> int:
        assert threading.current_thread() is not threading.main_thread()
        return 7

    assert CommandLoop().run(work) == 7


def test_what_the_work_raises_is_raised_here() -> None:
    async def work() -> int:
        raise UsageError("not like this")

    with pytest.raises(UsageError, match="not like this"):
        CommandLoop().run(work)


def test_lines_are_read_in_the_main_thread_and_end_with_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers = set()

    class Stdin(io.StringIO):
        def readline(self, *size: Any) -> str:  # type: ignore[override]
            readers.add(threading.current_thread())
            return super().readline(*size)

    monkeypatch.setattr(sys, "stdin", Stdin("one\n\ntwo"))
    stage = CommandLoop()
    lines = []

    async def work() -> int:
        while (line := await stage.line("> ")) is not None:
            lines.append(line)
        return 0

    stage.run(work)
    assert lines == ["one", "", "two"]
    assert readers == {threading.main_thread()}


def test_a_line_that_is_no_longer_wanted_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "one\n")
    stage = CommandLoop()

    async def work() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await stage.line()
        return 0

    assert stage.run(work) == 0


def test_interrupts_are_counted_told_in_the_loop_and_forgotten_when_calm() -> None:
    stage = CommandLoop()
    heard: list[tuple[int, threading.Thread]] = []

    async def work() -> int:
        told = asyncio.Event()

        def listen(count: int) -> None:
            heard.append((count, threading.current_thread()))
            told.set()

        stage.listen(listen)
        for calm in (False, True, False):
            told.clear()
            os.kill(os.getpid(), signal.SIGINT)
            async with asyncio.timeout(10):
                await told.wait()
            if calm:
                stage.calm()
        return 0

    stage.run(work)
    assert [count for count, _ in heard] == [1, 2, 1]
    assert threading.main_thread() not in {thread for _, thread in heard}
    assert not stage.terminated


def test_a_signal_from_outside_is_an_interrupt_that_is_known_as_such() -> None:
    stage = CommandLoop()

    async def work() -> int:
        told = asyncio.Event()
        stage.listen(lambda count: told.set())
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            await told.wait()
        return 0

    stage.run(work)
    assert stage.terminated


def test_an_interrupt_before_the_first_listener_is_delivered_to_it() -> None:
    stage = CommandLoop()
    heard: list[int] = []

    async def work() -> int:
        stage.press()
        stage.listen(heard.append)
        return 0

    stage.run(work)
    assert heard[0] == 1


class Pipe:
    """A stdin in which nobody types; it tells the loop when somebody begins to read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.read = threading.Event()

    def isatty(self) -> bool:
        return False

    def readline(self) -> str:
        self.read.set()
        return os.read(self._descriptor, 1).decode()


def test_an_interrupt_at_a_prompt_is_raised_there_even_a_moment_before_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, write = os.pipe()
    stdin = Pipe(read)
    monkeypatch.setattr(sys, "stdin", stdin)
    stage = CommandLoop()

    async def interrupt() -> None:
        await asyncio.to_thread(stdin.read.wait, 10)
        os.kill(os.getpid(), signal.SIGINT)

    async def work() -> int:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(interrupt())
            with pytest.raises(Interrupted):
                await stage.line()
        return 0

    try:
        stage.run(work)
    finally:
        os.close(read)
        os.close(write)
    assert stage.interrupts == 0


def test_a_prompt_that_is_open_when_the_work_ends_delays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, write = os.pipe()
    stage = CommandLoop()

    async def work() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await stage.line()
        return 3

    with os.fdopen(read) as stdin, os.fdopen(write, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert stage.run(work) == 3


def test_signals_and_descriptors_are_as_they_were_afterwards() -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]

    async def work() -> int:
        return 0

    before, descriptors = handlers(), len(os.listdir("/proc/self/fd"))
    CommandLoop().run(work)
    assert handlers() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    stage = CommandLoop()

    async def work() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return 0

    try:
        stage.run(work)
        assert stage.interrupts == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_prompt_is_left_when_the_work_ends_also_where_interrupts_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    read, write = os.pipe()
    stdin = Pipe(read)
    monkeypatch.setattr(sys, "stdin", stdin)
    stage = CommandLoop()

    async def work() -> int:
        reading = asyncio.get_running_loop().create_task(stage.line())
        await asyncio.to_thread(stdin.read.wait, 10)
        reading.cancel()
        return 3

    try:
        assert stage.run(work) == 3
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(read)
        os.close(write)


def test_a_line_that_cannot_be_read_is_an_error_of_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Pipe):
        def readline(self) -> str:
            raise OSError("no terminal")

    monkeypatch.setattr(sys, "stdin", Broken(-1))
    stage = CommandLoop()

    async def work() -> int:
        with pytest.raises(UsageError, match="stdin cannot be read: no terminal"):
            await stage.line()
        return 3

    assert stage.run(work) == 3


def test_a_signal_that_does_not_wake_the_main_thread_is_still_handled() -> None:
    stage = CommandLoop()
    main = threading.main_thread().ident
    assert main is not None

    async def waiting() -> None:
        """Until the main thread has had many chances to leave the place where it waits."""
        seen = 0
        while seen < 500:
            await asyncio.sleep(0)
            seen = seen + 1 if sys._current_frames()[main].f_code.co_name == "_serve" else 0

    async def work() -> int:
        heard = asyncio.Event()
        stage.listen(lambda count: heard.set())
        await waiting()
        # It goes to this thread, so nothing wakes the main one.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        async with asyncio.timeout(5):
            await heard.wait()
        return 3

    assert stage.run(work) == 3


def test_a_question_is_shown_when_its_line_is_read_and_holds_everything_else_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = CommandLoop()
    asked: list[str] = []

    class Stdin(io.StringIO):
        def readline(self, *size: Any) -> str:  # type: ignore[override]
            put_err("meanwhile\n")
            asked.append(capsys.readouterr().err)
            return super().readline(*size)

    monkeypatch.setattr(sys, "stdin", Stdin("yes\n"))

    async def work() -> int:
        assert await stage.line("? ", question="Shall I?\n") == "yes"
        return 0

    stage.run(work)
    assert asked == ["Shall I?\n"]
    assert capsys.readouterr().err == "meanwhile\n"


def test_a_question_that_is_not_asked_any_more_stops_waiting_and_is_not_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, written = os.pipe()
    stage = CommandLoop()
    shown = threading.Event()

    class Stderr(io.StringIO):
        def write(self, text: str) -> int:
            if "over\n" in text:
                shown.set()
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", Stderr())
    with os.fdopen(reading) as stdin, os.fdopen(written, "w") as keyboard:
        monkeypatch.setattr(sys, "stdin", stdin)

        async def work() -> int:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await stage.line(question="Shall I?\n")
            put_err("over\n")
            assert await asyncio.to_thread(shown.wait, 10)
            keyboard.write("next\n")
            keyboard.flush()
            async with asyncio.timeout(10):
                assert await stage.line() == "next"
            return stage.interrupts

        assert stage.run(work) == 0


def test_an_open_prompt_is_off_the_screen_while_a_question_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "a line\nyes\n")
    stage = CommandLoop()
    order: list[str] = []

    @asynccontextmanager
    async def suspended() -> AsyncIterator[None]:
        order.append("off")
        yield
        order.append("on")

    async def work() -> int:
        stage.suspend_prompt = suspended
        assert await stage.line("> ") == "a line"
        assert order == []
        assert await stage.line("? ", question="Shall I?\n") == "yes"
        return 0

    assert stage.run(work) == 0
    assert order == ["off", "on"]
    assert capsys.readouterr().err == "Shall I?\n"


@pytest.mark.parametrize(("terminated", "code"), [(False, 130), (True, 143)])
def test_work_that_an_interrupt_cancelled_ends_with_its_code(terminated: bool, code: int) -> None:
    stage = CommandLoop()

    async def work() -> int:
        stage.interrupts, stage.terminated = 1, terminated
        raise asyncio.CancelledError

    assert perform(stage, work) == code


def test_an_unexpected_cancellation_is_not_hidden() -> None:
    async def work() -> int:
        raise asyncio.CancelledError

    with pytest.raises(BaseException) as caught:
        perform(CommandLoop(), work)
    assert type(caught.value).__name__ == "CancelledError"
