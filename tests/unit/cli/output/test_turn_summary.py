"""The last line: what is known, and nothing for what is not."""

from __future__ import annotations

import pytest

from dragoman.cli.output.renderer import TurnReport
from dragoman.cli.output.turn_summary import cost, duration, line, tokens
from dragoman.client.permissions import Denial
from dragoman.client.results import Result
from dragoman.events.parts import Cost, Usage
from dragoman.events.words import Outcome


def report(result: Result, model: str | None = None) -> TurnReport:
    return TurnReport(peer="p", session="s", result=result, seconds=2.04, exit_code=0, model=model)


def test_what_is_not_known_is_left_out() -> None:
    assert line(report(Result(Outcome.OK, "x")), {}) == "ok, 2.0 s"


def test_everything_that_is_known_is_there() -> None:
    usage = Usage(input_tokens=1200, output_tokens=34)
    result = Result(Outcome.DENIED, "", usage=usage, denials=(Denial("t", "W", "edit"),) * 2)
    context = Usage(context_used=500, context_size=1000, cost=Cost(0.0213, "USD"))
    assert line(report(result, "gpt-5"), {"context": context}) == (
        "denied, 2.0 s, gpt-5, 1,200 in + 34 out tokens, context 50 % of 1,000, 0.0213 USD, "
        "2 permissions denied"
    )
    mixed = Result(Outcome.OK, "", denials=(Denial("t", "W", "edit"),), approvals=2)
    assert line(report(mixed), {}) == "ok, 2.0 s, 1 permission denied, 2 approved"


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(), ""),
        (Usage(total_tokens=7), "7 tokens"),
        (Usage(input_tokens=0, total_tokens=7), "0 in tokens"),
        (Usage(output_tokens=1_000_000), "1,000,000 out tokens"),
    ],
)
def test_tokens_are_told_as_they_are_known(usage: Usage, words: str) -> None:
    assert tokens(usage) == words


def test_time_and_money_have_the_digits_that_matter() -> None:
    assert [duration(s) for s in (0.0, 59.94, 60, 3725.4)] == [
        "0.0 s",
        "59.9 s",
        "1 min 0 s",
        "62 min 5 s",
    ]
    assert (cost(Cost(12.3456, "USD")), cost(Cost(0.00012, "EUR"))) == ("12.35 USD", "0.0001 EUR")
