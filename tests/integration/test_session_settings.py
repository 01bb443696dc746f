"""--system-prompt, --allow-tool and --max-turns, from the command line to an agent and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli_shell import Cli, warm_cli

AGENT = (sys.executable, str(Path(__file__).with_name("settings_agent.py")))

PEER = """
name = "{name}"
title = "{name}"
protocol = "acp"
roles = ["review"]

[[launch]]
command = {command}
"""
META = """
[session.system_prompt]
detail = "session_meta.systemPrompt.append"
[session.allow_tool]
detail = "session_meta.claudeCode.options.allowedTools"
[session.max_turns]
detail = "session_meta.claudeCode.options.maxTurns"
"""
WORDS = """
[session.system_prompt]
arguments = ["--append", "{value}"]
"""

WANTED = ("--system-prompt", "Be brief.", "--allow-tool", "Read", "--allow-tool", "Edit")
OPTIONS = {"allowedTools": ["Read", "Edit"], "maxTurns": 3}
IN_META = {"systemPrompt": {"append": "Be brief."}, "claudeCode": {"options": OPTIONS}}


@pytest.fixture
def cli() -> Iterator[Cli]:
    with warm_cli() as cli:
        folder = cli.home / "config_home" / "peers"
        folder.mkdir(parents=True)
        for name, table in (("meta", META), ("words", WORDS), ("plain", "")):
            text = PEER.format(name=name, command=json.dumps(AGENT)) + table
            (folder / f"{name}.toml").write_text(text)
        assert cli("peers", "enable", "plain", "words", "meta").code == 0
        yield cli


@pytest.mark.parametrize("how", [(), ("--cold",)], ids=["warm", "cold"])
def test_settings_reach_the_agent_with_its_session(cli: Cli, how: tuple[str, ...]) -> None:
    said = cli.child("run", "meta", "hi", *WANTED, "--max-turns", "3", *how)
    assert said.code == 0, said.err
    assert json.loads(said.out) == [IN_META, []]
    # The next command without them has a session without them.
    plain = cli("run", "meta", "hi", *how)
    assert json.loads(plain.out) == [None, []]
    file = cli.cwd / "rules.md"
    file.write_text("Be kind.\n")
    words = cli("run", "words", "hi", f"--system-prompt=@{file}", *how)
    assert json.loads(words.out) == [None, ["--append", "Be kind.\n"]]


def test_a_chat_takes_them_too(cli: Cli) -> None:
    said = cli("chat", "words", "--system-prompt", "Be brief.", stdin="hi\n")
    assert said.code == 0 and json.loads(said.out) == [None, ["--append", "Be brief."]]


def test_a_peer_that_cannot_is_refused_before_anything_is_started(cli: Cli) -> None:
    said = cli("run", "plain", "hi", "--system-prompt", "Be brief.")
    assert (said.code, said.out) == (2, "")
    assert "plain does not support --system-prompt; meta, words do" in said.err
    turns = cli("run", "words", "hi", "--max-turns", "3")
    assert turns.code == 2 and "words does not support --max-turns; meta does" in turns.err
    assert cli("broker", "list", "--format", "quiet").out == ""


def test_work_is_delegated_to_a_peer_that_can(cli: Cli) -> None:
    said = cli("delegate", "review", "hi", "--max-turns", "3", "--format", "json", "--cold")
    assert said.code == 0, said.err
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert lines[-1]["answered"] == "meta"
    decision = next(line for line in lines if line["type"] == "Decision")
    over = {each["peer"]: each["detail"] for each in decision["passed_over"]}
    assert over["plain"] == over["words"] == "it does not support --max-turns; omit it"
    named = cli("delegate", "review", "hi", "--max-turns", "3", "--peer", "plain")
    assert named.code == 7 and "plain: it does not support --max-turns" in named.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--max-turns", "0"), "--max-turns must be at least 1, not 0"),
        (("--system-prompt", " "), "--system-prompt is empty"),
        (("--system-prompt", "@nope.md"), "'nope.md' cannot be read"),
        (("--allow-tool", ""), "--allow-tool takes the name of a tool"),
        (("--allow-tool", "Read", "--deny-all"), "cannot be combined"),
        (("--max-turns", "2", "--dialect", "acp"), "--dialect"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(cli: Cli, words: tuple[str, ...], why: str) -> None:
    said = cli("run", "meta", "hi", *words)
    assert (said.code, said.out) == (2, "") and why in said.err


def test_delegated_work_does_not_allow_tools_by_itself(cli: Cli) -> None:
    cli.extra |= {"DRAGOMAN_DEPTH": "1", "DRAGOMAN_MAX_DEPTH": "3"}
    said = cli("run", "meta", "hi", "--allow-tool", "Edit")
    assert said.code == 2, said.out + said.err
    assert "--allow-tool cannot be used in delegated work" in said.err
