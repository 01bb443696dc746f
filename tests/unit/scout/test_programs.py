from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from dragoman.errors import ProgramNotFound
from dragoman.scout import programs
from tests.aio import aio

WAIT_TIMEOUT = 20.0


def python(program: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", program]


@aio
async def test_output_code_and_complaint_are_told(tmp_path: Path) -> None:
    program = "import os, sys; print(os.getcwd()); sys.stderr.write('oh'); sys.exit(3)"
    ran, output = await programs.collect(python(program), cwd=str(tmp_path), limit_size=1000)
    assert output.decode().strip() == str(tmp_path)
    assert (ran.exit_code, ran.complaint, ran.cut) == (3, "oh", False)


@aio
async def test_a_program_is_ended_when_enough_was_seen(tmp_path: Path) -> None:
    program = "while True: print('x' * 1000)"
    async with asyncio.timeout(WAIT_TIMEOUT):
        ran, output = await programs.collect(python(program), cwd=str(tmp_path), limit_size=5000)
    assert ran.cut
    assert len(output) == 5000


@aio
async def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    program = "import time; print('begun', flush=True); time.sleep(600)"
    ran = await programs.run(
        python(program), cwd=str(tmp_path), on_output=lambda data: True, timeout=0.3
    )
    assert (ran.exit_code, ran.cut) == (None, True)


@aio
async def test_a_cancelled_caller_leaves_no_program_behind(tmp_path: Path) -> None:
    begun = asyncio.Event()

    def heard(data: bytes) -> bool:
        begun.set()
        return True

    program = "import time; print('begun', flush=True); time.sleep(600)"
    async with asyncio.timeout(WAIT_TIMEOUT), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(
            programs.run(python(program), cwd=str(tmp_path), on_output=heard)
        )
        await begun.wait()
        running.cancel()
    assert running.cancelled()


@aio
async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFound):
        await programs.collect(["no-such-program-at-all"], cwd=str(tmp_path), limit_size=1)
