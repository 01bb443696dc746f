"""`dragoman init` as a user calls it, with agents that are real child processes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.catalogue.card import CARDS, CardStore, MeasuredFacts
from dragoman.catalogue.launch import current_platform
from tests.integration.cli_shell import TIMEOUT, Cli, Done, cli_in
from tests.integration.delegated_peers import add_peer
from tests.integration.pty_terminal import CTRL_C
from tests.unit.runs.contexts import card_of


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = cli_in(tmp_path)
    # Nothing of this machine is installed here.
    (made.home / "bin").mkdir()
    made.extra["PATH"] = str(made.home / "bin")
    return made


def peer(cli: Cli, name: str, how: str, *roles: str) -> None:
    add_peer(cli.home / "config_home", cli.home, name, how, roles or ("review",))


def known(cli: Cli, name: str, how: str, *roles: str) -> None:
    """A peer that was verified before: measuring takes seconds."""
    peer(cli, name, how, *roles)
    facts = MeasuredFacts(dialect="acp", sessions=True, authenticated=True)
    card = structs.replace(card_of(name, facts=facts), platform=current_platform())
    CardStore(cli.home / "data_home" / CARDS).save(card)


def lines(done: Done, kind: str) -> list[dict[str, Any]]:
    told = [json.loads(line) for line in done.out.splitlines()]
    return [line for line in told if line["type"] == kind]


def config(cli: Cli) -> str:
    file = cli.home / "config_home" / "config.toml"
    return file.read_text() if file.exists() else ""


def prompts(cli: Cli, name: str) -> list[str]:
    file = cli.home / f"{name}.prompts"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_unattended_it_ends_with_a_verified_enabled_peer_at_work(cli: Cli) -> None:
    peer(cli, "alpha", "ok")
    peer(cli, "beta", "locked")
    done = cli("init", "--yes")
    assert done.code == 0, done.out + done.err
    assert "   alpha  alpha, for review\n" in done.out
    assert "ok  alpha: starts, speaks acp, opens a session; no turn was tried\n" in done.out
    assert "no  beta: it requires a login" in done.out
    assert "enabled: alpha (in " in done.out
    assert 'First task: dragoman delegate review "What can you do?"' in done.out
    assert "alpha did: What can you do?" in done.out
    assert "It works: alpha answered." in done.out
    assert config(cli) == 'enabled_peers = ["alpha"]\n'
    # The verification asked nobody's model anything.
    assert (prompts(cli, "alpha"), prompts(cli, "beta")) == (["What can you do?"], [])
    cards = [path.parent.name for path in (cli.home / "data_home").rglob("cards/*/*.json")]
    assert sorted(cards) == ["alpha", "beta"]
    assert "\x1b" not in done.out and "\r" not in done.out

    # The second time nothing is measured that is known to be good, and nothing is written.
    again = cli("init", "--yes", "--format", "json")
    assert again.code == 0, again.out + again.err
    kept = {line["peer"]: (line["ready"], line["kept"]) for line in lines(again, "Proof")}
    assert kept == {"alpha": (True, True), "beta": (False, False)}
    assert config(cli) == 'enabled_peers = ["alpha"]\n'
    (last,) = lines(again, "Beginning")
    assert json.loads(again.out.splitlines()[-1]) == last
    assert (last["installed"], last["failed"]) == (["alpha", "beta"], ["beta"])
    assert (last["enabled"], last["answered"], last["exit_code"]) == (["alpha"], "alpha", 0)
    assert lines(again, "Delegation")[0]["job"] == last["job"]


LOGIN_IN_PROMPT = '[quirks]\nlogin_shown_in = "prompt"\n'


def test_a_login_that_only_a_prompt_shows_is_not_tried_unless_that_is_wanted(cli: Cli) -> None:
    more = {"more": LOGIN_IN_PROMPT}
    add_peer(cli.home / "config_home", cli.home, "alpha", "auth", ("review",), **more)
    done = cli("init", "alpha", "--yes", "--format", "json")
    (proof,) = lines(done, "Proof")
    assert proof["ready"] and "the login was not checked" in proof["proved"]
    assert prompts(cli, "alpha") == ["What can you do?"]
    wanted = cli("init", "alpha", "--yes", "--try-login", "--format", "json")
    first, second = lines(wanted, "Proof")
    assert (first["ready"], second["ready"]) == (True, False)
    assert second["trouble"] == "it requires a login"
    assert lines(wanted, "Beginning")[0]["enabled"] == []
    shown = cli("peers", "show", "alpha").out
    assert "not measured: `dragoman peers verify alpha --turns`" in shown
    assert "it needs echo, which" not in shown


def test_a_person_is_asked_once_before_a_prompt_shows_a_missing_login(cli: Cli) -> None:
    more = {"more": LOGIN_IN_PROMPT}
    add_peer(cli.home / "config_home", cli.home, "alpha", "auth", ("review",), **more)
    with cli.terminal("init", "alpha") as terminal:
        terminal.expect("[y/N] ")
        terminal.type("y\n")
        terminal.expect("... alpha: answering a prompt, 0 s")
        terminal.expect("alpha: it requires a login")
        assert terminal.wait() == 10, terminal.shown
    assert config(cli) == ""


def test_a_peer_that_fails_its_first_work_is_not_hidden_behind_scout(cli: Cli) -> None:
    known(cli, "alpha", "error")
    done = cli("init", "--yes")
    assert done.code == 1, done.out
    assert "alpha failed: it went wrong" in done.out
    assert "scout answered instead." in done.out
    assert "dragoman run alpha hello" in done.out


def test_where_nothing_that_is_installed_works_nothing_is_enabled(cli: Cli) -> None:
    peer(cli, "alpha", "dead")
    done = cli("init", "--yes", "--format", "json")
    assert done.code == 10, done.out + done.err
    (proof,) = lines(done, "Proof")
    assert not proof["ready"] and proof["trouble"] and proof["cure"]
    (last,) = lines(done, "Beginning")
    assert (last["enabled"], last["answered"]) == ([], "scout")
    assert config(cli) == ""


def test_where_nothing_is_installed_scout_does_the_work(cli: Cli) -> None:
    done = cli("init", "--yes")
    assert done.code == 0, done.out + done.err
    assert "npm install -g @openai/codex" in done.out
    assert "It works: scout answered." in done.out
    quiet = cli("init", "--yes", "--format", "quiet")
    assert (quiet.code, quiet.out) == (0, "")


def test_a_wrong_name_and_a_missing_terminal_are_reported_before_anything_is_done(cli: Cli) -> None:
    unknown = cli("init", "--yes", "nobody")
    assert (unknown.code, unknown.out) == (2, "")
    assert "nobody" in unknown.err
    alone = cli("init", "--format", "json")
    assert alone.code == 2 and lines(alone, "Error")[0]["message"].endswith("add --yes")
    (cli.home / "config_home").mkdir()
    (cli.home / "config_home" / "config.toml").write_text("enabled_peers = 7\n")
    broken = cli("init", "--yes")
    assert broken.code == 2 and "config.toml" in broken.err


def test_what_was_typed_before_a_question_does_not_answer_it(cli: Cli) -> None:
    more = {"more": LOGIN_IN_PROMPT}
    add_peer(cli.home / "config_home", cli.home, "alpha", "ok", ("review",), **more)
    with cli.terminal("init", "alpha") as terminal:
        terminal.type("y\n")
        terminal.expect("y\r\n")
        terminal.expect("[y/N] ")
        terminal.type("n\n")
        terminal.expect("Enable alpha?\r\n   [Enter for all, names for some, n for none] ")
        terminal.type("n\n")
        terminal.wait()
    assert prompts(cli, "alpha") == []


def test_a_person_picks_some_and_is_asked_again_for_a_name_that_is_not_there(cli: Cli) -> None:
    known(cli, "alpha", "ok")
    known(cli, "beta", "ok")
    with cli.terminal("init") as terminal:
        terminal.expect("Enable alpha, beta?\r\n   [Enter for all, names for some, n for none] ")
        assert config(cli) == ""
        terminal.type("gamma\n")
        terminal.expect("gamma cannot be chosen")
        terminal.expect("Enable alpha, beta?\r\n   [Enter for all, names for some, n for none] ")
        terminal.type("beta\n")
        terminal.expect("It calls the model of an enabled peer. Send it?\r\n   [Y/n] ")
        terminal.type("\n")
        terminal.expect("beta did: What can you do?")
        assert terminal.wait() == 0, terminal.shown
    assert config(cli) == 'enabled_peers = ["beta"]\n'
    assert prompts(cli, "alpha") == []


def test_a_person_who_declines_the_first_task_gets_the_next_steps(cli: Cli) -> None:
    known(cli, "alpha", "ok")
    with cli.terminal("init") as terminal:
        terminal.expect("n for none] ")
        terminal.type("\n")
        terminal.expect("[Y/n] ")
        terminal.type("n\n")
        terminal.expect("Nothing was sent. Next steps:")
        terminal.expect("dragoman run alpha")
        assert terminal.wait() == 0, terminal.shown
    assert prompts(cli, "alpha") == [] and "alpha" in config(cli)


def test_an_interrupt_leaves_what_is_done_and_says_so(cli: Cli) -> None:
    known(cli, "alpha", "ok")
    peer(cli, "beta", "mute")
    with cli.terminal("init", "--yes") as terminal:
        terminal.expect("alpha: starts, speaks acp")
        terminal.expect("beta: ")
        terminal.type(CTRL_C)
        terminal.expect("interrupted. Saved: alpha verified.")
        assert terminal.wait() == 130, terminal.shown
    assert config(cli) == ""
    assert [path.parent.name for path in (cli.home / "data_home").rglob("cards/*/*.json")] == [
        "alpha"
    ]
    assert cli.agents_left() == []


def test_a_closed_output_stops_it_and_nothing_more_is_done(cli: Cli) -> None:
    known(cli, "alpha", "ok")
    for options in ((), ("--format", "json")):
        read, write = os.pipe()
        os.close(read)
        try:
            done = subprocess.run(
                cli.argv("init", "--yes", *options),
                cwd=cli.cwd,
                env=cli.env,
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=subprocess.PIPE,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        finally:
            os.close(write)
        assert done.returncode == 130, done.stderr
        assert "interrupted" in done.stderr and "Traceback" not in done.stderr
    assert config(cli) == "" and prompts(cli, "alpha") == []


def test_an_interrupt_at_the_question_enables_no_peer(cli: Cli) -> None:
    known(cli, "alpha", "ok")
    with cli.terminal("init") as terminal:
        terminal.expect("Enable alpha?\r\n   [Enter for all, names for some, n for none] ")
        terminal.type(CTRL_C)
        # On a line of its own.
        terminal.expect("\r\ndragoman: interrupted. Saved: alpha verified.")
        assert terminal.wait() == 130, terminal.shown
    assert config(cli) == ""


def test_an_interrupt_in_the_first_work_cancels_it_and_what_is_enabled_stays(cli: Cli) -> None:
    known(cli, "alpha", "tokens")
    with cli.terminal("init", "--yes") as terminal:
        terminal.expect("attempt 1: alpha")
        terminal.expect("thinking")
        terminal.type(CTRL_C)
        terminal.expect("alpha verified; alpha enabled.")
        assert terminal.wait() == 130, terminal.shown
    assert config(cli) == 'enabled_peers = ["alpha"]\n'
    assert cli.agents_left() == []
