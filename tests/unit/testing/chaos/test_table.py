from __future__ import annotations

from dragoman.catalogue.card import MeasuredFacts, RungVerdict
from dragoman.testing.chaos import faults
from dragoman.testing.chaos.table import TABLE
from dragoman.verify.ladder import RUNGS


def test_the_table_names_only_rungs_fields_and_faults_that_there_are() -> None:
    rungs = {rung.name for rung in RUNGS}
    for row in TABLE:
        assert row.fault in faults.names()
        assert row.rung in rungs
        assert {*row.changes, *row.unknown} <= set(MeasuredFacts.__struct_fields__)
        assert not set(row.changes) & set(row.unknown)


def test_whoever_is_warned_is_told_what_to_do() -> None:
    for row in TABLE:
        assert bool(row.remedy) is (row.verdict is not RungVerdict.PASS), row.fault


def test_a_fault_shows_without_turns_unless_its_rung_takes_some() -> None:
    taking = {rung.name for rung in RUNGS if rung.turns}
    for row in TABLE:
        assert row.turns or row.rung not in taking, row.fault
