"""What is stored of a run is the same with a broker and without one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dragoman.store import Store, store_path
from tests.integration.cli_shell import Cli, warm_cli

MOMENTS = ("id", "sessionKey", "createdAt", "startedAt", "endedAt", "endpoint", "runner")
"""What differs between any two jobs, and which process ran them."""

LONG = "word " * 4000
"""A prompt that is longer than a line of a list, and shorter than what is kept."""


HELD_SIZE = 512
"""Characters at the end of a growing text that a kill may lose, as the documents say."""

WAIT_TIMEOUT = 40.0
"""Seconds for a batch to be stored on a busy machine; it takes a tenth of one."""


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


_CALL = re.compile(rb"call-[0-9a-f]+")
"""The ids of tool calls, which this agent makes up."""


def stored(cli: Cli, name: str) -> dict[str, Any]:
    """What the store has of the named session, without names that are made up."""
    with Store.open(store_path(cli.home / "state_home"), read_only=True) as store:
        (session,) = (each for each in store.sessions() if each.name == name)
        (job,) = store.jobs(session_key=session.key)
        # Only a command knows which option set a time limit.
        told = msgspec.json.decode(msgspec.json.encode(job).replace(b" (--timeout)", b""))
        notes = [
            (note.kind, note.at_event, {**note.data, "toolCallId": bool(note.data["toolCallId"])})
            for note in store.notes(session.key)
        ]
        lines = [line for _, line in store.lines(session.key)]
        return {
            "session": (session.title, session.mode, session.model, session.next_event),
            "job": {name: value for name, value in told.items() if name not in MOMENTS},
            "lines": [
                {**msgspec.json.decode(_CALL.sub(b"call", line)), "sessionId": None}
                for line in lines
            ],
            "notes": notes,
        }


@pytest.mark.parametrize(
    "prompt",
    ["hello", "write", "spend", "refuse", "nothing", 'fail {"why": "so"}', "login", "wait", LONG],
    ids=lambda prompt: str(prompt).split()[0],
)
def test_a_run_is_stored_alike_with_a_broker_and_without(prompt: str, warm: Cli) -> None:
    codes = []
    # Long enough for the first words on a busy machine.
    limit = ("--timeout", "10") if prompt == "wait" else ()
    for name, words in (("warm", ()), ("cold", ("--cold",))):
        options = ("-s", name, "--mode", "plan", "--approve-all", *limit, *words)
        codes.append(warm("run", prompt, *options, "--", *warm.agent).code)
    assert codes[0] == codes[1]
    assert stored(warm, "warm") == stored(warm, "cold")
    listed = [
        json.loads(line) for line in warm("sessions", "list", "--format", "json").out.splitlines()
    ]
    assert {(each["mode"], each["model"]) for each in listed} == {("plan", "small")}


@pytest.mark.parametrize("words", [(), ("--cold",)], ids=["warm", "cold"])
def test_a_kill_in_mid_turn_loses_at_most_the_end_of_a_growing_text(
    words: tuple[str, ...], warm: Cli
) -> None:
    recited = "".join(f"word{number} " for number in range(1000))
    command = warm.argv("run", f"recite {recited}", "-s", "talk", *words, "--", *warm.agent)
    process = subprocess.Popen(  # noqa: TID251 - it is killed in the middle
        command, cwd=warm.cwd, env=warm.env, stdout=subprocess.DEVNULL
    )

    def said() -> str:
        listed = warm("jobs", "list", "--format", "json").out.splitlines()
        if not listed:
            return ""
        done = warm("sessions", "show", "talk", "--format", "json")
        events = [json.loads(line) for line in done.out.splitlines()]
        return "".join(each["text"] for each in events if each["type"] == "MessageDelta")

    try:
        until = time.monotonic() + WAIT_TIMEOUT
        while len(said()) < len(recited) - HELD_SIZE and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        for broker in warm("broker", "list", "--format", "json").out.splitlines():
            os.kill(json.loads(broker)["pid"], signal.SIGKILL)
        process.kill()
        process.wait()
    kept = said()
    assert recited.startswith(kept) and len(kept) >= len(recited) - HELD_SIZE

    def listed() -> Any:
        (line,) = warm("jobs", "list", "--format", "json").out.splitlines()
        return json.loads(line)

    # A killed broker exists for a moment longer.
    until = time.monotonic() + WAIT_TIMEOUT
    while (job := listed())["outcome"] is None and time.monotonic() < until:
        time.sleep(0.05)
    assert job["outcome"] == "crashed"
    result = json.loads(warm("jobs", "result", job["job"], "--format", "json").out)
    assert result["text"] == kept
