"""Wrong words on the command line: each gets one clear sentence and exit code 2."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.cli_shell import TIMEOUT, Cli, Done, cli_in

BAD = os.fsdecode(b"h\xff")
"""A word that is not UTF-8, as Python reads it from the command line."""

LONG = "x" * 5000
BIG = "9" * 400

NOT_TEXT = "is not UTF-8 text"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def refused(done: Done, why: str) -> None:
    assert (done.code, "Traceback" in done.err) == (2, False), done.err
    assert why in done.err
    assert len(done.err) < 5000


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sessions", "show", BAD), NOT_TEXT),
        (("sessions", "resume", "scout", BAD), NOT_TEXT),
        (("sessions", "close", BAD), NOT_TEXT),
        (("sessions", "delete", BAD), NOT_TEXT),
        (("sessions", "watch", BAD), NOT_TEXT),
        (("sessions", "list", BAD), NOT_TEXT),
        (("sessions", "export", BAD), NOT_TEXT),
        (("sessions", "show", "x", "--peer", BAD), NOT_TEXT),
        (("jobs", "result", BAD), NOT_TEXT),
        (("jobs", "watch", BAD), NOT_TEXT),
        (("jobs", "cancel", BAD), NOT_TEXT),
        (("verdict", BAD, "good"), NOT_TEXT),
        (("run", "scout", BAD), NOT_TEXT),
        (("run", "hi", "--dialect", BAD, "--", "true"), NOT_TEXT),
        (("run", "hi", "-s", BAD, "--", "true"), NOT_TEXT),
        (("delegate", "exploration", "x", "--check", BAD), NOT_TEXT),
        (("peers", "add", "mine", "--no-turns", "--", "true", BAD), "not UTF-8 text"),
        (("run", "hi", "--cwd", LONG, "--", "true"), "not a directory"),
        (("run", "hi", "-f", LONG, "--", "true"), "cannot be read: File name too long"),
        (("run", "hi", "--image", LONG, "--", "true"), "cannot be read: File name too long"),
        (
            ("run", "hi", "--system-prompt", "@~no-such-user/x", "--", "true"),
            "'~no-such-user/x' cannot be read: No such file",
        ),
        (("run", "hi", "--mcp-config", LONG, "--", "true"), "cannot be read: File name too long"),
        (("delegate", "review", "x", "--cwd", LONG), "not a directory"),
        (("sessions", "import", LONG), "cannot be read: File name too long"),
        (("run", "hi", "--cwd", "", "--", "true"), "is not a path"),
        (("run", "hi", "-f", "", "--", "true"), "is not a path"),
        (("sessions", "export", "x", "-o", ""), "is not a path"),
        (("sessions", "list", "--limit", BIG), "whole number"),
        (("sessions", "list", "--limit", "-1"), "--limit must be at least 1"),
        (("sessions", "prune", "--keep", BIG, "--yes"), "whole number"),
        (("jobs", "list", "--limit", BIG), "whole number"),
        (("jobs", "list", "--limit", "-1"), "--limit must be at least 1"),
        (("jobs", "list", "--limit", "0"), "--limit must be at least 1"),
        (("sessions", "list", "--limit", "0"), "--limit must be at least 1"),
        (("serve", "mcp", "--http", BIG), "whole number"),
        (("serve", "mcp", "--http", "-1"), "--http must be a port from 0 to 65535"),
        (("serve", "mcp", "--http", "65536"), "--http must be a port from 0 to 65535"),
        (("agents", "list", LONG), "no agent file"),
        (("agents", "validate", f"x/{LONG}"), "no agent file"),
        (("policy", "show", "--cwd", "y" * 100_000), "characters omitted"),
        (("y" * 100_000,), "characters omitted"),
        (("agents", "set", "y" * 100_000), "characters omitted"),
        (("run", "hi", "--timeout", "1e400", "--", "true"), "is not a time such as"),
        (("run", "hi", "--timeout", BIG + "e9", "--", "true"), "is not a time such as"),
        (("run", "hi", "--timeout", "nan", "--", "true"), "is not a time such as"),
    ],
)
def test_a_wrong_word_gets_one_sentence(cli: Cli, words: tuple[str, ...], why: str) -> None:
    refused(cli(*words), why)


def test_bytes_that_are_not_utf_8_are_refused_by_the_real_command(cli: Cli) -> None:
    for words in (("sessions", "show", BAD), ("delegate", "exploration", "x", "--check", BAD)):
        # The words are handed on as the bytes that they came from.
        refused(cli.child(*words), NOT_TEXT)
    assert cli("jobs", "list", "--format", "quiet").out == ""


def test_a_long_output_name_is_refused_by_the_real_command(cli: Cli) -> None:
    assert cli("run", "hello", "-s", "talk", "--", *cli.agent).code == 0
    refused(cli.child("sessions", "export", "talk", "-o", LONG), "File name too long")


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (("run", BAD, "--", "true"), "for 'PROMPT':"),
        (("run", BAD, "please", "--", "true"), "for 'PROMPT':"),
        (("run", BAD), "for 'PEER' / 'PROMPT':"),
        (("run", "scout", BAD), "for 'PROMPT':"),
        (("delegate", BAD), "for 'ROLE' / 'PROMPT':"),
        (("chat", BAD), "for 'PEER':"),
    ],
)
def test_a_word_that_may_be_of_the_prompt_is_named_as_such(
    cli: Cli, words: tuple[str, ...], places: str
) -> None:
    done = cli.child(*words)
    assert (done.code, places in done.err) == (2, True), done.err


def test_a_directory_whose_name_is_not_utf_8_has_no_sessions_and_the_error_says_so(
    cli: Cli, tmp_path: Path
) -> None:
    assert cli("run", "hello", "-s", "talk", "--", *cli.agent).code == 0
    key = cli("sessions", "list", "--format", "quiet").out.strip()
    odd = tmp_path / BAD
    try:
        odd.mkdir()
    except OSError:
        pytest.skip("this file system takes only names of UTF-8 text")
    there = replace(cli, cwd=odd)
    for words, option in (
        (("sessions",), "sessions list --all"),
        (("jobs",), "jobs list --all"),
        (("sessions", "show", "talk"), "name the session by its key"),
    ):
        done = there.child(*words)
        refused(done, "the path of the project is not UTF-8 text")
        assert option in " ".join(done.err.split()) and "--help" not in done.err
    assert key in there.child("sessions", "--all").out
    assert there.child("jobs", "list", "--all").code == 0
    assert there.child("sessions", "show", key).code == 0


def test_a_home_that_is_not_utf_8_lets_commands_work_without_a_broker(
    cli: Cli, tmp_path: Path
) -> None:
    home = tmp_path / os.fsdecode(b"home\xff")
    try:
        home.mkdir()
    except OSError:
        pytest.skip("this file system takes only names of UTF-8 text")
    (cli.cwd / "app.py").write_text("def main(): ...\n")
    kept = {name: value for name, value in cli.env.items() if not name.startswith("DRAGOMAN_")}
    for words in (("run", "scout", "where is main defined?"), ("jobs", "list"), ("doctor",)):
        done = subprocess.run(
            cli.argv(*words),
            cwd=cli.cwd,
            env={**kept, "HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=TIMEOUT,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("name", ["HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"])
def test_a_home_with_too_long_a_name_is_not_our_fault(cli: Cli, name: str) -> None:
    kept = {key: value for key, value in cli.env.items() if not key.startswith("DRAGOMAN_")}
    for words in (("doctor",), ("peers",), ("jobs", "list"), ("run", "scout", "hi", "--cold")):
        done = subprocess.run(
            cli.argv(*words),
            cwd=cli.cwd,
            env={**kept, name: f"/{LONG}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert "Traceback" not in done.stderr, (words, done.stderr[:300])


def test_a_folder_whose_name_is_not_utf_8_is_named_in_one_sentence(cli: Cli) -> None:
    folder = cli.cwd / os.fsdecode(b"dir\xff")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes only names of UTF-8 text")
    cli.cwd = folder
    for words in (("run", "hi", "--", "true"), ("sessions", "list"), ("delegate", "review", "x")):
        refused(cli.child(*words), "not UTF-8 text")


def test_files_that_options_name_are_read_up_to_a_size(cli: Cli) -> None:
    with (cli.cwd / "huge").open("wb") as file:
        file.truncate(1 << 40)
    for option in ("-f", "--image", "--mcp-config"):
        refused(cli.child("run", "hi", option, "huge", "--", "true"), "is larger than")


def test_a_list_that_is_cut_says_so(cli: Cli) -> None:
    for name in ("a", "b"):
        assert cli("run", "hello", "-s", name, "--", *cli.agent).code == 0
    for what in ("sessions", "jobs"):
        cut = cli(what, "list", "--limit", "1")
        assert "more than 1; use --limit" in cut.err
        whole = cli(what, "list", "--limit", "2")
        assert (whole.code, whole.err) == (0, "")


def test_a_descriptor_with_the_home_of_an_unknown_user_spoils_no_command(cli: Cli) -> None:
    peers = cli.home / "config_home" / "peers"
    peers.mkdir(parents=True)
    descriptor = 'name = "mine"\ntitle = "Mine"\nprotocol = "acp"\n'
    launch = '[[launch]]\ncommand = ["~no-such-user/agent"]\n'
    (peers / "mine.toml").write_text(descriptor + launch)
    assert cli("peers").code == 0
    done = cli("run", "mine", "hi")
    assert (done.code, "~no-such-user/agent" in done.err) == (1, True), done.err


def test_a_name_that_no_peer_can_have_is_corrected_in_the_command(cli: Cli) -> None:
    done = cli("peers", "add", "two words", "--no-turns", "--", "true")
    assert (done.code, "'two words' is not a valid name" in done.err) == (2, True), done.err
    assert "what next:   correct the command; `dragoman peers add --help`" in done.err
