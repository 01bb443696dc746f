"""The slash commands of the door."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.acp_server import commands
from dragoman.errors import UnknownRole, UsageError
from dragoman.events.parts import SlashCommand
from dragoman.redaction.redactor import Redactor
from dragoman.store.ledger import AttemptRecord, Ending, Ledger, ledger_path
from tests.unit.runs.contexts import place_in


def test_a_command_of_ours_hides_one_of_the_peer_that_is_called_the_same() -> None:
    told = commands.available(
        [SlashCommand("stats", "theirs"), SlashCommand("init", "theirs", "what")]
    )
    assert [one.name for one in told] == ["peers", "delegate", "explain", "stats", "init"]
    assert told[3].description != "theirs"
    assert told[4].input is not None and told[4].input.hint == "what"


@pytest.mark.parametrize("text", ["", "review", "juggle five balls", "review   "])
def test_what_is_not_a_role_and_a_piece_of_work_is_refused_with_the_roles(text: str) -> None:
    with pytest.raises(UsageError, match="the roles are review, write"):
        commands.role_and_work(text, ["review", "write"])


def test_a_role_and_a_piece_of_work_are_distinguished() -> None:
    assert commands.role_and_work("review  all of it ", ["review"]) == ("review", "all of it")


def test_peers_that_can_be_used_stand_first(tmp_path: Path) -> None:
    lines = commands.peers_text(place_in(tmp_path)).splitlines()
    assert lines[0].startswith("| peer | enabled |")
    assert lines[2].startswith("| scout | yes | installed |")
    assert any("| gemini | no | not installed: " in line for line in lines)


def test_an_explanation_names_the_chosen_peer_and_why_no_other(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    told = commands.explain_text(place, " exploration ", tmp_path)
    assert "1. scout" in told and "passed over:" in told
    with pytest.raises(UnknownRole):
        commands.explain_text(place, "juggle", tmp_path)
    with pytest.raises(UsageError, match="/explain ROLE"):
        commands.explain_text(place, "", tmp_path)


def test_stats_tell_each_role_with_each_peer(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    assert commands.stats_text(place) == "Nothing has been delegated yet."
    with Ledger.open(ledger_path(place.paths.state), Redactor()) as ledger:
        attempt = AttemptRecord(
            job="j-1", decision_id="d-1", number=1, peer="scout", role="review", started_at=1.0
        )
        number = ledger.begin("d-1", {}, attempt)
        ledger.finish(number, Ending(ended_at=3.0, outcome="ok"))
    told = commands.stats_text(place)
    assert "| review | scout | 1 of 1 |" in told


def test_a_cell_cannot_break_its_table() -> None:
    assert commands.table(["a"], [["x|y\nz"]]).splitlines()[-1] == "| x\\|y z |"
