"""A child process as a stream: what arrives, how it ends, and what the end says."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    ProcessExited,
    ProgramNotFound,
    SpawnError,
    UsageError,
)
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.process import child
from dragoman.transports.process import stream as process_stream
from dragoman.transports.process.child import ShutdownTimes
from dragoman.transports.process.stream import ProcessStream, spawn
from tests.aio import aio
from tests.integration.children import QUICK, TIMEOUT, Inbox, python, wait_dead

ECHO = """
import os
while data := os.read(0, 1 << 20):
    while data:
        data = data[os.write(1, data):]
"""


async def exited(stream: ProcessStream, inbox: Inbox) -> ProcessExited:
    """The end of a stream that must be a death, and the close after it."""
    failure = await inbox.end()
    assert isinstance(failure, ProcessExited), repr(failure)
    await stream.aclose()
    assert len(inbox.failures) == 1
    return failure


@aio
async def test_what_is_written_comes_back_from_an_echo() -> None:
    stream = await spawn(python(ECHO))
    inbox = Inbox()
    stream.start(inbox)
    stream.write(b"hello\n")
    assert await inbox.line() == "hello"
    await stream.aclose()
    assert stream.exit_code == 0
    assert isinstance(await inbox.end(), ConnectionClosed)
    with pytest.raises(ConnectionClosed):
        stream.write(b"too late\n")
    with pytest.raises(ConnectionClosed):
        await stream.drain()


@aio
async def test_a_line_of_fifteen_mebibytes_passes_in_both_directions() -> None:
    stream = await spawn(python(ECHO))
    inbox = Inbox()
    stream.start(inbox)
    line = os.urandom(64 * 1024).hex().encode() * 120 + b"\n"
    stream.write(line)
    assert stream.unsent_size > HIGH_WATER_SIZE
    async with asyncio.timeout(TIMEOUT):
        await stream.drain()
    assert stream.unsent_size <= HIGH_WATER_SIZE
    await inbox.until(lambda: sum(map(len, inbox.chunks)) >= len(line))
    assert inbox.bytes == line
    await stream.aclose()


@aio
async def test_a_second_start_is_refused() -> None:
    stream = await spawn(python(ECHO))
    stream.start(Inbox())
    with pytest.raises(UsageError):
        stream.start(Inbox())
    await stream.aclose()


@aio
async def test_a_process_that_exits_at_once_reports_code_and_last_words() -> None:
    stream = await spawn(python("import sys; sys.stderr.write('no such model'); sys.exit(41)"))
    inbox = Inbox()
    stream.start(inbox)
    failure = await exited(stream, inbox)
    assert failure.exit_code == 41
    assert failure.signal is None
    assert failure.stderr_tail == "no such model"
    assert stream.exit_code == 41
    assert stream.stderr_tail() == "no such model"
    await stream.wait_exited()
    with pytest.raises(ProcessExited):
        stream.write(b"anybody there\n")


@aio
async def test_all_output_is_delivered_before_the_end() -> None:
    stream = await spawn(python("import os; os.write(1, b'x' * 3_000_000 + b'end')"))
    inbox = Inbox()
    stream.start(inbox)
    await exited(stream, inbox)
    assert len(inbox.bytes) == 3_000_003
    assert inbox.bytes.endswith(b"end")


@aio
async def test_a_death_in_the_middle_of_a_line_delivers_its_beginning() -> None:
    program = """
    import os, signal
    os.write(1, b'{"half":')
    os.kill(os.getpid(), signal.SIGKILL)
    """
    stream = await spawn(python(program))
    inbox = Inbox()
    stream.start(inbox)
    failure = await exited(stream, inbox)
    assert inbox.bytes == b'{"half":'
    assert failure.exit_code is None
    assert failure.signal == signal.SIGKILL
    assert stream.signal == signal.SIGKILL


@aio
async def test_a_death_before_the_start_of_delivery_loses_nothing() -> None:
    stream = await spawn(python("print('early bird')"))
    await stream.wait_exited()
    await stream._child.wait_gone()
    inbox = Inbox()
    stream.start(inbox)
    assert inbox.chunks == [], "delivered from inside start"
    failure = await exited(stream, inbox)
    assert inbox.lines == ["early bird"]
    assert failure.exit_code == 0


@aio
async def test_a_death_while_reading_is_paused_waits_for_the_reader() -> None:
    stream = await spawn(python("import os; os.write(1, b'x' * 60_000)"))
    inbox = Inbox()
    stream.pause_reading()
    stream.start(inbox)
    await stream._child.wait_gone()
    assert inbox.chunks == []
    assert inbox.failures == []
    stream.resume_reading()
    await exited(stream, inbox)
    assert len(inbox.bytes) == 60_000


@aio
async def test_a_pause_in_the_middle_of_the_rest_is_honoured() -> None:
    stream = await spawn(python("import os; os.write(1, b'x' * 200_000)"))

    class Hesitant(Inbox):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            stream.pause_reading()

    inbox = Hesitant()
    stream.start(inbox)
    total = 0
    while not inbox.failures:
        await inbox.until(lambda: bool(inbox.chunks or inbox.failures))
        assert len(inbox.chunks) <= 1
        total += len(inbox.bytes)
        inbox.chunks.clear()
        stream.resume_reading()
    assert total == 200_000
    await exited(stream, inbox)


@aio
async def test_a_stream_closed_while_paused_on_a_dead_child_reports_the_death() -> None:
    stream = await spawn(python("print('unread')"))
    inbox = Inbox()
    stream.pause_reading()
    stream.start(inbox)
    await stream.wait_exited()
    await stream.aclose()
    assert isinstance(await inbox.end(), ProcessExited)


@aio
async def test_a_stream_that_was_never_started_can_be_closed() -> None:
    stream = await spawn(python("import os\nwhile os.write(1, b'x' * 65536): pass"), times=QUICK)
    await stream.aclose()
    assert stream.signal is not None or stream.exit_code is not None
    inbox = Inbox()
    stream.start(inbox)
    assert isinstance(await inbox.end(), ConnectionClosed)


@aio
async def test_a_child_that_closes_its_output_and_lives_on_is_distinguished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_stream, "END_TO_EXIT_TIMEOUT", 0.05)
    stream = await spawn(python("import os, sys; os.close(1); sys.stdin.read(); os._exit(0)"))
    inbox = Inbox()
    stream.start(inbox)
    failure = await inbox.end()
    assert type(failure) is ConnectionEnded
    assert "still running" in str(failure)
    with pytest.raises(ConnectionEnded):
        stream.write(b"x\n")
    await stream.aclose()
    assert len(inbox.failures) == 1


@aio
async def test_an_exit_right_after_the_end_of_output_is_reported_as_the_exit() -> None:
    program = "import os, sys; os.close(1); sys.stdin.readline(); os._exit(7)"
    stream = await spawn(python(program))
    inbox = Inbox()
    stream.start(inbox)
    stream.write(b"exit\n")
    assert (await exited(stream, inbox)).exit_code == 7


@aio
async def test_a_last_answer_arrives_after_the_child_stopped_reading(tmp_path: Path) -> None:
    program = """
    import os
    os.close(0)
    os.write(1, b"ready\\n")
    open(os.environ["GO"]).read()
    os.write(1, b"last words\\n")
    """
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    stream = await spawn(python(program), env={"GO": str(gate)})
    inbox = Inbox()
    stream.start(inbox)
    assert await inbox.line() == "ready"
    with pytest.raises(ConnectionBroken):
        stream.write(b"are you there\n")
    with pytest.raises(ConnectionBroken):
        stream.write(b"hello\n")
    with pytest.raises(ConnectionBroken):
        await stream.drain()
    assert inbox.failures == []
    os.close(os.open(gate, os.O_WRONLY))
    failure = await exited(stream, inbox)
    assert failure.exit_code == 0
    assert inbox.lines == ["ready", "last words"]


@aio
async def test_a_child_that_stops_reading_and_lives_on_breaks_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_stream, "BROKEN_TO_EXIT_TIMEOUT", 0.05)
    program = """
    import os, signal
    os.close(0)
    os.write(1, b"ready\\n")
    signal.pause()
    """
    times = ShutdownTimes(exit_timeout=0.05, terminate_timeout=TIMEOUT)
    stream = await spawn(python(program), times=times)
    inbox = Inbox()
    stream.start(inbox)
    await inbox.line()
    with pytest.raises(ConnectionBroken):
        stream.write(b"x\n")
    failure = await inbox.end()
    assert isinstance(failure, ConnectionBroken)
    await stream.aclose()
    assert stream.signal == signal.SIGTERM


async def break_input(stream: ProcessStream, inbox: Inbox) -> None:
    """Write to a child that does not read, and let the time pass in which it might exit."""
    with pytest.raises(ConnectionBroken):
        stream.write(b"x\n")
    for _ in range(10):
        await asyncio.sleep(0)
    assert inbox.failures == []


@aio
async def test_a_broken_write_while_paused_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_stream, "BROKEN_TO_EXIT_TIMEOUT", 0.0)
    # More than a pipe holds: the child can only write the rest after the pause.
    program = """
    import os, signal
    os.close(0)
    os.write(2, b"deaf")
    for number in range(3000):
        os.write(1, b"%0999d\\n" % number)
    signal.pause()
    """
    deaf = asyncio.Event()
    stream = await spawn(python(program), on_stderr=lambda data: deaf.set(), times=QUICK)
    inbox = Inbox()
    stream.start(inbox)
    stream.pause_reading()
    async with asyncio.timeout(TIMEOUT):
        await deaf.wait()
    await break_input(stream, inbox)
    monkeypatch.setattr(process_stream, "BROKEN_TO_EXIT_TIMEOUT", TIMEOUT)
    stream.resume_reading()
    await inbox.until(lambda: sum(map(len, inbox.chunks)) == 3_000_000 or bool(inbox.failures))
    assert inbox.failures == []
    assert [int(line) for line in inbox.lines] == list(range(3000))
    await stream.aclose()


@pytest.mark.parametrize("held_by", ["a pause", "a late start"])
@aio
async def test_a_broken_stream_ends_after_the_output_that_waited(
    held_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_stream, "BROKEN_TO_EXIT_TIMEOUT", 0.0)
    program = """
    import os, signal
    os.close(0)
    os.write(1, b"x" * 40_000 + b"last words")
    os.write(2, b"written")
    signal.pause()
    """
    written = asyncio.Event()
    stream = await spawn(python(program), on_stderr=lambda data: written.set(), times=QUICK)
    inbox = Inbox()
    if held_by == "a pause":
        stream.start(inbox)
        stream.pause_reading()
    async with asyncio.timeout(TIMEOUT):
        await written.wait()
    await break_input(stream, inbox)
    if held_by == "a pause":
        stream.resume_reading()
    else:
        stream.start(inbox)
    assert isinstance(await inbox.end(), ConnectionBroken)
    assert inbox.bytes == b"x" * 40_000 + b"last words"
    await stream.aclose()


@aio
async def test_a_death_outweighs_the_input_that_broke_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Less than the time that the orphan's output is waited for, and enough to see the death on a
    # busy machine.
    monkeypatch.setattr(process_stream, "BROKEN_TO_EXIT_TIMEOUT", 1.0)
    monkeypatch.setattr(child, "ORPHAN_TIMEOUT", 1.5)
    program = """
    import os, signal
    if os.fork() == 0:
        signal.pause()
    os.close(0)
    os.write(1, b"ready\\n")
    signal.pause()
    """
    stream = await spawn(python(program))
    inbox = Inbox()
    stream.start(inbox)
    await inbox.line()
    os.kill(stream.pid, signal.SIGKILL)
    await stream.wait_exited()
    stream._input_broken(BrokenPipeError(32, "Broken pipe"))
    assert (await exited(stream, inbox)).signal == signal.SIGKILL
    stream = await spawn(python(program))
    inbox = Inbox()
    stream.start(inbox)
    await inbox.line()
    stream._input_broken(BrokenPipeError(32, "Broken pipe"))
    os.kill(stream.pid, signal.SIGKILL)
    assert (await exited(stream, inbox)).signal == signal.SIGKILL


@aio
async def test_the_last_words_are_read_even_if_the_loop_had_no_time_for_them() -> None:
    stream = await spawn(python("import os; os.write(2, b'x' * 50_000 + b'why')"))
    # Blocks the loop, so that it sees nothing of the child before its death.
    wait_dead(stream.pid)
    assert stream.stderr_size == 0
    assert stream._exit().stderr_tail.endswith("xwhy")
    await stream.aclose()


@aio
async def test_the_words_on_stderr_are_there_as_soon_as_they_are_asked_for() -> None:
    stream = await spawn(python("import os; os.write(2, b'first' + b'second')"))
    wait_dead(stream.pid)
    assert stream.stderr_tail() == "firstsecond"
    assert stream.stderr_size == 11
    assert (stream.stderr_tail(5), stream.stderr_tail(11)) == ("second", "")
    await stream.aclose()


@aio
async def test_a_drain_that_waits_is_woken_by_the_death() -> None:
    program = """
    import os, signal
    os.read(0, 1)
    os.write(1, b"one\\n")
    os.read(0, 1)
    signal.pause()
    """
    stream = await spawn(python(program), times=QUICK)
    inbox = Inbox()
    stream.start(inbox)
    stream.write(b"x" * (8 * 1024 * 1024))
    await inbox.line()
    draining = asyncio.get_running_loop().create_task(stream.drain())
    await asyncio.sleep(0)
    os.kill(stream.pid, signal.SIGKILL)
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises((ProcessExited, ConnectionBroken)):
            await draining
    await exited(stream, inbox)


class Faulty(Inbox):
    """A receiver with a defect of its own."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        raise ValueError("a bad receiver")

    def stream_ended(self, failure: ConnectionLost) -> None:
        super().stream_ended(failure)
        raise ValueError("a bad receiver")


