"""What commands cost in memory when an agent says more than fits into it.

With the long profile (`make soak`) the agent says a gigabyte, and no command may need more than
200 MB. With the others it says less, and the limit is as much lower.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dragoman.client.permissions import SHOWN_SIZE
from dragoman.runs.sessions import ANSWER_SIZE
from tests.integration.cli_shell import Cli, warm_cli

MB = 1000 * 1000
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
SAID = (1000 if LONG else 60) * MB
"""What the agent says."""
RUN_LIMIT = (200 if LONG else 110) * MB
READ_LIMIT = (200 if LONG else 80) * MB
"""What a command may need that runs a turn, and one that reads a session. Those that keep what they
read need three times, and once, what is said, besides about 40 MB."""
TIMEOUT = 3000.0 if LONG else 120.0

PIECE = 2000

ASKED, ASKED_SIZE = 300, MB // 2
"""How many permissions an agent asks for, and how long the title of each is."""
ASKED_LIMIT = 110 * MB
"""What a command may need then. One that keeps the titles needs as much again for each copy."""

FLOODER = f"""
import json, sys

def send(**message):
    sys.stdout.write(json.dumps({{"jsonrpc": "2.0", **message}}) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        send(id=id, result={{"protocolVersion": 1, "agentCapabilities": {{}}}})
    elif method == "session/new":
        send(id=id, result={{"sessionId": "s"}})
    elif method == "session/prompt":
        said = ("word " * {PIECE // 5})
        content = {{"type": "text", "text": said}}
        update = {{"sessionUpdate": "agent_message_chunk", "content": content}}
        message = {{"jsonrpc": "2.0", "method": "session/update"}}
        message["params"] = {{"sessionId": "s", "update": update}}
        piece = json.dumps(message) + "\\n"
        for _ in range({SAID // PIECE}):
            sys.stdout.write(piece)
        send(id=id, result={{"stopReason": "end_turn"}})
    elif id is not None:
        send(id=id, result={{}})
"""

pytestmark = pytest.mark.timeout(2 * TIMEOUT)


@dataclass(frozen=True)
class Flooded:
    cli: Cli
    job: str
    result: dict[str, object]
    peak: int


@pytest.fixture(scope="module")
def flooded() -> Iterator[Flooded]:
    """A session in which the agent said a lot, by way of a broker."""
    with warm_cli() as cli:
        program = cli.home / "flooder.py"
        program.write_text(FLOODER)
        words = ("--deny-all", "--", sys.executable, str(program))
        peak, out, err = measured(cli, "run", "go", "-s", "talk", "--format", "json", *words)
        result = json.loads(out.splitlines()[-1])
        assert result["outcome"] == "ok", err
        yield Flooded(cli, result["job"], result, peak)


MEASURE = """
import resource, subprocess, sys
with open(sys.argv[1], "wb") as out:
    code = subprocess.run([sys.executable, "-m", "dragoman", *sys.argv[2:]], stdout=out).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(code)
"""


def measured(cli: Cli, *words: str, exit_code: int = 0) -> tuple[int, str, str]:
    """The largest memory of a command, the end of what it printed, and what it complained about."""
    out = cli.home / "out"
    # A small process between: a child begins with the size of the one it was forked from.
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(out), *words],
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == exit_code, done.stderr
    with out.open("rb") as file:
        file.seek(max(0, out.stat().st_size - 2 * ANSWER_SIZE))
        tail = file.read().decode(errors="replace")
    out.unlink()
    return int(done.stdout), tail, done.stderr


def test_run_with_json_is_bounded_and_its_result_says_that_it_was_cut(flooded: Flooded) -> None:
    assert flooded.peak < RUN_LIMIT
    assert flooded.result["truncated"] is True
    assert len(str(flooded.result["text"])) == ANSWER_SIZE


@pytest.mark.parametrize("format", ["text", "quiet"])
def test_the_memory_of_a_run_is_bounded(flooded: Flooded, format: str) -> None:
    program = flooded.cli.home / "flooder.py"
    words = ("--deny-all", "--", sys.executable, str(program))
    peak, out, err = measured(flooded.cli, "run", "go", "--format", format, *words)
    assert peak < RUN_LIMIT
    assert "word word" in out
    if format == "quiet":
        assert "was cut there; `dragoman sessions show s-" in err


@pytest.mark.parametrize("format", ["text", "json", "quiet"])
def test_the_memory_of_watching_a_job_is_bounded(flooded: Flooded, format: str) -> None:
    peak, out, _ = measured(flooded.cli, "jobs", "watch", flooded.job, "--format", format)
    assert peak < READ_LIMIT
    assert "word word" in out


@pytest.mark.parametrize("format", ["text", "json", "quiet"])
def test_showing_a_session_is_bounded(flooded: Flooded, format: str) -> None:
    peak, out, _ = measured(flooded.cli, "sessions", "show", "talk", "--format", format)
    assert peak < READ_LIMIT
    assert "word word" in out


ASKER = f"""
import json, sys

def send(**message):
    sys.stdout.write(json.dumps({{"jsonrpc": "2.0", **message}}) + "\\n")
    sys.stdout.flush()

def ask(number):
    call = {{"toolCallId": str(number), "title": "t" * {ASKED_SIZE}, "kind": "execute"}}
    options = [{{"optionId": "no", "name": "No", "kind": "reject_once"}}]
    params = {{"sessionId": "s", "toolCall": call, "options": options}}
    send(id=f"q{{number}}", method="session/request_permission", params=params)

for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        send(id=id, result={{"protocolVersion": 1, "agentCapabilities": {{}}}})
    elif method == "session/new":
        send(id=id, result={{"sessionId": "s"}})
    elif method == "session/prompt":
        prompt = id
        ask(1)
    elif method is None and id == "q{ASKED}":
        send(id=prompt, result={{"stopReason": "end_turn"}})
    elif method is None:
        ask(int(id[1:]) + 1)
    elif id is not None:
        send(id=id, result={{}})
"""


def test_the_memory_of_a_run_whose_agent_asks_for_much_is_bounded() -> None:
    with warm_cli() as cli:
        program = cli.home / "asker.py"
        program.write_text(ASKER)
        words = ("--cold", "--deny-all", "--format", "json", "--", sys.executable, str(program))
        peak, out, _ = measured(cli, "run", "go", *words, exit_code=5)
        denials = json.loads(out.splitlines()[-1])["denials"]
    assert peak < ASKED_LIMIT
    assert len(denials) == ASKED
    assert denials[0]["title"] == "t" * SHOWN_SIZE
