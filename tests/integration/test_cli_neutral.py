"""Nothing that an agent, a project, a file name or a variable says is obeyed by a terminal.

Each command runs in a terminal of its own, in a folder with a hostile name. Colours are off, so
that no escape sequence that is seen is one of ours.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.integration.cli_shell import Cli, cli_in

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
