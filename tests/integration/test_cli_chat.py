"""`dragoman chat` at a real terminal with a real agent: keys, commands, history, completion."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.cli_shell import AGENT, Cli, cli_in, warm_cli
from tests.integration.mcp_places import describe, settings
from tests.integration.pty_terminal import CTRL_C, CTRL_D, READY, Terminal, in_terminal

ENTER = "\r"
ALT_ENTER = "\x1b\r"
CTRL_J = "\n"
CTRL_R = "\x12"
CTRL_Z = "\x1a"
TAB = "\t"
UP = "\x1b[A"

LATE = (sys.executable, str(Path(__file__).with_name("late_agent.py")))


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


class Chat:
    """A chat in a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.expect = terminal.expect
        self.type = terminal.type
        self.wait = terminal.wait

    def say(self, line: str, then: str) -> str:
        """Type a line and wait for a text and the next prompt; what is between them."""
        self.type(line + ENTER)
        self.expect(then)
        return self.expect(READY)

    def leave(self) -> None:
        self.type(CTRL_D)
        assert self.wait() == 0


@contextmanager
def chat(cli: Cli, *words: str) -> Iterator[Chat]:
    with cli.terminal("chat", *(words or ("--", *cli.agent)), columns=200) as terminal:
        terminal.expect(READY)
        yield Chat(terminal)
    assert cli.agents_left() == []


def history(cli: Cli) -> list[str]:
    path = cli.home / "state_home" / "chat_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- turns


def test_a_chat_has_many_turns_in_one_session(cli: Cli) -> None:
    with chat(cli) as it:
        assert "chatting with Tester" in it.terminal.shown
        it.say("one", "you said one")
        it.type("/help" + ENTER)
        assert "/dance where" in it.expect("Dance a little")
        it.expect(READY)
        it.say("/dance home", "danced home")
        it.leave()


def test_ctrl_c_cancels_the_turn_and_twice_at_the_prompt_it_leaves(cli: Cli) -> None:
    with chat(cli) as it:
        it.type("wait" + ENTER)
        it.expect("waiting")
        it.type(CTRL_C)
        it.expect("[ended] cancelled")
        it.expect(READY)
        it.say("again", "you said again")
        it.type("half a line" + CTRL_C)
        it.say("whole", "you said whole")
        it.type(CTRL_C)
        it.expect("press Ctrl-C again")
        it.expect(READY)
        it.say("still here", "you said still here")
        it.type(CTRL_C)
        it.expect("press Ctrl-C again")
        it.expect(READY)
        it.type(CTRL_C)
        assert it.wait() == 0


def test_twice_ctrl_c_leaves_a_chat_with_an_agent_that_does_not_listen(cli: Cli) -> None:
    with chat(cli) as it:
        it.type("stubborn" + ENTER)
        it.expect("never")
        it.type(CTRL_C)
        it.expect("Ctrl-C again")
        it.type(CTRL_C)
        assert it.wait() == 130


def test_being_ended_at_the_prompt_leaves_the_terminal_as_it_was(cli: Cli) -> None:
    with chat(cli) as it:
        os.kill(it.terminal.pid, 15)
        assert it.wait() == 143
        assert it.terminal.shown.endswith("\x1b[?2004l"), "a paste is not marked any more"


def test_without_a_terminal_every_line_is_a_prompt(cli: Cli) -> None:
    done = cli.child("chat", "--format", "quiet", "--", *cli.agent, stdin="one\n\n/tow two\n")
    assert (done.code, done.out) == (0, "you said one\nyou said /tow two\n")
    failed = cli("chat", "--format", "quiet", "--", *cli.agent, stdin="write\nthree\n")
    assert (failed.code, failed.out) == (5, "you said three\n")


