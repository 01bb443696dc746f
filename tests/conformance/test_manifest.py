"""Every requirement and recommendation of the protocol has a proof, or a reason why it has none."""

from __future__ import annotations

import functools
from collections import defaultdict

import pytest

from dragoman.testing.conformance import agents, client_checks, requirements
from dragoman.testing.conformance.checks import Check
from dragoman.testing.conformance.manifest import PROVED, Requirement, Side
from tests.conformance.places import is_test

CHECKS: list[Check] = [check.check for check in agents.ALL] + list(client_checks.CHECKS.values())


@functools.cache
def by_requirement() -> dict[tuple[str, str], list[str]]:
    """The names of the checks for a requirement and a side."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for check in CHECKS:
        for id in check.ids:
            found[id, check.side].append(check.name)
    return found


PAIRS = [
    pytest.param(requirement, side, id=f"{requirement.id}-{side}")
    for requirement in requirements().values()
    for side in requirement.sides
]


@pytest.mark.parametrize(("requirement", "side"), PAIRS)
def test_a_requirement_is_proved_or_not_claimed(requirement: Requirement, side: Side) -> None:
    proof = requirement.proofs[side]
    checks = by_requirement()[requirement.id, side]
    assert [test for test in proof.tests if not is_test(test)] == [], "these tests do not exist"
    if requirement.level in PROVED:
        assert checks or proof.tests or proof.not_claimed, "there is no proof and no reason"
    assert not (proof.not_claimed and (checks or proof.tests)), "there is a proof and a reason"


def test_every_requirement_has_a_sentence_of_its_own() -> None:
    sentences = [requirement.says for requirement in requirements().values()]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)


def test_the_chapters_of_the_protocol_are_complete_and_numbered_without_a_gap() -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for id in requirements():
        protocol, chapter, number = id.split("-")
        assert protocol == "ACP1"
        numbers[chapter].append(int(number))
    for chapter, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), chapter
    assert len(requirements()) == 227


def test_every_requirement_that_a_check_names_exists() -> None:
    named = {id for check in CHECKS for id in check.ids}
    assert named <= requirements().keys()
