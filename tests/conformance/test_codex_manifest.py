"""Every requirement of the Codex protocol has tests, and every test has a requirement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from dragoman.testing.conformance.manifest import Requirement
from tests.conformance.places import is_test, names_in
from tests.conformance.reference import codex_requirements

REQUIREMENTS = codex_requirements()

FILES = (
    "tests/conformance/test_codex_connection.py",
    "tests/conformance/test_codex_requests.py",
    "tests/conformance/test_codex_turns.py",
    "tests/integration/test_codex_replay.py",
    "tests/peers/test_codex_conversations.py",
    "tests/peers/test_codex_schema.py",
)
"""The files that contain only tests of the protocol."""

ABOUT_RECORDINGS = {
    "tests/integration/test_codex_replay.py::test_every_scenario_is_recorded_and_every_recording_is_played",
    "tests/integration/test_codex_replay.py::test_a_recording_holds_no_path_of_the_machine_that_made_it",
}
"""Tests of the recordings, which prove no requirement."""


def proofs_of(requirement: Requirement) -> Sequence[str]:
    return requirement.proofs["client"].tests


@pytest.mark.parametrize("requirement", REQUIREMENTS.values(), ids=REQUIREMENTS)
def test_a_requirement_has_tests_or_is_not_claimed(requirement: Requirement) -> None:
    tests = proofs_of(requirement)
    assert [test for test in tests if not is_test(test)] == [], "these tests do not exist"
    assert len(set(tests)) == len(tests)
    assert bool(tests) != bool(requirement.proofs["client"].not_claimed)


@pytest.mark.parametrize("requirement", REQUIREMENTS.values(), ids=REQUIREMENTS)
def test_a_requirement_is_proved_without_the_real_program_unless_it_is_about_it(
    requirement: Requirement,
) -> None:
    tests = proofs_of(requirement)
    about_the_program = requirement.id.startswith("CDX-SCH-")
    assert about_the_program or not tests or any("/peers/" not in test for test in tests)


@pytest.mark.parametrize("path", FILES)
def test_every_test_of_the_protocol_has_a_requirement(path: str) -> None:
    named = {test for requirement in REQUIREMENTS.values() for test in proofs_of(requirement)}
    there = {f"{path}::{name}" for name in names_in(path)}
    assert there - named - ABOUT_RECORDINGS == set()


def test_requirements_have_sentences_of_their_own_and_numbers_without_a_gap() -> None:
    sentences = [requirement.says for requirement in REQUIREMENTS.values()]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)
    numbers: dict[str, list[int]] = defaultdict(list)
    for requirement in REQUIREMENTS.values():
        protocol, chapter, number = requirement.id.split("-")
        assert (protocol, requirement.sides) == ("CDX", ("client",))
        numbers[chapter].append(int(number))
    for chapter, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), chapter
