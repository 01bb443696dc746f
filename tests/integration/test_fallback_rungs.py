"""From the command line to real child processes, one rung of the fallback after another.

Nothing is substituted: the peers are programs, the local model is a server on loopback, and scout
is the one that comes with dragoman. Who answered stands in the result, the ledger and the events.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_shell import Cli, cli_in, warm_cli
from tests.integration.delegated_peers import QUICK, add_peer, read_lines

ROLES = ("exploration",)
QUESTION = "list the TODOs"


@contextmanager
def fake_model() -> Iterator[str]:
    """A model on loopback, as a program of its own."""
    command = [sys.executable, "-m", "dragoman.testing.fake_model", "--port", "0"]
    with subprocess.Popen(  # noqa: TID251 - a server for the command under test
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        try:
            yield server.stdout.readline().split()[-1]
        finally:
            server.stdin.close()
            server.wait(10)


def furnish(cli: Cli, *, local: str = "", warm: bool = False) -> None:
    """Two peers for exploration, of which neither fails yet, and a local model."""
    config = cli.home / "config_home"
    for name in ("alpha", "beta"):
        add_peer(config, cli.home, name, "ok", ROLES)
    model = f'[local_model]\napi = "openai"\nmodel = "small"\nbase_url = "{local}"\n'
    (config / "config.toml").write_text(
        f'enabled_peers = ["alpha", "beta"]\n{QUICK}\n{model if local else ""}'
    )
    (cli.cwd / "notes.py").write_text("# TODO: write it\n")


def fails(cli: Cli, name: str, how: str) -> None:
    (cli.home / f"{name}.how").write_text(how)


def delegated(cli: Cli, *options: str) -> tuple[int, dict[str, Any]]:
    said = cli.child("delegate", *ROLES, QUESTION, "--format", "json", *options)
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert lines[-1]["type"] in ("Delegation", "Error"), said.err
    return said.code, lines[-1]


def kept(cli: Cli, job: str) -> list[tuple[str, str, str]]:
    """Who was tried, as what, and how it ended, by the ledger."""
    exported = [json.loads(line) for line in cli("ledger", "export").out.splitlines()]
    return [
        (line["peer"], line["runtime_role"], line["outcome"])
        for line in exported
        if line["type"] == "Attempt" and line["job"] == job
    ]


def answered(cli: Cli, job: str) -> str:
    """Who completed a job, by events.jsonl."""
    events = read_lines(cli.home / "state_home" / "events.jsonl")
    done = [e for e in events if e["job"] == job and e["event"] == "peer_call_completed"]
    return str(done[-1]["peer_id"])


@pytest.mark.timeout(120)
def test_every_rung_of_the_fallback_answers_in_its_turn(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    with fake_model() as address:
        furnish(cli, local=f"{address}/v1")
        # The first peer.
        code, first = delegated(cli)
        assert (code, first["answered"], len(first["attempts"])) == (0, "alpha", 1)
        assert first["text"] == f"alpha did: {QUESTION}"
        # The next one, because the first crashed.
        fails(cli, "alpha", "crash")
        code, second = delegated(cli)
        assert (code, second["answered"]) == (0, "beta")
        assert "alpha crashed" in second["attempts"][1]["reason"]
        # The local model, because both failed.
        fails(cli, "beta", "empty")
        code, third = delegated(cli)
        assert (code, third["answered"]) == (0, "local-model")
        assert third["text"] == f"You said: {QUESTION}"
        assert "beta ended without an answer" in third["attempts"][2]["reason"]
        assert third["attempts"][2]["tokens"]["provenance"] == "reported"
    # Scout, because nobody is left: the server is gone, too.
    code, fourth = delegated(cli)
    assert (code, fourth["answered"]) == (0, "scout")
    assert "notes.py" in fourth["text"]
    outcomes = [(one["peer"], one["outcome"]) for one in fourth["attempts"]]
    # The first has failed three times in a row by now, and is left alone.
    assert outcomes == [
        ("alpha", "crashed"),
        ("beta", "empty"),
        ("local-model", "failed"),
        ("scout", "ok"),
    ]
    for done in (first, second, third, fourth):
        tried = kept(cli, done["job"])
        assert [(peer, outcome) for peer, _, outcome in tried] == [
            (one["peer"], one["outcome"]) for one in done["attempts"]
        ]
        hosts = {peer for peer, role, _ in tried if role == "host"}
        assert hosts <= {"local-model", "scout"} and answered(cli, done["job"]) == done["answered"]
    # Neither the local model nor scout: then the failure of the last peer is the result.
    code, strict = delegated(cli, "--strict")
    assert code == 1 and strict["answered"] is None
    assert [one["peer"] for one in strict["attempts"]] == ["beta"]
    # In words, the same; by now the other has failed three times in a row, too.
    said = cli.child("delegate", *ROLES, QUESTION)
    assert said.code == 0 and "notes.py" in said.out
    assert "attempt 1: local-model" in said.err and "scout: ok after" in said.err
    assert "failed too often recently" in cli("explain", "exploration").out


@pytest.mark.timeout(120)
def test_a_warm_peer_that_dies_or_does_not_stop_gives_way_to_the_next() -> None:
    with warm_cli() as cli:
        furnish(cli)
        for how, outcome in (("killed", "crashed"), ("deaf", "timed_out")):
            fails(cli, "alpha", how)
            code, done = delegated(cli)
            assert (code, done["answered"]) == (0, "beta")
            assert [one["outcome"] for one in done["attempts"]] == [outcome, "ok"]
            watched = cli("jobs", "watch", done["job"])
            assert watched.code == 0 and f"beta did: {QUESTION}" in watched.out
        # It was ended with its broker, because it did not stop when it was told to.
        assert [line.split()[0] for line in cli("broker", "list").out.splitlines()[1:]] != []
        assert len(read_lines(cli.home / "alpha.prompts")) == 2
        assert len(read_lines(cli.home / "beta.prompts")) == 2
        # The second time the warm peer was asked and no other was started.
        assert len(read_lines(cli.home / "beta.starts")) == 1
