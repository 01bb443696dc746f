"""`--host` end to end: commands on this side, a real sshd, brokers and agents on the other."""

from __future__ import annotations

import json
import re

import pytest

from tests.hosts.far_machine import SETTINGS, FarMachine
from tests.integration.pty_terminal import CTRL_C, READY

pytestmark = pytest.mark.timeout(120)


def job_in(text: str) -> str:
    found = re.search(r"j-[0-9a-z]{12}", text)
    assert found, text
    return found[0]


def test_a_prompt_runs_on_the_host_and_is_shown_here(far: FarMachine) -> None:
    done = far.cli.child("run", "far", "where", "--host", "box")
    assert done.code == 0, done.err
    assert done.out.strip() == f"in {far.work} as {far.home}"
    assert far.prompts() == ["where"]
    listed = far.far_dragoman("jobs", "list", "--format", "json")
    assert job_in(done.err) in listed.out


def test_the_host_may_be_named_before_the_command(far: FarMachine) -> None:
    done = far.cli.child("--host", "box", "run", "far", "hello", "--format", "quiet")
    assert (done.code, done.out) == (0, "far answer to: hello\n"), done.err


def test_piped_input_is_part_of_the_prompt(far: FarMachine) -> None:
    done = far.cli.child("run", "far", "--host", "box", "--format", "quiet", stdin="from a pipe\n")
    assert done.out == "far answer to: from a pipe\n", done.err


def test_files_named_in_a_prompt_are_read_on_the_host(far: FarMachine) -> None:
    (far.cli.cwd / "here.txt").write_text("here")
    done = far.cli.child("run", "far", "read @here.txt", "--host", "box")
    assert f"no such file in {far.work}" in done.err


def test_a_session_continues_on_the_host(far: FarMachine) -> None:
    for prompt in ("one", "two"):
        done = far.cli.child("run", "far", prompt, "-s", "talk", "--host", "box")
        assert done.code == 0, done.err
    shown = far.cli.child("sessions", "show", "talk", "--host", "box")
    assert "far answer to: one" in shown.out and "far answer to: two" in shown.out


def test_sessions_jobs_peers_and_brokers_are_those_of_the_host(far: FarMachine) -> None:
    done = far.cli.child("run", "far", "listed", "-s", "listed", "--host", "box")
    assert done.code == 0, done.err
    job = job_in(done.err)
    assert "listed" in far.cli.child("sessions", "--host", "box").out
    assert job in far.cli.child("--host", "box", "jobs").out
    peers = far.cli.child("peers", "list", "--format", "json", "--host", "box")
    assert "far" in [json.loads(line)["name"] for line in peers.out.splitlines()]
    assert "far" in far.cli.child("broker", "--host", "box").out
    wrong = far.cli.child("jobs", "result", "j-none", "--host", "box")
    assert wrong.code == 4 and "there is no job" in wrong.err
    assert far.cli.child("jobs").out == ""


def test_a_job_without_wait_can_be_watched_later(far: FarMachine) -> None:
    done = far.cli.child("run", "far", "stream 20", "--no-wait", "--host", "box")
    job = done.out.strip()
    watched = far.cli.child("jobs", "watch", job, "--host", "box")
    assert watched.code == 0, watched.err
    assert "<1> <2>" in watched.out and "<20>" in watched.out


def test_a_watch_continues_after_a_cursor(far: FarMachine) -> None:
    job = far.cli.child("run", "far", "stream 20", "--no-wait", "--host", "box").out.strip()
    whole = far.cli.child("jobs", "watch", job, "--format", "json", "--host", "box")
    lines = [json.loads(line) for line in whole.out.splitlines()]
    events = [line for line in lines if "cursor" in line]
    rest = far.cli.child(
        *("jobs", "watch", job, "--format", "json", "--host", "box"),
        *("--after", events[4]["cursor"]),
    )
    again = [json.loads(line) for line in rest.out.splitlines()]
    assert [each.get("cursor") for each in again] == [each.get("cursor") for each in lines[5:]]


def test_delegated_work_runs_on_the_host(far: FarMachine) -> None:
    done = far.cli.child("delegate", "review", "look", "--host", "box", stdin="a diff")
    assert done.code == 0, done.err
    assert "far answer to: look" in done.out and "a diff" in done.out
    assert "attempt 1: far" in done.err


def test_permission_requests_are_answered_at_the_local_terminal(far: FarMachine) -> None:
    with far.cli.terminal("run", "far", "ask 2", "--host", "box", columns=100) as terminal:
        terminal.expect("make step-1")
        terminal.expect("allow? ")
        terminal.type("y\n")
        # Output is held back while a question is open, and the second question may come first.
        terminal.expect("make step-2")
        terminal.expect("allow? ")
        terminal.type("n\n")
        terminal.expect("step 2 refused")
        assert "step 1 allowed" in terminal.shown
        assert terminal.wait() == 0, terminal.shown


