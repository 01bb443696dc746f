"""Mistakes of an agent's author, as `dragoman run PROMPT -- python AGENT` shows them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.testing import scripted
from tests.integration.cli_shell import Cli, Done, cli_in, warm_cli

AGENT = (sys.executable, str(Path(__file__).with_name("mistaken_agent.py")))
HINT = "It was probably started in the wrong way"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def run(cli: Cli, prompt: str, *options: str) -> Done:
    return cli("run", prompt, *options, "--", *AGENT)


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("raise", "ValueError: my bug"),
        ("exit", "RuntimeError: a handler called sys.exit(3)"),
        ("return", "text is sent with `await turn.say(text)`"),
        ("stop", "returned the stop reason 'done'"),
        ("number", "turn.say() takes text or a content block, not int (42)"),
        ("none", "turn.say() takes text or a content block, not None"),
        ("string", "turn.update() takes an update of ACP, not str ('hello')"),
        ("wrong update", "a change of a tool call is a ToolCallProgress"),
        ("letters", "turn.plan() takes a list of entries, not str ('do a')"),
        ("kind", "there is no kind 'frobnicate' of a tool call; there are delete, edit"),
        ("status of a plan", "there is no status 'doing' of a plan's entry; there are completed"),
        ("mapping", "turn.plan() takes a list of entries, not dict"),
        ("path", "the path of a file is text, not PosixPath"),
        ("content", "the content of a file is text, not int (5)"),
        ("question", "asked for with a title, a tool call or a ToolCallUpdate, not int (42)"),
        ("options", "the options of a permission are a list, not str ('yes')"),
        ("compared", "write `await turn.ask_permission(…)`"),
        ("kept", "`await` is missing, so nothing was sent: turn.ask_permission(…) at "),
        ("asked", "`await` is missing, so nothing was sent: client.ask(…) at "),
        ("entered", "write `await turn.terminal(…)`"),
        ("then raised", "`await` is missing, so nothing was sent: turn.read_file(…) at "),
        ("say", "`await` is missing, so nothing was sent: turn.say(…)"),
        ("plan", "`await` is missing"),
        ("notice", "`await` is missing, so nothing was sent: turn.notice(…) at "),
        ("tool", "turn.tool('T'), use it as `async with`"),
        ("truth", "write `await turn.ask_permission(…)`"),
        ("unused", "`await` is missing, so nothing was sent: turn.ask_permission(…) at "),
    ],
)
def test_a_mistake_is_an_error_with_its_traceback(cli: Cli, prompt: str, told: str) -> None:
    done = run(cli, prompt)
    assert done.code == 1
    assert told in done.err
    assert "mistaken_agent.py" in done.err or prompt in ("return", "stop", "tool", "plan")
    incident = done.err.partition("Internal error (-32603), incident ")[2].split()[0]
    assert done.err.count("Traceback (most recent call last)") == 1
    assert f"incident {incident}: the handler of session/prompt failed" in done.err


def test_an_exception_of_any_kind_ends_the_turn(cli: Cli) -> None:
    done = run(cli, "base")
    assert done.code == 1
    assert "Unusual: my bug" in done.err
    incident = done.err.partition("Internal error (-32603), incident ")[2].split()[0]
    assert f"incident {incident}: the handler of session/prompt failed" in done.err


def test_a_refused_permission_does_not_read_as_consent(cli: Cli) -> None:
    assert "left it" in run(cli, "refused", "--deny-all").out
    assert "did it" in run(cli, "refused", "--approve-all").out


def test_the_stderr_of_an_agent_is_shown_to_who_asked_for_it(cli: Cli) -> None:
    assert "agent: words on stderr" in run(cli, "stderr", "--agent-stderr").err
    assert "agent: words on stderr" in run(cli, "stderr", "--verbose").err
    assert "words on stderr" not in run(cli, "stderr").err
    assert run(cli, "stderr", "--agent-stderr", "--json-strict").err == ""


def test_the_error_of_a_turn_carries_the_stderr_for_programs(cli: Cli) -> None:
    lines = [json.loads(line) for line in run(cli, "raise", "--format", "json").out.splitlines()]
    (result,) = [line for line in lines if line["type"] == "Result"]
    assert "ValueError: my bug" in result["error"]["stderr_tail"]


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        peers = cli.home / "config_home" / "peers"
        peers.mkdir(parents=True)
        command = json.dumps([*AGENT, str(cli.home)])
        (peers / "mistaken.toml").write_text(
            'name = "mistaken"\ntitle = "x"\nprotocol = "acp"\nroles = ["review"]\n'
            f"[[launch]]\ncommand = {command}\n"
        )
        yield cli


def test_a_broker_hands_on_what_its_agent_says_on_stderr(warm: Cli) -> None:
    done = warm("run", "mistaken", "raise")
    assert done.code == 1
    assert done.err.count("ValueError: my bug") == 1
    assert "incident" in done.err
    for option in ("--agent-stderr", "--verbose"):
        assert "agent: words on stderr" in warm("run", "mistaken", "stderr", option).err
    assert "words on stderr" not in warm("run", "mistaken", "stderr").err


def test_a_delegation_hands_on_what_its_agent_says_on_stderr(warm: Cli) -> None:
    assert warm("peers", "enable", "mistaken").code == 0
    done = warm("delegate", "review", "raise", "--peer", "mistaken")
    assert done.code == 1
    assert "dragoman: mistaken said on stderr:" in done.err
    assert done.err.count("ValueError: my bug") == 1
    incident = done.err.partition("Internal error (-32603), incident ")[2].split()[0]
    assert f"incident {incident}: the handler of session/prompt failed" in done.err


@pytest.mark.parametrize(
    "source",
    [
        "from dragoman import Agent\nAgent('a').run()\n",
        "from dragoman import Agent\na = Agent('a')\n@a.prompt()\nasync def p(turn): ...\n",
        "raise ValueError('my bug')\n",
        "def f(:\n",
        "from dragoman import Agent\na = Agent(42)\n",
        "from dragoman import Agent\na = Agent('a')\na.prompt('hello')\n",
        "from dragoman import Agent\na = Agent('a')\n@a.command\nasync def c(turn, words): ...\n",
    ],
    ids=[
        *("no handler", "a decorator that was called", "an exception", "its syntax", "its name"),
        *("a handler that is text", "a command without a name"),
    ],
)
def test_an_agent_that_died_of_its_own_exception_is_not_told_how_to_be_started(
    cli: Cli, source: str
) -> None:
    program = cli.home / "a.py"
    program.write_text(source)
    done = cli("run", "hi", "--", sys.executable, str(program))
    assert done.code == 1
    assert "Error: " in done.err
    assert "It ended with an error of its own." in done.err
    assert HINT not in done.err


def test_an_agent_that_never_runs_is_told_so(cli: Cli) -> None:
    program = cli.home / "a.py"
    program.write_text("from dragoman import Agent\na = Agent('a')\n")
    done = cli("run", "hi", "--", sys.executable, str(program))
    assert done.code == 1
    assert "In an agent made with dragoman, `agent.run()` is missing." in done.err


def test_an_invalid_update_that_arrives_is_an_event_of_its_turn(cli: Cli) -> None:
    bad = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": 42}}
    said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "ok"}}
    agent = scripted.command(
        scripted.Expect("initialize"),
        scripted.Reply({"protocolVersion": 1, "agentCapabilities": {}}),
        scripted.Expect("session/new"),
        scripted.Reply({"sessionId": "s"}),
        scripted.Expect("session/prompt"),
        scripted.Notify("session/update", {"sessionId": "s", "update": bad}),
        scripted.Notify("session/update", {"sessionId": "s", "update": said}),
        scripted.Reply({"stopReason": "end_turn"}),
    )
    done = cli("run", "hi", "--format", "json", "--", *agent)
    lines = [json.loads(line) for line in done.out.splitlines()]
    (unknown,) = [line for line in lines if line["type"] == "Unknown"]
    assert unknown["reason"].startswith("an invalid update: ")
    assert (unknown["session"], unknown["native"]) == ("s", "session/update")
    shown = cli("run", "hi", "--", *agent)
    assert shown.code == 0
    assert "the agent sent what is not a message of its protocol: an invalid update: " in shown.err
