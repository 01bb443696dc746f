"""A beginning in words and lines: nothing a peer says reaches the terminal as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dragoman.catalogue.card import RungResult, RungVerdict
from dragoman.cli.output.init_progress import InitOutput, proof_as_json
from dragoman.cli.output.renderer import show_as
from dragoman.cli.shared_options import ListFormat
from dragoman.delegation import Delegation
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.routing import Decision
from dragoman.events.parts import Failure
from dragoman.events.words import Outcome
from dragoman.setup.init import InstalledAgents, VerifiedPeer, first_wish, look
from tests.unit.runs.contexts import card_of, place_in, program


def attempt(peer: str, outcome: Outcome, message: str = "") -> AttemptReport:
    failure = Failure(message=message) if message else None
    return AttemptReport(
        peer=peer, role="review", outcome=outcome, failure=failure, started_at=0.0, ended_at=1.0
    )


def delegated(*attempts: AttemptReport) -> Delegation:
    decision = Decision(
        role="review", tier=None, size="small", candidates=(), passed_over=(), order="fixed", why=""
    )
    return Delegation(job="j-1", decision_id="d-1", decision=decision, attempts=attempts)


def telling_in(format: ListFormat) -> InitOutput:
    return InitOutput(format, show_as(format.value))


@pytest.fixture
def terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks sits at a terminal."""
    monkeypatch.setattr("dragoman.cli.output.init_progress.is_terminal", lambda stream: True)
    monkeypatch.setattr("dragoman.cli.output.init_progress.width_of", lambda stream: 30)


def test_steps_are_numbered_and_names_line_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path, "codex")
    program(tmp_path, "gemini")
    telling = telling_in(ListFormat.TEXT)
    telling.found(look(place_in(tmp_path)))
    telling.verifying(turns=False)
    telling.proof(VerifiedPeer(name="codex", card=card_of("codex"), kept=True))
    telling.proof(VerifiedPeer(name="gemini", card=card_of("gemini", verdict=RungVerdict.WARN)))
    telling.choosing()
    telling.enabled(["codex"], ["codex was enabled already."], "config.toml")
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "1. Installed agents"
    assert out[1] == "   codex   Codex, for execute"
    assert out[2] == "   gemini  Gemini CLI, for research, exploration"
    assert out[3].startswith("   not installed: ") and "codex," not in out[3]
    assert out[4].startswith("2. ") and out[4].endswith("without calling its model")
    proved = "starts, speaks acp; no turn was tried"
    assert out[5] == f"   ok  codex: {proved} (measured on 2026-05-04)"
    assert out[6] == f"   ok  gemini: {proved}"
    assert out[7] == "       note: handshake: it answered"
    assert out[8] == "       more: dragoman peers show gemini"
    assert out[9] == "3. Peers for delegation"
    assert out[10:] == ["   enabled: codex (in config.toml)", "   codex was enabled already."]


def test_what_a_peer_says_is_not_a_command_for_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    telling = telling_in(ListFormat.TEXT)
    telling.proof(VerifiedPeer(name="x", trouble="\x1b[2Jgone\nok  y: verified", cure="\x07ring"))
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out
    assert len(out.splitlines()) == 2 and out.startswith("   no  x: ")
    assert telling.done.failed == ["x"]


def test_one_line_shows_the_progress_of_all_peers(
    terminals: None, capsys: pytest.CaptureFixture[str]
) -> None:
    telling = telling_in(ListFormat.TEXT)
    for name, rung in (("a", "binary"), ("b", "handshake"), ("a", "handshake"), ("a", "session")):
        telling.rung(name, RungResult(rung=rung, verdict=RungVerdict.PASS, evidence=""))
    telling.proof(VerifiedPeer(name="a", card=card_of("a")))
    captured = capsys.readouterr()
    shown = [part for part in captured.err.split("\r") if part.strip()]
    assert shown[0] == "... a: binary"
    assert shown[-1] == "... a: session, b: handshake"
    assert all(len(part) < 30 for part in shown) and "\n" not in captured.err
    # The line is wiped before another is written over it.
    assert captured.err.endswith(" \r")
    assert captured.out.startswith("   ok  a: ")


def test_without_agents_the_output_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    telling_in(ListFormat.TEXT).found(look(place_in(tmp_path)))
    out = capsys.readouterr().out
    assert "npm install -g @openai/codex\n" in out and "auggie" not in out


def test_the_end_says_who_answered_and_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wish = first_wish(place_in(tmp_path), ["copilot"])
    telling = telling_in(ListFormat.TEXT)
    telling.done.installed = telling.done.enabled = ["copilot"]
    telling.ended(delegated(attempt("copilot", Outcome.OK)), wish, None, 0)
    out = capsys.readouterr().out
    assert "It works: copilot answered." in out
    assert "   dragoman explain research\n" in out

    crash = attempt("copilot", Outcome.CRASHED, "it fell over")
    telling.ended(delegated(crash, attempt("scout", Outcome.OK)), wish, crash, 1)
    out = capsys.readouterr().out
    assert "copilot failed: crashed: it fell over\nscout answered instead.\n" in out

    telling.done.enabled = []
    telling.ended(delegated(attempt("scout", Outcome.OK)), wish, None, 10)
    assert "none of your agents is enabled" in capsys.readouterr().out
    telling.ended(delegated(attempt("scout", Outcome.CRASHED)), wish, None, 1)
    assert "dragoman doctor" in capsys.readouterr().out


def test_an_interrupt_tells_what_stays(capsys: pytest.CaptureFixture[str]) -> None:
    telling = telling_in(ListFormat.JSON)
    telling.interrupted(130)
    captured = capsys.readouterr()
    assert "Nothing was changed." in captured.err
    assert json.loads(captured.out)["interrupted"] is True
    telling = telling_in(ListFormat.TEXT)
    telling.done.verified, telling.done.enabled = ["a", "b"], ["b"]
    telling.interrupted(130)
    assert "Saved: a, b verified; b enabled." in capsys.readouterr().err


def test_programs_get_lines_and_the_quiet_the_names_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = card_of("x")
    assert proof_as_json(VerifiedPeer(name="x", card=card, kept=True)) == {
        "type": "Proof",
        "peer": "x",
        "ready": True,
        "version": "1.2.3",
        "kept": True,
        "proved": "starts, speaks acp; no turn was tried",
        "to_know": [],
        "trouble": None,
        "cure": None,
    }
    telling = telling_in(ListFormat.QUIET)
    telling.found(InstalledAgents((), ()))
    telling.proof(VerifiedPeer(name="x", card=card))
    telling.enabled(["x", "y"], ["a note"], "config.toml")
    wish = first_wish(place_in(tmp_path), [])
    telling.ended(delegated(attempt("scout", Outcome.OK)), wish, None, 0)
    assert capsys.readouterr().out == "x\ny\n"
