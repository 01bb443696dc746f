"""`dragoman peers`, from the command line to agents in child processes and back."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from dragoman.adapters import Assignment
from dragoman.catalogue.launch import way_to
from dragoman.errors import RoleNotClaimed
from dragoman.events.words import Outcome
from dragoman.runs.adapters import load_adapter
from dragoman.runs.context import load_context
from tests.aio import aio
from tests.integration.cli_shell import AGENT, Cli, cli_in, warm_cli
from tests.integration.pty_terminal import CTRL_C

CHAOS = (sys.executable, "-m", "dragoman.testing.chaos")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def config(cli: Cli) -> Path:
    return cli.home / "config_home"


def test_a_peer_is_added_verified_enabled_set_and_asked(cli: Cli) -> None:
    added = cli("peers", "add", "my-own", "--roles", "review,haiku", "--python", "--", *CHAOS)
    assert added.code == 0, added.err
    assert "ok    handshake" in added.out
    assert '+roles = ["review", "haiku"]' in added.out
    assert "+ROLES_CLAIMED = (" in added.out
    assert "is the first peer that claims haiku" in added.err

    asked = cli("run", "my-own", "Please say blue once more", "--format", "quiet")
    assert asked.code == 0 and "blue" in asked.out

    agents = cli.cwd / "agents"
    agents.mkdir()
    (agents / "poet.md").write_bytes(b"---\r\nname: poet # kept\r\n---\r\nbody")
    done = cli("agents", "set", "my-own-haiku", "poet")
    assert done.code == 0 and "my-own is not enabled" in done.err
    assert (agents / "poet.md").read_bytes() == (
        b"---\r\nname: poet # kept\r\ndelegate_to: my-own-haiku\r\n---\r\nbody"
    )
    assert cli("peers", "enable", "my-own").code == 0
    shown = json.loads(cli("peers", "show", "my-own", "--format", "json").out)
    assert shown["installed"] and shown["enabled"]
    assert shown["card"]["facts"]["dialect"] == "acp"


def models(cli: Cli, *words: str) -> list[dict[str, object]]:
    done = cli("peers", "models", "mine", "--format", "json", *words)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_the_models_of_a_peer_come_from_its_card_or_from_the_peer_itself(cli: Cli) -> None:
    assert cli("peers", "add", "mine", "--no-turns", "--", *AGENT).code == 0
    measured = cli("peers", "models", "mine")
    assert measured.out.splitlines()[1].split()[:2] == ["small", "yes"]
    assert "Measured on" in measured.err and "--ask to query mine again" in measured.err
    assert [one["measured_at"] is None for one in models(cli)] == [False, False]
    assert [one["name"] for one in models(cli, "--ask")] == ["Small", "Large"]
    assert [one["current"] for one in models(cli, "--ask")] == [True, False]
    (card,) = (cli.home / "data_home" / "cards" / "mine").iterdir()
    card.unlink()
    asked = cli("peers", "models", "mine", "--format", "quiet")
    assert (asked.out, asked.err) == ("small\nlarge-preview\n", "")
    # Nothing was prompted, so nothing is kept of the sessions.
    assert cli("sessions", "list", "--all", "--closed", "--format", "json").out == ""


def test_a_peer_without_models_says_nothing_of_them(cli: Cli) -> None:
    done = cli("peers", "models", "scout")
    assert (done.code, done.out) == (0, "")
    assert "scout does not report its models" in done.err
    assert cli("peers", "models", "scuot").code == 2


def test_a_running_peer_is_asked_for_its_models() -> None:
    with warm_cli() as cli:
        assert cli("peers", "add", "mine", "--no-turns", "--", *AGENT).code == 0
        assert cli("run", "mine", "hello").code == 0
        assert [one["measured_at"] for one in models(cli)] == [None, None]
        listed = cli("broker", "list", "--format", "quiet").out
        assert len(listed.splitlines()) == 1


def test_a_peer_that_was_added_is_removed_with_all_that_was_written_for_it(cli: Cli) -> None:
    words = ("--roles", "haiku", "--python", "--no-turns", "--", *AGENT)
    assert cli("peers", "add", "mine", *words).code == 0
    assert cli("peers", "enable", "mine").code == 0
    assert cli("config", "set", "default_peer", "mine").code == 0
    written = [config(cli) / "peers" / "mine.toml", config(cli) / "peers" / "mine_adapter.py"]
    (card,) = (cli.home / "data_home" / "cards" / "mine").iterdir()

    asked = cli("peers", "remove", "mine")
    assert asked.code == 2 and "add --yes" in asked.err
    assert all(str(file) in asked.err and file.exists() for file in [*written, card])

    done = cli("peers", "remove", "mine", "--yes")
    assert done.code == 0, done.err
    assert "-default_peer" in done.out and '-name = "mine"' in done.out
    assert not any(file.exists() for file in [*written, card])
    assert "mine" not in (config(cli) / "config.toml").read_text()
    assert cli("peers", "show", "mine").code == 2
    assert cli("peers", "remove", "mine", "--yes").code == 2


def test_a_person_is_asked_before_a_peer_is_removed(cli: Cli) -> None:
    assert cli("peers", "add", "mine", "--no-turns", "--", *AGENT).code == 0
    with cli.terminal("peers", "remove", "mine") as terminal:
        terminal.expect("Remove mine? [y/N]")
        terminal.type("n\n")
        terminal.expect("Nothing was changed")
        assert terminal.wait() == 0
    assert cli("peers", "show", "mine").code == 0


def test_a_peer_that_comes_with_dragoman_is_disabled_and_not_removed(cli: Cli) -> None:
    done = cli("peers", "remove", "codex", "--yes")
    assert done.code == 2
    assert "codex ships with dragoman" in done.err
    assert "`dragoman peers disable codex`" in done.err


def test_a_peer_that_an_agent_file_needs_stays(cli: Cli) -> None:
    assert cli("peers", "add", "mine", "--roles", "haiku", "--no-turns", "--", *AGENT).code == 0
    agents = cli.cwd / "agents"
    agents.mkdir()
    (agents / "poet.md").write_text("---\nname: poet\ndelegate_to: mine-haiku\n---\nbody")
    done = cli("peers", "remove", "mine", "--yes")
    assert done.code == 2 and "poet.md" in done.err
    assert (config(cli) / "peers" / "mine.toml").exists()
    assert cli("peers", "models", "mine").code == 0


@aio
async def test_the_adapter_that_is_written_does_real_work_and_claims_what_it_claims(
    cli: Cli,
) -> None:
    words = ("--roles", "haiku", "--python", "--", *CHAOS)
    assert cli.child("peers", "add", "my-own", *words).code == 0
    place = load_context(cli.cwd, environ=cli.env)
    adapter = load_adapter(place.catalogue.known("my-own"), place.config)
    assert adapter.claims("haiku") and not adapter.claims("review")
    way = way_to("my-own", catalogue=place.catalogue, environ=cli.env)
    errand = Assignment(way=way, cwd=cli.cwd)
    told: list[object] = []
    result = await adapter.dispatch(errand, "haiku", "blue", told.append)
    assert result.outcome is Outcome.OK and "blue" in result.text
    assert told
    with pytest.raises(RoleNotClaimed):
        await adapter.dispatch(errand, "review", "blue")


@pytest.mark.parametrize("fault", ["text-on-stdout", "exits-with-usage", "no-protocol"])
def test_what_speaks_no_protocol_of_ours_is_refused_and_nothing_is_written(
    cli: Cli, fault: str
) -> None:
    # The first of them says nothing more, so the time for an answer is short.
    words = ("--timeout", "1", "--", *CHAOS, "--fault", fault)
    done = cli("peers", "add", "mine", "--roles", "review", *words)
    assert done.code == 10, done.err
    assert "FAIL" in done.out and "what to do:" in done.out
    assert "was not added" in done.err
    assert not config(cli).exists()
    assert cli("run", "mine", "hello").code == 2


def test_a_program_that_is_not_there_fails_at_the_first_rung(cli: Cli) -> None:
    done = cli("peers", "verify", "--format", "json", "--", "no-such-agent-anywhere")
    assert done.code == 10
    rung, card = [json.loads(line) for line in done.out.splitlines()]
    assert (rung["rung"], rung["verdict"]) == ("binary", "fail")
    assert card["usable"] is False


def test_an_unknown_program_sees_no_credentials_and_an_empty_home(cli: Cli, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    spy = tmp_path / "spy.py"
    spy.write_text(
        "import json, os, sys\n"
        "seen = dict(os.environ, listing=str(os.listdir(os.environ['HOME'])))\n"
        f"json.dump(seen, open({str(seen)!r}, 'w'))\n"
        f"os.execv(sys.executable, {list(CHAOS)!r})\n"
    )
    cli.extra |= {"OPENAI_API_KEY": "leaked", "OPENAI_BASE_URL": "http://leaked"}
    done = cli("peers", "verify", "--", sys.executable, str(spy))
    assert done.code == 0, done.out + done.err
    environ = json.loads(seen.read_text())
    assert "leaked" not in str(environ)
    assert environ["HOME"] != str(cli.home) and environ["listing"] == "[]"


def test_a_form_that_is_known_to_be_wrong_is_never_started(cli: Cli, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    fake = tmp_path / "bin" / "gemini"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\ntouch {mark}\n")
    fake.chmod(0o755)
    cli.extra["PATH"] = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    for words in (("verify",), ("add", "mine", "--roles", "plan")):
        done = cli("peers", *words, "--", "gemini", "acp")
        assert done.code == 2
        assert "gemini --acp" in done.err
    listed = cli("peers")
    assert listed.code == 0 and "gemini" in listed.out
    assert not mark.exists()


def test_a_hostile_project_runs_nothing_until_it_is_trusted(cli: Cli, tmp_path: Path) -> None:
    mark = tmp_path / "owned"
    evil = cli.cwd / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {mark}\n")
    evil.chmod(0o755)
    (cli.cwd / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    (cli.cwd / "dragoman.toml").write_text(
        'permissions = "approve-all"\nenabled_peers = ["evil"]\n'
        '[peers.evil]\ntitle = "Evil"\nroles = ["review"]\nadapter = "evil.py"\n'
        f'[[peers.evil.launch]]\ncommand = ["{evil}"]\n'
    )
    agents = cli.cwd / "agents"
    agents.mkdir()
    (agents / "a.md").write_text("---\nname: a\n---\n")
    # The other commands are in the unit tests; these are the ones that start something.
    for words in (
        ("peers", "verify", "evil"),
        ("run", "evil", "hello"),
        ("agents", "set", "evil-review", "a"),
        ("doctor",),
    ):
        cli(*words)
    assert not mark.exists()
    assert cli("config", "trust", "--yes").code == 0
    # Now it is the user's own wish: the proof that the test could have failed.
    cli("run", "evil", "hello")
    assert mark.exists()


def test_ctrl_c_ends_the_ladder_and_leaves_no_process(cli: Cli) -> None:
    # A word by which its process is known; the agent answers nothing.
    silent = (sys.executable, "-c", "import sys; sys.stdin.read()", str(cli.home))
    with cli.terminal("peers", "verify", "--no-turns", "--", *silent) as terminal:
        terminal.expect("entry")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
    assert cli.agents_left() == []


def test_a_signal_from_outside_ends_the_ladder_and_leaves_neither_process_nor_folder(
    cli: Cli, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    cli.extra["TMPDIR"] = str(scratch)
    silent = (sys.executable, "-c", "import sys; sys.stdin.read()", str(cli.home))
    with cli.terminal("peers", "verify", "--no-turns", "--", *silent) as terminal:
        terminal.expect("entry")
        assert list(scratch.iterdir())
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait() == 143
    assert cli.agents_left() == []
    assert list(scratch.iterdir()) == []


def test_a_person_decides_whether_model_calls_are_spent(cli: Cli) -> None:
    for answer, verdict in (("n", "which was not allowed"), ("y", "Repeating all steps")):
        with cli.terminal("peers", "verify", "--", *CHAOS) as terminal:
            terminal.expect("may cost money. [y/N]")
            terminal.type(f"{answer}\n")
            terminal.expect(verdict)
            if answer == "n":
                assert terminal.wait() == 0
            else:
                terminal.type(CTRL_C)
                assert terminal.wait() == 130


PROMPT = """
import subprocess, sys
from pathlib import Path
from dragoman.agent import Agent

