"""What a turn has cost is the same at every door, and stands in the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.cli_shell import AGENT, Cli, warm_cli


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    with warm_cli() as cli:
        home = cli.home / "config_home"
        (home / "peers").mkdir(parents=True)
        (home / "peers" / "mine.toml").write_text(
            'name = "mine"\ntitle = "mine"\nprotocol = "acp"\nroles = ["execute"]\n'
            f"[[launch]]\ncommand = {json.dumps(AGENT)}\n"
        )
        (home / "config.toml").write_text('enabled_peers = ["mine"]\n')
        yield cli


def result(cli: Cli, *words: str) -> Any:
    done = cli(*words, "--format", "json")
    assert done.code == 0, done.err
    return json.loads(done.out.splitlines()[-1])


@pytest.mark.parametrize("warm", ["1", "0"])
def test_a_delegation_knows_the_cost_and_the_tokens_that_a_run_knows(cli: Cli, warm: str) -> None:
    cli = replace(cli, extra={**cli.extra, "DRAGOMAN_WARM": warm})
    usage = result(cli, "run", "mine", "spend")["usage"]
    assert usage["cost"] == {"amount": 0.25, "unit": "USD"}
    (attempt,) = result(cli, "delegate", "execute", "spend", "--peer", "mine")["attempts"]
    assert attempt["cost"] == {"amount": 0.25, "currency": "USD", "provenance": "reported"}
    assert (attempt["tokens"]["input"], attempt["tokens"]["output"]) == (7, 3)
    done = cli("delegate", "execute", "spend", "--peer", "mine")
    assert "7 tokens in, 3 out, 0.25 USD" in done.err


def test_the_ledger_and_the_statistics_have_it(cli: Cli) -> None:
    assert cli("delegate", "execute", "spend", "--peer", "mine").code == 0
    kept = [json.loads(line) for line in cli("ledger", "export").out.splitlines()]
    costs = [entry["cost"] for entry in kept if entry["type"] == "Attempt"]
    assert costs and all(cost["amount"] == 0.25 for cost in costs)
    row = json.loads(cli("stats", "--by", "peer", "--format", "json").out)
    assert row["costs"] == {"USD": 0.25 * len(costs)} and row["cost_unknown"] == 0


def test_a_session_that_goes_on_is_not_paid_twice(cli: Cli) -> None:
    first = cli.child("chat", "mine", stdin="spend\nspend\n")
    assert first.err.count("0.2500 USD") == 2, first


def test_the_job_of_a_broker_has_the_cost_of_its_own_turn(cli: Cli) -> None:
    for number in range(2):
        job = cli("run", "mine", "spend", "-s", "costly", "--no-wait").out.strip()
        usage = result(cli, "jobs", "result", job, "--wait")["usage"]
        assert usage["cost"] == {"amount": 0.25, "unit": "USD"}, number
        assert (usage["input_tokens"], usage["output_tokens"]) == (7, 3)
    silent = cli("run", "mine", "hello", "-s", "costly", "--no-wait").out.strip()
    usage = result(cli, "jobs", "result", silent, "--wait")["usage"]
    assert usage is None or usage["cost"] is None
