"""What an agent says of its failure is shown, and decides the exit code, at every door."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.cli_shell import AGENT, Cli, warm_cli

CASES: list[tuple[str, Any, int, str]] = [
    ("alpha", {"message": "unexpected status 401 Unauthorized: no"}, 6, "status 401 Unauthorized"),
    ("beta", {"error": {"message": "slow down", "statusCode": 429}}, 8, "slow down"),
    ("delta", {"error": {"message": "sorry", "code": "insufficient_quota"}}, 8, "sorry"),
    ("gamma", {"details": "\x1b]0;owned\x07 broken"}, 1, "owned"),
]
"""A peer for each: what is learned of one of them says nothing about the others."""


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    with warm_cli() as cli:
        home = cli.home / "config_home"
        (home / "peers").mkdir(parents=True)
        names = [name for name, *_ in CASES]
        for name in names:
            (home / "peers" / f"{name}.toml").write_text(
                f'name = "{name}"\ntitle = "{name}"\nprotocol = "acp"\nroles = ["execute"]\n'
                f"[[launch]]\ncommand = {json.dumps(AGENT)}\n"
                '[credentials]\nenv = ["ALPHA_API_KEY", "ALPHA_MODEL"]\n'
                'login = "set ALPHA_API_KEY, or run `alpha login`"\n'
            )
        (home / "config.toml").write_text(f"enabled_peers = {json.dumps(names)}\n")
        yield cli


@pytest.mark.parametrize(("peer", "data", "code", "said"), CASES)
def test_the_agents_own_words_are_shown_and_decide(
    cli: Cli, peer: str, data: Any, code: int, said: str
) -> None:
    prompt = f"fail {json.dumps(data)}"
    cold = replace(cli, extra={**cli.extra, "DRAGOMAN_WARM": "0"})
    for done in (
        cli.child("run", peer, prompt),
        cold("run", peer, prompt),
        cli("delegate", "execute", prompt, "--peer", peer, "--strict"),
    ):
        shown = done.out + done.err
        assert done.code == code, done
        assert said in shown and "\x1b" not in shown


def test_a_key_that_is_set_may_be_the_wrong_one(cli: Cli) -> None:
    prompt = f"fail {json.dumps(CASES[0][1])}"
    keyed = replace(cli, extra={**cli.extra, "ALPHA_API_KEY": "k", "ALPHA_MODEL": "m"})
    words = (("run", "alpha", prompt), ("delegate", "execute", prompt, "--peer", "alpha"))
    for each in words:
        told = " ".join(cli(*each).err.split())
        assert "what next: set ALPHA_API_KEY, or run `alpha login`, then try again" in told
        told = " ".join(keyed(*each).err.split())
        wrong = "run `alpha login`, or correct ALPHA_API_KEY, which is set here, then try again"
        assert f"what next: {wrong}" in told
        assert cli("peers", "unpark", "alpha").code == 0


def test_a_variable_that_the_agent_misses_and_that_is_set_here_can_be_passed_on(cli: Cli) -> None:
    prompt = "fail " + json.dumps({"message": "401: Missing environment variable: `BETA_KEY`."})
    keyed = replace(cli, extra={**cli.extra, "BETA_KEY": "k"})
    hidden = "BETA_KEY is set here but not passed to the agent; to pass it on, "
    setting = "run `dragoman config set peer.alpha.env BETA_KEY`"
    told = keyed.child("run", "alpha", prompt).err
    assert hidden + f"add --env BETA_KEY, or {setting}" in told
    told = keyed("delegate", "execute", prompt, "--peer", "alpha", "--strict").err
    assert hidden + setting in told
    for passed in (cli("run", "alpha", prompt), keyed("run", "alpha", prompt, "--env", "BETA_KEY")):
        assert passed.code == 6 and "set here" not in passed.err
