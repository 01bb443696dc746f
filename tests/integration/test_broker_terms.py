"""Who shares a broker and who does not, and what becomes of a session that is wanted elsewhere.

From the command line to real brokers and real agents. What a broker does with one session is in
`test_broker_serving`, how it is started in `test_broker_starting`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dragoman.broker.client.brokers import list_brokers
from dragoman.broker.records import BrokerRecord
from dragoman.paths import find_paths
from dragoman.transports.process.identity import ProcessState, kill, state_of
from tests.integration.cli_shell import Cli, Done, warm_cli
from tests.keys import KEYS

WAIT_TIMEOUT = 30.0
"""Seconds for something that a broker does by itself."""

LEAKY = """
import json, os, sys

SECRET = os.environ["ACME_API_KEY"]

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def tell(**update):
    send(method="session/update", params={"sessionId": "s", "update": update})

def say(text, kind="agent_message_chunk"):
    tell(sessionUpdate=kind, content={"type": "text", "text": text})

print("my key is", SECRET, file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        send(id=id, result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        send(id=id, result={"sessionId": "s"})
    elif method == "session/prompt":
        text = message["params"]["prompt"][0]["text"]
        for letter in SECRET:
            say(letter, "agent_thought_chunk")
        if text.startswith("output"):
            tell(sessionUpdate="tool_call", toolCallId="o", title="cat", kind="execute")
            for letter in text:
                data = {"terminal_output": {"terminal_id": "o", "data": letter}}
                tell(sessionUpdate="tool_call_update", toolCallId="o", _meta=data)
            for letter in text:
                tell(sessionUpdate="tool_call_update", toolCallId="o", rawOutput=letter)
        for piece in text if text.startswith("spell") else ["I heard " + text]:
            say(piece)
        said = [{"type": "content", "content": {"type": "text", "text": "out: " + SECRET}}]
        tell(sessionUpdate="tool_call", toolCallId="t", title="echo " + SECRET, kind="execute",
             status="completed", rawInput={"command": SECRET}, content=said)
        tell(sessionUpdate="session_info_update", title="about " + SECRET)
        if "fail" in text:
            send(id=id, error={"code": -32000, "message": "bad key " + SECRET, "data": SECRET})
        elif "die" in text:
            sys.exit("died of " + SECRET)
        else:
            send(id=id, result={"stopReason": "end_turn"})
    elif id is not None:
        send(id=id, result={})
"""
"""An agent that gives its key away wherever it can."""

ASK = ("run", "scout", "where is main defined?", "--format", "json")


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        (cli.cwd / ".git").mkdir()
        (cli.cwd / "sub").mkdir()
        (cli.cwd / "app.py").write_text("def main(): ...\n")
        yield cli


def until(holds: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + WAIT_TIMEOUT
    while not holds():
        assert time.monotonic() < give_up_at, "it never came to that"


def result(done: Done) -> dict[str, Any]:
    assert done.out, done.err
    last: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    assert "outcome" in last, last
    return last


def brokers(cli: Cli) -> list[BrokerRecord]:
    return [record for record in list_brokers(find_paths(cli.env)) if not record.draining]


def test_from_a_folder_below_a_session_goes_on_in_the_broker_where_it_began(warm: Cli) -> None:
    first = result(warm(*ASK, "-s", "talk"))
    below = result(warm(*ASK, "-s", "talk", "--cwd", "sub"))
    assert (below["context"], below["session"]) == ("live", first["session"])
    assert len(brokers(warm)) == 1


def test_who_may_write_and_who_may_not_share_the_agent(warm: Cli) -> None:
    for flag in ("--approve-all", "--approve-reads", "--deny-all"):
        assert result(warm(*ASK, "-s", "talk", flag))["outcome"] == "ok"
    assert len(brokers(warm)) == 1


def test_a_session_moves_to_a_broker_with_other_variables_and_back(warm: Cli) -> None:
    warm.extra["ACME_REGION"] = "north"
    first = result(warm(*ASK, "-s", "talk"))
    (before,) = brokers(warm)
    moved = result(warm(*ASK, "-s", "talk", "--env", "ACME_REGION"))
    assert (moved["context"], moved["session"]) == ("restored", first["session"])
    back = result(warm(*ASK, "-s", "talk"))
    assert (back["outcome"], back["session_key"]) == ("ok", first["session_key"])
    answer = "`main` is defined in `app.py:1`"
    until(lambda: warm("sessions", "show", "talk").out.count(answer) == 3)
    assert warm("sessions", "show", "talk").out.count("> where is main") == 3
    assert before.name in {record.name for record in brokers(warm)}


def test_a_session_whose_job_runs_is_not_taken_away(warm: Cli) -> None:
    warm.extra["ACME_REGION"] = "north"
    words = ("-s", "talk", "--approve-reads")
    done = warm("run", "wait", *words, "--no-wait", "--", *warm.agent)
    job = done.out.strip()
    assert job.startswith("j-"), done.err
    until(lambda: "running" in warm("jobs", "list").out)
    for more in (("--env", "ACME_REGION"), ("--cold",)):
        taken = warm("run", "hello", *words, *more, "--", *warm.agent)
        assert taken.code == 2, taken.out + taken.err
        assert "of the session talk" in taken.err
    assert warm("jobs", "cancel", job).code == 0


def test_of_idle_brokers_the_least_recent_stops(warm: Cli) -> None:
    warm.extra["DRAGOMAN_MAX_IDLE_BROKERS"] = "2"
    folders = [warm.cwd.parent / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
        (folder / "app.py").write_text("def main(): ...\n")
    one, two, three = (str(folder) for folder in folders)
    for name in (one, two, one):
        assert result(warm(*ASK, "--cwd", name))["outcome"] == "ok"
    assert {record.workspace for record in brokers(warm)} == {one, two}
    assert result(warm(*ASK, "--cwd", three))["outcome"] == "ok"
    until(lambda: {record.workspace for record in brokers(warm)} == {one, three})


@pytest.mark.parametrize("shown", ["list", "watch"])
def test_a_job_of_a_killed_broker_is_shown_as_crashed_at_once(warm: Cli, shown: str) -> None:
    words = ("-s", "talk", "--approve-reads", "--no-wait")
    job = warm("run", "wait", *words, "--", *warm.agent).out.strip()
    # What was said so far is there while it runs.
    until(lambda: "waiting" in warm("jobs", "result", job).out)
    (record,) = brokers(warm)
    assert kill(record.broker, signal.SIGKILL)
    until(lambda: state_of(record.broker) is ProcessState.DEAD)
    if shown == "list":
        (row,) = map(json.loads, warm("jobs", "list", "--format", "json").out.splitlines())
        assert (row["state"], row["outcome"]) == ("ended", "crashed")
    done = warm("jobs", "watch" if shown == "watch" else "result", job)
    assert "crashed" in done.out + done.err
    assert done.code not in (0, 3)


def test_the_next_command_cleans_up_behind_a_killed_broker_and_goes_on(warm: Cli) -> None:
    first = result(warm(*ASK, "-s", "talk"))
    (record,) = brokers(warm)
    os.kill(record.broker.pid, signal.SIGKILL)
    second = result(warm(*ASK, "-s", "talk"))
    assert (second["outcome"], second["session"]) == ("ok", first["session"])
    assert second["context"] == "restored"
    assert [each.broker.pid == record.broker.pid for each in brokers(warm)] == [False]


def test_a_key_of_any_kind_in_pieces_is_in_no_file_and_in_no_trace(warm: Cli) -> None:
    """Coloured, within JSON, behind letters, and letter by letter, as an agent streams it."""
    program = warm.home / "leaky.py"
    program.write_text(LEAKY)
    warm.extra["ACME_API_KEY"] = "correct-horse-battery-staple"
    trace = warm.home / "wire.jsonl"
    words = (
        "--trace",
        str(trace),
        "--env",
        "ACME_API_KEY",
        "--deny-all",
        "--",
        sys.executable,
        str(program),
    )
    said = [f"a\x1b[32m{key}\x1b[0m" for key in KEYS[::3]]
    said += [f"KEY_{key}" for key in KEYS[1::3]]
    said += [json.dumps({"stdout": f"line\n{key}"}) for key in KEYS[2::3]]
    text = " and ".join(["spell it", *said])
    done = warm("run", text, "-s", "talk", "--format", "json", *words)
    assert done.code == 0, done.err
    assert warm("broker", "stop", "--all").code == 0
    assert "spell it" in warm("sessions", "show", "talk").out
    whole = trace.read_text()
    streamed = [json.loads(line).get("msg", {}) for line in whole.splitlines()]
    spoken = "".join(
        message["params"]["update"]["content"]["text"]
        for message in streamed
        if message.get("params", {}).get("update", {}).get("sessionUpdate") == "agent_message_chunk"
    )
    assert spoken.startswith("spell it and a")
    files = [path for path in warm.home.rglob("*") if path.is_file()]
    leaks = [
        (path.name, key)
        for path in files
        for key in KEYS
        if key[-24:].encode() in path.read_bytes()
    ]
    leaks += [("trace", key) for key in KEYS if key[-24:] in spoken]
    assert leaks == []


def test_a_key_in_pieces_of_the_output_of_a_tool_is_not_stored_and_in_no_trace(warm: Cli) -> None:
    program = warm.home / "leaky.py"
    program.write_text(LEAKY)
    warm.extra["ACME_API_KEY"] = "correct-horse-battery-staple"
    trace = warm.home / "wire.jsonl"
    words = ("--env", "ACME_API_KEY", "--deny-all", "--", sys.executable, str(program))
    keys = KEYS[::5]
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in max(KEYS, key=len))
    text = " and ".join(["output it", *keys, escaped, "no more"])
    done = warm("run", text, "-s", "talk", "--trace", str(trace), "--format", "json", *words)
    assert done.code == 0, done.err
    assert warm("broker", "stop", "--all").code == 0
    stored = warm("sessions", "export", "talk").out
    for record in (trace.read_text(), stored):
        updates = [each for line in record.splitlines() for each in updates_in(json.loads(line))]
        shown = [each["_meta"]["terminal_output"]["data"] for each in updates if "_meta" in each]
        raw = [each["rawOutput"] for each in updates if "rawOutput" in each]
        for output in ("".join(shown), "".join(raw)):
            assert output.startswith("output it and ") and output.endswith(" and no more")
            assert not [key for key in (*keys, escaped) if key[-24:] in output]


def updates_in(value: Any) -> list[dict[str, Any]]:
    """The updates of the call of a tool that stand anywhere in a value of JSON."""
    if isinstance(value, dict):
        if value.get("sessionUpdate") == "tool_call_update":
            return [value]
        value = list(value.values())
    return [each for item in value for each in updates_in(item)] if isinstance(value, list) else []


def test_a_secret_is_in_no_file_of_a_broker(warm: Cli) -> None:
    secret, key = "correct-horse-battery-staple", "sk-ant-api03-" + "abcdef0123456789" * 3
    warm.extra["ACME_API_KEY"] = secret
    program = warm.home / "leaky.py"
    program.write_text(LEAKY)
    words = ("--env", "ACME_API_KEY", "--deny-all", "--", sys.executable, str(program))
    for number, prompt in enumerate(("say", "fail", "die")):
        text = f"{prompt} {secret} {key}"
        done = warm("run", text, "-s", f"talk-{number}", "--format", "json", *words)
        assert done.out, done.err
    (record,) = brokers(warm)
    assert record.log, "it has a log"
    assert warm("broker", "stop", "--all").code == 0
    shown = warm("sessions", "show", "talk-0").out
    assert "I heard say" in shown, "all but the secrets is kept"
    files = [path for path in warm.home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files) and any(
        path.suffix == ".log" for path in files
    )
    leaks = [
        (path.name, word)
        for path in files
        for word in (secret, secret[:14], key, "abcdef0123456789")
        if word.encode() in path.read_bytes()
    ]
    assert leaks == []


@pytest.mark.parametrize(
    "words", [ASK, ("sessions", "ensure", "scout")], ids=["run -s", "sessions ensure"]
)
def test_commands_that_begin_the_same_name_at_once_begin_one_session(
    warm: Cli, words: tuple[str, ...]
) -> None:
    with ThreadPoolExecutor(3) as shells:
        done = list(shells.map(lambda _: warm.child(*words, "-s", "talk"), range(3)))
    assert [each.code for each in done] == [0, 0, 0], [each.err for each in done]
    listed = warm("sessions", "list", "--format", "json", "--closed").out.splitlines()
    assert [json.loads(line)["name"] for line in listed] == ["talk"]
    assert not list((warm.home / "runtime_dir" / "names").iterdir())
