"""What all shows have: writing in one piece, and a reader that may go away."""

from __future__ import annotations

import errno
import io
import os
import sys

import pytest

from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.quiet import Quiet
from dragoman.cli.output.renderer import (
    MAX_STDERR_LINE_SIZE,
    StderrLines,
    TurnReport,
    cost,
    duration,
    show_as,
    summary,
    tokens,
)
from dragoman.cli.output.turn_text import TextShow
from dragoman.client.permissions import Denial
from dragoman.client.results import Result
from dragoman.events.parts import Cost, Usage
from dragoman.events.words import Outcome
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
def test_a_full_disk_is_reported_once_and_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as out:
        show = Quiet(out)
        for _ in range(3):
            show.write("x" * 100_000)
            show.flush()
        assert show.broken and show.lost
    assert capsys.readouterr().err.count("cannot be written") == 1


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_for_stderr_too_still_ends_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(sys, "stderr", Full())
    show = Quiet(Full())
    show.on_broken = lambda: ended.append(show.lost)
    show.write("x")
    assert ended == [True]


def test_stderr_is_split_into_lines_and_one_without_an_end_comes_in_pieces() -> None:
    lines = StderrLines()
    assert lines.feed(b"one\ntw") == ["one"]
    assert lines.feed(b"o\r\n") == ["two\r"]
    assert lines.feed(b"x" * MAX_STDERR_LINE_SIZE) == []
    assert lines.feed(b"x") == ["x" * (MAX_STDERR_LINE_SIZE + 1)]
    assert lines.feed(b"next\nla") == ["next"]
    assert lines.feed(b"st") == []
    assert (lines.end(), lines.end()) == (["last"], [])


def report_of(result: Result, model: str | None = None) -> TurnReport:
    return TurnReport(peer="p", session="s", result=result, seconds=2.04, exit_code=0, model=model)


def test_values_that_are_not_known_are_left_out_of_the_summary() -> None:
    assert summary(report_of(Result(Outcome.OK, "x")), {}) == "ok, 2.0 s"


def test_the_summary_has_every_value_that_is_known() -> None:
    usage = Usage(input_tokens=1200, output_tokens=34)
    result = Result(Outcome.DENIED, "", usage=usage, denials=(Denial("t", "W", "edit"),) * 2)
    context = Usage(context_used=500, context_size=1000, cost=Cost(0.0213, "USD"))
    assert summary(report_of(result, "gpt-5"), {"context": context}) == (
        "denied, 2.0 s, gpt-5, 1,200 in + 34 out tokens, context 50 % of 1,000, 0.0213 USD, "
        "2 permissions denied"
    )
    mixed = Result(Outcome.OK, "", denials=(Denial("t", "W", "edit"),), approvals=2)
    assert summary(report_of(mixed), {}) == "ok, 2.0 s, 1 permission denied, 2 approved"


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(), ""),
        (Usage(total_tokens=7), "7 tokens"),
        (Usage(input_tokens=0, total_tokens=7), "0 in tokens"),
        (Usage(output_tokens=1_000_000), "1,000,000 out tokens"),
    ],
)
def test_only_known_token_counts_are_shown(usage: Usage, words: str) -> None:
    assert tokens(usage) == words


def test_time_and_money_have_the_digits_that_matter() -> None:
    assert [duration(s) for s in (0.0, 59.94, 60, 3725.4)] == [
        "0.0 s",
        "59.9 s",
        "1 min 0 s",
        "62 min 5 s",
    ]
    assert (cost(Cost(12.3456, "USD")), cost(Cost(0.00012, "EUR"))) == ("12.35 USD", "0.0001 EUR")
    assert cost(Cost(0.0, "USD")) == "0 USD"
