"""The rules of a user's settings, from the command line to an agent in its own process.

The same prompt and the same rules, with an agent of our own, through a broker, and left to the
broker: what may be done does not depend on who happens to serve it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.test_policy_widening import HIDDEN
from tests.integration.cli_shell import Cli, Done, cli_in, warm_cli

RULES = """
[[policy.rules]]
action = "allow"
kind = "edit"
paths = ["src/**"]

[[policy.rules]]
action = "deny"
paths = ["secret.txt"]
"""

PROMPT = "ask src/a save src/a save src/../b ask b load src/a load secret.txt"
ANSWER = """\
ask src/a: done
save src/a: done
save src/../b: not_permitted
ask b: rejected
load src/a: done
load secret.txt: not_permitted
"""


def prepared(cli: Cli, rules: str = RULES) -> tuple[str, ...]:
    """The agent's words, in a folder with files and with rules in the settings."""
    config = cli.home / "config_home"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text(rules)
    (cli.cwd / "src").mkdir(exist_ok=True)
    (cli.cwd / "secret.txt").write_text("swordfish")
    program = str(Path(__file__).with_name("saving_agent.py"))
    return ("--", sys.executable, program, str(cli.home))


def was_kept(cli: Cli, done: Done) -> None:
    said = [line for line in done.out.splitlines() if line.startswith(("ask", "save", "load"))]
    assert said == ANSWER.splitlines(), done.err
    assert (cli.cwd / "src/a").read_text() == "saved"
    assert not (cli.cwd / "b").exists()


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def test_rules_count_for_an_agent_of_our_own(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    agent = prepared(cli)
    done = cli("run", PROMPT, "--approve-reads", *agent)
    was_kept(cli, done)
    assert "3 permissions denied" in done.err


def test_a_rule_goes_before_the_flag_for_what_is_written_without_a_question(
    tmp_path: Path,
) -> None:
    cli = cli_in(tmp_path)
    agent = prepared(cli)
    done = cli("run", "save b save secret.txt", "--approve-all", *agent)
    assert done.out.startswith("save b: done\nsave secret.txt: not_permitted\n")
    assert (cli.cwd / "secret.txt").read_text() == "swordfish"


def test_rules_count_behind_a_broker_with_and_without_a_caller(warm: Cli) -> None:
    agent = prepared(warm)
    was_kept(warm, warm("run", PROMPT, "--approve-reads", "-s", "talk", *agent))
    (warm.cwd / "src/a").unlink()
    left = warm("run", PROMPT, "--approve-reads", "-s", "talk", "--no-wait", *agent)
    assert left.code == 0, left.err
    was_kept(warm, warm("jobs", "result", left.out.strip(), "--wait"))


def test_an_agent_that_starts_another_gives_it_no_more_than_it_has(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    agent = prepared(cli, rules="")
    cli.extra |= {"DRAGOMAN_DEPTH": "1", "DRAGOMAN_CEILING": '{"preset":"approve-reads"}'}
    done = cli("run", "ask src/a load src/../secret.txt", "--approve-all", *agent)
    assert "ask src/a: rejected\nload src/../secret.txt: done\n" in done.out


COMMANDS = """
permissions = "approve-reads"

[[policy.rules]]
action = "allow"
commands = ["git status *"]
"""

NO_TOUCH = """
permissions = "approve-all"

[[policy.rules]]
action = "deny"
commands = ["touch"]
"""


def test_no_hidden_command_of_an_agent_runs(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    lines = [text.replace("touch x", "touch P") for text in HIDDEN.values()]
    reads = [line.replace("git status", "cat secret.txt") for line in lines]
    asked = [("execute", line) for line in lines] + [("read", line) for line in reads]
    asked.append(("read", "echo 'a[$(touch P)]'; test -v 'x[_]'"))
    controls = [("execute", "git status --short"), ("read", "cat secret.txt")]
    prompt = " ".join(f"{kind} {line.encode().hex()}" for kind, line in [*asked, *controls])
    for rules, flag in ((COMMANDS, "--approve-reads"), (NO_TOUCH, "--approve-all")):
        done = cli("run", prompt, flag, *prepared(cli, rules))
        told = [text for text in done.out.splitlines() if text.startswith(("execute ", "read "))]
        said = [text.rpartition(": ")[2] for text in told]
        assert said == ["rejected"] * len(asked) + ["done"] * len(controls), done.out
        assert not (cli.cwd / "P").exists()


GREPS = """
permissions = "approve-reads"

[[policy.rules]]
action = "allow"
commands = ["grep *", "git grep *"]
"""


def test_a_grep_is_allowed_with_the_options_that_only_search(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    searches = ["grep -rn sword .", "grep --include '*.txt' -e sword secret.txt", "fgrep -c a src"]
    # The first two are options of ugrep, which is installed as grep on some machines.
    runs = ["grep --filter='*:touch P' sword .", "grep --pager='touch P' sword secret.txt"]
    runs += ["grep -Z --unknown sword .", "git grep -O'touch P' sword", "egrep --hexdump sword ."]
    asked = [("read", line) for line in searches] + [("execute", searches[0])]
    asked += [(kind, line) for line in runs for kind in ("read", "execute")]
    prompt = " ".join(f"{kind} {line.encode().hex()}" for kind, line in asked)
    done = cli("run", prompt, "--approve-reads", *prepared(cli, GREPS))
    told = [text for text in done.out.splitlines() if text.startswith(("execute ", "read "))]
    said = [text.rpartition(": ")[2] for text in told]
    assert said == ["done"] * 4 + ["rejected"] * 10, done.out
    assert not (cli.cwd / "P").exists()


@pytest.mark.parametrize("line", HIDDEN.values())
def test_policy_test_says_that_a_hidden_command_is_not_allowed(tmp_path: Path, line: str) -> None:
    cli = cli_in(tmp_path)
    prepared(cli, COMMANDS)
    done = cli("policy", "test", "execute", "--line", line)
    assert done.code == 5 and "unknown command" in done.out
    prepared(cli, NO_TOUCH)
    done = cli("policy", "test", "execute", "--line", line)
    assert done.code == 5 and "deny command touch" in done.out