agent = Agent("prompt")

@agent.prompt
async def answer(turn):
    log = subprocess.run(["git", "log", "-1", "--format=%H"], cwd=turn.session.cwd, check=False)
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{log.returncode}\\n")
    if "fail" in sys.argv:
        raise ValueError("my bug")
    await turn.say(turn.text)

agent.run()
"""
"""An agent that answers at once, and writes down whether it works in a repository with a commit."""


AT_ONCE = """
import json, subprocess, sys
from pathlib import Path

folders = {}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    params, told, answer = asked.get("params") or {}, [], {"result": {}}
    if asked["method"] == "initialize":
        answer = {"result": {"protocolVersion": 1, "agentCapabilities": {}}}
    elif asked["method"] == "session/new":
        id = f"s{len(folders)}"
        folders[id], answer = params["cwd"], {"result": {"sessionId": id}}
    elif asked["method"] == "session/prompt":
        command, cwd = ["git", "log", "-1", "--format=%H"], folders[params["sessionId"]]
        log = subprocess.run(command, cwd=cwd, stdout=2, check=False)
        with Path(sys.argv[1]).open("a") as file:
            file.write(f"{log.returncode}\\n")
        chunk = {"sessionUpdate": "agent_message_chunk", "content": params["prompt"][0]}
        update = {"sessionId": params["sessionId"], "update": chunk}
        told.append({"jsonrpc": "2.0", "method": "session/update", "params": update})
        answer = {"result": {"stopReason": "end_turn"}}
    else:
        answer = {"error": {"code": -32601, "message": "no such method"}}
    told.append({"jsonrpc": "2.0", "id": asked["id"], **answer})
    sys.stdout.write("".join(json.dumps(each) + "\\n" for each in told))
    sys.stdout.flush()
