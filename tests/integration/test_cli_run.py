"""`dragoman run`, from the command line to an agent in a child process and back."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue.card import CARDS, Card, CardStore
from dragoman.testing.storyteller import Crash, Fail, Say, SetPlan, Story, Think, command
from tests.integration.cli_shell import AGENT, TIMEOUT, Cli, cli_in, with_open_stdin

QUIET = ("--format", "quiet")

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def lines_of(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


# -- prompts


def test_a_prompt_is_answered_and_the_last_line_says_how_it_ended(cli: Cli) -> None:
    done = cli.child("run", "hello there", "--", *AGENT)
    assert done.code == 0
    assert done.out == "you said hello there\n"
    assert re.fullmatch(r"dragoman: job j-[0-9a-z]{12}\n\[done\] ok, .*\n", done.err)


def test_a_prompt_comes_from_a_pipe_a_file_or_both_together(cli: Cli) -> None:
    (cli.cwd / "question.txt").write_text("from a file\n")
    quiet = ("--format", "quiet")
    piped = cli.child("run", *quiet, "--", *AGENT, stdin="from a pipe\n")
    dashed = cli("run", "-", *quiet, "--", *AGENT, stdin="from a dash")
    filed = cli("run", "-f", "question.txt", *quiet, "--", *AGENT)
    joined = cli("run", "look at this", "-f", "-", *quiet, "--", *AGENT, stdin="a diff\n")
    assert [each.code for each in (piped, dashed, filed, joined)] == [0, 0, 0, 0]
    assert piped.out == "you said from a pipe\n"
    assert dashed.out == "you said from a dash\n"
    assert filed.out == "you said from a file\n"
    assert joined.out == "you said look at this\n\na diff\n"


def test_what_is_piped_belongs_to_the_prompt(cli: Cli) -> None:
    framed = "you said why?\n\n<stdin>\na diff\n</stdin>\n"
    # The second one is read by typer, for its options are joined.
    for words in (("why?", *QUIET), ("why?", "-vf", "/dev/null", *QUIET)):
        done = cli.child("run", *words, "--", *AGENT, stdin="a diff\n")
        assert (done.code, done.out.replace("\n\n\n", "\n")) == (0, framed)
    left = cli.child("run", "why?", "--no-stdin", *QUIET, "--", *AGENT, stdin="a diff\n")
    assert (left.code, left.out) == (0, "you said why?\n")
    cli.child("delegate", "exploration", "why?", "--cold", stdin="a diff\n")
    listed = cli("sessions", "list", "--closed", "--format", "json").out.splitlines()
    titles = [json.loads(line)["title"] for line in listed if json.loads(line)["peer"] == "scout"]
    assert titles == ["why? <stdin> a diff </stdin>"]


def test_an_open_and_silent_stdin_is_named_and_read_to_its_end(cli: Cli) -> None:
    with with_open_stdin(cli, "run", "why?", *QUIET, "--", *AGENT) as process:
        assert process.stderr is not None
        assert "reading stdin until its end; --no-stdin" in process.stderr.readline()
        out, _ = process.communicate("late", timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "you said why?\n\n<stdin>\nlate\n</stdin>\n")


def test_a_stdin_that_never_ends_is_left_alone_or_ends_with_the_time_limit(cli: Cli) -> None:
    with with_open_stdin(cli, "run", "why?", "--no-stdin", *QUIET, "--", *AGENT) as process:
        assert process.wait(TIMEOUT) == 0
    limited = ("run", "why?", "--timeout", "0.2", "--", *AGENT)
    with with_open_stdin(cli, *limited) as process:
        assert process.wait(TIMEOUT) == 3
        assert process.stderr is not None
        assert "stdin did not end within 0.2 s" in process.stderr.read()
    assert cli("jobs", "list", "--format", "quiet").out.count("j-") == 1


def test_mentioned_files_and_images_travel_with_the_prompt(cli: Cli) -> None:
    (cli.cwd / "notes.md").write_text("remember\n")
    (cli.cwd / "data.bin").write_bytes(b"\xff\xfe\x00")
    (cli.cwd / "pixel.png").write_bytes(PIXEL)
    done = cli.ask(
        "blocks @notes.md and @data.bin, not @decorator", "--image", "pixel.png", "--format=quiet"
    )
    assert done.out == "embedded:remember link:data.bin image:image/png\n"


def test_a_file_outside_of_the_workspace_is_refused_before_an_agent_starts(cli: Cli) -> None:
    (cli.cwd / "link").symlink_to(cli.home)
    for mention in ("@../home", "@link", "@/etc/passwd"):
        done = cli("run", f"read {mention}", "--", "no-such-agent")
        assert done.code == 2
        assert "outside of the workspace" in done.err


def test_an_agent_without_eyes_gets_no_image(cli: Cli) -> None:
    (cli.cwd / "pixel.png").write_bytes(PIXEL)
    done = cli.ask("blocks", "--image", "pixel.png", agent=("blind",))
    assert done.code == 2
    assert "does not accept images" in done.err


def test_the_built_in_agent_answers_a_question_about_a_repository(cli: Cli) -> None:
    (cli.cwd / "zoo.py").write_text("import os\n\n\ndef feed_the_bears() -> None: ...\n")
    done = cli("run", "scout", "where is feed_the_bears defined?")
    assert done.code == 0, done.err
    assert "[plan]" in done.err and "[tool]" in done.err and "zoo.py:4" in done.out
    unknown = cli("run", "scout", "where is no_such_thing_at_all defined?", "--format", "quiet")
    assert unknown.code == 1


# -- formats


def test_json_is_one_event_per_line_and_the_result_comes_last(cli: Cli) -> None:
    done = cli.ask("hello", "--format", "json")
    # Agents tell their commands when they like.
    lines = [line for line in lines_of(done.out) if line["type"] != "CommandsChanged"]
    assert [line["type"] for line in lines] == [
        "ConnectionReady",
        "SessionOpened",
        "SettingsChanged",
        "JobBegun",
        "TurnStarted",
        "MessageDelta",
        "TurnEnded",
        "Result",
    ]
    begun, result = lines[3], lines[-1]
    assert (begun["job"], begun["session_key"]) == (result["job"], result["session_key"])
    numbers = [line["seq"] for line in lines[:-1] if line is not begun]
    assert numbers == sorted(numbers)
    result = lines[-1]
    assert (result["outcome"], result["exit_code"], result["text"]) == ("ok", 0, "you said hello")
    assert (result["model"], result["mode"], result["denials"]) == ("small", "code", [])
    assert all("raw" not in line for line in lines)


def test_strict_json_leaves_stderr_empty_whatever_goes_wrong(cli: Cli) -> None:
    crashed = cli("run", "hi", "--json-strict", "--", *command(Story((Crash(3),)), dialect="acp"))
    missing = cli("run", "scuot", "hi", "--json-strict")
    assert (crashed.code, crashed.err) == (1, "")
    assert lines_of(crashed.out)[-1]["outcome"] == "crashed"
    assert (missing.code, missing.err) == (2, "")
    (error,) = lines_of(missing.out)
    assert (error["type"], error["error"], error["exit_code"]) == ("Error", "unknown_peer", 2)
    assert "scout" in error["message"] and error["what_next"]


def test_text_shows_thinking_plan_and_tools_and_neutralises_what_a_terminal_obeys(cli: Cli) -> None:
    story = Story((Think("hm"), SetPlan((("look", "in_progress"),)), Say("\x1b]0;evil\x07done")))
    done = cli("run", "hi", "--", *command(story, dialect="acp"))
    assert done.out == "␛]0;evil␇done\n"
    assert done.err.splitlines()[1:4] == ["[thinking] hm", "[plan]", "  [>] look"]
    evil = cli.ask("evil")
    assert not set(evil.out) & {"\x1b", "\x07", "\x9b", "\x7f"}


# -- permissions


def test_without_a_terminal_writing_is_denied_reported_and_has_its_exit_code(cli: Cli) -> None:
    done = cli.ask("write")
    assert done.code == 5
    assert "[permission] denied: Write notes.md" in done.err
    assert "    -old\n    +new\n" in done.err
    assert (
        "these permissions were denied: Write notes.md" in done.err and "--approve-all" in done.err
    )
    result = lines_of(cli.ask("write", "--format", "json").out)[-1]
    assert [denial["title"] for denial in result["denials"]] == ["Write notes.md"]


def test_approving_all_lets_the_agent_write(cli: Cli) -> None:
    done = cli.ask("write", "--approve-all")
    assert done.code == 0
    assert "[permission] allowed: Write notes.md" in done.err and "written" in done.out


def test_files_are_offered_under_every_policy_so_that_each_request_is_judged(cli: Cli) -> None:
    for flag in POLICIES:
        offered = cli.ask("files", flag, "--format=quiet").out
        assert offered == "reads True writes True\n"


POLICIES = ("--approve-all", "--approve-reads", "--deny-all")


def test_permission_flags_exclude_each_other(cli: Cli) -> None:
    done = cli.ask("hi", "--approve-all", "--deny-all")
    assert done.code == 2
    assert "cannot be combined" in done.err


# -- settings


def test_model_mode_and_folder_are_those_that_were_asked_for(cli: Cli) -> None:
    (cli.cwd / "project").mkdir()
    options = ("--model", "large", "--mode", "plan", "--cwd", "project", "--format", "quiet")
    assert cli.ask("settings", *options).out == "model large-preview mode plan cwd project\n"


def test_an_unknown_model_or_mode_is_an_error_that_lists_what_there_is(cli: Cli) -> None:
    model = cli.ask("settings", "--model", "smal")
    mode = cli.ask("settings", "--mode", "dream")
    assert (model.code, mode.code) == (2, 2)
    assert "did you mean small?" in model.err and "small, large-preview" in model.err
    assert "'code', 'plan'" in mode.err or "code, plan" in mode.err
    assert "model" not in model.out


def test_a_peer_that_takes_its_model_at_the_start_is_started_again_with_it(cli: Cli) -> None:
    refused = cli.ask("settings", "--model", "huge", agent=("bare",))
    assert refused.code == 2 and "no choice of models" in refused.err
    peers = cli.home / "config_home" / "peers"
    peers.mkdir(parents=True)
    words = json.dumps([*AGENT, "bare"])
    (peers / "mine.toml").write_text(
        f'name = "mine"\ntitle = "Mine"\nprotocol = "acp"\n'
        f'[models]\nflag = "--model"\n[[launch]]\ncommand = {words}\n'
    )
    done = cli("run", "mine", "settings", "--model", "huge", "--format", "quiet")
    assert (done.code, done.out) == (2, "")
    assert "was started with the model 'huge' and does not say which model it uses" in done.err


def test_servers_variables_and_traces_reach_where_they_should(cli: Cli) -> None:
    (cli.cwd / "mcp.json").write_text('{"mcpServers": {"clock": {"command": "true"}}}')
    cli.extra["MY_SETTING"] = "on"
    assert cli.ask("servers", "--mcp-config", "mcp.json", "--format=quiet").out == "clock\n"
    assert cli.ask("env MY_SETTING", "--format=quiet").out == "MY_SETTING=unset\n"
    let = cli.ask("env MY_SETTING", "--env", "MY_SETTING", "--trace", "wire.log", "--format=quiet")
    assert let.out == "MY_SETTING=on\n"
    assert '"session/prompt"' in (cli.cwd / "wire.log").read_text()
    given = cli.ask("env MY_SETTING", "--env", "MY_SETTING=off")
    assert given.code == 2 and "not a value" in given.err


def test_servers_that_a_peer_does_not_use_are_named_to_people_and_programs(cli: Cli) -> None:
    peers = cli.home / "config_home" / "peers"
    peers.mkdir(parents=True)
    (peers / "deaf.toml").write_text(
        f'name = "deaf"\ntitle = "Deaf"\nprotocol = "acp"\n[mcp]\nignored = ["stdio"]\n'
        f"[[launch]]\ncommand = {json.dumps(list(AGENT))}\n"
    )
    (cli.cwd / "mcp.json").write_text('{"mcpServers": {"clock": {"command": "true"}}}')
    done = cli("run", "deaf", "servers", "--mcp-config", "mcp.json", "--format", "json")
    assert "deaf does not use the MCP servers clock: it supports none over stdio" in done.err
    assert json.loads(done.out.splitlines()[-1])["ignored_mcp_servers"] == ["clock"]
    without = cli("run", "deaf", "servers", "--format", "json")
    assert "MCP" not in without.err
    assert json.loads(without.out.splitlines()[-1])["ignored_mcp_servers"] == []


# -- errors and exit codes


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("run", "scuot", "hi"), 2, "did you mean scout"),
        (("run", "hi", "--", "no-such-agent"), 1, "'no-such-agent' was not found"),
        (("run", "hi", "--", "gemini", "acp"), 2, "gemini --acp"),
        (
            ("run", "hi", "--timeout", "3", "--", "sleep", "60"),
            3,
            "timed out after 3 s (--timeout) while starting sleep",
        ),
        (("run",), 2, "name a peer"),
        (("run", "scout"), 2, "the prompt is empty"),
        (("run", "scout", "hi", "--cwd", "nowhere"), 2, "not a directory"),
        (("run", "scout", "hi", "--", "my-agent"), 2, "choose one"),
        (("run", "hi", "--timeout", "0", "--", "true"), 2, "greater than 0"),
        (("rnu",), 2, "Did you mean `dragoman run`?"),
    ],
)
def test_errors_name_the_cause_and_have_their_exit_code(
    cli: Cli, words: tuple[str, ...], code: int, said: str
) -> None:
    done = cli(*words)
    assert (done.code, said in done.err) == (code, True), done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("prompt", "options", "agent", "code", "said"),
    [
        ("nothing", (), (), 1, "without an answer"),
        ("refuse", (), (), 1, "refused"),
        ("wait", ("--timeout", "2"), (), 3, "timed out after 2 s (--timeout)"),
        ("hi", (), ("locked",), 6, "Authentication required"),
    ],
)
def test_each_way_to_end_has_its_exit_code_and_advice(
    cli: Cli, prompt: str, options: tuple[str, ...], agent: tuple[str, ...], code: int, said: str
) -> None:
    done = cli.ask(prompt, *options, agent=agent)
    assert (done.code, said in done.err) == (code, True), done.err
    assert "what next:" in done.err


@pytest.mark.parametrize(("prompt", "agent"), [("hi", ("locked",)), ("login", ())])
def test_a_missing_login_is_named_as_the_cause(
    cli: Cli, prompt: str, agent: tuple[str, ...]
) -> None:
    told = cli.ask(prompt, agent=agent)
    assert "whose fault: the agent's login" in told.err
    last = lines_of(cli.ask(prompt, "--format", "json", agent=agent).out)[-1]
    error = last["error"] if last["type"] == "Result" else last
    assert error["whose_fault"] == "the agent's login"


def test_a_quota_and_a_crash_are_distinguished(cli: Cli) -> None:
    quota = Story((Fail("rate_limit", "quota exceeded"),))
    assert cli("run", "hi", "--", *command(quota, dialect="acp")).code == 8
    crashed = cli("run", "hi", "--", *command(Story((Say("well"), Crash(3))), dialect="acp"))
    assert crashed.code == 1
    assert "well" in crashed.out and "exited with code 3" in crashed.err


@pytest.mark.parametrize("dialect", ["acp", "oneshot", "threads", "tagged", "keyed", "chained"])
def test_a_crash_in_a_turn_may_have_left_something_behind(cli: Cli, dialect: str) -> None:
    story = command(Story((Say("working"), Crash(3))), dialect=dialect)
    told = cli.child("run", "hi", "--cold", "--dialect", dialect, "--", *story)
    assert told.code == 1
    assert "exited with code 3" in told.err
    assert "check first: part of the work may already be done" in told.err
    done = cli("run", "hi", "--cold", "--dialect", dialect, "--format", "json", "--", *story)
    assert lines_of(done.out)[-1]["error"]["may_have_run"] is True


def test_half_an_emoji_costs_no_other_text_of_the_answer(cli: Cli) -> None:
    done = cli.ask("halfemoji", "--format", "json")
    assert (done.code, done.err) == (0, ""), done.err
    result = lines_of(done.out)[-1]
    assert result["text"] == "a \ufffd b!"
    assert cli("jobs", "result", result["job"], "--format", "quiet").out.strip() == "a \ufffd b!"


def test_a_huge_error_of_an_agent_is_shown_in_part(cli: Cli) -> None:
    story = Story((Fail("internal", "begin " + "x" * 60_000),))
    done = cli.child("run", "hi", "--", *command(story, dialect="acp"))
    assert (done.code, "begin" in done.err) == (1, True)
    assert len(done.err) < 4000


def test_every_dialect_is_driven_by_the_same_command(cli: Cli) -> None:
    for dialect in ("oneshot", "threads", "tagged", "keyed", "chained"):
        story = command(Story((Say("told"),)), dialect=dialect)
        done = cli("run", "hi", "--dialect", dialect, "--format", "quiet", "--", *story)
        assert (done.code, done.out) == (0, "told\n"), (dialect, done)


# -- what is known of the agent


def test_a_peer_that_has_changed_since_it_was_verified_is_said_to_have(cli: Cli) -> None:
    own = cli.home / "config_home" / "peers" / "echo.toml"
    own.parent.mkdir(parents=True)
    own.write_text(
        'name = "echo"\ntitle = "Echo"\nprotocol = "acp"\n'
        f"[[launch]]\ncommand = {json.dumps(AGENT)}\n"
    )
    cards = CardStore(cli.home / "data_home" / CARDS)
    cards.save(
        Card(
            peer="echo",
            version="0.0.1 of long ago",
            platform="linux",
            measured_at="2026-01-01T00:00:00+00:00",
            dragoman="0.1",
            turns=False,
            reached="session",
            usable=True,
            rungs=(),
        )
    )
    done = cli("run", "echo", "hello")
    assert done.code == 0
    assert "was verified as 0.0.1 of long ago: `dragoman peers verify echo`" in done.err
