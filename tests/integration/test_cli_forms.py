"""An agent's questions to its user: asked on a terminal by `run`, `chat` and `delegate`, else
declined."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli_shell import Cli, warm_cli
from tests.integration.pty_terminal import CTRL_C, CTRL_D, READY

AGENT = (sys.executable, str(Path(__file__).with_name("form_agent.py")))
HOW = pytest.mark.parametrize("how", [(), ("--cold",)], ids=["warm", "cold"])


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    with warm_cli() as cli:
        (peers := cli.home / "config_home" / "peers").mkdir(parents=True)
        (peers / "asker.toml").write_text(
            'name = "asker"\ntitle = "Asker"\nprotocol = "acp"\nroles = ["survey"]\n'
            f"[[launch]]\ncommand = {json.dumps(AGENT)}\n"
        )
        (cli.home / "config_home" / "config.toml").write_text('enabled_peers = ["asker"]\n')
        yield cli


@HOW
def test_a_form_is_asked_field_by_field_with_defaults_and_choices(
    cli: Cli, how: tuple[str, ...]
) -> None:
    with cli.terminal("run", "asker", "form", *how, columns=120) as terminal:
        terminal.expect("[question] Who are you?")
        # Text of an agent never begins a row.
        terminal.expect("[question] fake row")
        terminal.expect("Your name (required)")
        terminal.expect("As on the badge")
        terminal.expect("name: ")
        terminal.type("\n")
        terminal.expect("an answer is required")
        terminal.expect("name: ")
        terminal.type("Ada\n")
        terminal.expect("1  red")
        terminal.expect("colour [1-2, default green]: ")
        terminal.type("1\n")
        terminal.expect("age: ")
        terminal.type("200\n")
        terminal.expect("the maximum is 150")
        terminal.expect("age: ")
        terminal.type("36\n")
        terminal.expect("sure [y/n, default y]: ")
        terminal.type("\n")
        terminal.expect(
            'got ElicitationAccepted {"age": 36, "colour": "red", "name": "Ada", "sure": true}'
        )
        assert terminal.wait() == 0


@HOW
def test_a_delegated_form_is_asked_too(cli: Cli, how: tuple[str, ...]) -> None:
    words = ("delegate", "survey", "form", "--peer", "asker", "--strict", *how)
    with cli.terminal(*words, columns=120) as terminal:
        terminal.expect("[question] Who are you?")
        terminal.expect("name: ")
        terminal.type("Ada\n")
        terminal.expect("colour [1-2, default green]: ")
        terminal.type("\n")
        terminal.expect("age: ")
        terminal.type("36\n")
        terminal.expect("sure [y/n, default y]: ")
        terminal.type("n\n")
        terminal.expect('"colour": "green", "name": "Ada", "sure": false')
        assert terminal.wait() == 0
    with cli.terminal("delegate", "survey", "page", "--peer", "asker", *how) as terminal:
        terminal.expect("[y/n] ")
        terminal.type("y\n")
        terminal.expect("got ElicitationAccepted")
        assert terminal.wait() == 0


def test_a_delegated_form_is_declined_without_a_terminal(cli: Cli) -> None:
    done = cli("delegate", "survey", "form", "--peer", "asker", "--strict")
    assert (done.code, done.out) == (0, "got ElicitationDeclined null\n")
    assert "no terminal to ask on" in done.err


def test_ctrl_c_at_a_delegated_form_cancels_the_work(cli: Cli) -> None:
    with cli.terminal("delegate", "survey", "form", "--peer", "asker", "--strict") as terminal:
        terminal.expect("name: ")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
        assert "ElicitationAccepted" not in terminal.shown


@pytest.mark.parametrize("typed", ["/decline\n", CTRL_D])
def test_a_form_can_be_declined(cli: Cli, typed: str) -> None:
    with cli.terminal("run", "asker", "form") as terminal:
        terminal.expect("name: ")
        terminal.type(typed)
        terminal.expect("got ElicitationDeclined null")
        assert terminal.wait() == 0


def test_ctrl_c_at_a_form_cancels_the_turn(cli: Cli) -> None:
    with cli.terminal("run", "asker", "form") as terminal:
        terminal.expect("name: ")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
        assert "ElicitationAccepted" not in terminal.shown


def test_a_page_is_shown_and_visited_only_with_consent(cli: Cli) -> None:
    for typed, got in (("n\n", "ElicitationDeclined"), ("y\n", "ElicitationAccepted")):
        with cli.terminal("run", "asker", "page") as terminal:
            terminal.expect("https://example.org/x")
            terminal.expect("[y/n] ")
            terminal.type(typed)
            terminal.expect(f"got {got}")
            assert terminal.wait() == 0


def test_a_chat_asks_forms_and_goes_on(cli: Cli) -> None:
    with cli.terminal("chat", "asker", columns=120) as terminal:
        terminal.expect(READY)
        terminal.type("form\r")
        terminal.expect("name: ")
        terminal.type("Ada\n")
        terminal.expect("colour [")
        terminal.type("\n")
        terminal.expect("age: ")
        terminal.type("36\n")
        terminal.expect("sure [")
        terminal.type("n\n")
        terminal.expect('"name": "Ada", "sure": false')
        terminal.expect(READY)
        terminal.type("/quit\r")
        assert terminal.wait() == 0


def test_without_a_terminal_a_form_is_declined_and_told(cli: Cli) -> None:
    done = cli("run", "asker", "form")
    assert (done.code, done.out) == (0, "got ElicitationDeclined null\n")
    assert "the agent's question" in done.err and "no terminal to ask on" in done.err
    # Without a broker the agent knows that it cannot ask.
    assert cli("run", "asker", "form", "--cold").out == "no forms here\n"


@pytest.mark.parametrize(("prompt", "code"), [("two forms", 0), ("forms and an error", 1)])
def test_every_form_that_was_declined_is_named_however_the_turn_ends(
    cli: Cli, prompt: str, code: int
) -> None:
    done = cli("run", "asker", prompt)
    assert done.code == code
    assert done.err.count("no terminal to ask on") == 2
    assert "Who are you?" in done.err and "Where are you?" in done.err


def test_the_forms_that_a_job_without_a_caller_declined_are_named_with_its_result(
    cli: Cli,
) -> None:
    job = cli("run", "asker", "two forms", "--no-wait").out.strip()
    for command in (("result", job, "--wait"), ("result", job), ("watch", job)):
        done = cli("jobs", *command)
        assert done.code == 0, command
        assert "Who are you?" in done.err and "Where are you?" in done.err, command
    told = json.loads(cli("jobs", "result", job, "--format", "json").out)
    assert len(told["notices"]) == 2
    logged = cli("broker", "logs", "asker")
    assert "'Where are you?' was declined" in logged.out + logged.err
