"""Mistakes of an agent's author, as `dragoman run PROMPT -- python AGENT` shows them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import acp as sdk
import pytest

from dragoman.testing import scripted
from tests.aio import aio
from tests.integration.cli_shell import Cli, Done, cli_in, warm_cli
from tests.integration.mcp_places import WAIT, over_stdio, settings, text_of
from tests.integration.test_serve_acp import editor

AGENT = (sys.executable, str(Path(__file__).with_name("mistaken_agent.py")))
HINT = "It was probably started incorrectly"
SECRET = "a-key-of-the-mistaken-agent-0123456789"
LOGGED = re.compile(r"incident ([0-9a-f]{8}): the handler of session/prompt failed")


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
        ("string", "turn.update() takes an ACP update, not str ('hello')"),
        ("nothing", "turn.update() takes an ACP update, not None"),
        ("divide", "ZeroDivisionError: division by zero"),
        ("relative", "must be absolute, not 'relative': write str(turn.session.cwd / 'relative')"),
        ("letters", "turn.plan() takes a list of entries, not str ('do a')"),
        ("kind", "a tool call cannot have the kind 'frobnicate'; use one of delete, edit"),
        ("status of a plan", "a plan entry cannot have the status 'doing'; use one of completed"),
        ("mapping", "turn.plan() takes a list of entries, not dict"),
        ("path", "the path of a file must be text, not PosixPath"),
        ("content", "the content of a file must be text, not int (5)"),
        (
            "question",
            "ask for permission with a title, a tool call or a ToolCallUpdate, not int (42)",
        ),
        ("options", "the options of a permission must be a list, not str ('yes')"),
        ("compared", "write `await turn.ask_permission(…)`"),
        ("kept", "`await` is missing, so nothing was sent: turn.ask_permission(…) at "),
        ("asked", "`await` is missing, so nothing was sent: client.ask(…) at "),
        ("entered", "write `await turn.terminal(…)`"),
        ("then raised", "`await` is missing, so nothing was sent: turn.read_file(…) at "),
        ("say", "`await` is missing, so nothing was sent: turn.say(…)"),
        ("plan", "`await` is missing"),
        ("notice", "`await` is missing, so nothing was sent: turn.notice(…) at "),
        ("tool", "turn.tool('T') (use it with `async with`)"),
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


def test_a_print_is_harmless_and_a_change_of_a_tool_call_has_the_name_of_the_schema(
    cli: Cli,
) -> None:
    done = run(cli, "print")
    assert (done.code, done.out.splitlines()[0]) == (0, "said")
    lines = run(cli, "tool call update", "--format", "json").out.splitlines()
    (changed,) = [each for each in map(json.loads, lines) if each["type"] == "ToolChanged"]
    assert (changed["tool_id"], changed["title"]) == ("c", "T")


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
            '[credentials]\nenv = ["MISTAKEN_KEY"]\n'
        )
        cli.extra["MISTAKEN_KEY"] = SECRET
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
    assert "said on stderr:" in done.err
    assert done.err.count("ValueError: my bug") == 1
    incident = done.err.partition("Internal error (-32603), incident ")[2].split()[0]
    assert f"incident {incident}: the handler of session/prompt failed" in done.err


@pytest.mark.parametrize("way", ["no-wait", "warm", "cold", "delegate"])
def test_a_job_keeps_the_stderr_of_its_failure_without_secrets(warm: Cli, way: str) -> None:
    prompt = "raise with the key"
    if way == "no-wait":
        job = warm("run", "mistaken", prompt, "--no-wait").out.strip()
    else:
        assert warm("peers", "enable", "mistaken").code == 0
        words = ("run", "mistaken", prompt, *(["--cold"] if way == "cold" else []))
        if way == "delegate":
            words = ("delegate", "review", prompt, "--peer", "mistaken")
        assert warm(*words).code == 1
        # A broker answers before the job is on the disk.
        newest = ("jobs", "list", "--limit", "1", "--format", "quiet")
        job = next(job for _ in range(100) if (job := warm(*newest).out.strip()))
    done = warm("jobs", "result", job, "--wait")
    assert done.code == 1
    assert "ValueError: my bug with " in done.err
    (incident,) = LOGGED.findall(done.err)
    assert f"Internal error (-32603), incident {incident}" in done.err
    told = json.loads(warm("jobs", "result", job, "--format", "json").out)
    assert told["failure"]["message"].endswith(f"incident {incident}")
    assert LOGGED.findall(told["failure"]["stderr_tail"]) == [incident]
    assert "ValueError: my bug with " in told["failure"]["stderr_tail"]
    assert "ValueError: my bug with " in warm("jobs", "watch", job).err
    assert SECRET not in done.err + json.dumps(told)
    for file in (warm.home / "state_home").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


@pytest.mark.parametrize("broker", ["1", "0"])
@aio
async def test_an_editor_gets_the_stderr_of_the_agent_with_its_error(
    warm: Cli, broker: str
) -> None:
    assert warm("peers", "enable", "mistaken").code == 0
    warm.extra["DRAGOMAN_WARM"] = broker
    async with editor(warm, "--peer", "mistaken") as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
        with pytest.raises(sdk.RequestError) as caught:
            await it.agent.prompt(session, [sdk.text_block("raise with the key")])
        data: Any = caught.value.data
        tail = data["dragoman"]["stderrTail"]
        assert LOGGED.findall(tail) == [data["incident"]]
        assert "ValueError: my bug with " in tail and SECRET not in tail
        await it.agent.set_config_option("peer", session, "auto")
        with pytest.raises(sdk.RequestError) as caught:
            await it.agent.prompt(session, [sdk.text_block("/delegate review raise with the key")])
        told = str(caught.value)
        assert LOGGED.search(told) and "ValueError: my bug with " in told and SECRET not in told
        assert "ValueError: my bug with " in str(it.updates)


def test_a_client_of_a_dragoman_in_between_is_shown_the_stderr_of_the_agent(warm: Cli) -> None:
    assert warm("peers", "enable", "mistaken").code == 0
    ours = [f"{name}={value}" for name, value in warm.env.items() if name != "PATH"]
    server = ["env", *ours, *warm.argv("serve", "acp", "--peer", "mistaken")]
    for cold in ((), ("--cold",)):
        done = warm("run", "raise", *cold, "--", *server)
        assert done.code == 1
        assert done.err.count("ValueError: my bug") == 1
        (incident,) = LOGGED.findall(done.err)
        assert f"Internal error (-32603), incident {incident}" in done.err


@aio
async def test_a_host_of_mcp_gets_the_stderr_of_the_agent_with_every_tool(warm: Cli) -> None:
    settings(warm, 'enabled_peers = ["mistaken"]\n')
    async with asyncio.timeout(WAIT), over_stdio(warm) as host:
        prompt = "raise with the key"
        asked = await host.call_tool("ask_peer", {"peer": "mistaken", "prompt": prompt})
        work = {"role": "review", "prompt": prompt, "peer": "mistaken"}
        delegated = await host.call_tool("delegate", work)
        assert asked.structured_content is not None
        job = {"job": asked.structured_content["job"]}
        for answer in (asked, delegated, await host.call_tool("job_result", job)):
            told = text_of(answer)
            assert answer.is_error
            assert LOGGED.search(told) and "ValueError: my bug with " in told
            assert SECRET not in told + json.dumps(answer.structured_content)


TWO_HANDLERS = """
from dragoman import Agent
a = Agent('a')
@a.prompt
async def first(turn): ...
@a.prompt
async def second(turn): ...
"""


@pytest.mark.parametrize(
    "source",
    [
        "from dragoman import Agent\nAgent('a').run()\n",
        "from dragoman import Agent\na = Agent('a')\n@a.prompt()\nasync def p(turn): ...\n",
        TWO_HANDLERS,
        "from dragoman import Agent\na = Agent('a')\n@a.prompt\nasync def p(): ...\n",
        "from dragoman import Agent\na = Agent('a')\n@a.prompt\nasync def p(turn): yield 'a'\n",
        "raise ValueError('my bug')\n",
        "def f(:\n",
        "from dragoman import Agent\na = Agent(42)\n",
        "from dragoman import Agent\na = Agent('a')\na.prompt('hello')\n",
        "from dragoman import Agent\na = Agent('a')\n@a.command\nasync def c(turn, words): ...\n",
    ],
    ids=[
        *("no handler", "a decorator that was called", "two handlers"),
        *("a handler without an argument", "a generator", "an exception", "its syntax", "its name"),
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
    assert "The error is in the program itself." in done.err
    assert "what next:   fix the program: its stderr above says where" in done.err
    assert HINT not in done.err


def test_an_agent_that_never_runs_is_reported(cli: Cli) -> None:
    program = cli.home / "a.py"
    program.write_text("from dragoman import Agent\na = Agent('a')\n")
    done = cli("run", "hi", "--", sys.executable, str(program))
    assert done.code == 1
    assert "If it is an agent made with dragoman, `agent.run()` is missing." in done.err


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
    assert "the agent sent an invalid message: an invalid update: " in shown.err
