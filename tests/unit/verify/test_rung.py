from __future__ import annotations

from dragoman.catalogue.card import RungVerdict
from dragoman.verify.rung import (
    MAX_EVIDENCE,
    MAX_WORD,
    MAX_WORDS,
    failed,
    one_line,
    passed,
    skipped,
    warned,
    words,
)


def test_a_finding_carries_its_verdict_its_evidence_and_the_facts_it_measured() -> None:
    found = warned("it wrote", "take care", asks_permission=False)
    assert found.verdict is RungVerdict.WARN
    assert (found.evidence, found.remedy) == ("it wrote", "take care")
    assert found.facts == {"asks_permission": False}


def test_each_verdict_has_a_short_way() -> None:
    assert passed("a").verdict is RungVerdict.PASS
    assert failed("a", "b").verdict is RungVerdict.FAIL
    assert skipped("a").verdict is RungVerdict.SKIPPED
    assert skipped("a").facts == {}


def test_no_text_of_a_peer_has_a_second_line_or_no_end() -> None:
    assert one_line("a\nok    permission\r\n\u2028it asks") == "a ok permission it asks"
    assert one_line("x" * MAX_EVIDENCE) == "x" * MAX_EVIDENCE
    for text in ("x" * (MAX_EVIDENCE + 1), "x" * 10_000_000):
        assert one_line(text) == "x" * (MAX_EVIDENCE - 1) + "…"
    assert one_line(" " * 10_000_000) == "…"


def test_the_words_of_a_peer_are_few_and_short_enough_for_a_card() -> None:
    assert words(["gemini-pro", "a\nb"]) == ("gemini-pro", "a b")
    kept = words("m" * 1000 for _ in range(10 * MAX_WORDS))
    assert len(kept) == MAX_WORDS
    assert {len(word) for word in kept} == {MAX_WORD}
