"""Nothing that an agent, a project, a file name or a variable says is obeyed by a terminal.

Each command runs in a terminal of its own, in a folder with a hostile name. Colours are off, so
that no escape sequence that is seen is one of ours.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from tests.integration.cli_shell import TIMEOUT, Cli, cli_in

EVIL = "\x1b[2J\x9b31m\x7f\u202e\u2066\u200b\U000e0041"
"""Clears the screen, in two ways; erases; turns the direction of writing; and cannot be seen."""

OBEYED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\U000e0000-\U000e007f]"
)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = cli_in(tmp_path)
    made.cwd = made.cwd / f"work {EVIL}"
    made.cwd.mkdir()
    made.extra |= {"NO_COLOR": "1", "TERM": "dumb"}
    return made


def shown(cli: Cli, *words: str, answers: tuple[tuple[str, str], ...] = ()) -> str:
    """What a command shows in a terminal, which is nothing that it obeys."""
    with cli.terminal(*words) as terminal:
        for prompt, answer in answers:
            terminal.expect(prompt)
            terminal.type(f"{answer}\n")
        terminal.wait()
        seen = terminal.shown
    found = OBEYED.search(seen)
    assert found is None, (found, seen)
    return seen


def agent(cli: Cli) -> tuple[str, ...]:
    program = str(Path(__file__).with_name("asking_agent.py"))
    return ("--", sys.executable, program, str(cli.home))


def test_an_agent_and_the_folder_it_works_in_say_nothing_to_the_terminal(cli: Cli) -> None:
    call = {
        "kind": f"read {EVIL}",
        "title": f"git status {EVIL}",
        "locations": [{"path": f"a {EVIL}"}],
        "rawInput": {"command": f"rm {EVIL}", "cwd": EVIL, f"x{EVIL}": EVIL},
        "content": [{"type": "diff", "path": EVIL, "oldText": EVIL, "newText": f"b{EVIL}"}],
    }
    prompt = json.dumps([{"ask": call}, {"save": f"c {EVIL}"}])
    words = ("run", prompt, "-s", "talk", *agent(cli))
    seen = shown(cli, *words, answers=(("allow? [", "n"), ("allow? [", "y")))
    assert "$ rm ␛[2J" in seen and "ask 0: refused" in seen and "all is well" in seen
    for each in (
        ("jobs", "list"),
        ("jobs", "list", "--format", "json"),
        ("sessions", "list"),
        ("sessions", "list", "--all"),
        ("sessions", "show", "talk"),
        ("sessions", "show", "talk", "--format", "quiet"),
        ("sessions", "export", "talk"),
        ("sessions", "export", "talk", "-o", "/dev/tty"),
        ("doctor",),
    ):
        assert shown(cli, *each).strip()


def quoted(text: str) -> str:
    """A text in TOML."""
    return '"' + "".join(f"\\U{ord(char):08x}" for char in text) + '"'


def test_a_project_says_nothing_to_the_terminal(cli: Cli) -> None:
    adapter = f"adapter{EVIL}.py"
    (cli.cwd / adapter).write_text(f"# {EVIL}\n")
    entry = {"title": f"T {EVIL}", "adapter": f"{adapter}:make"}
    table = "\n".join(f"{key} = {quoted(value)}" for key, value in entry.items())
    (cli.cwd / "dragoman.toml").write_text(
        f"model = {quoted(EVIL)}\n[peers.mine]\n{table}\n", encoding="utf-8"
    )
    folder = cli.cwd / "agents"
    folder.mkdir()
    (folder / f"helper {EVIL}.md").write_text(f"---\nname: x{EVIL}\n---\n{EVIL}\n")
    for words in (
        ("config", "trust", "--show"),
        ("config", "show"),
        ("config", "path"),
        ("agents", "list"),
        ("agents", "list", "--format", "quiet"),
        ("agents", "check"),
        ("peers", "list"),
        ("policy", "show"),
    ):
        assert shown(cli, *words).strip()
    asked = shown(cli, "config", "trust", answers=(("[y/N]", "n"),))
    assert "adapter␛[2J" in asked and "Nothing was trusted" in asked


def test_errors_and_variables_say_nothing_to_the_terminal(cli: Cli) -> None:
    for words in (
        ("run", f"nobody {EVIL}", "hi"),
        ("run", "scout", "hi", "--cwd", f"/gone {EVIL}"),
        ("run", "hi", "--", f"/gone/{EVIL}"),
        ("run", "scout", "hi", "--env", EVIL),
        ("jobs", "result", EVIL),
        ("sessions", "show", EVIL),
        (f"nothing{EVIL}",),
        ("run", f"--nothing{EVIL}"),
    ):
        assert shown(cli, *words).strip()
    cli.extra["DRAGOMAN_FORMAT"] = EVIL
    assert "\\x1b[2J" in shown(cli, "config", "show")


NOISY = """
import json, pathlib, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        send(id=id, result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        send(id=id, result={"sessionId": "s"})
        cwd = pathlib.Path(message["params"]["cwd"])
    elif method == "session/prompt":
        prompt = id
        options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"},
                   {"optionId": "n", "name": "No", "kind": "reject_once"}]
        call = {"toolCallId": "t", "title": "t", "rawInput": {"command": "touch b"}}
        send(id="asked", method="session/request_permission",
             params={"sessionId": "s", "toolCall": call, "options": options})
        (cwd / "go").read_text()
        print("NOISE", flush=True)
        print(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": "NOISE"}))
        # Its answer comes when the lines before it were read.
        send(id="read", method="fs/read_text_file",
             params={"sessionId": "s", "path": str(cwd / "notes")})
    elif id == "read":
        (cwd / "said").touch()
    elif id == "asked":
        send(id=prompt, result={"stopReason": "end_turn"})
"""
"""Asks, and writes lines that are not messages while the question is open."""


def test_a_log_line_that_quotes_an_agent_is_neutral(cli: Cli) -> None:
    program = str(Path(__file__).with_name("codex_agent.py"))
    words = ("run", "hi", "-v", "--dialect", "codex", "--", sys.executable, program)
    seen = shown(cli, *words, "unlisted", f"not today {EVIL}")
    assert "could not list the models" in seen and "not today ␛[2J" in seen


def test_a_log_line_waits_while_a_question_is_open(cli: Cli) -> None:
    noise = f"allow? [y/n] {EVIL}"
    program = cli.home / "noisy.py"
    program.write_text(NOISY.replace("NOISE", noise), encoding="utf-8")
    (cli.cwd / "notes").write_text("notes\n")
    os.mkfifo(cli.cwd / "go")
    cli.extra["PYTHONUTF8"] = "1"
    with cli.terminal("run", "hi", "-v", "--", sys.executable, str(program)) as terminal:
        assert "$ touch b" in terminal.expect("allow? [")
        (cli.cwd / "go").write_text("")
        until = time.monotonic() + TIMEOUT
        while not (cli.cwd / "said").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        terminal.type("what?\n")
        assert "noise" not in terminal.expect("what?")
        assert "allow? [y/n]" in terminal.expect("answer with one of")
        terminal.expect("$ touch b")
        terminal.expect("allow? [")
        terminal.type("n\n")
        terminal.wait()
    assert terminal.shown.count("dragoman.client: noise: ") == 2
    assert OBEYED.search(terminal.shown) is None, terminal.shown
