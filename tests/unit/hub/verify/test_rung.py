from __future__ import annotations

from dragoman.hub.verify.card import Verdict
from dragoman.hub.verify.rung import failed, passed, skipped, warned


def test_a_finding_carries_its_verdict_its_evidence_and_the_facts_it_measured() -> None:
    found = warned("it wrote", "take care", asks_permission=False)
    assert found.verdict is Verdict.WARN
    assert (found.evidence, found.remedy) == ("it wrote", "take care")
    assert found.facts == {"asks_permission": False}


def test_each_verdict_has_a_short_way() -> None:
    assert passed("a").verdict is Verdict.PASS
    assert failed("a", "b").verdict is Verdict.FAIL
    assert skipped("a").verdict is Verdict.SKIPPED
    assert skipped("a").facts == {}
