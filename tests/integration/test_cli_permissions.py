"""Permissions without any rule in the settings, from the command line to an agent in its process.

The same acts with an agent of our own, through a broker, and left to the broker; and at a terminal,
where a person is asked.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_shell import TIMEOUT, Cli, Done, cli_in, warm_cli

ERASED = re.compile(r"\x1b\[J")
"""Stands where a status line was."""

READ = {"kind": "read", "title": "Read a", "locations": [{"path": "a"}]}
RUN = {"kind": "read", "title": "Read a", "rawInput": {"command": "touch b"}}
DIFF = {
    "kind": "read",
    "title": "Read a",
    "content": [{"type": "diff", "path": "a", "oldText": "old\n", "newText": "new\n"}],
}
FLAG = {"kind": "read", "title": "Read a", "rawInput": {"path": "a", "delete": True}}
UNKNOWN = {"kind": "read", "title": "Read a", "rawInput": {"payload": "x"}}


def agent(cli: Cli) -> tuple[str, ...]:
    program = str(Path(__file__).with_name("asking_agent.py"))
    return ("--", sys.executable, program, str(cli.home))


def asks(*calls: Any) -> str:
    return json.dumps([{"ask": call} for call in calls])


def saves(*paths: str) -> str:
    return json.dumps([{"save": path} for path in paths])


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def unwrapped(shown: str) -> str:
    """A question without the breaks of lines that are longer than a row of the terminal."""
    return shown.replace("\r\n  | ", "")


def said(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith(("ask ", "save "))]


CLAIMED = ["ask 0: allowed", *(f"ask {number}: refused" for number in range(1, 5))]


def test_a_read_is_what_would_be_read_and_not_what_the_agent_calls_one(cli: Cli) -> None:
    for flags in ((), ("--approve-reads",)):
        done = cli("run", asks(READ, RUN, DIFF, UNKNOWN, FLAG), *flags, *agent(cli))
        assert said(done.out) == CLAIMED, done.err
        assert "4 permissions denied" in done.err


def test_a_read_is_judged_alike_behind_a_broker_with_and_without_a_caller(warm: Cli) -> None:
    prompt = asks(READ, RUN, DIFF, UNKNOWN, FLAG)
    done = warm("run", prompt, "-s", "talk", *agent(warm))
    assert said(done.out) == CLAIMED, done.err
    left = warm("run", prompt, "-s", "talk", "--no-wait", *agent(warm))
    assert said(warm("jobs", "result", left.out.strip(), "--wait").out) == CLAIMED


SAVED = {
    "--approve-all": ["save a: done", "save .git/hooks/pre-commit: not_permitted"],
    "--approve-reads": ["save a: not_permitted", "save .git/hooks/pre-commit: not_permitted"],
    "--deny-all": ["save a: not_permitted", "save .git/hooks/pre-commit: not_permitted"],
}


@pytest.mark.parametrize("flag", SAVED)
def test_a_file_is_written_as_the_policy_says_and_what_was_refused_is_counted(
    cli: Cli, flag: str
) -> None:
    (cli.cwd / ".git" / "hooks").mkdir(parents=True)
    done = cli("run", saves("a", ".git/hooks/pre-commit"), flag, *agent(cli))
    assert said(done.out) == SAVED[flag], done.err
    assert ("1 permission denied" if flag == "--approve-all" else "2 permissions") in done.err
    assert ("--deny-all (or `permissions`" in done.err) is (flag == "--deny-all")
    assert ("only reads are allowed" in done.err) is (flag == "--approve-reads")
    assert (cli.cwd / "a").exists() is (flag == "--approve-all")
    assert not (cli.cwd / ".git/hooks/pre-commit").exists()


def test_a_file_is_written_alike_behind_a_broker_with_and_without_a_caller(warm: Cli) -> None:
    (warm.cwd / ".git" / "hooks").mkdir(parents=True)
    prompt = saves("a", ".git/hooks/pre-commit")
    for flag, expected in SAVED.items():
        done = warm("run", prompt, flag, "-s", "talk", *agent(warm))
        assert said(done.out) == expected, done.err
        assert ("1 permission denied" if flag == "--approve-all" else "2 permissions") in done.err
        left = warm("run", prompt, flag, "-s", "talk", "--no-wait", *agent(warm))
        assert said(warm("jobs", "result", left.out.strip(), "--wait").out) == expected
    assert not (warm.cwd / ".git/hooks/pre-commit").exists()


CODEX = (
    "--dialect",
    "codex",
    "--",
    sys.executable,
    str(Path(__file__).with_name("codex_agent.py")),
)


def test_codex_is_judged_by_the_files_that_it_announced_warm_and_cold(cli: Cli, warm: Cli) -> None:
    for at in (cli, warm):
        for path, decided in (("a", "accept"), (".git/hooks/pre-commit", "decline")):
            done = at("run", f"edit {at.cwd / path}", "--approve-all", *CODEX)
            assert f"decided {decided}" in done.out, done.err


def test_a_question_of_codex_shows_the_change(cli: Cli) -> None:
    with cli.terminal("run", f"edit {cli.cwd / 'a'}", *CODEX) as terminal:
        shown = unwrapped(terminal.expect("allow? [")).rpartition("[permission]")[2]
        assert f"{cli.cwd / 'a'} (new file)" in shown and "+planted" in shown
        terminal.type("n\n")
        terminal.expect("decided decline")
        terminal.wait()


# -- what a denied turn is


def result_of(out: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def told(done: Done) -> str:
    assert done.out, done.err
    outcome: str = json.loads(done.out)["outcome"]
    return outcome


MIXED = json.dumps([{"ask": READ}, {"ask": RUN}, {"save": "a"}])
DENIED = json.dumps([{"ask": RUN}])
DENIED_WRITE = json.dumps([{"save": "a"}])
DENIED_AND_ENDED = [
    json.dumps([{"ask": RUN}, {"end": stop}]) for stop in ("max_tokens", "refusal", "cancelled")
]


@pytest.mark.parametrize("prompt", [DENIED, DENIED_WRITE, *DENIED_AND_ENDED])
def test_a_turn_with_a_denial_and_no_approval_is_denied_whatever_the_agent_says(
    cli: Cli, prompt: str
) -> None:
    done = cli("run", prompt, "--format", "json", *agent(cli))
    result = result_of(done.out)
    assert "all is well" in result["text"]
    assert (done.code, result["exit_code"], result["outcome"]) == (5, 5, "denied")
    assert (len(result["denials"]), result["approvals"]) == (1, 0)
    told = cli("run", prompt, *agent(cli))
    assert (
        told.code == 5
        and "[ended] denied" in told.err
        and "these permissions were denied" in told.err
    )


def test_a_mixture_of_denials_and_approvals_is_reported_in_the_result(cli: Cli) -> None:
    done = cli("run", MIXED, "--format", "json", *agent(cli))
    result = result_of(done.out)
    assert (done.code, result["outcome"]) == (0, "ok")
    assert (len(result["denials"]), result["approvals"]) == (2, 1)
    assert "2 permissions denied, 1 approved" in cli("run", MIXED, *agent(cli)).err


def test_a_denied_turn_is_a_denied_job_with_and_without_a_caller(warm: Cli) -> None:
    for prompt, code, outcome in (
        (DENIED, 5, "denied"),
        (DENIED_WRITE, 5, "denied"),
        (MIXED, 0, "ok"),
    ):
        done = warm("run", prompt, "-s", "talk", "--format", "json", *agent(warm))
        result = result_of(done.out)
        assert (done.code, result["outcome"]) == (code, outcome), done.err
        left = warm("run", prompt, "-s", "talk", "--no-wait", *agent(warm))
        # The first one is stored before the second one begins.
        for job in (left.out.strip(), result["job"]):
            stored = warm("jobs", "result", job, "--wait", "--format", "json")
            assert (stored.code, told(stored)) == (code, outcome)


# -- at a terminal


def test_a_person_is_asked_before_a_file_is_written_for_the_agent(cli: Cli) -> None:
    with cli.terminal("run", saves("a", "a", "b", "b"), *agent(cli)) as terminal:
        shown = unwrapped(terminal.expect("allow? ["))
        assert "[permission] change files" in shown and str(cli.cwd / "a") in shown
        assert "+saved" in shown
        terminal.type("n\n")
        terminal.expect("save a: not_permitted")
        terminal.expect("allow? [")
        terminal.type("y\n")
        terminal.expect("save a: done")
        terminal.expect("allow? [")
        terminal.type("a\n")
        assert "allow?" not in terminal.expect("save b: done\r\n")
        assert "allow?" not in terminal.expect("save b: done\r\n")
        assert terminal.wait() == 0
    assert (cli.cwd / "a").read_text() == (cli.cwd / "b").read_text() == "saved\n"


def test_approving_everything_still_asks_before_a_hook_of_git_is_written(cli: Cli) -> None:
    (cli.cwd / ".git").mkdir()
    with cli.terminal("run", saves("a", ".git/config"), "--approve-all", *agent(cli)) as terminal:
        assert "save a: done" in terminal.expect("allow? [")
        terminal.type("n\n")
        terminal.expect("save .git/config: not_permitted")
        terminal.wait()
    assert not (cli.cwd / ".git/config").exists()


@pytest.mark.parametrize("flags", [(), ("--approve-all",)])
def test_every_writing_of_a_protected_file_is_asked_about(cli: Cli, flags: tuple[str, ...]) -> None:
    (cli.cwd / ".git").mkdir()
    prompt = saves(".git/config", ".git/config")
    with cli.terminal("run", prompt, *flags, *agent(cli)) as terminal:
        terminal.expect("allow? [y/n] ")
        terminal.type("y\n")
        terminal.expect("allow? [y/n] ")
        terminal.type("n\n")
        terminal.expect("save .git/config: not_permitted")
        terminal.wait()


def test_a_question_shows_what_would_be_done_whatever_its_title_says(cli: Cli) -> None:
    calls = (
        {"kind": "read", "title": "git status", "rawInput": {"command": "rm -rf ~", "cwd": "/x"}},
        {"kind": "execute", "title": "ls", "rawInput": {"command": ["rm", "-rf", "a b"]}},
        {**DIFF, "title": "Look"},
        {"kind": "execute", "title": "git status"},
        UNKNOWN,
    )
    with cli.terminal("run", asks(*calls), *agent(cli)) as terminal:
        for expected in (
            ("run a command, which the agent calls 'git status'", "  $ rm -rf ~", "  in /x"),
            ("run a command", '  $ ["rm","-rf","a b"]'),
            ("change files, which the agent calls 'Look'", "  a (changed)", "-old", "+new"),
            ("a command that the agent does not show",),
            ("do something (read)", 'input: {"payload":"x"}'),
        ):
            shown = terminal.expect("allow? [").rpartition("[permission]")[2]
            assert all(text in shown for text in expected), shown
            terminal.type("n\n")
        terminal.wait()


def test_a_file_that_does_not_exist_is_new_although_the_agent_calls_its_old_text_empty(
    cli: Cli,
) -> None:
    (cli.cwd / "here").touch()
    for name, word in (("new", "new file"), ("here", "changed")):
        diff = {"type": "diff", "path": str(cli.cwd / name), "oldText": "", "newText": "x\n"}
        call = {"kind": "edit", "title": "Write", "content": [diff]}
        with cli.terminal("run", asks(call), *agent(cli), columns=200) as terminal:
            shown = terminal.expect("allow? [")
            assert shown.count(f"{cli.cwd / name} ({word})") == shown.count(f"{name} (") > 0
            terminal.type("n\n")
            terminal.wait()


def test_the_end_of_a_command_that_is_too_long_is_shown_too(cli: Cli) -> None:
    blanks = "git status" + " " * 3000 + "; rm -rf ~"
    lines = "git status\n" * 40 + "rm -rf ~"
    fake = "ls;" + " " * 200 + "[permission] read notes.md\n[permission] read notes.md"
    calls = [
        {"kind": "execute", "title": "git status", "rawInput": {"command": command}}
        for command in (blanks, lines, fake)
    ]
    with cli.terminal("run", asks(*calls), *agent(cli)) as terminal:
        for expected in ("; rm -rf ~", "rm -rf ~", "read notes.md"):
            shown = terminal.expect("allow? [")
            assert expected in unwrapped(shown)
            assert ("omitted" in shown) is (expected != "read notes.md")
            # No row but the first looks like the beginning of a question.
            rows = ERASED.sub("", shown).splitlines()
            assert len([row for row in rows if row.startswith("[perm")]) == 1
            terminal.type("n\n")
        terminal.wait()


def test_what_was_typed_before_a_question_does_not_answer_it(cli: Cli) -> None:
    os.mkfifo(cli.cwd / "go")
    acts = [{"after": "go"}, {"ask": RUN}]
    with cli.terminal("run", json.dumps(acts), *agent(cli)) as terminal:
        terminal.expect("after go")
        terminal.type("y\ny\n")
        terminal.expect("y\r\ny\r\n")
        (cli.cwd / "go").write_text("")
        terminal.expect("allow? [")
        terminal.type("n\n")
        terminal.expect("ask 1: refused")
        terminal.wait()


FAKE = "\n" * 60 + "[permission] read\n  notes.md\n  y  allow once\n  n  refuse\nallow? [y/n] "


def test_nothing_is_shown_while_a_question_is_open(cli: Cli) -> None:
    os.mkfifo(cli.cwd / "go")
    acts = [{"talk": [RUN, FAKE]}, {"answered": True}]
    with cli.terminal("run", json.dumps(acts), "--agent-stderr", *agent(cli)) as terminal:
        assert "$ touch b" in terminal.expect("allow? [")
        (cli.cwd / "go").write_text("")
        until = time.monotonic() + TIMEOUT
        while not (cli.cwd / "said").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        # A wrong answer brings the whole question again, below all that was held back.
        terminal.type("what?\n")
        terminal.expect("answer with one of")
        assert "$ touch b" in terminal.expect("allow? [")
        shown = terminal.shown
        terminal.type("n\n")
        terminal.expect("answered [False]")
        terminal.wait()
    assert "notes.md" not in shown.partition("allow? [")[2].partition("what?")[0]
    assert shown.rindex("$ touch b") > shown.rfind("notes.md")
    assert "  notes.md\r\n" in terminal.shown


def test_a_question_that_its_agent_left_open_ends_with_the_turn(cli: Cli) -> None:
    os.mkfifo(cli.cwd / "go")
    with cli.terminal("run", json.dumps([{"talk": [RUN, "bye\n"]}]), *agent(cli)) as terminal:
        terminal.expect("allow? [")
        (cli.cwd / "go").write_text("")
        terminal.expect("\r\nbye\r\n")
        terminal.expect("all is well")
        assert terminal.wait() == 0
