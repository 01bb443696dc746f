"""Commands for another machine: output by offset, exit codes, interrupts, and leftover files."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.host_protocol import HostCommand
from dragoman.broker.lock import try_lock
from dragoman.config.safe_files import write_whole
from dragoman.errors import BrokerError, FileFailed, UsageError
from dragoman.paths import Paths, find_paths
from dragoman.runs import host_commands
from dragoman.runs.host_commands import FOLDER, RunningCommand
from dragoman.transports.process.child import ShutdownTimes
from dragoman.transports.process.identity import identify
from dragoman.transports.process.stream import start_detached
from tests.aio import aio

PYTHON = (sys.executable, "-c")


class Output:
    """Collects the output of a command."""

    def __init__(self) -> None:
        self.texts = ["", ""]
        self.offsets = [0, 0]

    def __call__(self, offset: int, text: str, is_error: bool) -> None:
        self.texts[is_error] += text
        self.offsets[is_error] = offset


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("HOME", str(tmp_path))
    return find_paths({"DRAGOMAN_STATE_HOME": str(tmp_path / "state")})


@aio
async def test_output_and_exit_code_are_returned_and_no_files_stay(paths: Paths) -> None:
    script = "import sys; print('häh'); print('err', file=sys.stderr); print(input()); exit(7)"
    asked = HostCommand(argv=[script], stdin="typed\n")
    output = Output()
    assert await RunningCommand(PYTHON, asked, paths=paths).run(output) == 7
    assert output.texts == ["häh\ntyped\n", "err\n"]
    assert list((paths.state / FOLDER).iterdir()) == []


@aio
async def test_an_incomplete_character_at_the_end_of_the_output_is_not_lost(paths: Paths) -> None:
    script = r"import sys; sys.stdout.buffer.write(b'end\xc3')"
    output = Output()
    assert await RunningCommand(PYTHON, HostCommand(argv=[script]), paths=paths).run(output) == 0
    assert (output.texts[0], output.offsets[0]) == ("end\ufffd", 4)


@aio
async def test_a_command_with_an_id_runs_once_and_is_read_from_an_offset(
    paths: Paths, tmp_path: Path
) -> None:
    script = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); print('one'); print('two')"
    first = Output()
    asked = HostCommand(argv=[script], id="j-command1")
    assert await RunningCommand(PYTHON, asked, paths=paths).run(first) == 0
    again = Output()
    asked = HostCommand(argv=[script], id="j-command1", after=(4, 0))
    assert await RunningCommand(PYTHON, asked, paths=paths).run(again) == 0
    assert first.texts[0] == "one\ntwo\n"
    assert again.texts[0] == "two\n"
    assert (tmp_path / "runs").read_text() == "x"


@aio
async def test_an_interrupt_acts_like_ctrl_c(paths: Paths) -> None:
    script = (
        "import time, sys\ntry:\n  print('begun', flush=True)\n  time.sleep(60)\n"
        "except KeyboardInterrupt:\n  print('stopped'); sys.exit(130)"
    )
    command = RunningCommand(PYTHON, HostCommand(argv=[script]), paths=paths)
    output = Output()

    def put(offset: int, text: str, is_error: bool) -> None:
        output(offset, text, is_error)
        if "begun" in text:
            command.interrupt()

    assert await command.run(put) == 130
    assert output.texts[0] == "begun\nstopped\n"


@aio
async def test_a_second_interrupt_terminates_and_the_exit_code_is_kept(paths: Paths) -> None:
    # It does not pause: a signal that comes right before that would not end the pause.
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print('once', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "print('begun', flush=True)\nwhile True: time.sleep(0.01)"
    )
    for id in ("", "j-command2"):
        command = RunningCommand(PYTHON, HostCommand(argv=[script], id=id), paths=paths)

        def put(offset: int, text: str, is_error: bool, command: Any = command) -> None:
            for _ in text.splitlines():
                command.interrupt()

        assert await command.run(put) == 3


@pytest.mark.parametrize("id", ["", "j-command5"])
@aio
async def test_a_full_disk_is_an_error_before_the_command_starts(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id: str
) -> None:
    def full(path: Path, data: bytes, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(host_commands, "write_whole", full)
    asked = HostCommand(argv=[f"open({str(tmp_path / 'ran')!r}, 'w')"], id=id)
    with pytest.raises(FileFailed, match="No space left"):
        await RunningCommand(PYTHON, asked, paths=paths).run(Output())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("id", ["", "j-command3"])
@aio
async def test_a_command_that_is_interrupted_before_it_starts_is_not_started(
    paths: Paths, tmp_path: Path, id: str
) -> None:
    asked = HostCommand(argv=[f"open({str(tmp_path / 'ran')!r}, 'w')"], id=id)
    for _ in range(2 if id else 1):
        command = RunningCommand(PYTHON, asked, paths=paths)
        command.interrupt()
        assert await command.run(Output()) == 130
    if id:
        # Another connection that asks for it finds it ended.
        assert await RunningCommand(PYTHON, asked, paths=paths).run(Output()) == 130
    assert not (tmp_path / "ran").exists()


@aio
async def test_a_command_that_another_connection_starts_is_waited_for(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = HostCommand(argv=["print('once')"], id="j-command4")
    (paths.state / FOLDER).mkdir(parents=True)
    lock = try_lock(paths.state / FOLDER / "j-command4.lock")
    assert lock is not None
    looked = threading.Event()

    def looking(path: Path) -> Any:
        looked.set()
        return try_lock(path)

    monkeypatch.setattr("dragoman.broker.lock.try_lock", looking)
    output = Output()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(RunningCommand(PYTHON, asked, paths=paths).run(output))
        assert await asyncio.to_thread(looked.wait, 10)
        assert not running.done()
        lock.release()
    assert running.result() == 0 and output.texts[0] == "once\n"


KILLED = """
import asyncio, os, signal, sys
from dragoman.broker.host_protocol import HostCommand
from dragoman.paths import find_paths
from dragoman.runs import host_commands

