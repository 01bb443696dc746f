"""`dragoman jobs`, `--no-wait`, and what becomes of a turn when its command is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_shell import Cli, cli_in, warm_cli
from tests.integration.pty_terminal import CTRL_C

JOB = re.compile(r"j-[0-9a-z]{12}")
TIMEOUT = 40.0


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def submit(cli: Cli, prompt: str, *words: str) -> str:
    """Leave a prompt with the broker; the id of its job."""
    done = cli("run", prompt, "--no-wait", "--approve-reads", *words, "--", *cli.agent)
    assert (done.code, done.err) == (0, "")
    assert JOB.fullmatch(done.out.strip())
    return done.out.strip()


def job_of(cli: Cli, id: str) -> dict[str, Any]:
    done = cli("jobs", "result", id, "--format", "json")
    found: dict[str, Any] = json.loads(done.out)
    return found


def until(cli: Cli, id: str, state: str) -> None:
    """Wait until somebody has written down that a job has this state."""
    give_up_at = time.monotonic() + TIMEOUT
    while f'"state":"{state}"' not in cli("jobs", "result", id, "--format", "json").out:
        assert time.monotonic() < give_up_at


def until_closed(cli: Cli) -> None:
    """Wait until no broker has a session open, and no session is stored as open."""
    give_up_at = time.monotonic() + TIMEOUT
    while True:
        lines = cli("broker", "list", "--format", "json").out.splitlines()
        told = [json.loads(line) for line in lines]
        left = [each for broker in told for each in broker["status"]["sessions"]]
        listed = cli("sessions", "list", "--format", "quiet").out
        if not left and not listed:
            return
        assert time.monotonic() < give_up_at, (left, listed)


def test_runs_under_a_clock_before_2025_have_ids_of_their_own(cli: Cli, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    # Python loads a module of this name first of all.
    (wrong / "sitecustomize.py").write_text("import time\ntime.time = lambda: 86400.0\n")
    cli.extra["PYTHONPATH"] = os.pathsep.join((str(wrong), cli.env["PYTHONPATH"]))
    asked = ("run", "hello", "--", *cli.agent)
    done = [cli.child(*asked) for _ in range(3)]
    assert [each.code for each in done] == [0, 0, 0], done
    ids = {JOB.search(each.err)[0] for each in done}  # type: ignore[index]
    assert len(ids) == 3
    listed = cli("jobs", "list", "--format", "json").out.splitlines()
    assert {json.loads(line)["job"] for line in listed} == ids


def test_the_session_of_a_job_without_a_waiting_caller_is_closed_at_its_end(warm: Cli) -> None:
    jobs = [submit(warm, f"hello {number}") for number in range(4)]
    child = warm.child("run", "hello 4", "--no-wait", "--approve-reads", "--", *warm.agent)
    jobs.append(child.out.strip())
    for number, job in enumerate(jobs):
        done = warm("jobs", "result", job, "--wait")
        assert (done.code, done.out) == (0, f"you said hello {number}\n")
    until_closed(warm)
    # What was said is kept.
    assert "you said hello 3" in warm("jobs", "watch", jobs[3]).out
    key = job_of(warm, jobs[3])["session_key"]
    assert "you said hello 3" in warm("sessions", "show", key).out


def test_the_session_of_a_command_that_is_killed_is_closed_when_its_job_has_ended(
    warm: Cli,
) -> None:
    peers = warm.home / "config_home" / "peers"
    peers.mkdir(parents=True)
    (peers / "mine.toml").write_text(
        'name = "mine"\ntitle = "Mine"\nprotocol = "acp"\n'
        f"[[launch]]\ncommand = {json.dumps(warm.agent)}\n"
    )
    with warm.terminal("run", "mine", "wait", "--approve-reads") as terminal:
        job = JOB.findall(terminal.expect("waiting"))[0]
        os.kill(terminal.pid, signal.SIGKILL)
        terminal.wait()
    until(warm, job, "running")
    assert warm("jobs", "cancel", job).code == 0
    until_closed(warm)


def test_the_session_of_a_job_with_a_name_stays(warm: Cli) -> None:
    job = submit(warm, "hello", "-s", "talk")
    assert warm("jobs", "result", job, "--wait").code == 0
    words = ("-s", "talk", "--approve-reads", "--format", "json", "--", *warm.agent)
    again = warm("run", "hello", *words)
    assert json.loads(again.out.splitlines()[-1])["context"] == "live"


def test_a_job_without_a_waiting_caller_has_a_result_later(warm: Cli) -> None:
    job = submit(warm, "hello", "-s", "talk")
    done = warm("jobs", "result", job, "--wait")
    assert (done.code, done.out) == (0, "you said hello\n")
    assert done.err.startswith("[ok] ")
    told = job_of(warm, job)
    assert (told["job"], told["state"], told["outcome"]) == (job, "ended", "ok")
    assert (told["prompt"], told["text"]) == ("hello", "you said hello")
    assert warm("jobs", "list", "--format", "quiet").out == f"{job}\n"


def test_a_command_says_that_its_broker_stores_nothing(warm: Cli) -> None:
    file = warm.home / "file"
    file.write_text("no folder")
    warm.extra["DRAGOMAN_STATE_HOME"] = str(file / "state")
    asked = ("run", "scout", "list the TODOs", "--format", "quiet")
    done = warm(*asked)
    assert (done.code, done.out) == (0, "I found no marks such as TODO.\n")
    assert done.err.count("this conversation is not stored: ") == 1
    done = warm(*asked, "--no-wait")
    assert (done.code, done.err.count("this conversation is not stored: ")) == (0, 1)
    assert JOB.fullmatch(done.out.strip())


def test_a_running_job_is_watched_and_cancelled_from_another_shell(warm: Cli) -> None:
    job = submit(warm, "wait", "-s", "talk")
    until(warm, job, "running")
    listed = warm("jobs", "list", "--running", "--format", "json")
    assert json.loads(listed.out)["job"] == job
    early = warm("jobs", "result", job, "--wait", "--timeout", "0.01")
    assert early.code == 3
    with warm.terminal("jobs", "watch", job) as terminal:
        terminal.expect("> wait")
        terminal.expect("waiting")
        assert warm("jobs", "cancel", job).code == 0
        terminal.expect("[cancelled")
        assert terminal.wait() == 1
    late = warm("jobs", "cancel", job)
    assert (late.code, "has already ended" in late.err) == (1, True)
    assert job_of(warm, job)["text"] == "waiting"


def test_ctrl_c_leaves_a_watched_job_alone(warm: Cli) -> None:
    job = submit(warm, "wait", "-s", "talk")
    with warm.terminal("sessions", "watch", "talk", "--from", "0") as terminal:
        terminal.expect("waiting")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
    # The broker stores the state a moment after the first words.
    until(warm, job, "running")


def test_ctrl_c_cancels_the_turn_in_the_agent_and_the_broker_stays(warm: Cli) -> None:
    words = ("-s", "talk", "--approve-reads", "--", *warm.agent)
    with warm.terminal("run", "wait", *words) as terminal:
        job = JOB.search(terminal.expect("waiting"))
        assert job is not None
        terminal.type(CTRL_C)
        terminal.expect("press Ctrl-C again to quit immediately")
        terminal.expect("[ended] cancelled")
        assert terminal.wait() == 130
    until(warm, job[0], "ended")
    assert job_of(warm, job[0])["outcome"] == "cancelled"
    assert warm("run", "hello", "--format", "quiet", *words).out == "you said hello\n"


def test_a_second_ctrl_c_leaves_at_once_an_agent_that_does_not_stop(warm: Cli) -> None:
    words = ("-s", "talk", "--approve-reads", "--", *warm.agent)
    with warm.terminal("run", "stubborn", *words) as terminal:
        terminal.expect("never")
        terminal.type(CTRL_C)
        terminal.expect("quit immediately")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
    assert len(warm.agents_left()) == 1, "the agent is the broker's, not the command's"


def test_a_closed_terminal_does_not_stop_the_turn(warm: Cli) -> None:
    words = ("-s", "talk", "--approve-reads", "--", *warm.agent)
    with warm.terminal("run", "wait", *words) as terminal:
        job = JOB.search(terminal.expect("waiting"))
        assert job is not None
        os.kill(terminal.pid, signal.SIGHUP)
        assert terminal.wait() == 143
    until(warm, job[0], "running")
    assert warm("jobs", "cancel", job[0]).code == 0
    assert warm("jobs", "result", job[0], "--wait", "--format", "quiet").out == "waiting\n"


def test_a_killed_command_leaves_a_job_that_crashed_with_what_was_stored(cli: Cli) -> None:
    with cli.terminal("run", "talk", "-s", "talk", "--", *cli.agent) as terminal:
        job = JOB.search(terminal.expect("line 40000\r\n"))
        assert job is not None
        # What came in the last tenth of a second may be lost.
        os.kill(terminal.pid, signal.SIGKILL)
        terminal.wait()
    told = job_of(cli, job[0])
    assert (told["state"], told["outcome"]) == ("ended", "crashed")
    assert told["text"].startswith("line 0\nline 1\n")
    assert cli("jobs", "result", job[0]).code == 1


def test_a_killed_delegation_leads_to_the_attempt_that_its_broker_continues(warm: Cli) -> None:
    (peers := warm.home / "config_home" / "peers").mkdir(parents=True)
    (peers / "tester.toml").write_text(
        'name = "tester"\ntitle = "Tester"\nprotocol = "acp"\nroles = ["review"]\n'
        f"[[launch]]\ncommand = {json.dumps(warm.agent)}\n"
    )
    (warm.home / "config_home" / "config.toml").write_text('enabled_peers = ["tester"]\n')
    with warm.terminal("delegate", "review", "wait") as terminal:
        found = JOB.search(terminal.expect("attempt 1"))
        assert found is not None
        job, attempt = found[0], f"{found[0]}-1"
        until(warm, attempt, "running")
        os.kill(terminal.pid, signal.SIGKILL)
        terminal.wait()
    told = warm("jobs", "result", "last")
    assert (
        told.code == 1 and f"its attempt is running (`dragoman jobs watch {attempt}`)" in told.err
    )
    listed = warm("jobs", "list", "--format", "quiet").out
    assert listed.split() == [attempt, job]
    assert warm("jobs", "list", "--running", "--format", "quiet").out.split() == [attempt]
    assert json.loads(warm("ledger", "list", "--format", "json").out)["outcome"] == "crashed"
    with warm.terminal("jobs", "watch", attempt) as terminal:
        terminal.expect("waiting\r\n")
    assert warm("jobs", "cancel", "last").code == 0
    assert warm("jobs", "result", attempt, "--wait", "--format", "quiet").out == "waiting\n"
    told = warm("jobs", "result", "last")
    assert (told.code, told.out) == (1, "waiting\n")
    ended = f"its attempt ended: cancelled (`dragoman jobs result {attempt}`)"
    assert ended in told.err
    assert warm("jobs", "cancel", "last").code == 1


def test_a_cold_job_is_cancelled_by_its_id(cli: Cli) -> None:
    with cli.terminal("run", "wait", "--", *cli.agent) as terminal:
        job = JOB.search(terminal.expect("waiting"))
        assert job is not None
        until(cli, job[0], "running")
        assert cli("jobs", "cancel", job[0]).code == 0
        terminal.expect("[ended] cancelled")
        # As with a broker: it was not interrupted from here.
        assert terminal.wait() == 1
    told = job_of(cli, job[0])
    assert (told["outcome"], told["text"]) == ("cancelled", "waiting")


def test_what_was_said_is_there_when_a_turn_takes_too_long(warm: Cli) -> None:
    words = ("--format", "quiet", "--approve-reads", "-s", "talk")
    assert warm("run", "hello", *words, "--", *warm.agent).code == 0
    # Long enough for the first words on a busy machine.
    done = warm("run", "wait", *words, "--timeout", "8", "--", *warm.agent)
    assert (done.code, done.out) == (3, "waiting\n")
    job, _ = warm("jobs", "list", "--format", "quiet").out.split()
    until(warm, job, "ended")
    told = job_of(warm, job)
    assert (told["outcome"], told["text"]) == ("timed_out", "waiting")
    assert "timed out after" in told["failure"]["message"]


def test_an_unknown_job_is_an_error(cli: Cli) -> None:
    for words in (("result", "j-0000000000"), ("watch", "j-0000000000"), ("cancel", "x")):
        done = cli("jobs", *words)
        assert (done.code, "there is no job" in done.err) == (4, True)


def test_no_wait_needs_a_broker(cli: Cli) -> None:
    done = cli("run", "hello", "--no-wait", "--", *cli.agent)
    assert done.code == 1
    assert "there is no broker that could run the turn" in done.err
    assert "what next:   without --no-wait, none is needed;" in done.err
    assert cli("run", "hello", "--no-wait", "--cold", "--", *cli.agent).code == 2
