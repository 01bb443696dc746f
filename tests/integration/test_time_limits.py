"""`--timeout` is kept, whatever the agent does not answer, with a broker and without one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.runs.run_values import SILENT_SECONDS
from tests.integration.cli_shell import Cli, warm_cli

PROGRAM = Path(__file__).with_name("deaf_agent.py")
STAGES = ("start", "session", "prompt", "cancel")

TIMEOUT = 2
START = 8
"""Seconds for the start of a broker and an agent on a busy machine."""

GENEROUS = pytest.mark.timeout(90)
"""For a command on a busy machine. Without a time limit it takes minutes."""


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
            if stage == "prompt":
                with (peers / f"{stage}.toml").open("a") as file:
                    file.write("[quirks]\nsilent_retries = true\n")
        enabled = json.dumps(STAGES)
        (cli.home / "config_home" / "config.toml").write_text(f"enabled_peers = {enabled}\n")
        yield cli


@GENEROUS
@pytest.mark.parametrize("how", [(), ("--cold",)], ids=["warm", "cold"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_run_ends_at_its_time_limit_and_says_so(
    cli: Cli, stage: str, how: tuple[str, ...]
) -> None:
    done = cli("run", stage, "hello", "--timeout", f"{TIMEOUT}s", *how)
    assert done.code == 3, done.err
    assert f"timed out after {TIMEOUT} s (--timeout)" in done.err and done.out == ""
    assert "whose fault" not in done.err


@GENEROUS
@pytest.mark.parametrize("how", [(), ("--cold",)], ids=["warm", "cold"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_delegation_ends_at_its_time_limit_and_says_so(
    cli: Cli, stage: str, how: tuple[str, ...]
) -> None:
    words = ("delegate", "review", "hello", "--peer", stage, "--timeout", f"{TIMEOUT}s")
    done = cli(*words, *how)
    assert done.code == 3, done.err
    assert f"timed out after {TIMEOUT} s (--timeout)" in done.err
    # No other peer is tried: the time is for the whole command.
    assert f"the time limit of {TIMEOUT} s (--timeout) was reached" in done.err
    assert "whose fault" not in done.err
    # What it learned of the peer must not keep the next test from asking it.
    assert cli("peers", "unpark", stage).code == 0


@pytest.mark.parametrize(
    "words", [("run", "prompt", "hello"), ("delegate", "review", "hello", "--peer", "prompt")]
)
def test_a_notice_says_that_a_silent_agent_may_be_retrying(
    cli: Cli, words: tuple[str, ...]
) -> None:
    done = cli(*words, "--timeout", f"{SILENT_SECONDS + START:g}s")
    assert done.code == 3, done.err
    told = " ".join(done.err.split())
    assert f"prompt has sent nothing for {SILENT_SECONDS:g} s" in told
    # The result repeats it: the notice may have scrolled away.
    assert (
        f"timed out after {SILENT_SECONDS + START:g} s (--timeout); prompt sent nothing. If its"
        in told
    )
    assert done.out == ""
    assert cli("peers", "unpark", "prompt").code == 0
