"""Readers of a job that are cut off at random moments and go on by the cursor they got last."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.events.model import Event
from dragoman.paths import find_paths
from dragoman.runs.job_events import EventCursor, job_events
from dragoman.runs.jobs import find_job
from tests.aio import aio
from tests.integration.cli_shell import Cli, warm_cli

CUTS = 50
MAX_READ = 200
"""Events that one reader gets before it is cut off, at most."""

TIMEOUT = 60.0
"""Seconds for one reader to get an event."""


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


@pytest.fixture
def moments() -> random.Random:
    seed = int(os.environ.get("DRAGOMAN_TEST_SEED") or random.randrange(2**32))
    sys.stderr.write(f"DRAGOMAN_TEST_SEED={seed}\n")
    return random.Random(seed)


def submit(cli: Cli, stop: Path) -> str:
    done = cli("run", f"until {stop}", "--no-wait", "--approve-reads", "--", *cli.agent)
    assert (done.code, done.err) == (0, "")
    return done.out.strip()


def whole(cli: Cli, job: str) -> list[dict[str, Any]]:
    """All events of a job that has ended, as one reader sees them."""
    lines = cli("jobs", "watch", job, "--format", "json").out.splitlines()
    *events, last = [json.loads(line) for line in lines]
    assert (last["type"], last["outcome"]) == ("Job", "ok")
    texts = "".join(each["text"] for each in events if each["type"] == "MessageDelta")
    assert texts == "".join(f"line {number}\n" for number in range(1, texts.count("\n") + 1))
    # Some lines of the session are two events.
    assert "FilesChanged" in {each["type"] for each in events}
    return events


def without_number(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events without their number on a connection, which is another one on each."""
    return [{name: value for name, value in each.items() if name != "seq"} for each in events]