def test_a_chat_whose_stdin_cannot_be_read_ends_and_says_so(cli: Cli) -> None:
    with open(os.devnull, "wb") as unreadable:
        done = subprocess.run(
            cli.argv("chat", "scout", "--cold"),
            stdin=unreadable,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=cli.env,
            cwd=cli.cwd,
        )
    assert done.returncode == 2
    assert "stdin cannot be read: Bad file descriptor" in done.stderr


def test_only_a_chat_at_a_terminal_loads_the_line_editor(cli: Cli) -> None:
    cli.extra["PYTHONPROFILEIMPORTTIME"] = "1"
    piped = cli.child("chat", "--", *cli.agent, stdin="one\n")
    assert piped.code == 0 and "chat_session" in piped.err
    assert "prompt_toolkit" not in piped.err


def test_a_terminal_that_can_do_nothing_is_enough(cli: Cli) -> None:
    cli.extra["TERM"] = "dumb"
    with cli.terminal("chat", "--", *cli.agent) as terminal:
        terminal.expect("> ")
        terminal.type("one\n")
        terminal.expect("you said one")
        terminal.expect("> ")
        terminal.type("/modle\n")
        terminal.expect("did you mean /mode or /model?")
        terminal.expect("> ")
        terminal.type("/mode plan\n")
        terminal.expect("dragoman: mode plan")
        terminal.expect("> ")
        terminal.type(CTRL_D)
        assert terminal.wait() == 0
        assert "\x1b" not in terminal.shown


def test_the_prompt_is_not_in_a_file_that_gets_the_answers(cli: Cli) -> None:
    shell = ["/bin/sh", "-c", 'exec "$@" > answers', "sh", *cli.argv("chat", "--", *cli.agent)]
    with in_terminal(shell, cwd=cli.cwd, env=cli.env, columns=100) as terminal:
        terminal.expect(READY)
        it = Chat(terminal)
        it.say("one", "[done]")
        it.say("/help", "/dance where")
        it.leave()
    assert (cli.cwd / "answers").read_text() == "you said one\n"


# -- typing


@pytest.mark.parametrize(
    "typed",
    [
        "\x1b[200~first\nsecond\nthird\x1b[201~",
        "\x1b[200~first\r\nsecond\r\nthird\x1b[201~",
        f"first{ALT_ENTER}second{CTRL_J}third",
    ],
    ids=["paste", "paste of a Windows text", "keys"],
)
def test_several_lines_are_one_prompt(cli: Cli, typed: str) -> None:
    with chat(cli) as it:
        it.type(typed)
        it.say("", "you said first\r\nsecond\r\nthird")
        it.leave()
    assert it.terminal.shown.count("you said") == 1
    assert history(cli) == ["first\nsecond\nthird"]


def test_a_paste_that_ends_its_last_line_is_not_sent(cli: Cli) -> None:
    with chat(cli) as it:
        it.type("\x1b[200~one\ntwo\n\x1b[201~and more")
        it.say("", "you said one\r\ntwo\r\nand more")
        it.leave()


def test_bytes_that_are_not_text_are_refused_and_the_chat_goes_on(cli: Cli) -> None:
    with chat(cli) as it:
        it.terminal.type_bytes(b"one \xff\xfe" + ENTER.encode())
        it.expect("the prompt is not UTF-8 text")
        it.expect(READY)
        it.say("two", "you said two")
        it.leave()
    assert history(cli) == ["two"]


