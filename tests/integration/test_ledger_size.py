"""A large ledger: sums read one index, and no more of it than the time that is asked about.

Not the clock but SQLite's own count of its work is compared: steps of its machine per attempt, and
the plan that it made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

from dragoman.store.ledger import Ledger, StatRow
from dragoman.store.ledger.attempt_table import day_of
from dragoman.store.ledger.records import By
from tests.unit.store.ledger.samples import START

ATTEMPTS = 200_000
A_DAY = 24 * 60
"""Attempts of a day: one begins every minute."""
STEP = 1000
"""Steps of SQLite's machine between two calls of whoever counts them."""

MOST_STEPS = 100
"""Steps for one attempt in a sum: it takes about seventy-five."""

PEERS = ("codex", "gemini", "qwen", "copilot")
ROLES = ("review", "research", "execute", "plan", "write")
MODELS = ("gpt-5", "gemini-2.5-pro", None)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    path: Path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    with Ledger.open(path) as ledger:
        with ledger.transaction() as connection:
            connection.execute("INSERT INTO decisions (id, at, data) VALUES ('d-1', 0, '{}')")
            connection.executemany(
                "INSERT INTO attempts (job, decision_id, number, peer, role, model, runtime_role,"
                " reason, started_at, ended_at, outcome, input_tokens, output_tokens,"
                " total_tokens, tokens_provenance, cost, currency, cost_provenance, runner, day)"
                " VALUES (?, 'd-1', 1, ?, ?, ?, 'peer', 'it claims the role', ?, ?, ?, 100, 20,"
                " 120, 'reported', 0.5, 'USD', 'derived', '{}', ?)",
                (
                    (
                        f"j-{number}",
                        PEERS[number % 4],
                        ROLES[number % 5],
                        MODELS[number % 3],
                        START + number * 60,
                        START + number * 60 + 5,
                        "crashed" if number % 10 == 0 else "ok",
                        day_of(START + number * 60),
                    )
                    for number in range(ATTEMPTS)
                ),
            )
        yield ledger


def steps(ledger: Ledger, ask: Callable[[], object]) -> int:
    """How many steps SQLite's machine makes for a question, in whole thousands."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    ledger._connection.set_progress_handler(step, STEP)
    try:
        ask()
    finally:
        ledger._connection.set_progress_handler(None, STEP)
    return count * STEP


@pytest.mark.parametrize("by", get_args(By))
def test_sums_of_everything_touch_each_attempt_once_and_never_the_table(
    ledger: Ledger, by: By
) -> None:
    said: list[str] = []
    found: list[StatRow] = []
    ledger._connection.set_trace_callback(said.append)
    taken = steps(ledger, lambda: found.extend(ledger.stats(by, since=0.0, until=2 * START)))
    ledger._connection.set_trace_callback(None)
    assert sum(row.attempts for row in found) == ATTEMPTS
    assert taken < MOST_STEPS * ATTEMPTS
    (statement,) = said
    plan = [row[3] for row in ledger._connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    inner, found_by, outer, sorted_by = plan
    assert inner.startswith("CO-ROUTINE")
    # Nothing is sorted before it was added up.
    assert found_by.startswith("SEARCH attempts USING COVERING INDEX attempts_summed (day>?")
    assert outer.startswith("SCAN")
    assert sorted_by == "USE TEMP B-TREE FOR GROUP BY"


def test_sums_of_a_short_time_do_not_read_the_rest(ledger: Ledger) -> None:
    since = START + (ATTEMPTS - 1000) * 60
    assert sum(row.attempts for row in ledger.stats("peer", since=since)) == 1000
    # The days before it are looked at, too, since nobody knows by which clock they were named.
    most = MOST_STEPS * (1000 + 3 * A_DAY)
    assert steps(ledger, lambda: ledger.stats("peer", since=since)) < most
    assert ledger.spent("codex", since).turns == 250
    assert steps(ledger, lambda: ledger.spent("codex", since)) < most


def test_what_is_asked_for_every_turn_does_not_grow_with_the_ledger(ledger: Ledger) -> None:
    assert steps(ledger, lambda: ledger.attempts("j-150000")) <= STEP
    assert steps(ledger, lambda: ledger.end_orphans(lambda _: True, lambda attempt: None)) <= STEP
