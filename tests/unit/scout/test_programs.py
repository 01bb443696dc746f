from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dragoman.errors import ProgramNotFound
from dragoman.scout import programs
from tests.aio import aio

WAIT_TIMEOUT = 20.0


def python(program: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", program]


async def run(
    folder: Path, program: str, *, limit_size: int = 5000, timeout: float = WAIT_TIMEOUT
) -> programs.Ran:
    return await programs.run(
        python(program), cwd=str(folder), limit_size=limit_size, timeout=timeout
    )


@aio
async def test_output_and_code_are_told(tmp_path: Path) -> None:
    ran = await run(tmp_path, "import os, sys; print(os.getcwd()); sys.exit(3)")
    assert ran.output.decode().strip() == str(tmp_path)
    assert (ran.exit_code, ran.cut) == (3, False)


@aio
async def test_a_program_that_writes_too_much_is_ended(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT):
        ran = await run(tmp_path, "while True: print('x' * 1000)")
    assert ran.cut
    assert len(ran.output) == 5000


@aio
async def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    program = "import time; print('begun', flush=True); time.sleep(600)"
    ran = await run(tmp_path, program, timeout=0.3)
    assert (ran.exit_code, ran.cut) == (None, True)


@aio
async def test_a_cancelled_caller_leaves_no_program_behind(tmp_path: Path) -> None:
    pipe = tmp_path / "begun"
    os.mkfifo(pipe)
    program = f"import time; open({str(pipe)!r}, 'w').close(); time.sleep(600)"
    async with asyncio.timeout(WAIT_TIMEOUT), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run(tmp_path, program))
        await asyncio.to_thread(pipe.read_text)
        running.cancel()
    assert running.cancelled()


@aio
async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFound):
        await programs.run(["no-such-program-at-all"], cwd=str(tmp_path), limit_size=1, timeout=1.0)
