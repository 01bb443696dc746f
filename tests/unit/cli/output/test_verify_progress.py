"""The ladder while it is climbed, as lines."""

from __future__ import annotations

import json

import pytest

from dragoman.catalogue.card import RungResult, RungVerdict
from dragoman.cli.output.verify_progress import LadderProgress, card_as_json
from dragoman.cli.shared_options import ListFormat
from tests.unit.runs.contexts import card_of

RUNG = RungResult(
    rung="handshake", verdict=RungVerdict.FAIL, evidence="silent\x1b[2J", remedy="wait"
)


def test_a_rung_is_reported_at_once_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    LadderProgress(ListFormat.TEXT).rung(RUNG)
    out, _ = capsys.readouterr()
    assert out.startswith("FAIL  handshake     silent")
    assert "what to do: wait" in out
    assert "\x1b" not in out


def test_verdicts_have_colours_for_those_who_want_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    LadderProgress(ListFormat.TEXT).rung(RUNG)
    assert capsys.readouterr().out.startswith("\x1b[31mFAIL\x1b[0m  handshake")


def test_a_second_climb_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    progress = LadderProgress(ListFormat.TEXT)
    progress.rung(RUNG)
    progress.rung(RUNG)
    assert capsys.readouterr().err.startswith("It can be used. Repeating")


def test_programs_get_lines_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    progress = LadderProgress(ListFormat.JSON)
    progress.say("a remark")
    progress.rung(RUNG)
    progress.end(card_of("mine"))
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "type": "Rung",
        "rung": "handshake",
        "verdict": "fail",
        "evidence": "silent\x1b[2J",
        "remedy": "wait",
        "seconds": 0.0,
    }
    assert err == ""
    assert card_as_json(card_of("mine"))["peer"] == "mine"


def test_the_quiet_hear_the_end_only(capsys: pytest.CaptureFixture[str]) -> None:
    progress = LadderProgress(ListFormat.QUIET)
    progress.rung(RUNG)
    progress.end(card_of("mine"))
    assert capsys.readouterr().out == "mine 1.2.3: starts, speaks acp; no turn was tried\n"
