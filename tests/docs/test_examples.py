"""The examples run as a user runs them, and the demo reports truthfully what is left."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from tests.aio import aio
from tests.docs.markdown import ROOT

EXAMPLES = ROOT / "examples"

EXAMPLE_TIMEOUT = 50.0
"""Two interpreters start and end, which takes seconds on a busy machine."""


def test_the_demo_shows_every_word_in_order_and_that_the_process_is_gone() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "echo_client.py")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=EXAMPLE_TIMEOUT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "\033" not in done.stdout, "colours without a terminal"
    shown = [(line.split()[0], line.split()[1:]) for line in done.stdout.splitlines()]
    asked = [words for label, words in shown if label == "ask"]
    said = [words[1] for label, words in shown if label == "said"]
    assert said == [word for words in asked for word in words]
    assert [label for label, _ in shown if label not in ("ask", "said", "answer")] == [
        "started",
        "ready",
        "refused",
        "counted",
        "so",
        "closed",
        "gone",
    ]


@aio
async def test_the_echo_agent_serves_any_client_and_keeps_its_prints_out_of_the_stream() -> None:
    # The other end is asyncio's own, so that dragoman is not tested with itself.
    async with asyncio.timeout(EXAMPLE_TIMEOUT):
        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", str(EXAMPLES / "echo_agent.py")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdin.write(
            b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"text":"hello there"}}\n'
        )
        messages = [json.loads(await agent.stdout.readline()) for _ in range(3)]
        agent.stdin.close()
        rest, stderr = await agent.communicate()
    assert messages == [
        {"jsonrpc": "2.0", "method": "echo/word", "params": {"number": 1, "word": "hello"}},
        {"jsonrpc": "2.0", "method": "echo/word", "params": {"number": 2, "word": "there"}},
        {"jsonrpc": "2.0", "id": 1, "result": {"words": 2}},
    ]
    assert (rest, stderr.split(), agent.returncode) == (b"", b"echoed 2 words".split(), 0)
