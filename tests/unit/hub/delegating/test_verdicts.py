"""A verdict is kept at the attempt that answered, and told to whoever follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dragoman.errors import UnknownJob
from dragoman.hub.delegating.verdicts import give_verdict
from dragoman.hub.ledger import Ending, Ledger, ledger_path
from tests.unit.hub.delegating.test_books import ATTEMPT
from tests.unit.hub.places import place_in


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


def test_a_job_that_was_never_delegated_has_no_verdict(tmp_path: Path) -> None:
    paths = place_in(tmp_path).paths
    with pytest.raises(UnknownJob, match="nothing was delegated yet"):
        give_verdict("j-1", "bad", paths=paths)
    assert not paths.state.exists()
    with Ledger.open(ledger_path(paths.state)):
        pass
    with pytest.raises(UnknownJob):
        give_verdict("j-1", "bad", paths=paths)
