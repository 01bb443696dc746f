"""A policy that restricts a peer which writes without asking, from the command line to the disk."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import acp as sdk
import pytest

from dragoman.catalogue.card import CARDS, Card, CardStore, MeasuredFacts
from dragoman.store.ledger.ledger import Ledger, ledger_path
from tests.aio import aio
from tests.integration.cli_shell import TIMEOUT, Cli, Done, cli_in, warm_cli
from tests.integration.test_serve_acp import editor

AGENT = [sys.executable, str(Path(__file__).with_name("unasking_agent.py"))]

CODEX = Path(__file__).with_name("codex_agent.py")

PROGRAM = """
import asyncio
from dragoman import connect
from dragoman.client.permissions import approve_all

async def main():
    async with connect("bold", OPTIONS) as peer, peer.session() as talk:
        result = await talk.ask("a.txt")
        print(result.outcome.value, len(result.denials))

asyncio.run(main())
"""

MODES = '[enforcement]\nmodes = ["ask"]\n'
VARIABLE = '[enforcement.env]\nASKING = "1"\n'


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def describe(cli: Cli, table: str = "", *words: str) -> None:
    """The agent as a peer that is enabled, with something in its descriptor."""
    file = cli.home / "config_home" / "peers" / "bold.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    command = json.dumps([*AGENT, str(cli.home), *words])
    file.write_text(
        'name = "bold"\ntitle = "Bold"\nprotocol = "acp"\nroles = ["execute"]\n'
        f"{table}[[launch]]\ncommand = {command}\n"
    )
    (cli.home / "config_home" / "config.toml").write_text('enabled_peers = ["bold"]\n')


def measured(cli: Cli, **facts: Any) -> None:
    """What its card says."""
    card = Card(
        peer="bold",
        version="1",
        platform="linux",
        measured_at="2026-11-16T00:00:00+00:00",
        dragoman="0",
        turns=True,
        reached="echo",
        usable=True,
        rungs=(),
        facts=MeasuredFacts(echo=True, **facts),
    )
    CardStore(cli.home / "data_home" / CARDS).save(card)


def connected(cli: Cli, options: str = "", program: str = PROGRAM) -> Done:
    """A program that prompts the peer, with these options."""
    done = subprocess.run(
        [sys.executable, "-c", program.replace("OPTIONS", options)],
        cwd=cli.cwd,
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def result(out: str) -> dict[str, Any]:
    return json.loads(out.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize(("table", "words"), [(VARIABLE, ()), (MODES, ("moded",))])
@pytest.mark.parametrize("policy", ["--deny-all", "--approve-reads"])
def test_a_peer_is_made_to_ask_as_its_descriptor_says(
    cli: Cli, table: str, words: tuple[str, ...], policy: str
) -> None:
    describe(cli, table, *words)
    done = cli("run", "bold", "a.txt", policy, "--format", "json")
    told = result(done.out)
    assert len(told["denials"]) == 1
    assert (told["unenforced"], told["violations"]) == (None, [])
    assert list(cli.cwd.iterdir()) == []
    allowed = cli("run", "bold", "a.txt", "--approve-all")
    assert allowed.code == 0
    assert (cli.cwd / "a.txt").exists()


@pytest.mark.parametrize(("table", "words"), [(VARIABLE, ()), (MODES, ("moded",))])
def test_a_broker_that_was_started_without_restrictions_is_not_used_under_some(
    warm: Cli, table: str, words: tuple[str, ...]
) -> None:
    describe(warm, table, *words)
    assert warm("run", "bold", "free.txt", "--approve-all").code == 0
    done = warm("run", "bold", "a.txt", "--deny-all", "--format", "json")
    assert len(result(done.out)["denials"]) == 1
    assert {one.name for one in warm.cwd.iterdir()} == {"free.txt"}
    names = warm("broker", "list", "--format", "quiet").out.split()
    assert len(names) == 2


def test_a_peer_that_was_seen_not_to_ask_is_not_run_under_a_policy(cli: Cli) -> None:
    describe(cli)
    measured(cli, asks_permission=False)
    refused = cli.child("run", "bold", "a.txt", "--deny-all")
    assert refused.code == 2
    assert "bold does not ask for permission" in refused.err
    assert "--allow-unenforced" in refused.err
    assert list(cli.cwd.iterdir()) == []
    assert "permissions not enforced" in cli("peers", "show", "bold").out
    assert cli("run", "bold", "a.txt", "--approve-all").code == 0


def test_unenforced_permissions_are_reported_in_text_in_json_and_in_the_ledger(
    cli: Cli,
) -> None:
    describe(cli)
    measured(cli, asks_permission=False)
    words = ("run", "bold", "a.txt", "--deny-all", "--allow-unenforced")
    done = cli.child(*words)
    assert done.code == 0
    assert ", permissions not enforced\n" in done.err
    assert "permissions not enforced: bold: it wrote a file without asking" in done.err
    assert "policy violated: a.txt changed during the turn" in done.err
    (cli.cwd / "a.txt").unlink()
    told = result(cli.child(*words, "--format", "json").out)
    assert "without asking" in told["unenforced"]
    assert told["violations"] == ["a.txt"]


def test_a_setting_allows_it_for_every_door(cli: Cli) -> None:
    describe(cli)
    measured(cli, asks_permission=False)
    with (cli.home / "config_home" / "config.toml").open("a") as file:
        file.write("[peer.bold]\nallow_unenforced = true\n")
    assert cli("run", "bold", "a.txt", "--deny-all").code == 0


def test_a_write_of_an_unknown_agent_is_a_violation(cli: Cli) -> None:
    done = cli("run", "a.txt", "--approve-reads", "--format", "json", "--", *AGENT)
    assert result(done.out)["violations"] == ["a.txt"]
    assert "policy violated: a.txt" in done.err
    free = cli("run", "b.txt", "--approve-all", "--format", "json", "--", *AGENT)
    assert result(free.out)["violations"] == []


def test_a_session_that_stays_in_a_mode_without_questions_is_not_prompted(cli: Cli) -> None:
    describe(cli, MODES, "free")
    refused = cli("run", "bold", "a.txt", "--deny-all")
    assert refused.code == 2
    assert "its session is in the mode free" in refused.err
    assert list(cli.cwd.iterdir()) == []
    chosen = cli("run", "bold", "a.txt", "--deny-all", "--mode", "free")
    assert (chosen.code, "the mode free" in chosen.err) == (2, True)
    words = ("--deny-all", "--allow-unenforced", "--format", "json")
    told = result(cli("run", "bold", "a.txt", *words).out)
    assert told["unenforced"] == "its session is in the mode free, in which it does not ask"
    assert (told["exit_code"], told["violations"]) == (0, ["a.txt"])


@pytest.mark.parametrize("kept", ["1", "0"])
def test_a_mode_that_the_agent_changes_by_itself_is_set_back_before_the_next_prompt(
    kept: str, warm: Cli
) -> None:
    cli = warm
    cli.extra["DRAGOMAN_WARM"] = kept
    describe(cli, MODES, "moded")
    done = cli("chat", "bold", "--deny-all", "--format", "json", stdin="go free\na.txt\n")
    results = [json.loads(line) for line in done.out.splitlines() if '"violations"' in line]
    assert [len(one["denials"]) for one in results] == [0, 1], done.err
    assert list(cli.cwd.iterdir()) == []


def test_output_that_goes_into_the_workspace_is_not_a_violation(cli: Cli) -> None:
    describe(cli, VARIABLE)
    trace = ("--trace", "wire.log")
    told = result(cli("run", "bold", "a.txt", "--deny-all", *trace, "--format", "json").out)
    assert told["violations"] == []


# -- delegation


def test_delegation_passes_over_a_peer_that_the_policy_would_not_restrict(cli: Cli) -> None:
    describe(cli)
    measured(cli, asks_permission=False)
    words = ("delegate", "execute", "a.txt", "--deny-all", "--strict")
    refused = cli(*words)
    assert refused.code == 7
    assert "the policy would not restrict it" in refused.err
    assert list(cli.cwd.iterdir()) == []
    done = cli(*words, "--allow-unenforced", "--format", "json")
    assert done.code == 0
    (report,) = [json.loads(line) for line in done.out.splitlines() if '"violations"' in line][-1:]
    text = json.dumps(report)
    assert '"a.txt"' in text and "without asking" in text
    with Ledger.open(ledger_path(cli.home / "state_home"), read_only=True) as ledger:
        (attempt,) = [one for one in ledger.attempts(_job(done.out))]
    assert attempt.violations == 1
    assert attempt.unenforced is not None and "without asking" in attempt.unenforced


def _job(out: str) -> str:
    values = [json.loads(line) for line in out.splitlines()]
    return str(next(value["job"] for value in values if value.get("job")))


@pytest.mark.parametrize(("table", "words"), [(VARIABLE, ()), (MODES, ("moded",))])
def test_a_program_that_connects_by_name_is_asked(
    cli: Cli, table: str, words: tuple[str, ...]
) -> None:
    describe(cli, table, *words)
    told = connected(cli)
    assert (told.code, told.out) == (0, "denied 1\n"), told.err
    assert list(cli.cwd.iterdir()) == []
    allowed = connected(cli, "permit=approve_all")
    assert (allowed.code, allowed.out) == (0, "ok 0\n"), allowed.err
    assert (cli.cwd / "a.txt").exists()


def test_a_program_does_not_connect_to_a_peer_that_does_not_ask(cli: Cli) -> None:
    describe(cli)
    measured(cli, asks_permission=False)
    told = connected(cli)
    assert told.code == 1
    assert "PolicyNotEnforced: bold does not ask for permission" in told.err
    assert list(cli.cwd.iterdir()) == []
    blocking = (
        "from dragoman import connect_sync\n"
        "from dragoman.client.permissions import approve_all\n"
        "with connect_sync('bold', permit=approve_all) as peer, peer.session() as talk:\n"
        "    print(talk.ask('b.txt').outcome.value)\n"
    )
    allowed = connected(cli, program=blocking)
    assert (allowed.code, allowed.out) == (0, "ok\n"), allowed.err
    settings = cli.home / "config_home" / "config.toml"
    settings.write_text("[peer.bold]\nallow_unenforced = true\n")
    assert connected(cli).code == 0
    assert (cli.cwd / "a.txt").exists()


@pytest.mark.parametrize("kept", ["1", "0"])
def test_a_program_does_not_prompt_in_a_session_that_does_not_ask(kept: str, warm: Cli) -> None:
    warm.extra["DRAGOMAN_WARM"] = kept
    describe(warm, MODES, "free")
    told = connected(warm)
    assert told.code == 1
    assert "its session is in the mode free, in which it does not ask" in told.err
    describe(warm, MODES, "moded")
    told = connected(warm, program=PROGRAM.replace("session()", 'session(mode="free")'))
    assert (told.code, "it does not ask in the mode free" in told.err) == (1, True), told.err
    assert list(warm.cwd.iterdir()) == []
    allowed = PROGRAM.replace("session()", 'session(mode="free")')
    (warm.home / "config_home" / "config.toml").write_text("[peer.bold]\nallow_unenforced = true\n")
    told = connected(warm, program=allowed)
    assert (told.code, told.out) == (0, "ok 0\n"), told.err


@pytest.mark.parametrize("mode", ["workspace-write", "danger-full-access"])
def test_codex_is_not_run_in_a_wide_sandbox_under_a_policy(cli: Cli, mode: str) -> None:
    folder = cli.home / "bin"
    folder.mkdir()
    program = folder / "codex"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{CODEX}"\n')
    program.chmod(0o700)
    cli.extra["PATH"] = f"{folder}:{cli.env['PATH']}"
    refused = cli.child("run", "codex", "hi", "--deny-all", "--mode", mode)
    assert refused.code == 2
    assert f"it does not ask in the mode {mode}; it asks in read-only" in refused.err
    misspelled = cli.child("run", "codex", "hi", "--mode", "readonly")
    meant = "in the mode readonly (did you mean read-only?)"
    assert (misspelled.code, meant in misspelled.err) == (2, True), misspelled.err
    words = ("run", "codex", "hi", "--deny-all", "--format", "quiet")
    if mode == "workspace-write":
        allowed = cli.child(*words, "--mode", mode, "--allow-unenforced")
        assert (allowed.code, allowed.out) == (0, "model sol mode workspaceWrite\n"), allowed.err
    asked = cli.child(*words)
    assert (asked.code, asked.out) == (0, "model sol mode readOnly\n"), asked.err


# -- an editor


@aio
async def test_an_editor_cannot_choose_a_mode_in_which_the_peer_does_not_ask(warm: Cli) -> None:
    describe(warm, MODES, "moded")
    async with editor(warm, "--peer", "bold") as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
        for change in (
            it.agent.set_session_mode(session_id=session, mode_id="free"),
            it.agent.set_config_option("mode", session, "free"),
        ):
            with pytest.raises(sdk.RequestError, match="it does not ask in the mode free"):
                await change
        await it.agent.prompt(session, [sdk.text_block("go free")])
        await it.agent.prompt(session, [sdk.text_block("a.txt")])
        assert it.asked == ["Write a.txt"]


@aio
async def test_an_editor_learns_what_a_peer_wrote_without_asking(cli: Cli) -> None:
    describe(cli)
    async with editor(cli, "--peer", "bold") as it:
        session = (await it.agent.new_session(str(cli.cwd))).session_id
        await it.agent.prompt(session, [sdk.text_block("a.txt")])
        await it.hear("a.txt changed during the turn without an allowed request")
