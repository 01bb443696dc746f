"""The manifest is read strictly, and every level has its weight."""

from __future__ import annotations

import pytest

from dragoman.testing.conformance.manifest import (
    DEMANDED,
    LEVELS,
    PROVED,
    parse,
    requirements,
    strictest,
)

ENTRY = '[A-1]\nside = "both"\nlevel = "MUST"\nsays = "It is so."\n'


def test_an_entry_has_a_proof_for_each_of_its_sides() -> None:
    entry = parse(ENTRY + 'agent = ["tests/a.py::test_b"]\nclient = "nobody asked"\n')["A-1"]
    assert entry.sides == ("agent", "client")
    assert entry.proofs["agent"].tests == ("tests/a.py::test_b",)
    assert entry.proofs["client"].not_claimed == "nobody asked"
    assert entry.demanded


@pytest.mark.parametrize(
    "text",
    [
        ENTRY.replace("MUST", "OUGHT"),
        ENTRY.replace("both", "neither"),
        ENTRY + 'server = "?"\n',
        ENTRY.replace("both", "agent") + 'client = "?"\n',
    ],
)
def test_an_entry_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="A-1"):
        parse(text)


def test_the_strictest_level_counts() -> None:
    assert strictest(["ACP1-TRN-09", "ACP1-TRN-01"]) == "MUST"
    assert strictest(["ACP1-EXT-05", "ACP1-RCAN-04"]) == "SHOULD"


def test_every_level_is_known_and_demands_are_a_part_of_them() -> None:
    assert {entry.level for entry in requirements().values()} <= set(LEVELS)
    assert set(LEVELS) >= DEMANDED
    assert set(LEVELS) >= PROVED
