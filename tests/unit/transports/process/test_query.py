"""A short question to a program: bounded in time and size, and nothing left of it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dragoman.errors import ProgramNotFound
from dragoman.transports.process import query
from dragoman.transports.process.query import ProgramOutput, ask_program, run_program
from tests.aio import aio

GENEROUS = 30.0
TINY = 0.2


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@aio
async def test_what_a_program_says_comes_back_with_its_end() -> None:
    code = "import sys; print('1.2.3'); print('hm', file=sys.stderr); sys.exit(3)"
    assert await ask_program(python(code), timeout=GENEROUS) == ProgramOutput(3, b"1.2.3\n", "hm\n")


@aio
async def test_a_program_that_is_not_there_says_nothing() -> None:
    assert await ask_program(["/nonexistent/program"], timeout=GENEROUS) is None


@aio
async def test_a_program_that_goes_on_is_ended() -> None:
    said = await ask_program(
        python("import sys; print('x', flush=True); sys.stdin.read()"), timeout=TINY
    )
    assert said is not None


@aio
async def test_a_program_that_never_stops_talking_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MAX_ANSWER_SIZE", 1000)
    said = await ask_program(python("while True: print('x' * 1000)"), timeout=GENEROUS)
    assert said is not None and len(said.output) == 1000


@aio
async def test_a_query_runs_in_an_empty_folder_and_sees_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("X_API_KEY", "secret")
    code = "import os; print(os.listdir('.'), os.environ.get('X_API_KEY'), os.environ.get('Y'))"
    said = await ask_program(python(code), timeout=GENEROUS, env={"Y": "1"})
    assert said is not None and said.text == "[] None 1"


async def run(
    folder: Path, program: str, *, limit_size: int = 5000, timeout: float = GENEROUS
) -> ProgramOutput:
    return await run_program(python(program), cwd=folder, limit_size=limit_size, timeout=timeout)


@aio
async def test_output_and_exit_code_are_returned(tmp_path: Path) -> None:
    ran = await run(tmp_path, "import os, sys; print(os.getcwd()); sys.exit(3)")
    assert ran.output.decode().strip() == str(tmp_path)
    assert (ran.exit_code, ran.cut) == (3, False)


@aio
async def test_a_program_that_writes_too_much_is_ended(tmp_path: Path) -> None:
    async with asyncio.timeout(GENEROUS):
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
    async with asyncio.timeout(GENEROUS), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run(tmp_path, program))
        await asyncio.to_thread(pipe.read_text)
        running.cancel()
    assert running.cancelled()


@aio
async def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFound):
        await run_program(["no-such-program-at-all"], cwd=tmp_path, limit_size=1, timeout=1.0)


@aio
async def test_input_larger_than_a_pipe_arrives_whole(tmp_path: Path) -> None:
    code = "import sys; print(len(sys.stdin.buffer.read(3_000_000)))"
    chunks = [b"x" * 1_000_000] * 3
    said = await run_program(
        python(code), cwd=tmp_path, timeout=GENEROUS, limit_size=100, input=chunks
    )
    assert said.ok and said.text == "3000000"


@aio
async def test_a_program_that_ends_before_it_has_read_its_input_says_why(tmp_path: Path) -> None:
    code = "import sys; print('full'); sys.exit(4)"
    said = await run_program(
        python(code), cwd=tmp_path, timeout=GENEROUS, limit_size=100, input=[b"x" * 1_000_000] * 9
    )
    assert (said.exit_code, said.text) == (4, "full")


@aio
async def test_a_program_that_does_not_read_its_input_is_ended(tmp_path: Path) -> None:
    code = "import threading; threading.Event().wait()"
    said = await run_program(
        python(code), cwd=tmp_path, timeout=TINY, limit_size=100, input=[b"x" * 1_000_000] * 9
    )
    assert said.cut and said.exit_code is None
