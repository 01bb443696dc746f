"""A verdict is kept at the attempt that answered, and told to whoever follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.delegation.verdicts import give_verdict
from dragoman.errors import UnknownJob
from dragoman.store.ledger import Ending, Ledger, ledger_path
from tests.unit.delegation.test_journal import ATTEMPT
from tests.unit.runs.contexts import place_in


def test_a_verdict_is_kept_and_told(tmp_path: Path) -> None:
    paths = place_in(tmp_path).paths
    with Ledger.open(ledger_path(paths.state)) as ledger:
        id = ledger.begin("d-1", {}, ATTEMPT)
        ledger.finish(id, Ending(ended_at=6.0, outcome="ok"))
    before = give_verdict("j-1", "bad", paths=paths, now=9.0)
    assert before.verdict is None
    with Ledger.open(ledger_path(paths.state), read_only=True) as ledger:
        (kept,) = ledger.attempts("j-1")
    assert (kept.verdict, kept.verdict_source) == ("bad", "user")
    (line,) = (paths.state / "events.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["event"], told["detail"]) == ("verdict_recorded", "bad, by the user")
    assert give_verdict("j-1", "good", paths=paths).verdict == "bad"


def test_an_attempt_is_judged_as_its_delegation_if_that_ended_with_it(tmp_path: Path) -> None:
    paths = place_in(tmp_path).paths
    with Ledger.open(ledger_path(paths.state)) as ledger:
        for number, outcome in ((1, "crashed"), (2, "ok")):
            attempt = structs.replace(ATTEMPT, number=number)
            id = ledger.begin("d-1", {}, attempt)
            ledger.finish(id, Ending(ended_at=6.0, outcome=outcome))
    assert give_verdict("j-1-2", "good", paths=paths).number == 2
    with pytest.raises(UnknownJob, match="not the attempt that j-1 ended with"):
        give_verdict("j-1-1", "bad", paths=paths)
    with Ledger.open(ledger_path(paths.state), read_only=True) as ledger:
        assert [one.verdict for one in ledger.attempts("j-1")] == [None, "good"]


def test_a_job_that_was_never_delegated_has_no_verdict(tmp_path: Path) -> None:
    paths = place_in(tmp_path).paths
    with pytest.raises(UnknownJob, match="nothing was delegated yet"):
        give_verdict("j-1", "bad", paths=paths)
    assert not paths.state.exists()
    with Ledger.open(ledger_path(paths.state)):
        pass
    with pytest.raises(UnknownJob):
        give_verdict("j-1", "bad", paths=paths)
