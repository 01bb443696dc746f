"""`--timeout` is kept, whatever the agent does not answer, with a broker and without one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli_shell import Cli, warm_cli

PROGRAM = Path(__file__).with_name("deaf_agent.py")
STAGES = ("start", "session", "prompt", "cancel")

TIMEOUT = 2
GENEROUS = 12.0
"""Seconds that a command may take on a busy machine. Without a time limit it takes minutes."""


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    with warm_cli() as cli:
        (peers := cli.home / "config_home" / "peers").mkdir(parents=True)
        for stage in STAGES:
            command = json.dumps([sys.executable, str(PROGRAM), stage])
            (peers / f"{stage}.toml").write_text(
                f'name = "{stage}"\ntitle = "Deaf"\nprotocol = "acp"\nroles = ["review"]\n'
                f"[[launch]]\ncommand = {command}\n"
            )
        enabled = json.dumps(STAGES)
        (cli.home / "config_home" / "config.toml").write_text(f"enabled_peers = {enabled}\n")
        yield cli


@pytest.mark.parametrize("how", [(), ("--cold",)], ids=["warm", "cold"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_run_ends_at_its_time_limit_and_says_so(
    cli: Cli, stage: str, how: tuple[str, ...]
) -> None:
    began_at = time.monotonic()
    done = cli("run", stage, "hello", "--timeout", f"{TIMEOUT}s", *how)
    assert done.code == 3, done.err
    assert f"{TIMEOUT} s" in done.err and done.out == ""
    assert time.monotonic() - began_at < GENEROUS


@pytest.mark.parametrize("how", [(), ("--cold",)], ids=["warm", "cold"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_delegation_ends_at_its_time_limit_and_says_so(
    cli: Cli, stage: str, how: tuple[str, ...]
) -> None:
    began_at = time.monotonic()
    words = ("delegate", "review", "hello", "--peer", stage, "--timeout", f"{TIMEOUT}s")
    done = cli(*words, *how)
    assert done.code == 3, done.err
    assert "timed out after" in done.err
    assert time.monotonic() - began_at < GENEROUS
    # What it learned of the peer must not keep the next test from asking it.
    assert cli("peers", "unpark", stage).code == 0
