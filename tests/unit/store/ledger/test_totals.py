"""What was spent, and how it went."""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

import pytest

from dragoman.store.ledger import Ledger, Spent, Tokens
from dragoman.store.ledger.records import By
from dragoman.store.values import UNKNOWN, Charge, Provenance
from tests.unit.store.ledger.samples import START, attempt, done, ending, new_ledger

CREDITS = Charge(amount=3.0, currency="credits", provenance=Provenance.REPORTED)
GUESSED = Charge(amount=0.25, currency="USD", provenance=Provenance.ESTIMATED)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two peers, three jobs, of which one fell back and one runs."""
    ledger = new_ledger(tmp_path)
    done(
        ledger,
        attempt("j-1"),
        ending(outcome="crashed", tokens=Tokens(), cost=UNKNOWN, first_event_at=None),
    )
    done(ledger, attempt("j-1", number=2, peer="gemini"), ending(model="gemini-2.5-pro"))
    done(ledger, attempt("j-2", role="plan"), ending(cost=CREDITS))
    done(ledger, attempt("j-3", started_at=START + 86_400), ending(ended_at=START + 86_402,
         first_event_at=START + 86_401, cost=GUESSED))  # fmt: skip
    ledger.begin("d-1", {}, attempt("j-4", started_at=START + 86_400))
    ledger.verdict("j-1", "good")
    ledger.verdict("j-2", "bad")
    return ledger


def test_sums_by_peer_count_every_attempt_once_and_keep_unknown_apart(ledger: Ledger) -> None:
    with ledger:
        codex, gemini = ledger.stats("peer")
    assert (codex.key, codex.attempts, codex.ok, codex.unfinished) == ("codex", 4, 2, 1)
    assert (codex.fallbacks, codex.good, codex.bad) == (0, 0, 1)
    assert codex.costs == {"USD": 0.25, "credits": 3.0}
    assert (codex.cost_unknown, codex.cost_estimated, codex.tokens_unknown) == (1, 1, 1)
    assert (codex.input_tokens, codex.output_tokens) == (200, 40)
    assert codex.seconds == pytest.approx((4 + 4 + 2) / 3)
    assert codex.first_event_seconds == 1.0
    assert (gemini.key, gemini.attempts, gemini.fallbacks, gemini.good) == ("gemini", 1, 1, 1)
    assert gemini.costs == {"USD": 0.5}


def test_attempts_are_summed_by_role_and_by_model(ledger: Ledger) -> None:
    with ledger:
        assert {row.key: row.attempts for row in ledger.stats("role")} == {"review": 4, "plan": 1}
        # The attempt that runs has not told its model.
        assert {row.key: row.attempts for row in ledger.stats("model")} == {
            **{"gpt-5": 3, "gemini-2.5-pro": 1, None: 1},
        }


def test_days_are_those_of_the_clock_of_this_machine_and_come_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # START is 08:00 in UTC, which is still the day before in Honolulu.
    monkeypatch.setenv("TZ", "Pacific/Honolulu")
    time.tzset()
    try:
        with new_ledger(tmp_path) as ledger:
            done(ledger, attempt("j-2", started_at=START + 10_800))
            done(ledger, attempt("j-1"))
            done(ledger, attempt("j-3", started_at=START + 3600))
            days = [(row.key, row.attempts) for row in ledger.stats("day")]
            # Whatever day it was called, the time decides.
            assert ledger.spent(None, START).turns == 3
            assert ledger.stats("day", since=START, until=START + 1)[0].attempts == 1
    finally:
        monkeypatch.undo()
        time.tzset()
    assert days == [("2027-01-14", 2), ("2027-01-15", 1)]


@pytest.mark.parametrize("at", [-1e300, 1e300, -1e11, 1e11])
def test_a_time_beyond_every_calendar_is_only_early_or_late(ledger: Ledger, at: float) -> None:
    with ledger:
        assert ledger.spent(None, at).turns == (5 if at < 0 else 0)
        assert bool(ledger.stats("role", since=at)) == (at < 0)
        assert bool(ledger.stats("role", until=at)) == (at > 0)


def test_a_time_has_its_beginning_and_not_its_end(ledger: Ledger) -> None:
    with ledger:

        def count(since: float | None, until: float | None) -> int:
            return sum(row.attempts for row in ledger.stats("role", since=since, until=until))

        assert count(None, None) == 5
        assert count(START, START + 86_400) == 3
        assert count(START + 86_400, None) == 2
        assert count(None, START) == 0


def test_of_an_empty_ledger_there_are_no_sums(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "none.db", read_only=True) as ledger:
        assert [ledger.stats(by) for by in get_args(By)] == [[]] * len(get_args(By))
        assert ledger.spent(None, 0) == Spent()


def test_what_was_spent_counts_money_apart_from_other_units(ledger: Ledger) -> None:
    with ledger:
        everyone = ledger.spent(None, START)
        codex = ledger.spent("codex", START)
        later = ledger.spent("codex", START + 1)
        nobody = ledger.spent("qwen", START)
    assert (everyone.turns, everyone.tokens, everyone.seconds) == (5, 360, 14.0)
    assert (everyone.cost, everyone.other_costs) == (0.75, {"credits": 3.0})
    # One failed without telling, and one still runs: both may cost something.
    assert (everyone.cost_unknown, everyone.tokens_unknown) == (2, 2)
    assert (codex.turns, codex.cost) == (4, 0.25)
    assert (later.turns, later.other_costs) == (2, {})
    assert nobody == Spent()


@pytest.mark.parametrize("by", get_args(By))
def test_rows_add_up_to_what_is_in_the_table(ledger: Ledger, by: By) -> None:
    with ledger:
        rows = ledger.stats(by)
    assert sum(row.attempts for row in rows) == 5
    assert sum(sum(row.costs.values()) for row in rows) == 3.75


def test_sums_by_machine_and_by_work_keep_machines_apart(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        done(ledger, attempt("j-1"))
        done(ledger, attempt("j-2", peer="codex@box", machine="box"))
        done(ledger, attempt("j-3", machine="worker-3"))
        machines = {row.key: (row.machine, row.attempts) for row in ledger.stats("machine")}
        work = [(row.key, row.peer, row.machine) for row in ledger.stats("work")]
        assert [row.machine for row in ledger.stats("peer")] == [None, None]
    assert machines == {None: (None, 1), "box": ("box", 1), "worker-3": ("worker-3", 1)}
    assert sorted(work, key=str) == [
        ("review", "codex", "worker-3"),
        ("review", "codex", None),
        ("review", "codex@box", "box"),
    ]