@aio
async def test_a_receiver_that_fails_still_gets_its_end_and_the_child_is_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    stream = await spawn(python("import os; os.write(1, b'x' * 300_000)"))
    inbox = Faulty()
    stream.start(inbox)
    await exited(stream, inbox)
    assert len(inbox.bytes) == 300_000
    stream = await spawn(python("print('unread')"))
    await stream.wait_exited()
    inbox = Faulty()
    stream.start(inbox)
    with pytest.raises(ValueError, match="a bad receiver"):
        await stream.aclose()
    assert isinstance(await inbox.end(), ProcessExited)
    assert stream._child.gone
    stream = await spawn(python(ECHO))
    inbox = Faulty()
    stream.start(inbox)
    await stream.aclose()
    assert isinstance(await inbox.end(), ConnectionClosed)
    assert "a bad receiver" in caplog.text


@aio
async def test_output_that_cannot_be_read_breaks_the_stream() -> None:
    stream = await spawn(python(ECHO))
    inbox = Inbox()
    stream.start(inbox)
    stream._output_ended(OSError(5, "input/output error"))
    failure = await inbox.end()
    assert isinstance(failure, ConnectionBroken)
    assert "input/output error" in str(failure)
    await stream.aclose()


@aio
async def test_a_flood_on_stderr_neither_blocks_the_child_nor_fills_our_memory() -> None:
    program = """
    import os
    for number in range(128):
        os.write(2, b"%07d\\n" % number * 8192)
    os.write(2, b"the last words")
    os.write(1, b"done\\n")
    """
    heard = 0

    def listen(data: bytes) -> None:
        nonlocal heard
        heard += len(data)

    stream = await spawn(python(program), stderr_tail_size=1000, on_stderr=listen)
    inbox = Inbox()
    stream.start(inbox)
    assert await inbox.line() == "done"
    failure = await exited(stream, inbox)
    assert heard == 128 * 65536 + 14
    assert len(failure.stderr_tail) == 1000
    assert failure.stderr_tail.endswith("0000127\nthe last words")