"""
"""The same without dragoman: the answer and the end of the turn are one write, so that no cancel
can come between them."""


def described(cli: Cli, *words: str, code: str = PROMPT) -> Path:
    """Give that agent a name; the file that it writes to."""
    program, seen = cli.home / "prompt.py", cli.home / "seen"
    program.write_text(code)
    peers = cli.home / "config_home" / "peers"
    peers.mkdir(parents=True)
    command = json.dumps([sys.executable, str(program), str(seen), *words])
    (peers / "mine.toml").write_text(
        f'name = "mine"\ntitle = "x"\nprotocol = "acp"\n[[launch]]\ncommand = {command}\n'
    )
    return seen


@pytest.mark.timeout(120)
def test_verify_works_in_a_repository_and_does_not_measure_a_cancel_that_came_too_late(
    cli: Cli,
) -> None:
    seen = described(cli, code=AT_ONCE)
    done = cli("peers", "verify", "mine", "--turns", "--format", "json")
    assert done.code == 0, done.err
    assert set(seen.read_text().split()) == {"0"}
    told = [json.loads(line) for line in done.out.splitlines()]
    rungs = {line["rung"]: line for line in told if "rung" in line}
    assert rungs["cancel"]["verdict"] == "skipped"
    assert "the turn ended before the cancel could arrive" in rungs["cancel"]["evidence"]
    assert rungs["echo"]["verdict"] == "pass"


@pytest.mark.timeout(120)
def test_verify_says_what_was_proved_and_what_there_is_to_know(cli: Cli) -> None:
    described(cli)

    def state() -> str:
        rows = map(json.loads, cli("peers", "list", "--format", "json").out.splitlines())
        return str(next(row["card"] for row in rows if row["name"] == "mine"))

    tried = cli("peers", "verify", "mine")
    assert tried.code == 0
    assert "starts, speaks acp, opens a session; no turn was tried" in tried.out
    assert state() == "a session opens"
    done = cli("peers", "verify", "mine", "--turns")
    assert done.code == 0
    warned = [line for line in done.out.splitlines() if line.startswith("warn")]
    proved = "starts, speaks acp, opens a session, completes a turn"
    problems = f"{len(warned)} problem{'' if len(warned) == 1 else 's'}"
    assert warned and f"{proved}; {problems}, see above" in done.out
    assert state() == f"a turn completes, {problems}"


@pytest.mark.timeout(120)
def test_a_peer_whose_every_turn_fails_is_not_said_to_work(cli: Cli) -> None:
    described(cli, "fail")
    done = cli("peers", "verify", "mine", "--turns")
    assert done.code == 10
    assert "completes a turn" not in done.out
    shown = cli("peers", "list").out
    assert "a turn completes" not in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("mine ")]
    assert "failed" in row
