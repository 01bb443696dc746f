"""What a person at a terminal sees and can do: colours, questions, Ctrl-C."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from dragoman.transports.process.strays import find_owned
from tests.integration.cli_shell import Cli, cli_in
from tests.integration.pty_terminal import CTRL_C


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


# -- looking


def test_a_terminal_gets_colours_unless_they_are_disabled(cli: Cli) -> None:
    with cli.terminal("run", "hello", "--", *cli.agent) as terminal:
        assert terminal.wait() == 0
        assert "\x1b[32m[done] ok" in terminal.shown
    cli.extra["NO_COLOR"] = "1"
    with cli.terminal("run", "evil", "--", *cli.agent) as terminal:
        assert terminal.wait() == 0
        assert "\x1b" not in terminal.shown and "␛]0;owned␇" in terminal.shown


# -- questions


@pytest.mark.parametrize(("key", "code", "then"), [("y", 0, "written"), ("n", 5, "not allowed")])
def test_a_person_is_asked_before_something_is_written(
    cli: Cli, key: str, code: int, then: str
) -> None:
    with cli.terminal("run", "write", "--", *cli.agent) as terminal:
        before = terminal.expect("allow? [")
        assert "+new" in before and "Write notes.md" in before
        terminal.type("what\n")
        terminal.expect("answer with one of")
        # What is typed before the question stands there again is dropped.
        terminal.expect("allow? [")
        terminal.type(f"{key}\n")
        terminal.expect(then)
        assert terminal.wait() == code


def test_ctrl_c_at_a_question_cancels_the_turn(cli: Cli) -> None:
    with cli.terminal("run", "write", "--", *cli.agent) as terminal:
        terminal.expect("allow? [")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
        assert "cancelled by you" in terminal.shown
    assert cli.agents_left() == []


# -- stopping


def test_ctrl_c_cancels_the_turn_in_the_agent_and_nothing_is_left(cli: Cli) -> None:
    with cli.terminal("run", "wait", "--", *cli.agent) as terminal:
        terminal.expect("waiting")
        terminal.type(CTRL_C)
        terminal.expect("[ended] cancelled")
        assert terminal.wait() == 130
    assert cli.agents_left() == []


def test_a_second_ctrl_c_ends_an_agent_that_does_not_listen(cli: Cli) -> None:
    with cli.terminal("run", "stubborn", "--", *cli.agent) as terminal:
        terminal.expect("never")
        terminal.type(CTRL_C)
        terminal.expect("press Ctrl-C again to end the agent")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
    assert cli.agents_left() == []


def test_ctrl_c_before_the_agent_answers_ends_it_too(cli: Cli) -> None:
    door = cli.cwd / "door"
    os.mkfifo(door)
    agent = ("sh", "-c", f"echo up > {door}; sleep 60", str(cli.home))
    with cli.terminal("run", "hi", "--", *agent) as terminal:
        assert door.read_text() == "up\n"
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
    assert cli.agents_left() == []


def test_being_ended_from_outside_cancels_the_turn_and_leaves_nothing(cli: Cli) -> None:
    with cli.terminal("run", "wait", "--", *cli.agent) as terminal:
        terminal.expect("waiting")
        os.kill(terminal.pid, signal.SIGTERM)
        terminal.expect("[ended] cancelled")
        assert terminal.wait() == 143
    assert cli.agents_left() == []


def test_a_reader_that_goes_away_ends_it_quietly(cli: Cli) -> None:
    out, write = os.pipe()
    err, write_err = os.pipe()
    pid = os.posix_spawn(
        cli.argv()[0],
        cli.argv("run", "talk", "--", *cli.agent),
        cli.env,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, write, 1),
            (os.POSIX_SPAWN_DUP2, write_err, 2),
        ],
    )
    os.close(write)
    os.close(write_err)
    assert os.read(out, 6).startswith(b"line 0"[:1])
    os.close(out)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(err, "rb") as told:
        assert told.read().startswith(b"dragoman: job j-")
    assert os.waitstatus_to_exitcode(status) == 1
    assert cli.agents_left() == []
    assert find_owned(str(pid)) == []
