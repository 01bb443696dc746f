"""`dragoman peers` as a user calls it, with a ladder that is only played."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue.card import Card, CardStore, RungResult, RungVerdict
from dragoman.catalogue.launch import LaunchSpec
from dragoman.cli.output import questions, terminal
from dragoman.setup import add_peer
from tests.unit.cli.calling import Shell
from tests.unit.runs.contexts import card_of


class Ladder:
    """Stands for the real one: tells of one rung and gives the card it was told to give."""

    def __init__(self, *, usable: bool = True) -> None:
        self.usable = usable
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, way: LaunchSpec, **options: Any) -> Card:
        self.calls.append({"way": way, **options})
        verdict = RungVerdict.PASS if self.usable else RungVerdict.FAIL
        on_rung: Callable[[RungResult], None] = options["on_rung"]
        on_rung(
            RungResult(rung="handshake", verdict=verdict, evidence="as it went", remedy="mend it")
        )
        return card_of(options["peer"], usable=self.usable, turns=options["turns"], verdict=verdict)


@pytest.fixture
def ladder(monkeypatch: pytest.MonkeyPatch) -> Ladder:
    played = Ladder()
    defaults = add_peer.measure.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "climb", played)
    return played


# -- looking


def test_the_list_has_a_row_for_every_peer(shell: Shell) -> None:
    said = shell("peers")
    head, *rows = said.out.splitlines()
    assert head.split() == [
        *("peer", "installed", "enabled", "version", "protocol", "roles", "card", "notes"),
    ]
    assert {row.split()[0] for row in rows} >= {"codex", "gemini", "qwen", "copilot", "scout"}
    assert said.err == ""


def test_the_list_for_programs_has_one_object_a_line(shell: Shell) -> None:
    rows = [json.loads(line) for line in shell("peers", "--format", "json").out.splitlines()]
    (scout,) = [row for row in rows if row["name"] == "scout"]
    assert scout["type"] == "Peer"
    assert scout["installed"] is True and scout["enabled"] is True
    assert "scout" in shell("peers", "--format", "quiet").out.splitlines()


@pytest.mark.parametrize("format", ["text", "json", "quiet"])
def test_the_list_may_be_asked_for_by_its_name(shell: Shell, format: str) -> None:
    named, unnamed = (shell("peers", *word, "--format", format) for word in (("list",), ()))
    assert (named.code, named.out, named.err) == (0, unnamed.out, unnamed.err)
    assert "scout" in named.out


def test_what_was_left_out_of_the_list_is_reported(shell: Shell) -> None:
    (shell.config / "peers").mkdir(parents=True)
    (shell.config / "peers" / "x.toml").write_text("nonsense = 1\n")
    (shell.cwd / "dragoman.toml").write_text('permissions = "approve-all"\n')
    said = shell("peers")
    assert said.code == 0
    assert "skipped:" in said.err and "x.toml" in said.err
    assert "permissions is ignored" in said.err


def test_one_peer_is_shown_with_its_card(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "never-shown")
    said = shell("peers", "show", "gemini")
    assert said.out.startswith("Gemini CLI (gemini)\n")
    assert "GEMINI_API_KEY (set)" in said.out
    assert "never-shown" not in said.out
    assert "`dragoman peers verify gemini` measures it" in said.out
    CardStore(shell.data / "cards").save(card_of("gemini"))
    assert "ok    handshake     it answered" in shell("peers", "show", "gemini").out
    told = json.loads(shell("peers", "show", "gemini", "--format", "json").out)
    assert told["card"]["facts"]["dialect"] == "acp"
    assert told["descriptor"]["name"] == "gemini"
    assert told["credentials_set"] == ["GEMINI_API_KEY"]


def test_an_unknown_peer_is_wrong_usage_with_the_nearest_name(shell: Shell) -> None:
    said = shell("peers", "show", "gemni")
    assert said.code == 2
    assert "did you mean gemini" in said.err


# -- verifying


def test_a_peer_is_verified_by_name_and_its_card_is_kept(shell: Shell, ladder: Ladder) -> None:
    said = shell("peers", "verify", "scout")
    assert said.code == 0
    assert said.out.splitlines() == [
        "ok    handshake     as it went",
        "scout 1.2.3: starts, speaks acp; no turn was tried",
    ]
    (call,) = ladder.calls
    assert call["paths"] is not None and call["careful"] is False and call["turns"] is False


def test_a_program_is_verified_carefully_and_its_card_is_not_kept(
    shell: Shell, ladder: Ladder
) -> None:
    said = shell("peers", "verify", "--turns", "--timeout", "5", "--", "my-agent", "--turns")
    assert said.code == 0
    first, second = ladder.calls
    assert first["way"].command == ("my-agent", "--turns")
    assert (first["careful"], first["turns"]) == (True, False)
    assert (second["careful"], second["turns"]) == (False, True)
    assert first["paths"] is None and first["limits"].handshake == 5
    assert "without credentials" in said.err and "Repeating" in said.err


def test_a_peer_that_fails_gives_its_own_exit_code(shell: Shell, ladder: Ladder) -> None:
    ladder.usable = False
    said = shell("peers", "verify", "scout")
    assert said.code == 10
    assert "what to do: mend it" in said.out
    assert "cannot be used (see handshake)" in said.out


def test_a_ladder_for_programs_is_lines_of_json(shell: Shell, ladder: Ladder) -> None:
    said = shell("peers", "verify", "scout", "--format", "json")
    rung, card = [json.loads(line) for line in said.out.splitlines()]
    assert (rung["type"], rung["verdict"]) == ("Rung", "pass")
    assert (card["type"], card["usable"]) == ("Card", True)
    assert shell("peers", "verify", "scout", "--format", "quiet").out.count("\n") == 1


def test_a_person_is_asked_before_model_calls_are_spent(
    shell: Shell, ladder: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def confirm(question: str, **options: Any) -> bool:
        asked.append(question)
        return True

    monkeypatch.setattr(terminal, "is_interactive", lambda: True)
    monkeypatch.setattr(questions, "confirm", confirm)
    shell("peers", "verify", "scout")
    assert "may cost money" in asked[0] and ladder.calls[0]["turns"] is True
    shell("peers", "verify", "scout", "--no-turns")
    shell("peers", "verify", "scout", "--turns")
    assert len(asked) == 1
    assert [call["turns"] for call in ladder.calls] == [True, False, True]


@pytest.mark.parametrize(
    "words",
    [(), ("scout", "--", "x"), ("scout", "--timeout", "0"), ("--", "gemini", "acp"), ("--",)],
)
def test_wrong_usage_starts_nothing(shell: Shell, ladder: Ladder, words: tuple[str, ...]) -> None:
    assert shell("peers", "verify", *words).code == 2
    assert ladder.calls == []


def test_an_address_is_verified_as_it_is(shell: Shell, ladder: Ladder) -> None:
    assert shell("peers", "verify", "--", "ws://127.0.0.1:1").code == 0
    assert ladder.calls[0]["way"].address == "ws://127.0.0.1:1"


# -- adding


def test_a_peer_is_added_after_the_ladder_and_the_diff_is_shown(
    shell: Shell, ladder: Ladder
) -> None:
    said = shell("peers", "add", "mine", "--roles", "review, haiku", "--", "my-agent", "--acp")
    assert said.code == 0
    assert '+roles = ["review", "haiku"]' in said.out
    assert (shell.config / "peers" / "mine.toml").exists()
    assert "is the first peer that claims haiku" in said.err
    assert "dragoman peers enable mine" in said.err
    assert shell("peers", "add", "mine", "--", "x").code == 2
    assert len(ladder.calls) == 1


def test_an_adapter_is_written_if_wanted(shell: Shell, ladder: Ladder) -> None:
    said = shell("peers", "add", "mine", "--roles", "plan", "--python", "--", "x")
    assert said.code == 0
    assert (shell.config / "peers" / "mine_adapter.py").exists()
    assert "+ROLES_CLAIMED = (" in said.out


def test_a_peer_that_fails_the_ladder_is_not_added(shell: Shell, ladder: Ladder) -> None:
    ladder.usable = False
    said = shell("peers", "add", "mine", "--roles", "review", "--", "my-agent")
    assert said.code == 10
    assert "was not added" in said.err
    assert not (shell.config / "peers").exists()


def test_an_addition_without_a_command_is_wrong_usage(shell: Shell, ladder: Ladder) -> None:
    said = shell("peers", "add", "mine", "--roles", "review")
    assert said.code == 2
    assert "after --" in said.err


# -- enabling


def test_peers_are_enabled_and_disabled_and_the_change_is_shown(shell: Shell) -> None:
    said = shell("peers", "enable", "codex", "gemini")
    assert said.code == 0
    assert '+enabled_peers = ["codex", "gemini"]' in said.out
    said = shell("peers", "disable", "codex")
    assert '-enabled_peers = ["codex", "gemini"]' in said.out
    assert "codex was already disabled." in shell("peers", "disable", "codex").err
    assert shell("peers", "enable", "nobody").code == 2


def test_a_hostile_project_starts_nothing(shell: Shell, ladder: Ladder, tmp_path: Path) -> None:
    (shell.cwd / "dragoman.toml").write_text(
        f'[peers.evil]\ntitle = "x"\n[[peers.evil.launch]]\ncommand = ["touch", "{tmp_path}/bad"]\n'
    )
    for words in (("peers",), ("peers", "show", "evil"), ("peers", "verify", "evil")):
        shell(*words)
    assert not (tmp_path / "bad").exists()
    assert ladder.calls == []