class Reader:
    """A process that watches a job behind a cursor."""

    def __init__(self, cli: Cli, job: str, cursor: str | None) -> None:
        behind = () if cursor is None else ("--after", cursor)
        self._process = subprocess.Popen(  # noqa: TID251 - it is killed in the middle
            cli.argv("jobs", "watch", job, "--format", "json", *behind),
            cwd=cli.cwd,
            env=cli.env,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        return (json.loads(line) for line in self._process.stdout if line.endswith(b"\n"))

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.mark.timeout(300)
def test_a_reader_that_is_killed_at_random_moments_sees_each_event_once(
    warm: Cli, moments: random.Random
) -> None:
    stop = warm.home / "stop"
    job = submit(warm, stop)
    seen: list[dict[str, Any]] = []
    for cut in range(CUTS + 1):
        if cut == CUTS:
            stop.touch()
        wanted = moments.randrange(MAX_READ) if cut < CUTS else None
        with Reader(warm, job, seen[-1]["cursor"] if seen else None) as lines:
            for _ in range(wanted) if wanted is not None else iter(int, 1):
                event = next(lines)
                if event["type"] == "Job":
                    break
                seen.append(event)
    assert without_number(seen) == without_number(whole(warm, job))


@pytest.mark.timeout(300)
def test_a_reader_whose_connection_is_closed_at_random_moments_sees_each_event_once(
    warm: Cli, moments: random.Random
) -> None:
    stop = warm.home / "stop"
    job = submit(warm, stop)
    paths = find_paths(warm.env)
    seen: list[str] = []

    @aio
    async def read() -> None:
        for cut in range(CUTS + 1):
            if cut == CUTS:
                stop.touch()
            after = EventCursor.parse(seen[-1]) if seen else None
            record = await find_job(job, paths=paths)
            events: AsyncGenerator[tuple[EventCursor, Event], None]
            events = job_events(record, after=after, paths=paths)
            wanted = moments.randrange(MAX_READ) if cut < CUTS else None
            while wanted is None or wanted > 0:
                async with asyncio.timeout(TIMEOUT):
                    found = await anext(events, None)
                if found is None:
                    break
                seen.append(str(found[0]))
                wanted = None if wanted is None else wanted - 1
            await events.aclose()

    read()
    assert seen == [each["cursor"] for each in whole(warm, job)]


def watched(cli: Cli, *words: str) -> list[str]:
    """The cursors of the events that a reader sees which is not cut off."""
    done = cli(*words, "--format", "json")
    assert done.err == "" or "is not open now; showing what is stored" in done.err
    told = [json.loads(line) for line in done.out.splitlines()]
    return [each["cursor"] for each in told if each["type"] != "Job"]


@contextmanager
def watching(cli: Cli, *words: str) -> Iterator[Iterator[str]]:
    """The cursors of the events that a command shows, as it shows them."""
    process = subprocess.Popen(  # noqa: TID251 - it goes on while something else happens
        cli.argv(*words, "--format", "json"),
        cwd=cli.cwd,
        env=cli.env,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        with process.stdout as lines:
            events = (json.loads(line) for line in lines)
            yield (each["cursor"] for each in events if each["type"] != "Job")
    finally:
        process.kill()
        process.wait()


def line_of(cursor: str) -> int:
    return EventCursor.parse(cursor).line


@pytest.mark.parametrize("watch", ["jobs", "sessions"])
@pytest.mark.timeout(120)
def test_after_a_kill_of_the_broker_no_cursor_means_another_event(watch: str, warm: Cli) -> None:
    stop = warm.home / "stop"

    def begin(prompt: str) -> str:
        words = ("-s", "talk", "--approve-reads", "--no-wait", "--", *warm.agent, "resumes")
        return warm("run", prompt, *words).out.strip()

    first = begin(f"until {stop}")
    with watching(warm, watch, "watch", first if watch == "jobs" else "talk") as cursors:
        seen = [next(cursors) for _ in range(MAX_READ)]
        (broker,) = warm("broker", "list", "--format", "json").out.splitlines()
        os.kill(json.loads(broker)["pid"], signal.SIGKILL)
        # Among them is what it has shown of the last moment, which was not stored.
        seen += cursors
    stored = watched(warm, "jobs", "watch", first)
    assert line_of(stored[-1]) < line_of(seen[-1]), "everything that was shown is stored"
    for words in (("jobs", "watch", first), ("sessions", "watch", "talk")):
        assert watched(warm, *words, "--after", seen[-1]) == []

    second = begin("hello")
    assert warm("jobs", "result", second, "--wait").code == 0
    third = begin(f"until {stop}")
    with watching(warm, "sessions", "watch", "talk", "--after", seen[-1]) as cursors:
        again = [next(cursors) for _ in range(MAX_READ)]
        stop.touch()
        assert warm("jobs", "result", third, "--wait").code == 0
        assert warm("broker", "stop", "--all").code == 0
        again += cursors
    assert len({*seen, *again}) == len(seen) + len(again)
    whole = watched(warm, "sessions", "watch", "talk", "--after", seen[0])
    assert [cursor for cursor in whole if cursor not in seen] == again
    for job in (second, third):
        assert {*watched(warm, "jobs", "watch", job)} <= {*again}
    assert watched(warm, "jobs", "watch", first) == stored
    (listed,) = warm("sessions", "list", "--format", "json").out.splitlines()
    assert json.loads(listed)["events"] < 10**6, "numbers that are skipped are not counted"


def test_a_cursor_of_an_event_that_has_not_happened_is_refused(warm: Cli) -> None:
    stop = warm.home / "stop"
    job = submit(warm, stop)
    try:
        with Reader(warm, job, None) as lines:
            session = EventCursor.parse(next(lines)["cursor"]).session
        done = warm("jobs", "watch", job, "--after", f"{session}:99999999")
        assert (done.code, done.out) == (2, "")
        assert "has no event 100000000" in done.err
    finally:
        stop.touch()