@aio
async def test_a_listener_that_fails_does_not_stop_the_reading_of_stderr(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = 0

    def listen(data: bytes) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("a bad listener")

    program = "import os\nfor _ in range(64): os.write(2, b'x' * 65536)"
    stream = await spawn(python(program), on_stderr=listen)
    inbox = Inbox()
    stream.start(inbox)
    await exited(stream, inbox)
    assert calls == 1
    assert "a bad listener" in caplog.text


@aio
async def test_the_child_sees_the_allow_list_and_what_was_added(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ACME_TOKEN", "secret")
    monkeypatch.setenv("ACME_REGION", "north")
    monkeypatch.setenv("DRAGOMAN_MARK", "not.ours")
    program = """
    import json, os
    print(json.dumps([dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid()]), flush=True)
    """
    stream = await spawn(python(program), cwd=tmp_path, env={"ADDED": "1"}, inherit=["ACME_REGION"])
    inbox = Inbox()
    stream.start(inbox)
    environment, folder, leads_session = json.loads(await inbox.line())
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["ADDED"] == "1"
    assert environment["ACME_REGION"] == "north"
    assert "ACME_TOKEN" not in environment
    assert environment["DRAGOMAN_MARK"] == stream._child.mark
    assert folder == str(tmp_path)
    assert leads_session
    await exited(stream, inbox)


# -- what cannot be started -----------------------------------------------------------------------


@aio
async def test_a_missing_program_is_named() -> None:
    with pytest.raises(ProgramNotFound, match="no-such-agent") as caught:
        await spawn(["no-such-agent", "--acp"])
    assert caught.value.program == "no-such-agent"


@aio
async def test_the_program_is_looked_for_on_the_path_of_the_child(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_text(f"#!{sys.executable} -IS\nprint('found')\n")
    agent.chmod(0o755)
    with pytest.raises(ProgramNotFound):
        await spawn(["agent"])
    stream = await spawn(["agent"], env={"PATH": str(tmp_path)})
    inbox = Inbox()
    stream.start(inbox)
    assert await inbox.line() == "found"
    await exited(stream, inbox)
    stream = await spawn(["./agent"], cwd=tmp_path)
    inbox = Inbox()
    stream.start(inbox)
    assert await inbox.line() == "found"
    await exited(stream, inbox)


@aio
async def test_what_is_there_and_cannot_be_started_is_explained(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    (tmp_path / "orphan").write_text("#!/no/such/interpreter\n")
    (tmp_path / "orphan").chmod(0o755)
    (tmp_path / "garbage").write_bytes(b"\x7fELF garbage")
    (tmp_path / "garbage").chmod(0o755)
    for program, words in (
        (str(tmp_path), "is a directory"),
        (str(tmp_path / "plain"), "not executable"),
        (str(tmp_path / "orphan"), "interpreter"),
        (str(tmp_path / "garbage"), "could not be started"),
        ("null\0character", "null character"),
    ):
        with pytest.raises(SpawnError, match=words):
            await spawn([program])
    with pytest.raises(SpawnError, match="could not be started"):
        await spawn([sys.executable, "-c", "null\0character"])
    with pytest.raises(SpawnError, match="working directory"):
        await spawn([sys.executable], cwd=tmp_path / "nowhere")
    with pytest.raises(SpawnError, match="not a directory"):
        await spawn([sys.executable], cwd=tmp_path / "plain")
    with pytest.raises(UsageError):
        await spawn([])


@aio
async def test_a_lack_of_descriptors_is_an_error_and_leaks_none() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    try:
        for spare in range(2, 12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, hard))
            try:
                stream = await spawn(python("pass"))
            except SpawnError:
                continue
            await stream.aclose()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