def test_a_later_watch_shows_an_open_permission_request_again(far: FarMachine) -> None:
    """The command is killed while the agent waits for an answer; another terminal answers."""
    with far.cli.terminal("run", "far", "ask", "--host", "box", columns=100) as terminal:
        terminal.expect("allow? ")
        job = job_in(terminal.shown)
    assert not far.wait_until_gone("broker stdio")
    with far.cli.terminal("jobs", "watch", job, "--host", "box", columns=100) as terminal:
        terminal.expect("allow? ")
        terminal.type("y\n")
        terminal.expect("step 1 allowed")
        assert terminal.wait() == 0, terminal.shown


def test_an_unanswered_permission_request_is_denied_after_the_configured_time(
    far: FarMachine,
) -> None:
    far.settings('enabled_peers = ["far"]\npermissions = "ask"\nquestion_timeout = 1\n')
    try:
        with far.cli.terminal("run", "far", "ask", "--no-wait", "--host", "box") as terminal:
            assert terminal.wait() == 0, terminal.shown
        job = job_in(terminal.shown)
        done = far.cli.child("jobs", "result", job, "--wait", "--host", "box")
    finally:
        far.settings(SETTINGS)
    assert "step 1 refused" in done.out, done.err
    assert done.code == 5


def test_ctrl_c_cancels_the_turn_on_the_host(far: FarMachine) -> None:
    with far.cli.terminal("run", "far", "wait", "--host", "box", columns=100) as terminal:
        terminal.expect("waiting")
        job = job_in(terminal.shown)
        terminal.type(CTRL_C)
        assert terminal.wait() == 130, terminal.shown
    listed = far.far_dragoman("jobs", "result", job, "--format", "json", check=False)
    assert json.loads(listed.out)["outcome"] == "cancelled"


@pytest.mark.parametrize("more", [(), ("--no-wait",)])
def test_ctrl_c_while_the_prompt_is_submitted_cancels_it(
    far: FarMachine, more: tuple[str, ...]
) -> None:
    # An agent that does not start, so that the submission takes until it is cancelled.
    name = f"stuck{len(more)}"
    far.write(
        far.home / ".config" / "dragoman" / "peers" / f"{name}.toml",
        f'name = "{name}"\ntitle = "{name}"\nprotocol = "acp"\nroles = []\n'
        f'[[launch]]\ncommand = ["/bin/sh", "-c", "touch {name}; sleep 60"]\n',
    )
    words = ("run", name, "hello", *more, "--host", "box")
    with far.cli.terminal(*words, columns=100) as terminal:
        far.wait_until(lambda: (far.work / name).exists())
        terminal.type(CTRL_C)
        assert terminal.wait() == 130, terminal.shown
    assert "cancelled before the agent was prompted" in terminal.shown
    assert "Traceback" not in terminal.shown
    assert "hello" not in far.far_dragoman("jobs", "list", "--running").out


def test_ctrl_c_ends_a_delegation_on_the_host_even_before_it_starts(far: FarMachine) -> None:
    words = ("delegate", "review", "wait", "--host", "box")
    with far.cli.terminal(*words, columns=100) as terminal:
        far.wait_until(lambda: bool(far.processes(containing="broker stdio")))
        terminal.type(CTRL_C)
        assert terminal.wait() == 130, terminal.shown
    assert "wait" not in far.far_dragoman("jobs", "list", "--running").out


def test_a_chat_is_one_session_on_the_host(far: FarMachine) -> None:
    with far.cli.terminal("chat", "far", "--host", "box", columns=100) as terminal:
        terminal.expect("chatting with far on box")
        terminal.expect(READY)
        terminal.type("first\r")
        terminal.expect("far answer to: first")
        terminal.expect(READY)
        terminal.type("second\r")
        terminal.expect("far answer to: second")
        terminal.expect(READY)
        terminal.type("/quit\r")
        assert terminal.wait() == 0, terminal.shown
    jobs = far.far_dragoman("jobs", "list", "--format", "json").out.splitlines()
    sessions = {
        line["session_key"]
        for line in map(json.loads, jobs)
        if line["prompt"] in ("first", "second")
    }
    assert len(sessions) == 1


def test_an_unknown_host_is_rejected_with_a_remedy(far: FarMachine) -> None:
    done = far.cli.child("run", "far", "x", "--host", "bax")
    assert done.code == 2
    assert "did you mean box?" in done.err and "dragoman hosts add bax" in done.err
    assert far.cli.child("run", "far", "x", "--host", "-oProxyCommand=x").code == 2


def test_options_that_refer_to_this_machine_are_rejected(far: FarMachine) -> None:
    done = far.cli.child("run", "far", "x", "--host", "box", "--cold")
    assert done.code == 2 and "--cold cannot be used with --host" in done.err
    assert far.cli.child("--host", "box", "config", "show").code == 2
