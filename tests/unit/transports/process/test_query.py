"""A short question to a program: bounded in time and size, and nothing left of it."""

from __future__ import annotations

import sys

import pytest

from dragoman.transports.process import query
from dragoman.transports.process.query import ProgramOutput, ask_program
from tests.aio import aio

GENEROUS = 30.0
TINY = 0.2


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@aio
async def test_what_a_program_says_comes_back_with_its_end() -> None:
    code = "import sys; print('1.2.3'); print('hm', file=sys.stderr); sys.exit(3)"
    assert await ask_program(python(code), timeout=GENEROUS) == ProgramOutput("1.2.3\n", "hm\n", 3)


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
async def test_it_stands_in_an_empty_folder_and_sees_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("X_API_KEY", "secret")
    code = "import os; print(os.listdir('.'), os.environ.get('X_API_KEY'), os.environ.get('Y'))"
    said = await ask_program(python(code), timeout=GENEROUS, env={"Y": "1"})
    assert said is not None and said.output == "[] None 1\n"
