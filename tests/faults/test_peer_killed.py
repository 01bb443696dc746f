"""A peer that is killed at any byte of its output, in every dialect: everything settles.

Each peer is a real process. The fixture of this directory finds anything that is left of it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

import pytest

import dragoman
from dragoman.errors import HandshakeFailed, ProcessExited
from dragoman.events.words import Outcome
from dragoman.testing.storyteller import command
from tests.aio import aio
from tests.integration.peers import ENVIRONMENT, WAIT_TIMEOUT
from tests.integration.stories import DIALECTS, WORK
from tests.integration.test_model_choice import CODEX

SIZES = (0, 1, 30, 97, 160, 251, 400, 640, 1000, 1600)
"""Bytes before the kill: in the handshake, while a session is opened, and in the turn."""

CUTS = 4
"""How many random sizes are tried in addition."""

WHOLE = 1_000_000


def peer_of(dialect: str, size: int, counted: Path) -> list[str]:
    program = list(CODEX) if dialect == "codex" else command(WORK, dialect=dialect)
    return [sys.executable, "-m", "tests.faults.cut_output", str(size), str(counted), *program]


async def prompted(dialect: str, size: int, workspace: Path) -> tuple[Outcome, int]:
    """Return how one prompt ends, and how many bytes the peer had sent by then. Raises the error if
    the connection ends before the prompt is sent."""
    counted = workspace / "counted"
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        dragoman.connect(
            peer_of(dialect, size, counted),
            workspace=workspace,
            env=ENVIRONMENT,
            dialect=dialect,
            permit=dragoman.approve_all,
        ) as peer,
        peer.session() as session,
        session.prompt("Tell me.") as turn,
    ):
        seen = [event.seq async for event in turn]
        assert seen == sorted(seen)
        outcome = (await turn.wait()).outcome
        return outcome, int(counted.read_text() or 0)


@pytest.mark.parametrize("dialect", [*DIALECTS, "codex"])
@aio
async def test_a_peer_killed_at_any_byte_settles_every_wait(dialect: str, tmp_path: Path) -> None:
    outcome, whole = await prompted(dialect, WHOLE, tmp_path)
    assert outcome is Outcome.OK
    # The last byte is a newline: a stream that ends without it still has the whole last line.
    before_the_end = whole - 2
    random = Random(dialect)
    sizes = {*SIZES, before_the_end, *(random.randrange(before_the_end) for _ in range(CUTS))}
    ends: list[Outcome | None] = []
    for size in sorted(size for size in sizes if size <= before_the_end):
        try:
            ends.append((await prompted(dialect, size, tmp_path))[0])
        except (HandshakeFailed, ProcessExited):
            ends.append(None)
    assert ends[0] is None
    # A peer that is killed before the end of its response never looks successful.
    assert ends[-1] is Outcome.CRASHED
    assert ends == sorted(ends, key=[None, Outcome.CRASHED].index)
