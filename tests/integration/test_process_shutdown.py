"""How children end: politely, by force, with orphans and daemons, and when nobody waits."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from dragoman.errors import ConnectionClosed, ProcessExited
from dragoman.transports.process.child import ShutdownTimes
from dragoman.transports.process.strays import find_strays
from dragoman.transports.process.stream import ProcessStream, spawn, start_child, start_detached
from tests.aio import aio
from tests.integration.children import QUICK, TIMEOUT, Inbox, is_dead, python, wait_dead

PATIENT = ShutdownTimes(exit_timeout=TIMEOUT, terminate_timeout=TIMEOUT)
"""A step of the shutdown that does not bring the end makes the test fail by its time limit."""

STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""

LAUNCHER = """
import os, signal, subprocess, sys
program = sys.argv[1]
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", program], start_new_session=%s)
os.write(1, b"%%d\\n" %% child.pid)
%s
"""

WRITES_FOR_EVER = """
import os, time
os.write(1, b"orphan\\n")
while True:
    time.sleep(0.005)
    os.write(1, b"still here\\n")
"""

SLEEPS = "import signal\nwhile True: signal.pause()"


def launcher(program: str, then: str = "signal.pause()", *, daemon: bool = False) -> list[str]:
    """A program that starts another one, says its number, and goes on."""
    return python(LAUNCHER % (daemon, then), textwrap.dedent(program))


async def pid_in(inbox: Inbox) -> int:
    """The first line that is a number: the started program may have written before its launcher."""

    def numbers() -> list[bytes]:
        return [line for line in bytes(inbox.bytes).split(b"\n")[:-1] if line.isdigit()]

    await inbox.until(lambda: bool(numbers()))
    return int(numbers()[0])


async def started(command: list[str], **options: ShutdownTimes) -> tuple[ProcessStream, Inbox]:
    stream = await spawn(command, **options)  # type: ignore[arg-type]
    inbox = Inbox()
    stream.start(inbox)
    await inbox.line()
    return stream, inbox


def reap(pid: int) -> None:
    """What a host does that waits for all its children, ours too."""
    assert os.waitpid(pid, 0)[0] == pid


async def within(seconds: float, stream: ProcessStream) -> None:
    async with asyncio.timeout(seconds):
        await stream.aclose()


@aio
async def test_a_hurried_end_waits_for_no_step_of_the_shutdown() -> None:
    stream, _ = await started(python(STUBBORN), times=PATIENT)
    stream.hurry()
    async with asyncio.timeout(TIMEOUT):
        await stream.aclose()
    assert is_dead(stream.pid)


@aio
async def test_a_child_that_reads_its_input_to_the_end_exits_by_itself() -> None:
    program = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\nsys.exit(5)"
    stream, inbox = await started(python(program), times=PATIENT)
    await within(TIMEOUT, stream)
    assert stream.exit_code == 5
    assert isinstance(await inbox.end(), ConnectionClosed)


@aio
async def test_what_was_written_before_the_close_reaches_the_child() -> None:
    program = """
    import os, sys
    os.write(1, b"ready\\n")
    size = len(sys.stdin.buffer.read())
    sys.exit(3 if size == 4_000_000 else 4)
    """
    stream, _ = await started(python(program), times=PATIENT)
    stream.write(b"x" * 4_000_000)
    await within(TIMEOUT, stream)
    assert stream.exit_code == 3


@aio
async def test_a_child_that_still_writes_while_we_close_is_not_blocked_by_it() -> None:
    program = """
    import os, sys
    os.write(1, b"ready\\n")
    sys.stdin.read()
    for _ in range(64):
        os.write(1, b"x" * 65536)
    sys.exit(6)
    """
    stream, inbox = await started(python(program), times=PATIENT)
    stream.pause_reading()
    await within(TIMEOUT, stream)
    assert stream.exit_code == 6
    assert inbox.lines == ["ready"]


@aio
async def test_a_child_that_ignores_the_end_of_its_input_is_terminated() -> None:
    program = "import os, signal\nos.write(1, b'ready\\n')\nsignal.pause()"
    times = ShutdownTimes(exit_timeout=0.05, terminate_timeout=TIMEOUT)
    stream, _ = await started(python(program), times=times)
    await within(TIMEOUT, stream)
    assert stream.signal == signal.SIGTERM


@aio
async def test_a_child_that_ignores_sigterm_is_killed() -> None:
    stream, _ = await started(python(STUBBORN), times=QUICK)
    await within(TIMEOUT, stream)
    assert stream.signal == signal.SIGKILL
    assert is_dead(stream.pid)


@aio
async def test_a_child_that_does_not_read_at_all_does_not_hold_up_the_close() -> None:
    stream, _ = await started(python(STUBBORN), times=QUICK)
    stream.write(b"x" * 8_000_000)
    await within(TIMEOUT, stream)
    assert stream.signal == signal.SIGKILL


@aio
async def test_a_stopped_child_is_killed() -> None:
    stream, _ = await started(python(STUBBORN), times=QUICK)
    os.kill(stream.pid, signal.SIGSTOP)
    await within(TIMEOUT, stream)
    assert stream.signal == signal.SIGKILL


@aio
async def test_an_orphan_that_holds_the_output_neither_delays_the_end_nor_survives() -> None:
    stream, inbox = await started(launcher(WRITES_FOR_EVER))
    orphan = await pid_in(inbox)
    await inbox.until(lambda: b"still here" in inbox.bytes)
    os.kill(stream.pid, signal.SIGKILL)
    failure = await inbox.end()
    assert isinstance(failure, ProcessExited)
    assert failure.signal == signal.SIGKILL
    wait_dead(orphan)
    size = len(inbox.bytes)
    await stream.aclose()
    assert len(inbox.bytes) == size
    assert len(inbox.failures) == 1


@aio
async def test_an_orphan_in_its_own_session_that_holds_the_output_does_not_survive() -> None:
    stream, inbox = await started(launcher(WRITES_FOR_EVER, daemon=True))
    orphan = await pid_in(inbox)
    os.kill(stream.pid, signal.SIGKILL)
    assert isinstance(await inbox.end(), ProcessExited)
    await stream.aclose()
    assert is_dead(orphan)


@aio
async def test_a_grandchild_ends_with_a_launcher_that_is_closed() -> None:
    stream, inbox = await started(launcher(STUBBORN), times=QUICK)
    grandchild = await pid_in(inbox)
    await inbox.until(lambda: b"ready" in inbox.bytes)
    await within(TIMEOUT, stream)
    assert is_dead(grandchild)


@aio
async def test_a_daemon_that_left_the_session_is_found_by_its_mark() -> None:
    then = "import sys; sys.stdin.read()"
    program = "import os\nfor fd in (0, 1, 2): os.close(fd)\n" + SLEEPS
    stream, inbox = await started(launcher(program, then, daemon=True), times=PATIENT)
    daemon = await pid_in(inbox)
    async with asyncio.timeout(TIMEOUT):
        # The environment of a process cannot be read while it starts its program.
        while daemon not in find_strays(stream._child.mark):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await within(TIMEOUT, stream)
    assert stream.exit_code == 0
    assert is_dead(daemon)
    assert find_strays(stream._child.mark) == []


@aio
async def test_a_daemon_is_found_after_an_unexpected_death() -> None:
    program = "import os\nfor fd in (0, 1, 2): os.close(fd)\n" + SLEEPS
    stream, inbox = await started(launcher(program, "os._exit(9)", daemon=True))
    daemon = await pid_in(inbox)
    failure = await inbox.end()
    assert isinstance(failure, ProcessExited)
    assert failure.exit_code == 9
    await stream._child.wait_gone()
    assert is_dead(daemon)
    await stream.aclose()


@aio
async def test_a_process_without_the_mark_is_found_by_its_session() -> None:
    program = f"""
    import os, signal, subprocess, sys
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", {SLEEPS!r}], env={{}},
                             process_group=0)
    os.write(1, b"%d\\n" % child.pid)
    signal.pause()
    """
    stream, inbox = await started(python(program), times=QUICK)
    unmarked = await pid_in(inbox)
    assert unmarked not in find_strays(stream._child.mark)
    await within(TIMEOUT, stream)
    assert is_dead(unmarked)


@pytest.mark.parametrize("when", ["reading", "paused", "not started"])
@aio
async def test_an_orphan_that_cannot_be_found_does_not_hold_up_the_end(when: str) -> None:
    program = f"""
    import os, subprocess, sys
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", {SLEEPS!r}], env={{}},
                             start_new_session=True)
    os.write(1, b"%d\\n" % child.pid)
    """
    stream = await spawn(python(program))
    inbox = Inbox()
    if when != "not started":
        if when == "paused":
            stream.pause_reading()
        stream.start(inbox)
    async with asyncio.timeout(TIMEOUT):
        await stream._child.wait_gone()
    if when == "not started":
        stream.start(inbox)
    stream.resume_reading()
    escaped = await pid_in(inbox)
    try:
        assert isinstance(await inbox.end(), ProcessExited)
        assert not is_dead(escaped), "it replaced the mark, so it lives on its own"
    finally:
        os.kill(escaped, signal.SIGKILL)
        await stream.aclose()


@aio
async def test_closing_from_many_tasks_at_once_is_one_shutdown() -> None:
    # It does not pause: a signal that comes right before that would not end the pause.
    program = """
    import os, signal, time
    def count(*_):
        os.write(2, b"terminated.")
    signal.signal(signal.SIGTERM, count)
    os.write(1, b"ready\\n")
    while True:
        time.sleep(0.01)
    """
    # Long enough for the child to report the signal, on a busy machine.
    times = ShutdownTimes(exit_timeout=0.05, terminate_timeout=3.0)
    stream, inbox = await started(python(program), times=times)
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*(stream.aclose() for _ in range(8)))
    assert stream.stderr_tail() == "terminated."
    assert len(inbox.failures) == 1
    await stream.aclose()


@pytest.mark.parametrize("cancels", [1, 2, 3])
@aio
async def test_a_cancelled_close_goes_on_in_the_background(cancels: int) -> None:
    stream, inbox = await started(python(STUBBORN), times=QUICK)
    for _ in range(cancels):
        closing = asyncio.get_running_loop().create_task(stream.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    assert isinstance(await inbox.end(), ConnectionClosed)
    async with asyncio.timeout(TIMEOUT):
        await stream._child.wait_gone()
    assert stream.signal == signal.SIGKILL


@aio
async def test_a_close_cancelled_at_any_moment_still_ends_the_child() -> None:
    for moment in range(0, 60, 12):
        stream, _ = await started(python(STUBBORN), times=QUICK)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(moment / 1000):
                await stream.aclose()
        async with asyncio.timeout(TIMEOUT):
            await stream._child.wait_gone()
        assert is_dead(stream.pid)


@aio
async def test_a_cancelled_spawn_leaves_no_process() -> None:
    task = asyncio.get_running_loop().create_task(spawn(python(STUBBORN)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    task = asyncio.get_running_loop().create_task(spawn(python(STUBBORN), times=QUICK))
    await asyncio.sleep(0)
    task.cancel()
    stream = await task
    await stream.aclose()


def test_the_end_of_the_loop_ends_a_child_that_was_not_closed() -> None:
    async def main() -> int:
        stream, _ = await started(launcher(WRITES_FOR_EVER, daemon=True))
        return stream.pid

    assert is_dead(asyncio.run(main()))


def test_the_end_of_the_loop_cuts_a_shutdown_short() -> None:
    # Longer than the time limit of a test.
    times = ShutdownTimes(exit_timeout=1000, terminate_timeout=1000)

    async def main() -> int:
        stream, _ = await started(python(STUBBORN), times=times)
        closing = asyncio.get_running_loop().create_task(stream.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        return stream.pid

    assert is_dead(asyncio.run(main()))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_over_a_child_ends_it_when_it_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> int:
        stream, _ = await started(python(STUBBORN))
        return stream.pid

    loop = asyncio.new_event_loop()
    pid = loop.run_until_complete(main())
    loop.close()
    del loop
    gc.collect()
    wait_dead(pid)
    # asyncio complains about the task that was watching; that is the caller's fault.
    caplog.clear()


@aio
async def test_if_other_code_reaps_our_child_only_the_exit_code_is_lost() -> None:
    stream, inbox = await started(python("print('ready', flush=True)\ninput()"))
    os.kill(stream.pid, signal.SIGKILL)
    reap(stream.pid)
    failure = await inbox.end()
    assert isinstance(failure, ProcessExited)
    assert failure.exit_code is None
    assert failure.signal is None
    await stream.aclose()


@aio
async def test_an_orphan_is_found_although_other_code_reaped_its_parent() -> None:
    stream, inbox = await started(launcher(WRITES_FOR_EVER))
    orphan = await pid_in(inbox)
    os.kill(stream.pid, signal.SIGKILL)
    reap(stream.pid)
    assert isinstance(await inbox.end(), ProcessExited)
    await stream.aclose()
    assert is_dead(orphan)


@pytest.fixture
def handled_signals() -> Iterator[list[int]]:
    seen: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda number, _: seen.append(number))
    yield seen
    signal.signal(signal.SIGCHLD, before)


def test_the_host_keeps_its_own_handler_for_the_death_of_children(
    handled_signals: list[int],
) -> None:
    handler = signal.getsignal(signal.SIGCHLD)

    async def main() -> None:
        stream, inbox = await started(python("print('ready')"))
        assert isinstance(await inbox.end(), ProcessExited)
        assert stream.exit_code == 0
        await stream.aclose()

    asyncio.run(main())
    assert signal.getsignal(signal.SIGCHLD) is handler
    assert handled_signals


def test_a_host_that_ignores_the_death_of_children_still_learns_of_it() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    async def main() -> None:
        stream, inbox = await started(python("print('ready')"))
        assert isinstance(await inbox.end(), ProcessExited)
        await stream.aclose()

    try:
        asyncio.run(main())
    finally:
        signal.signal(signal.SIGCHLD, before)


@aio
async def test_without_pidfds_a_thread_waits_for_the_death(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(38, "not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    stream, inbox = await started(python("import os\nos.write(1, b'x\\n')\nos._exit(8)"))
    failure = await inbox.end()
    assert isinstance(failure, ProcessExited)
    assert failure.exit_code == 8
    await stream.aclose()
    stream, _ = await started(python(STUBBORN), times=QUICK)
    await within(TIMEOUT, stream)
    assert stream.signal == signal.SIGKILL


@aio
async def test_many_children_at_once_leave_nothing() -> None:
    streams = [await started(python(STUBBORN), times=QUICK) for _ in range(6)]
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*(stream.aclose() for stream, _ in streams))
    assert all(stream.signal == signal.SIGKILL for stream, _ in streams)


@aio
async def test_a_command_with_mixed_output_has_the_same_shutdown() -> None:
    reader, writer = os.pipe()
    program = "import os, signal\nos.write(1, b'out')\nos.write(2, b'err')\nsignal.pause()"
    child = start_child(
        python(program), stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, times=QUICK
    )
    os.close(writer)
    said = b""
    while len(said) < 6:
        said += os.read(reader, 100)
    assert said == b"outerr"
    assert not child.exited
    async with asyncio.timeout(TIMEOUT):
        await child.shutdown()
    assert child.exited
    assert child.gone
    assert child.signal == signal.SIGTERM
    os.close(reader)


@aio
async def test_a_command_can_be_interrupted() -> None:
    reader, writer = os.pipe()
    # Whoever runs the tests in the background may have made their children ignore the signal.
    program = (
        "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "os.write(1, b'.')\nsignal.pause()"
    )
    child = start_child(python(program), stdin=subprocess.DEVNULL, stdout=writer, stderr=writer)
    os.close(writer)
    assert os.read(reader, 1) == b"."
    child.send_signal(signal.SIGINT)
    async with asyncio.timeout(TIMEOUT):
        await child.wait_exited()
        child.output_ended()
        await child.wait_gone()
    assert child.signal == signal.SIGINT
    child.send_signal(signal.SIGINT)
    os.close(reader)


def test_a_detached_program_has_no_owner_and_its_own_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRAGOMAN_MARK", "somebody.1")
    reader, writer = os.pipe()
    program = """
    import os
    mark = os.environ.get("DRAGOMAN_MARK", "none")
    os.write(1, f"{mark} {os.getsid(0) == os.getpid()}".encode())
    """
    pid = start_detached(python(program), stdout=writer)
    os.close(writer)
    said = b""
    while part := os.read(reader, 100):
        said += part
    os.close(reader)
    assert said == b"detached True"
    wait_dead(pid)
    second = start_detached([sys.executable, "-I", "-S", "-c", ""])
    assert not os.path.exists(f"/proc/{pid}"), "the first was not reaped by the second"
    os.waitpid(second, 0)
