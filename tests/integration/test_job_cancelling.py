"""Jobs are cancelled from another command, and an interrupt at any time tells what there is."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.aio import aio
from tests.integration.cli_shell import TIMEOUT, Cli, cli_in, warm_cli
from tests.integration.delegated_peers import PROGRAM, read_lines
from tests.integration.mcp_places import WAIT, describe, over_stdio, settings


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def peer(cli: Cli, name: str, how: str) -> None:
    describe(cli, name, "review", command=(sys.executable, str(PROGRAM), name, str(cli.home), how))


def prompts(cli: Cli) -> list[str]:
    return read_lines(cli.home / "alpha.prompts")


@aio
async def test_a_job_of_a_server_is_cancelled_and_the_others_go_on(cli: Cli) -> None:
    peer(cli, "alpha", "hang")
    settings(cli, 'enabled_peers = ["alpha"]\n')
    async with over_stdio(cli) as client:
        jobs = []
        for number, wanted in enumerate(({"peer": "alpha"}, {"role": "review"}, {"peer": "alpha"})):
            started = await client.call_tool("start_job", {**wanted, "prompt": "work"})
            jobs.append(started.structured_content["job"])
            async with asyncio.timeout(WAIT):
                while len(prompts(cli)) <= number:  # noqa: ASYNC110 - a process counts them
                    await asyncio.sleep(0.01)
        for job in jobs[:2]:
            done = await asyncio.to_thread(cli.child, "jobs", "cancel", job)
            assert (done.code, done.out, done.err) == (0, "", f"{job} was cancelled.\n")
            ended = await client.call_tool("job_result", {"job": job, "wait": WAIT})
            assert ended.structured_content["outcome"] == "cancelled"
        going_on = await client.call_tool("job_status", {"job": jobs[2]})
        assert going_on.structured_content["outcome"] == "running"
        again = await asyncio.to_thread(cli.child, "jobs", "cancel", jobs[0])
        assert again.code == 1 and "has already ended" in again.err
    assert len(prompts(cli)) == 3


@pytest.mark.parametrize("words", [(), ("--cold",)], ids=["warm", "cold"])
def test_a_run_that_another_command_cancels_was_not_interrupted_by_its_user(
    words: tuple[str, ...],
) -> None:
    with warm_cli() as warm:
        command = subprocess.Popen(  # noqa: TID251 - it is cancelled in the middle
            warm.argv("run", "wait", *words, "--", *warm.agent),
            cwd=warm.cwd,
            env=warm.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert command.stdout is not None
        # The agent has the prompt.
        assert command.stdout.read(len("waiting")) == "waiting"
        cancelled = warm.child("jobs", "cancel", "last")
        assert cancelled.code == 0, cancelled.err
        _, err = command.communicate(timeout=TIMEOUT)
    assert command.returncode == 1, err
    assert "the turn was cancelled by another program" in err


@pytest.mark.parametrize("format", ["text", "json"])
def test_an_interrupt_between_two_turns_prints_the_attempts_so_far(format: str, cli: Cli) -> None:
    peer(cli, "alpha", "crash")
    peer(cli, "beta", "mute")
    settings(cli, 'enabled_peers = ["alpha", "beta"]\n')
    with subprocess.Popen(  # noqa: TID251 - it is interrupted while it runs
        cli.argv("delegate", "review", "look", "--format", format),
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        told_on = command.stderr if format == "text" else command.stdout
        assert told_on is not None
        begun = "attempt 2: beta" if format == "text" else '"type":"AttemptBegun","number":2'
        while begun not in (line := told_on.readline()):
            assert line
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=TIMEOUT)
    assert command.returncode == 130
    if format == "text":
        assert "1. alpha: crashed" in err and "2. beta: cancelled" in err
        assert "no other peer was tried: it was interrupted" in err
    else:
        last = json.loads(out.splitlines()[-1])
        assert (last["type"], last["interrupted"], last["exit_code"]) == ("Delegation", True, 130)
        told = [(one["peer"], one["outcome"]) for one in last["attempts"]]
        assert told == [("alpha", "crashed"), ("beta", "cancelled")]
    assert read_lines(cli.home / "beta.prompts") == []
