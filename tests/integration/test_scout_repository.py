"""scout finds the right file and line in a large repository, with ripgrep and without it.

The repository is made of random names, a dozen languages and many decoys by `scout_repository`;
scout is a real child process, asked through the client that everybody uses.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dragoman.events.words import Outcome
from tests.aio import aio
from tests.integration.scout_child import find_ripgrep, places, programs, scout
from tests.integration.scout_repository import Asked, Repository, make

FILES = 50_000
QUESTIONS = 50
SEED = 20_240_511

ASKING_TIMEOUT = 200.0
"""Seconds for all questions to one large repository: they take about 20 on a machine at rest."""

needs_ripgrep = pytest.mark.skipif(find_ripgrep() is None, reason="there is no ripgrep here")


@pytest.fixture(scope="module")
def large() -> Iterator[Repository]:
    # Removed at once and not by a later run: it is some hundred megabytes of small files.
    with tempfile.TemporaryDirectory(prefix="dragoman-scout-") as folder:
        yield make(Path(folder), files=FILES, questions=QUESTIONS, seed=SEED)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return make(tmp_path_factory.mktemp("small"), files=1500, questions=QUESTIONS, seed=SEED + 1)


async def wrong_answers(
    repository: Repository, questions: Sequence[Asked], state: Path, path: str
) -> list[str]:
    """Ask them all in one session; what is wrong with the answers."""
    wrong = []
    async with (
        asyncio.timeout(ASKING_TIMEOUT),
        scout(repository.root, state, path=path) as peer,
        peer.session() as session,
    ):
        for asked in questions:
            result = await session.ask(asked.text)
            named = places(result.text)
            right = (
                result.outcome is Outcome.OK
                and set(named) == asked.places
                and (not asked.first or named[0] == asked.first)
            )
            if not right:
                wrong.append(f"{asked}\n{result.outcome}\n{result.text}")
    return wrong


@pytest.mark.timeout(ASKING_TIMEOUT + 40)
@aio
async def test_file_and_line_are_right_for_every_question_about_50000_files(
    large: Repository, tmp_path: Path
) -> None:
    assert len(large.questions) == QUESTIONS
    assert large.files >= FILES
    names = ["rg"] if find_ripgrep() else []
    path = programs(tmp_path / "bin", *names)
    assert await wrong_answers(large, large.questions, tmp_path, path) == []


@needs_ripgrep
@pytest.mark.timeout(ASKING_TIMEOUT + 40)
@aio
async def test_a_large_repository_needs_no_ripgrep(large: Repository, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin")
    assert await wrong_answers(large, large.questions[:10], tmp_path, path) == []


@pytest.mark.parametrize("names", [(), pytest.param(("rg",), marks=needs_ripgrep)])
@aio
async def test_every_question_is_answered_alike_by_either_search(
    names: tuple[str, ...], small: Repository, tmp_path: Path
) -> None:
    path = programs(tmp_path / "bin", *names)
    assert await wrong_answers(small, small.questions, tmp_path, path) == []


@aio
async def test_what_cannot_be_answered_does_not_end_as_a_success(
    small: Repository, tmp_path: Path
) -> None:
    path = programs(tmp_path / "bin")
    async with scout(small.root, tmp_path, path=path) as peer, peer.session() as session:
        for text in ("why is the sky blue?", "fix the bug in file000001.py", "write a poem"):
            result = await session.ask(text)
            assert (result.outcome, result.stop) == (Outcome.REFUSED, "refusal"), result.text
            assert "I cannot answer that" in result.text
            assert "/help" in result.text
        for text in ("where is no_such_name defined?", "who calls no_such_name?", "read none.py"):
            result = await session.ask(text)
            assert result.outcome is Outcome.REFUSED, text