def test_a_long_paste_is_one_prompt(cli: Cli) -> None:
    text = "\n".join(f"{number} " + "x" * 70 for number in range(1000))
    with chat(cli, "--format", "quiet", "--", *cli.agent) as it:
        it.terminal.type_bytes(f"\x1b[200~{text}\x1b[201~".encode())
        it.type(ENTER)
        it.expect("you said 0 xxx")
        it.expect("999 " + "x" * 70)
        it.expect(READY)
        it.leave()


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="a shell with jobs")
def test_ctrl_z_stops_a_chat_and_it_goes_on_in_the_foreground(cli: Cli) -> None:
    shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
    env = {**cli.env, "PS1": "SHELL$ "}
    with in_terminal(shell, cwd=cli.cwd, env=env, columns=100) as terminal:
        terminal.expect("SHELL$ ")
        terminal.type(shlex.join(cli.argv("chat", "--", *cli.agent)) + ENTER)
        terminal.expect("chatting with Tester")
        terminal.expect(READY)
        terminal.type("half")
        terminal.expect("half")
        terminal.type(CTRL_Z)
        terminal.expect("Stopped")
        terminal.expect("SHELL$ ")
        terminal.type("fg" + ENTER)
        terminal.expect("half")
        Chat(terminal).say(" and half", "you said half and half")
        terminal.type(CTRL_D)
        terminal.expect("SHELL$ ")
        terminal.type("stty -a" + ENTER)
        modes = terminal.expect("SHELL$ ").split()
        assert {"icanon", "isig", "echo"} <= set(modes), "the terminal is as it was"
        terminal.type("exit" + ENTER)
        assert terminal.wait() == 0


def test_what_is_typed_in_a_turn_waits_in_the_prompt_and_is_not_sent(cli: Cli) -> None:
    go = cli.cwd / "go"
    with chat(cli) as it:
        it.type(f"until {go}" + ENTER)
        it.expect("line 1")
        it.type("early" + ENTER)
        go.touch()
        it.expect(READY)
        it.say("late", "you said early\r\nlate")
        it.leave()


def test_the_history_is_there_in_the_next_chat_and_holds_no_secret(cli: Cli) -> None:
    cli.extra["MY_API_KEY"] = "hunter2hunter2hunter2"
    with chat(cli) as it:
        it.say("first prompt", "you said first prompt")
        it.say(" out of the history", "you said  out of the history")
        it.say("key hunter2hunter2hunter2", "you said key hunter2hunter2hunter2")
        it.say("last prompt", "you said last prompt")
        it.leave()
    kept = history(cli)
    assert kept[0] == "first prompt" and kept[-1] == "last prompt" and len(kept) == 3
    assert "hunter2" not in kept[1]
    with chat(cli) as it:
        it.type(UP)
        it.expect("last prompt")
        it.say("", "you said last prompt")
        it.type(CTRL_R + "first")
        it.expect("I-search backward")
        it.type(ENTER)
        it.say("", "you said first prompt")
        it.leave()


def test_tab_completes_commands_names_and_files(cli: Cli) -> None:
    (cli.cwd / "notes.md").write_text("read me\n")
    with chat(cli) as it:
        it.type("/dan" + TAB)
        it.expect("/dance")
        it.say(" there", "danced there")
        it.type("/model la" + TAB)
        it.say("", "dragoman: model large-preview")
        it.type("/mode pl" + TAB)
        it.say("", "dragoman: mode plan")
        it.type("/peer sc" + TAB)
        it.say("", "chatting with Scout")
        it.leave()
    with chat(cli) as it:
        it.type("/m" + TAB + TAB)
        it.expect("show the models, or switch to one")
        it.type(CTRL_C)
        it.type("blocks @no" + TAB)
        it.say("", "embedded:read me")
        it.leave()


# -- commands


def test_an_unknown_command_is_not_sent(cli: Cli) -> None:
    with chat(cli) as it:
        it.say("/modle large", "unknown command /modle; did you mean /mode or /model?")
        it.say("/danse", "did you mean /dance?")
        it.say("//modle large", "you said /modle large")
        it.say("/usr/bin is old", "you said /usr/bin is old")
        it.leave()


def test_the_model_and_the_mode_are_shown_and_chosen(cli: Cli) -> None:
    with chat(cli) as it:
        it.say("/model", "* small          Small\r\n  large-preview  Large\r\n")
        it.say("/model smal", "did you mean small? It has small, large-preview")
        it.say("/model large", "dragoman: model large-preview")
        it.say("/mode", "* code  Code\r\n  plan  Plan\r\n")
        it.say("/mode pln", "did you mean plan? It has code, plan")
        it.say("/mode Plan", "dragoman: mode plan")
        it.say("settings", "model large-preview mode plan")
        it.say("/new", "a new session with Tester")
        it.say("settings", "model large-preview mode plan")
        it.leave()


