"""What all shows have: writing in one piece, and a reader that may go away."""

from __future__ import annotations

import io
import os

import pytest

from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.quiet import Quiet
from dragoman.cli.output.renderer import show_as
from dragoman.cli.output.turn_text import TextShow
from tests.aio import aio


class Counting(io.StringIO):
    flushes = 0

    def flush(self) -> None:
        self.flushes += 1
        super().flush()


def test_each_format_has_its_show() -> None:
    assert isinstance(show_as("text", verbose=True), TextShow)
    assert isinstance(show_as("json", strict=True), JsonLines)
    assert isinstance(show_as("quiet"), Quiet)


@aio
async def test_what_one_turn_of_the_loop_writes_leaves_in_one_piece() -> None:
    import asyncio

    out = Counting()
    show = Quiet(out)
    for _ in range(100):
        show.write("x")
    assert out.flushes == 0
    await asyncio.sleep(0)
    assert (out.flushes, len(out.getvalue())) == (1, 100)


def test_without_a_loop_everything_is_flushed_at_once() -> None:
    out = Counting()
    Quiet(out).write("x")
    assert out.flushes == 1


def test_a_reader_that_went_away_is_noticed_once_and_then_nothing_is_written() -> None:
    read, write = os.pipe()
    os.close(read)
    noticed = []
    with os.fdopen(write, "w") as out:
        show = Quiet(out)
        show.on_broken = lambda: noticed.append(show.broken)
        for _ in range(3):
            show.write("x" * 100_000)
            show.flush()
    assert noticed == [True]
    assert show.broken


def test_a_notice_goes_to_stderr_without_power(capsys: pytest.CaptureFixture[str]) -> None:
    Quiet().notice("look \x1b[2J")
    assert capsys.readouterr().err == "dragoman: look ␛[2J\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
def test_a_full_disk_is_told_once_and_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as out:
        show = Quiet(out)
        for _ in range(3):
            show.write("x" * 100_000)
            show.flush()
        assert show.broken and show.lost
    assert capsys.readouterr().err.count("cannot be written") == 1
