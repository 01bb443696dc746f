"""Every help page and every list fits the terminal, and no word is broken."""

from __future__ import annotations

import re
import subprocess

import pytest

from dragoman.cli.output.tables import columns
from dragoman.cli.reference import helps
from tests.integration.cli_shell import Cli, cli_in

WIDTHS = (60, 80, 120, 200)

LISTS = ("peers", "jobs", "sessions", "broker", "agents", "config", "policy", "ledger", "stats")

GROUPS = ("agents", "broker", "config", "jobs", "ledger", "peers", "policy", "sessions")
"""Commands that list something when they are called without a subcommand."""

AGENT_FILE = """---
name: reviewer
delegate_to: scout-exploration
---
Review it.
"""

RULE = """
[[policy.rules]]
action = "deny"
kind = "edit"
paths = ["src/generated/**"]
why = "These files are made by a script, so a change to them is lost with the next build."
"""


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A command line with something in every list."""
    cli = cli_in(tmp_path_factory.mktemp("widths"))
    (cli.cwd / "agents").mkdir()
    (cli.cwd / "agents" / "a-reviewer-with-a-rather-long-name.md").write_text(AGENT_FILE)
    (cli.cwd / "app.py").write_text("def main() -> None: ...\n")
    config = cli.home / "config_home" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(RULE)
    words = "where is main defined?"
    assert cli("run", "scout", words, "-s", "a-session-with-a-long-name", "--cold").code == 0
    assert cli("delegate", "exploration", words, "--cold").code == 0
    return cli


@pytest.mark.parametrize("width", WIDTHS)
def test_every_help_page_fits_the_terminal(width: int) -> None:
    for path, text in helps(width - 2):
        for line in text.splitlines():
            assert columns(line) <= width, (path, line)


def test_a_narrow_help_page_loses_no_word() -> None:
    """The same words in the same order, whatever the width; only options may hyphenate."""
    wide = {path: text.split() for path, text in helps(78)}
    for path, text in helps(58):
        assert sorted(text.split()) == sorted(wide[path]), path


@pytest.mark.parametrize("command", GROUPS)
def test_a_group_without_a_subcommand_lists(cli: Cli, command: str) -> None:
    listed = cli(command)
    assert listed.code == 0 and "Usage:" not in listed.out + listed.err


def test_options_of_the_list_work_without_its_name(cli: Cli) -> None:
    assert cli("jobs", "--all", "-n", "1").code == 0
    assert cli("peers", "--format", "quiet").out.splitlines() == ["scout"]
    assert "Usage: dragoman jobs" in cli("jobs", "--help").out


@pytest.mark.parametrize("command", LISTS)
def test_every_list_fits_the_terminal_and_breaks_no_word(cli: Cli, command: str) -> None:
    cli.extra["NO_COLOR"] = "1"
    piped = cli(command)
    # Times differ from one call to the next.
    known = {*re.split(r"[\s,]+", piped.out + piped.err), "s", "min"}
    for width in WIDTHS:
        with cli.terminal(command, columns=width) as terminal:
            assert terminal.wait() == 0
            lines = terminal.shown.replace("\r", "").splitlines()
        for line in lines:
            # A path stays whole, so that it can be copied; bars are measured with the rest.
            assert columns(line) <= width or "/" in line, (width, line)
            for word in re.split(r"[\s,█░]+", line):
                assert word in known or word.endswith("…") or word.isdigit(), (width, word)


@pytest.mark.parametrize("width", (60, 80))
def test_explain_is_broken_at_words_where_the_terminal_is_narrow(cli: Cli, width: int) -> None:
    cli.extra["NO_COLOR"] = "1"
    with cli.terminal("explain", "exploration", columns=width) as terminal:
        assert terminal.wait() == 0
        shown = terminal.shown.replace("\r", "")
    assert all(columns(line) <= width for line in shown.splitlines()), shown
    told = " ".join(shown.split())
    assert "tried in this order: the order of enabled_peers in your settings; " in told
    assert "(adaptive = shadow)" in told
    assert (
        "1. scout: the last resort, which answers what it can 1 of 1 done, 0 USD each on average, "
        in told
    )


def test_stats_keep_what_is_asked_most_on_a_narrow_terminal(cli: Cli) -> None:
    with cli.terminal("stats", columns=60) as terminal:
        assert terminal.wait() == 0
        head = terminal.shown.replace("\r", "").splitlines()[0]
    assert all(name in head for name in ("role", "peer", "done", "cost", "unknown"))


def test_lists_whose_columns_are_left_out_keep_the_name(cli: Cli) -> None:
    with cli.terminal("peers", columns=60) as terminal:
        assert terminal.wait() == 0
        head = terminal.shown.replace("\r", "").splitlines()[0]
    assert "peer" in head and "installed" in head and "protocol" not in head


@pytest.mark.parametrize(
    ("word", "command"), [("exec", "run"), ("ask", "run"), ("ps", "jobs"), ("list", "peers")]
)
def test_a_word_of_other_programs_leads_to_our_command(cli: Cli, word: str, command: str) -> None:
    refused = cli(word)
    assert refused.code == 2 and f"Did you mean `dragoman {command}`?" in refused.err
    assert subprocess.run(cli.argv(command, "-h"), env=cli.env, capture_output=True).returncode == 0