def test_a_mode_in_which_the_agent_does_not_ask_is_refused(cli: Cli) -> None:
    describe(cli, "mine", "execute")
    path = cli.home / "config_home" / "peers" / "mine.toml"
    path.write_text(path.read_text() + '[enforcement]\nmodes = ["code"]\n')
    with chat(cli, "mine") as it:
        it.say("/mode plan", "it does not ask in the mode plan; it asks in code")
        it.say("settings", "mode code")
        it.leave()
    with chat(cli, "mine", "--approve-all") as it:
        it.say("/mode plan", "dragoman: mode plan")
        it.say("settings", "mode plan")
        it.leave()


def test_a_model_that_only_a_command_line_sets_starts_the_agent_again(cli: Cli) -> None:
    describe(cli, "bare", "execute", command=(*AGENT, "bare", str(cli.home)))
    path = cli.home / "config_home" / "peers" / "bare.toml"
    path.write_text(path.read_text() + '[models]\nflag = "--model"\n')
    with chat(cli, "bare") as it:
        it.say("settings", "model none")
        it.say("/model big", "does not say which model it uses")
        it.say("settings", "model none")
        it.leave()


def test_another_peer_goes_on_with_a_summary_of_what_was_said(cli: Cli) -> None:
    describe(cli, "one", "execute")
    describe(cli, "two", "execute")
    settings(cli, 'enabled_peers = ["one", "two"]\n')
    with chat(cli, "one") as it:
        it.say("/peer", "* one    one\r\n")
        it.say("/peer tow", "there is no peer 'tow'; did you mean two?")
        it.say("the secret word is plum", "you said the secret word is plum")
        it.say("/peer two", "gets a summary of the conversation")
        told = it.say("handover", "two gets a summary of the conversation: 1 message")
        assert "embedded:[Handover]" in told and "the secret word is plum" in told
        again = it.say("handover", "TextContent")
        assert "Handover" not in again, "it is told once"
        it.leave()


def test_what_was_said_before_this_chat_is_handed_over_too(cli: Cli) -> None:
    describe(cli, "one", "execute", command=(*AGENT, "resumes", str(cli.home)))
    describe(cli, "two", "execute")
    assert cli("run", "one", "the secret word is plum", "-s", "words").code == 0
    with chat(cli, "one", "-s", "words") as it:
        it.say("/peer two", "gets a summary of the conversation")
        assert "the secret word is plum" in it.say("handover", "two gets a summary")
        it.leave()


def test_sessions_are_listed_begun_and_gone_on_with(cli: Cli) -> None:
    describe(cli, "mine", "execute", command=(*AGENT, "resumes", str(cli.home)))
    with chat(cli, "mine", "-s", "parser") as it:
        it.say("begin with the parser", "you said begin")
        it.say("/new tests", "a new session tests with")
        it.say("/new parser", "`/sessions parser` continues it")
        it.say("now the tests", "you said now the tests")
        listed = it.say("/sessions", "last used")
        assert "parser" in listed and "tests" in listed
        it.say("/sessions prser", "did you mean 'parser'?")
        it.type("/sessions par" + TAB)
        it.say("", "in the session parser with Tester")
        it.say("/sessions parser", "you are already in this session")
        it.say("and on", "you said and on")
        it.leave()
    shown = cli("sessions", "show", "parser", "--format", "json").out
    assert "begin with the parser" in shown and "and on" in shown
    assert "now the tests" not in shown


