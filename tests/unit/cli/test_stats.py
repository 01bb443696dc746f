"""`dragoman stats` as a user calls it, with a real ledger."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import get_args

import pytest

from dragoman.cli.stats import By
from dragoman.store.ledger import Ledger, ledger_path, records
from tests.unit.cli.calling import Shell
from tests.unit.store.ledger.samples import START, attempt, done, ending


@pytest.fixture
def filled(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(time, "time", lambda: START + 1000)
    state = Path(shell.home / "state_home")
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(state))
    with Ledger.open(ledger_path(state)) as ledger:
        done(ledger, attempt("j-1"), ending(outcome="crashed"))
        done(ledger, attempt("j-1", number=2, peer="gemini"), ending(model="gemini-2.5-pro"))
        done(ledger, attempt("j-2", role="plan", started_at=START + 900))
    return shell


def test_the_ways_to_add_up_are_those_of_the_ledger() -> None:
    assert tuple(by.value for by in By) == get_args(records.By)


def test_who_does_what_well_is_what_is_shown_first(filled: Shell) -> None:
    said = filled("stats")
    head, *rows = said.out.splitlines()
    assert head.split()[:3] == ["role", "peer", "done"]
    assert [row.split()[:5] for row in rows] == [
        ["plan", "codex", "1", "of", "1"],
        ["review", "gemini", "1", "of", "1"],
        ["review", "codex", "0", "of", "1"],
    ]
    assert said.code == 0 and said.err == "2 of 3 attempts done\n"


def test_bars_come_to_a_pipe_only_if_they_are_wanted(filled: Shell) -> None:
    assert "█" not in filled("stats").out and "#" not in filled("stats").out
    assert len(filled("stats", "--chart").out.splitlines()) == 8


def test_lines_of_json_name_what_was_added_up(filled: Shell) -> None:
    lines = [
        json.loads(line)
        for line in filled("stats", "--by", "peer", "--format", "json").out.splitlines()
    ]
    assert [(line["type"], line["by"], line["key"]) for line in lines] == [
        ("Stat", "peer", "codex"),
        ("Stat", "peer", "gemini"),
    ]
    assert lines[0]["costs"] == {"USD": 1.0}


def test_csv_is_for_spreadsheets(filled: Shell) -> None:
    head, *rows = csv.reader(filled("stats", "--by", "model", "--format", "csv").out.splitlines())
    assert head[:2] == ["model", "attempts"]
    assert sorted(row[:2] for row in rows) == [["gemini-2.5-pro", "1"], ["gpt-5", "2"]]


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        (("--since", "5m"), ["plan"]),
        (("--until", "5m"), ["review"]),
        (("--since", "2027-01-01", "--until", "2027-03-01"), ["review", "plan"]),
        (("--since", "2027-03-01"), []),
    ],
)
def test_a_time_is_a_date_or_an_age(
    filled: Shell, words: tuple[str, ...], roles: list[str]
) -> None:
    said = filled("stats", "--by", "role", "--format", "json", *words)
    assert [json.loads(line)["key"] for line in said.out.splitlines()] == roles


def test_a_time_that_is_none_is_refused_with_what_it_could_be(filled: Shell) -> None:
    said = filled("stats", "--since", "yesterday")
    assert said.code == 2
    assert "--since takes a date such as 2026-01-31, or an age" in said.err


def test_where_nothing_was_delegated_nothing_is_made(shell: Shell, tmp_path: Path) -> None:
    said = shell("stats")
    assert (said.code, said.out) == (0, "")
    assert "Nothing was delegated" in said.err
    assert list(tmp_path.rglob("ledger.db")) == []