start = host_commands.start_detached

def start_and_be_killed(*args, **options):
    start(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)

host_commands.start_detached = start_and_be_killed
asked = HostCommand(argv=sys.argv[1:], id="j-command6")
command = host_commands.RunningCommand((sys.executable, "-c"), asked, paths=find_paths())
asyncio.run(command.run(print))
"""
"""A server that is killed right after it has started a command."""


@aio
async def test_a_command_whose_server_is_killed_right_after_starting_it_is_followed_to_its_end(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(paths.state))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # Opened for both, so that opening it never waits for the other side.
    opened = os.open(gate, os.O_RDWR)
    script = f"print('begun', flush=True); open({str(gate)!r}).readline(); print('ended')"
    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", KILLED, script], timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    output = Output()
    asked = HostCommand(argv=[script], id="j-command6")

    def put(offset: int, text: str, is_error: bool) -> None:
        output(offset, text, is_error)
        if "begun" in text:
            os.write(opened, b"go\n")

    try:
        async with asyncio.timeout(60):
            code = await RunningCommand(PYTHON, asked, paths=paths).run(put)
    finally:
        # The command must not outlive a test that fails.
        os.write(opened, b"go\n")
        os.close(opened)
    assert code == 0 and output.texts[0] == "begun\nended\n"


@aio
async def test_a_command_can_be_interrupted_after_its_server_was_killed(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(paths.state))
    script = "import time\nprint('begun', flush=True)\nfor _ in range(1000): time.sleep(0.01)"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", KILLED, script], timeout=60)
    command = RunningCommand(PYTHON, HostCommand(argv=[script], id="j-command6"), paths=paths)

    def put(offset: int, text: str, is_error: bool) -> None:
        if "begun" in text:
            command.interrupt()

    async with asyncio.timeout(60):
        code = await command.run(put)
    # The exit code of Python for a KeyboardInterrupt that is not caught.
    assert code == 130


@aio
async def test_a_disk_that_is_full_after_the_start_does_not_hide_the_command(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = False

    def start_then_full(*args: Any, **options: Any) -> int:
        nonlocal started
        started = True
        return start_detached(*args, **options)

    def write_unless_full(path: Path, data: bytes, **options: Any) -> None:
        if started:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(path, data, **options)

    monkeypatch.setattr(host_commands, "start_detached", start_then_full)
    monkeypatch.setattr(host_commands, "write_whole", write_unless_full)
    output = Output()
    asked = HostCommand(argv=["print('done')"], id="j-command7")
    assert await RunningCommand(PYTHON, asked, paths=paths).run(output) == 0
    assert output.texts[0] == "done\n"


@aio
async def test_a_command_that_could_not_be_started_is_started_by_the_next_request(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    asked = HostCommand(argv=["print('done')"], id="j-command8")
    with monkeypatch.context() as failing:
        failing.setattr(host_commands, "start_detached", fail)
        with pytest.raises(FileFailed) as failed:
            await RunningCommand(PYTHON, asked, paths=paths).run(Output())
    assert not failed.value.may_have_run
    assert await RunningCommand(PYTHON, asked, paths=paths).run(Output()) == 0


@aio
async def test_a_command_that_is_killed_with_its_shell_is_not_started_again(
    paths: Paths, tmp_path: Path
) -> None:
    script = (
        f"import os, signal; open({str(tmp_path / 'runs')!r}, 'a').write('x'); "
        "os.killpg(0, signal.SIGKILL)"
    )
    asked = HostCommand(argv=[script], id="j-command9")
    for _ in range(2):
        async with asyncio.timeout(60):
            assert await RunningCommand(PYTHON, asked, paths=paths).run(Output()) == 137
    assert (tmp_path / "runs").read_text() == "x"


STUBBORN = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal; signal.pause()"
child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL)
print(os.getpid(), child.pid, flush=True)
signal.pause()
"""
"""A command that ignores SIGTERM, as does the process that it has started."""