def test_the_cost_is_that_of_the_whole_chat(cli: Cli) -> None:
    with chat(cli) as it:
        it.say("/cost", "no turns yet")
        it.say("spend", "[done]")
        it.say("spend", "[done]")
        it.say("/cost", "2 turns, 14 in + 6 out tokens, 0.5000 USD")
        it.say("/new", "a new session")
        it.say("hello", "[done]")
        it.say("/cost", "3 turns, 14 in + 6 out tokens, 0.5000 USD, cost of 1 unknown")
        it.say("/quit now", "/quit takes no argument")
        it.type("/quit" + ENTER)
        assert it.wait() == 0


def test_a_peer_that_cannot_be_reached_leaves_the_chat_where_it_was(cli: Cli) -> None:
    describe(cli, "mine", "execute")
    describe(cli, "locked", "execute", command=(*AGENT, "locked", str(cli.home)))
    door = cli.cwd / "door"
    os.mkfifo(door)
    slow = ("/bin/sh", "-c", f"echo up > {door}; exec sleep 60", str(cli.home))
    describe(cli, "slow", "execute", command=slow)
    with chat(cli, "mine") as it:
        it.say("/peer locked", "Authentication required")
        it.say("hello", "you said hello")
        it.type("/peer slow" + ENTER)
        assert door.read_text() == "up\n"
        it.type(CTRL_C)
        it.expect("dragoman: cancelled")
        it.expect(READY)
        it.say("settings", "mode code")
        it.leave()


def test_a_chat_with_a_broker_has_the_same_commands() -> None:
    with warm_cli() as cli:
        describe(cli, "one", "execute", command=(*AGENT, "resumes", str(cli.home)))
        describe(cli, "two", "execute")
        with cli.terminal("chat", "one", "-s", "first", columns=100) as terminal:
            terminal.expect(READY)
            it = Chat(terminal)
            it.say("/model large", "dragoman: model large-preview")
            it.say("/mode plan", "dragoman: mode plan")
            it.say("settings", "model large-preview mode plan")
            it.type("wait" + ENTER)
            it.expect("waiting")
            it.type(CTRL_C)
            it.expect("[ended] cancelled")
            it.expect(READY)
            it.say("/new second", "a new session second")
            it.say("remember plum", "you said remember plum")
            it.say("/peer two", "gets a summary of the conversation")
            assert "remember plum" in it.say("handover", "two gets a summary")
            it.say("/sessions first", "in the session first with Tester")
            it.say("hello again", "you said hello again")
            it.leave()


# -- questions


@pytest.mark.parametrize(("key", "then"), [("y", "written"), ("n", "permission denied")])
def test_a_permission_is_asked_in_a_turn_of_a_chat(cli: Cli, key: str, then: str) -> None:
    with chat(cli) as it:
        it.type("write" + ENTER)
        it.expect("allow? [")
        it.type(key + ENTER)
        it.expect(then)
        it.expect(READY)
        it.say("go on", "you said go on")
        it.leave()


def test_ctrl_c_at_a_question_cancels_the_turn_and_the_chat_goes_on(cli: Cli) -> None:
    with chat(cli) as it:
        it.type("write" + ENTER)
        it.expect("allow? [")
        it.type(CTRL_C)
        it.expect("[ended] cancelled")
        it.expect(READY)
        it.say("go on", "you said go on")
        it.leave()


def test_what_an_agent_says_and_asks_between_turns_comes_above_the_prompt(cli: Cli) -> None:
    os.mkfifo(cli.cwd / "go")
    with chat(cli, "--", *LATE, str(cli.home)) as it:
        it.say("one", "heard one")
        it.type("half")
        it.expect("half")
        (cli.cwd / "go").write_text("")
        it.expect("late words\r\n")
        it.expect("allow? [")
        it.type("y" + ENTER)
        it.expect('the answer was {"outcome": {"outcome": "selected", "optionId": "yes"}}')
        it.expect(READY)
        it.type(" and half")
        it.say("", "heard half and half")
        it.leave()
