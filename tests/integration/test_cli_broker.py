"""`dragoman broker`: looking at brokers, stopping them, speaking with one on stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.client.acp.open import open_agent
from dragoman.transports.process.identity import identify
from tests.integration.broker_places import wait_dead
from tests.integration.cli_shell import Cli, warm_cli

STORED_TIMEOUT = 30.0

MAX_WARM_MODULES = 121
"""Modules of dragoman in the process of a `run` whose broker is there. Each delays its start."""

COUNT_MODULES = (
    "import atexit, sys\n"
    "from dragoman.cli import main\n"
    "def count():\n"
    "    print(sum(name.startswith('dragoman') for name in sys.modules), file=sys.stderr)\n"
    "atexit.register(count)\n"
    "main()\n"
)


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def brokers(cli: Cli) -> list[dict[str, Any]]:
    done = cli("broker", "list", "--format", "json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def hello(cli: Cli, *words: str) -> None:
    done = cli("run", "hello", "--approve-reads", "-s", "talk", *words, "--", *cli.agent)
    assert done.code == 0, done.err


def until_stored(cli: Cli) -> None:
    """Wait until the broker has written down that there is a job."""
    give_up_at = time.monotonic() + STORED_TIMEOUT
    while not cli("jobs", "list", "--format", "quiet").out:
        assert time.monotonic() < give_up_at, "no job was stored"


def test_a_project_shares_one_agent_whatever_the_folder_the_language_and_the_order_of_path(
    warm: Cli,
) -> None:
    (peers := warm.home / "config_home" / "peers").mkdir(parents=True)
    words = json.dumps(list(warm.agent))
    for name in ("alpha", "alpha-two"):
        (peers / f"{name}.toml").write_text(
            f'name = "{name}"\ntitle = "{name}"\nprotocol = "acp"\n[[launch]]\ncommand = {words}\n'
        )
    subprocess.run(["git", "init", "-q", str(warm.cwd)], check=True)
    below = warm.cwd / "src" / "below"
    below.mkdir(parents=True)
    run = ("run", "alpha", "settings", "--approve-reads")
    assert warm(*run).out.endswith(f"cwd {warm.cwd.name}\n")
    # The agent is shared, and the session is in the folder of its user.
    assert warm(*run, "--cwd", str(below)).out.endswith("cwd below\n")
    ordered = warm.env["PATH"].split(os.pathsep)
    warm.extra["PATH"] = os.pathsep.join([str(warm.home), *reversed(ordered)])
    warm.extra["LANG"] = "de_DE.UTF-8"
    warm.extra["LC_ALL"] = "C"
    assert warm(*run).code == 0
    (broker,) = brokers(warm)
    assert broker["workspace"] == str(warm.cwd)
    # Another variable that the agent is given is another agent, and the list says which one.
    warm.extra["ALPHA_KEY"] = "secret-value"
    assert warm(*run, "--env", "ALPHA_KEY").code == 0
    (oldest, other) = brokers(warm)
    assert (oldest["differs_from"], oldest["differences"]) == (None, [])
    assert other["differs_from"] == broker["broker"]
    assert other["differences"] == ["the variable ALPHA_KEY"]
    listed = warm("broker", "list")
    assert (
        f"{other['broker']} and {broker['broker']} differ in the variable ALPHA_KEY.\n"
        in listed.err
    )
    files = [file for file in warm.home.rglob("*") if file.is_file()]
    assert not [file for file in files if b"secret-value" in file.read_bytes()]
    # A peer whose name begins alike is not meant.
    assert warm("run", "alpha-two", "hello", "--approve-reads").code == 0
    logs = warm("broker", "logs", "alpha").out
    assert "alpha-two-" not in logs
    stopped = warm("broker", "stop", "alpha").out
    assert sorted(stopped.split()[::2]) == sorted(f"{one['broker']}:" for one in (broker, other))
    assert [one["peer"] for one in brokers(warm)] == ["alpha-two"]


def test_a_delegation_and_a_run_say_why_they_do_not_share_an_agent(warm: Cli) -> None:
    (peers := warm.home / "config_home" / "peers").mkdir(parents=True)
    words = json.dumps(list(warm.agent))
    (peers / "alpha.toml").write_text(
        f'name = "alpha"\ntitle = "A"\nprotocol = "acp"\nroles = ["review"]\n'
        f"[[launch]]\ncommand = {words}\n"
    )
    (warm.home / "config_home/config.toml").write_text('enabled_peers = ["alpha"]\n')
    assert warm("run", "alpha", "hello", "--approve-reads").code == 0
    for _ in range(2):
        assert warm("delegate", "review", "hello").code == 0
    assert len(brokers(warm)) == 2
    told = warm("broker", "list").err
    assert "differ in the variable DRAGOMAN_CEILING, the variable DRAGOMAN_DEPTH." in told


def test_a_broker_is_listed_looked_at_and_stopped(warm: Cli) -> None:
    assert brokers(warm) == []
    assert "No broker is running" in warm("broker", "list").err
    hello(warm)
    hello(warm)
    (broker,) = brokers(warm)
    assert (broker["state"], broker["workspace"]) == ("idle", str(warm.cwd))
    assert warm("broker", "list", "--format", "quiet").out == f"{broker['broker']}\n"
    assert broker["broker"] in warm("broker", "list").out
    page = warm("broker", "status", broker["peer"]).out
    assert f"broker          {broker['broker']}\n" in page
    assert "(talk)" in page
    assert str(broker["log"]) in warm("broker", "logs").out
    assert warm("broker", "stop").code == 2
    assert warm("broker", "stop", "nobody").code == 2
    stopped = warm("broker", "stop", broker["peer"])
    assert stopped.out == f"{broker['broker']}: stopped\n"
    assert brokers(warm) == []
    assert warm.agents_left() == []


def test_stopping_a_peer_leaves_one_whose_name_begins_alike(warm: Cli) -> None:
    peers = warm.home / "config_home" / "peers"
    peers.mkdir(parents=True)
    for name in ("echo", "echo-acp"):
        (peers / f"{name}.toml").write_text(
            f'name = "{name}"\ntitle = "{name}"\nprotocol = "acp"\n'
            f"[[launch]]\ncommand = {json.dumps([*warm.agent, name])}\n"
        )
        assert warm("run", name, "hello", "--approve-reads").code == 0
    stopped = warm.child("broker", "stop", "echo")
    assert (stopped.code, stopped.out.count("\n")) == (0, 1), stopped
    assert [broker["peer"] for broker in brokers(warm)] == ["echo-acp"]
    logs = warm.child("broker", "logs", "echo").out
    assert "broker-echo-" in logs and "broker-echo-acp-" not in logs


def test_a_broker_that_works_is_left_alone_if_that_is_asked_for(warm: Cli) -> None:
    job = warm("run", "wait", "--no-wait", "--", *warm.agent).out.strip()
    (broker,) = brokers(warm)
    kept = warm("broker", "stop", "--all", "--if-idle")
    assert kept.out == f"{broker['broker']}: still running: it is busy\n"
    assert warm("broker", "stop", "--all").code == 0
    result = warm("jobs", "result", job, "--format", "json")
    assert json.loads(result.out)["state"] == "ended"


def test_what_a_killed_broker_left_is_reaped(warm: Cli) -> None:
    hello(warm)
    (broker,) = brokers(warm)
    process = identify(broker["pid"])
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    wait_dead(process)
    reaped = warm("broker", "reap", "--format", "json")
    assert reaped.code == 0, reaped.err
    assert [json.loads(line)["broker"] for line in reaped.out.splitlines()] == [broker["broker"]]
    assert brokers(warm) == []
    assert warm.agents_left() == []
    assert not os.path.lexists(broker["address"])


def test_a_broker_stays_for_the_time_that_was_said(warm: Cli) -> None:
    hello(warm, "--ttl", "90s")
    (broker,) = brokers(warm)
    assert broker["status"]["ttl"] == 90
    assert warm("run", "hello", "--ttl", "soon", "-s", "x", "--", *warm.agent).code == 2


def test_a_shorter_time_than_the_broker_was_idle_does_not_end_it_in_this_call(warm: Cli) -> None:
    hello(warm)
    hello(warm, "--ttl", "0")


def test_any_client_of_acp_speaks_with_a_broker_on_stdin_and_stdout(warm: Cli) -> None:
    async def ask() -> str:
        argv = warm.argv("broker", "attach", "scout", "--cwd", str(warm.cwd))
        async with open_agent(argv, cwd=warm.cwd, env=warm.env) as client:
            session = await client.new_session(warm.cwd)
            return (await session.ask("list the TODOs")).text

    assert asyncio.run(ask()) == "I found no marks such as TODO."
    (broker,) = brokers(warm)
    assert (broker["peer"], broker["status"]["peer"]) == ("scout", "scout")


def test_a_broker_that_is_killed_ends_the_turn_and_the_next_one_begins_anew(warm: Cli) -> None:
    words = ("--approve-reads", "-s", "talk", "--", *warm.agent)
    with warm.terminal("run", "wait", *words) as terminal:
        terminal.expect("waiting")
        (broker,) = brokers(warm)
        until_stored(warm)
        os.kill(broker["pid"], signal.SIGKILL)
        terminal.expect("[ended] crashed")
        terminal.expect("the broker was lost during the turn")
        assert terminal.wait() == 1
    listed = warm("jobs", "list", "--format", "json")
    assert json.loads(listed.out)["outcome"] == "crashed"
    fresh = warm("run", "hello", "--fresh", "--format", "quiet", *words)
    assert (fresh.code, fresh.out) == (0, "you said hello\n")
    # The first broker took its agent along: its warden ends it, which may take a moment.
    give_up_at = time.monotonic() + STORED_TIMEOUT
    while len(warm.agents_left()) != 1:
        assert time.monotonic() < give_up_at, warm.agents_left()


def test_a_session_that_the_agent_has_lost_goes_on_with_a_brief(warm: Cli) -> None:
    words = ("--approve-reads", "-s", "talk", "--format", "quiet", "--", *warm.agent)
    assert warm("run", "remember the heron", *words).out == "you said remember the heron\n"
    (broker,) = brokers(warm)
    os.kill(broker["status"]["peerPid"], signal.SIGKILL)
    went_on = warm.child("run", "handover", "--brief", *words)
    assert went_on.code == 0, went_on
    assert "User: remember the heron" in went_on.out
    assert "you said remember the heron" in went_on.out
    assert "and gets a summary of it: 1 message" in went_on.err
    # Only once: the session knows it now.
    assert warm("run", "hello", "--brief", *words).out == "you said hello\n"


def test_an_agent_that_is_killed_ends_the_turn_and_is_started_again(warm: Cli) -> None:
    words = ("--approve-reads", "-s", "talk", "--", *warm.agent)
    with warm.terminal("run", "wait", *words) as terminal:
        terminal.expect("waiting")
        (broker,) = brokers(warm)
        os.kill(broker["status"]["peerPid"], signal.SIGKILL)
        terminal.expect("[ended] crashed")
        terminal.expect("the process was killed by signal 9")
        assert terminal.wait() == 1
    lost = warm("run", "hello", *words)
    assert (lost.code, "--fresh" in lost.err, "--brief" in lost.err) == (4, True, True)
    assert "whose fault: the agent" in lost.err
    assert warm("run", "hello", "--fresh", *words).code == 0
    assert [each["pid"] for each in brokers(warm)] == [broker["pid"]]


def test_a_warm_run_loads_few_modules(warm: Cli) -> None:
    (warm.cwd / "framer.py").write_text("class Framer: ...\n")
    words = ("run", "scout", "where is Framer defined?")
    assert warm(*words).code == 0
    # Brokers are the default. A variable of ours would be checked for secrets, as a file would be.
    env = {name: value for name, value in warm.env.items() if name != "DRAGOMAN_WARM"}
    done = subprocess.run(
        [sys.executable, "-c", COUNT_MODULES, *words],
        cwd=warm.cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stderr.splitlines()[-1]) <= MAX_WARM_MODULES
