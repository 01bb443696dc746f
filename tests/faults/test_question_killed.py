"""Kill -9 of the broker, the agent and the caller while a permission question is open.

The question is shown on a real terminal. After each kill: the caller ends, no agent is left, the
agent got at most one answer and no approval, nothing was written, and the next command works.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.client.brokers import list_brokers
from dragoman.paths import find_paths
from tests.integration.cli_shell import Cli, warm_cli
from tests.integration.pty_terminal import Terminal

WAIT_TIMEOUT = 20.0
"""Seconds for what a broker or a warden does by itself."""

AGENT = """
import json, pathlib, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

log = open(pathlib.Path(sys.argv[1]) / "received", "a", buffering=1)
for line in sys.stdin:
    log.write(line)
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params")
    if method == "initialize":
        send(id=id, result={"protocolVersion": 1, "agentCapabilities": {"loadSession": True}})
    elif method in ("session/new", "session/load"):
        send(id=id, result={"sessionId": "s"} if method == "session/new" else {})
        target = pathlib.Path(params["cwd"]) / "planted"
    elif method == "session/prompt":
        session, prompt, text = params["sessionId"], id, params["prompt"][0]["text"]
        if text == "ask":
            options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"},
                       {"optionId": "n", "name": "No", "kind": "reject_once"}]
            diff = {"type": "diff", "path": str(target), "oldText": None, "newText": "planted"}
            call = {"toolCallId": "t", "title": "t", "kind": "edit", "content": [diff]}
            send(id="question", method="session/request_permission",
                 params={"sessionId": session, "toolCall": call, "options": options})
        elif text == "save":
            send(id="question", method="fs/write_text_file",
                 params={"sessionId": session, "path": str(target), "content": "planted"})
        else:
            said = {"type": "text", "text": text}
            update = {"sessionUpdate": "agent_message_chunk", "content": said}
            send(method="session/update", params={"sessionId": session, "update": update})
            send(id=prompt, result={"stopReason": "end_turn"})
    elif id == "question":
        if (message.get("result") or {}).get("outcome", {}).get("optionId") == "y":
            target.write_text("planted")
        send(id=prompt, result={"stopReason": "end_turn"})
    elif id is not None:
        send(id=id, result={})
"""
"""Asks with `session/request_permission`, or has its client write, as the prompt says."""


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        (cli.home / "agent.py").write_text(AGENT)
        yield cli


def words(cli: Cli, prompt: str) -> tuple[str, ...]:
    agent = ("--", sys.executable, str(cli.home / "agent.py"), str(cli.home))
    return ("run", prompt, "-s", "talk", *agent)


def until(holds: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + WAIT_TIMEOUT
    while not holds():
        assert time.monotonic() < give_up_at, "it never came to that"
        time.sleep(0.01)


def processes(cli: Cli) -> list[str]:
    """Return all processes that know the home of these commands: agents, brokers, wardens."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            known = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            if os.fsencode(cli.home) in known:
                found.append(folder.name)
    return found


def received(cli: Cli) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (cli.home / "received").read_text().splitlines()]


def answers(cli: Cli) -> list[dict[str, Any]]:
    """Return the answers that the agent got to its question."""
    return [each for each in received(cli) if each.get("id") == "question"]


def prompts(cli: Cli) -> list[str]:
    asked = [each for each in received(cli) if each.get("method") == "session/prompt"]
    return [each["params"]["prompt"][0]["text"] for each in asked]


def kill_broker(cli: Cli, terminal: Terminal) -> None:
    (record,) = list_brokers(find_paths(cli.env))
    os.kill(record.broker.pid, signal.SIGKILL)
    assert terminal.wait() not in (0, 5), terminal.shown
    until(lambda: not cli.agents_left())
    assert answers(cli) == []


def kill_agent(cli: Cli, terminal: Terminal) -> None:
    (pid,) = cli.agents_left()
    os.kill(int(pid), signal.SIGKILL)
    assert terminal.wait() not in (0, 5), terminal.shown
    assert answers(cli) == []


def kill_caller(cli: Cli, terminal: Terminal) -> None:
    os.kill(terminal.pid, signal.SIGKILL)
    terminal.wait()
    # The broker answers in place of the caller, once, and does not allow it.
    until(lambda: answers(cli))
    (answer,) = answers(cli)
    assert "error" in answer or answer["result"]["outcome"].get("optionId") != "y"


@pytest.mark.parametrize("question", ["ask", "save"])
@pytest.mark.parametrize("kill", [kill_broker, kill_agent, kill_caller])
def test_a_kill_while_a_question_is_open_hangs_leaves_and_writes_nothing(
    warm: Cli, kill: Callable[[Cli, Terminal], None], question: str
) -> None:
    with warm.terminal(*words(warm, question)) as terminal:
        terminal.expect("allow? [")
        kill(warm, terminal)
    done = warm.child(*words(warm, "hello"))
    assert done.code == 0, done.err
    assert prompts(warm) == [question, "hello"], "each was sent once"
    assert len(answers(warm)) <= 1
    assert warm.child("broker", "stop", "--all").code == 0
    until(lambda: not processes(warm))
    assert not (warm.cwd / "planted").exists()
