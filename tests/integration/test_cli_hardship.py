"""The command line where something around it is broken: its streams, its disk, its agent."""

from __future__ import annotations

import http.server
import json
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dragoman.store.store import Store
from dragoman.testing import scripted
from dragoman.testing.storyteller import Say, Story, command
from tests.integration.cli_shell import FOLDERS, Cli, cli_in, warm_cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def in_shell(cli: Cli, words: tuple[str, ...], streams: str) -> subprocess.CompletedProcess[str]:
    """A command with its streams as a shell is told to set them."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {streams}', "sh", *cli.argv(*words)],
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_closed_streams_end_nothing(cli: Cli) -> None:
    asked = ("run", "hello", "--", *cli.agent)
    done = in_shell(cli, asked, "<&-")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "you said hello")
    assert in_shell(cli, asked, "<&- >&- 2>&-").returncode == 0
    empty = in_shell(cli, ("chat", "--", *cli.agent), "<&-")
    assert (empty.returncode, empty.stderr) == (0, "")


def test_the_answer_does_not_depend_on_who_reads_stderr(cli: Cli) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        cli.argv("run", "hello", "--", *cli.agent),
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=write,
        timeout=30,
    )
    os.close(write)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, b"you said hello")


@pytest.mark.parametrize(("status", "retryable"), [(401, False), (503, True)])
def test_a_server_that_refuses_the_login_is_not_worth_a_second_try(
    cli: Cli, status: int, retryable: bool
) -> None:
    class Refusing(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_error(status)

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Refusing) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            done = cli.child("run", f"ws://127.0.0.1:{server.server_port}/", "hello")
        finally:
            server.shutdown()
            serving.join()
    assert f"HTTP status {status}" in done.err
    assert ("try again: " in done.err) is retryable


@pytest.mark.parametrize("umask", ["0", "022"])
def test_our_folders_are_for_their_user_alone_whatever_the_umask(umask: str) -> None:
    with warm_cli() as cli:
        folders = {f"DRAGOMAN_{name}": "" for name in FOLDERS}
        cli.extra |= {**folders, "DRAGOMAN_RUNTIME_DIR": str(cli.home / "run")}
        (cli.cwd / "app.py").write_text("def main(): ...\n")
        asked = cli.argv("run", "scout", "where is main defined?")
        done = subprocess.run(
            ["sh", "-c", f'umask {umask}; exec "$@"', "sh", *asked],
            cwd=cli.cwd,
            env=cli.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 0, done.stderr
        made = [path for path in cli.home.rglob("*") if path.is_dir()]
        assert cli.home / ".local" / "state" / "dragoman" / "logs" in made
        wide = [path for path in made if stat.S_IMODE(path.stat().st_mode) != 0o700]
        assert wide == []


@pytest.mark.parametrize("owner", ["ours", "another user's"])
def test_a_runtime_directory_that_cannot_be_used_does_not_concern_every_command(
    cli: Cli, owner: str
) -> None:
    folder = cli.home / "run"
    folder.mkdir()
    folder.chmod(0o755 if owner == "ours" else 0o700)
    if owner != "ours":
        if os.geteuid() != 0:
            pytest.skip("only root can make a folder of another user")
        os.chown(folder, 65534, 65534)
    cli.extra |= {"DRAGOMAN_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": str(folder)}
    done = cli.child("run", "hello", "--", *cli.agent)
    assert done.code == 0
    assert re.fullmatch(r"dragoman: job j-\w+\n\[done\] ok, .*\n", done.err), done.err
    listed = cli.child("jobs", "list")
    assert (listed.code, listed.err) == (0, "")
    told = cli.child("doctor")
    assert "XDG_RUNTIME_DIR is" in told.out and "Traceback" not in told.err
    assert os.listdir(folder) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
def test_a_full_disk_is_named_and_is_not_a_success(cli: Cli) -> None:
    for words in (("run", "hello", "--", *cli.agent), ("peers",), ("--help",)):
        done = in_shell(cli, words, ">/dev/full")
        assert done.returncode == 1
        told = [line for line in done.stderr.splitlines() if "dragoman: job j-" not in line]
        assert told == ["dragoman: the output cannot be written: No space left on device"]


def test_a_store_that_takes_no_more_is_named_once(cli: Cli) -> None:
    story = command(Story(tuple(Say("x" * 8_000) for _ in range(12))), dialect="acp")
    asked = cli.argv("run", "hello", "--format", "quiet", "--", *story)
    # The largest file may have 200 blocks: more than an empty store, and less than this turn.
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 200; exec "$@"', "sh", *asked],
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, len(done.stdout)) == (0, 96_001)
    assert [line[:42] for line in done.stderr.splitlines()] == [
        "dragoman: this conversation is not stored:"
    ]


def test_a_prompt_that_is_not_text_is_refused_and_a_chat_goes_on(cli: Cli) -> None:
    done = in_shell(cli, ("run", "h\udcffi", "--", *cli.agent), "")
    assert (done.returncode, "not UTF-8" in done.stderr) == (2, True)
    chat = subprocess.run(
        cli.argv("chat", "--", *cli.agent),
        cwd=cli.cwd,
        env=cli.env,
        input=b"one\n\xff\ntwo\n",
        capture_output=True,
        timeout=30,
    )
    assert (chat.returncode, b"Traceback" in chat.stderr) == (2, False)
    assert b"you said one" in chat.stdout and b"you said two" in chat.stdout


def test_the_help_of_a_chat_is_not_a_line_for_programs(cli: Cli) -> None:
    done = cli("chat", "--json-strict", "--", *cli.agent, stdin="/help\nhi\n")
    assert (done.code, done.err) == (0, "")
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [each["text"] for each in told if each["type"] == "Result"] == ["you said hi"]


def test_an_agent_that_never_closes_its_session_takes_nothing_from_a_success(cli: Cli) -> None:
    chaos = (sys.executable, "-m", "dragoman.testing.chaos", "--fault", "hang:session/close")
    cli.extra["DRAGOMAN_TIMEOUTS_REQUEST"] = "60"
    done = cli("run", "hello", "--json-strict", "--", *chaos)
    assert done.code == 0
    last = json.loads(done.out.splitlines()[-1])
    assert (last["type"], last["outcome"]) == ("Result", "ok")


def test_ctrl_c_while_the_command_is_loaded_says_nothing() -> None:
    code = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from dragoman.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_an_agent_that_speaks_only_a_newer_acp_is_not_blamed(cli: Cli) -> None:
    newer = scripted.command(
        scripted.Expect("initialize"), scripted.Reply({"protocolVersion": 2, "info": {}})
    )
    done = cli("run", "hello", "--", *newer)
    assert done.code == 1
    assert "this agent speaks only ACP version 2, but dragoman speaks version 1" in done.err
    assert "whose fault" not in done.err
    assert "use a version of the agent that speaks ACP 1, or a newer dragoman" in done.err


def test_a_damaged_store_is_set_aside_by_the_broker_and_told_once() -> None:
    with warm_cli() as cli:
        state = cli.home / "state_home"
        state.mkdir(exist_ok=True)
        (state / "sessions.db").write_bytes(b"garbage " * 1000)
        ask = ("run", "hello", "-s", "talk", "--", *cli.agent)
        first = cli.child(*ask)
        assert first.code == 0, first.err
        assert first.err.count("sessions.db: it was damaged and is now ") == 1
        assert "damaged" not in cli.child(*ask).err
        assert "you said hello" in cli.child("sessions", "show", "talk").out
        (aside,) = state.glob("sessions.db.damaged-*")
        assert aside.read_bytes() == b"garbage " * 1000


def test_a_broker_follows_the_store_that_another_process_began() -> None:
    with warm_cli() as cli:
        words = ("--", *cli.agent)
        assert cli.child("run", "hello", "-s", "one", *words).code == 0
        with Store.open(cli.home / "state_home" / "sessions.db") as store:
            store.replace()
        done = cli.child("run", "hello again", "-s", "two", *words)
        assert done.code == 0 and "moved or deleted" in done.err, done.err
        after = cli.child("run", "once more", "-s", "three", *words)
        assert after.code == 0 and "moved or deleted" not in after.err, after.err
        assert "you said once more" in cli.child("sessions", "show", "three").out


@pytest.mark.parametrize("warm", [False, True])
def test_an_agent_whose_first_answer_is_over_the_limit_of_its_descriptor_names_the_limit(
    warm: bool,
) -> None:
    program = (
        "from dragoman.agent import Agent; agent = Agent('big', title='x' * 80_000); "
        "agent.prompt(lambda turn: turn.say('spoken')); agent.run()"
    )
    with warm_cli() as cli:
        peers = cli.home / "config_home" / "peers"
        peers.mkdir(parents=True)
        for name, size in (("big", 70_000), ("wide", 100_000), ("zero", 0)):
            (peers / f"{name}.toml").write_text(
                f'name = "{name}"\ntitle = "{name}"\nprotocol = "acp"\nroles = ["execute"]\n'
                f"max_line_size = {size}\n"
                f"[[launch]]\ncommand = {json.dumps([sys.executable, '-c', program])}\n"
            )
        cold = () if warm else ("--cold",)
        done = cli.child("run", "big", "hi", *cold)
        told = " ".join(done.err.split())
        assert done.code != 0
        assert "answered with a line of more than 70000 bytes" in told
        assert "may need a larger `max_line_size`" in told and "not an agent" not in told
        allowed = cli.child("run", "wide", "hi", *cold)
        assert (allowed.code, allowed.out) == (0, "spoken\n"), allowed
        told = " ".join(cli.child("run", "zero", "hi", *cold).err.split())
        assert "max_line_size: it must be 4096 bytes or greater" in told
