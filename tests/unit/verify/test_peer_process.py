from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dragoman.errors import ConnectionLost, ProgramNotFound
from dragoman.testing.scripted import Exit, Expect, GoSilent, SpawnGrandchild, Step, command
from dragoman.transports.base import Stream
from dragoman.transports.listener import listen_unix
from dragoman.transports.process.child import ShutdownTimes
from dragoman.verify.peer_process import PeerProcess, reach, start
from tests.aio import aio

TIMES = ShutdownTimes(exit_timeout=0.2, terminate_timeout=5)
WAIT = 20.0

NOTES_EOF = """
import sys
sys.stdin.read()
open(sys.argv[1], "w").close()
"""


class Ear:
    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.heard.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.over.set()


def running(*steps: Step) -> PeerProcess:
    return start(command(*steps), cwd=Path("/"), env={}, inherit=(), times=TIMES)


@aio
async def test_a_program_that_proved_nothing_is_ended_without_the_end_of_its_input(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "end"
    argv = [sys.executable, "-I", "-c", NOTES_EOF, str(mark)]
    one = start(argv, cwd=tmp_path, env={}, inherit=(), times=TIMES)
    await one.stream.aclose()
    assert not mark.exists()


@aio
async def test_a_program_that_proved_to_be_an_agent_is_ended_politely(tmp_path: Path) -> None:
    mark = tmp_path / "end"
    argv = [sys.executable, "-I", "-c", NOTES_EOF, str(mark)]
    times = ShutdownTimes(exit_timeout=WAIT)
    one = start(argv, cwd=tmp_path, env={}, inherit=(), times=times)
    one.proved()
    await one.stream.aclose()
    assert mark.exists()


@aio
async def test_an_exit_at_the_end_of_the_input_is_seen_with_its_code() -> None:
    one = running(Expect("go"), Exit(7))
    one.stream.start(Ear())
    one.stream.write(b'{"method":"go"}\n')
    ended = await one.end_input(WAIT)
    assert (ended.exited, ended.code, ended.signal, ended.survivors) == (True, 7, None, 0)
    await one.stream.aclose()


@aio
async def test_a_program_that_stays_is_seen_to_stay() -> None:
    one = running(GoSilent())
    one.stream.start(Ear())
    assert (await one.end_input(0.1)).exited is False
    await one.stream.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="only there it can be seen")
@pytest.mark.parametrize("new_session", [True, False])
@aio
async def test_what_is_left_behind_is_counted_before_it_is_killed(new_session: bool) -> None:
    one = running(SpawnGrandchild(new_session=new_session))
    ear = Ear()
    one.stream.start(ear)
    async with asyncio.timeout(WAIT):
        await ear.heard.wait()
    assert (await one.end_input(WAIT)).survivors == 1
    await one.stream.aclose()


@aio
async def test_a_program_that_is_not_there_leaves_no_pipe_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ProgramNotFound):
        start(["no-such-program"], cwd=tmp_path, env={}, inherit=(), times=TIMES)
    assert len(os.listdir("/proc/self/fd")) == before


@aio
async def test_a_peer_behind_an_address_has_no_process(tmp_path: Path) -> None:
    async def serve(stream: Stream) -> None:
        await asyncio.Event().wait()

    path = tmp_path / "socket"
    async with await listen_unix(str(path), serve):
        one = await reach(f"unix:{path}", codex=False)
        assert one.child is None
        assert one.stderr_tail() == ""
        one.proved()
        await one.stream.aclose()