@aio
async def test_a_command_without_an_id_ends_with_everything_it_started(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_commands, "END_TIMES", ShutdownTimes(terminate_timeout=0.05))
    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    command = RunningCommand(PYTHON, HostCommand(argv=[STUBBORN]), paths=paths)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(command.run(lambda _, text, __: begun.set_result(text)))
        pids = [int(word) for word in (await begun).split()]
        assert all(identify(pid) for pid in pids)
        # Cancelled twice: the connection has ended, and then the process is to end.
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
    assert not any(identify(pid) for pid in pids)
    assert list((paths.state / FOLDER).iterdir()) == []


@aio
async def test_a_command_that_is_killed_says_so_by_its_code(paths: Paths) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    asked = HostCommand(argv=[script])
    assert await RunningCommand(PYTHON, asked, paths=paths).run(Output()) == 137


@aio
async def test_a_directory_that_does_not_exist_is_rejected(paths: Paths) -> None:
    asked = HostCommand(argv=["pass"], cwd="/nowhere/at/all")
    with pytest.raises(UsageError, match="not a directory on the host"):
        await RunningCommand(PYTHON, asked, paths=paths).run(Output())


def test_an_id_that_is_a_path_is_rejected(paths: Paths) -> None:
    with pytest.raises(UsageError, match="not a command id"):
        RunningCommand(PYTHON, HostCommand(argv=[], id="../../x"), paths=paths)


@aio
async def test_a_file_that_cannot_be_removed_does_not_keep_the_others(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def fail(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".out":
            raise PermissionError(errno.EPERM, "not permitted")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(PermissionError):
        await RunningCommand(PYTHON, HostCommand(argv=["pass"]), paths=paths).run(Output())
    assert [each.suffix for each in (paths.state / FOLDER).iterdir()] == [".out"]


@aio
async def test_a_command_that_another_connection_starts_for_too_long_may_have_run(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_commands, "LOCK_TIMEOUT", 0.0)
    folder = paths.state / FOLDER
    folder.mkdir(parents=True)
    with try_lock(folder / "j-slow1.lock") or pytest.fail("the lock is free"):
        command = RunningCommand(PYTHON, HostCommand(argv=["1"], id="j-slow1"), paths=paths)
        with pytest.raises(BrokerError, match="starting this command for more than") as slow:
            await command.run(Output())
    assert slow.value.may_have_run
