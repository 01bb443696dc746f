"""Kill and suspend the processes of a fleet at random: every job still gets exactly one result."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.credentials import MemberCredential
from dragoman.fleet.records import FleetJob
from dragoman.fleet.submitter import JobReader, ask, read_job
from tests.fleet.rig import Rig, with_every_server

JOBS = int(os.environ.get("FLEET_JOBS", "60"))
SEED = int(os.environ["FLEET_SEED"])
WORKERS = ("w1", "w2", "w3", "w4")
JOBS_PER_STEP = 3
"""Number of jobs for each process that is broken. The fleet recovers in between."""

SHORT = 4
"""With the older server, the number of jobs is divided by this."""

ALL_DONE_TIMEOUT = 240.0 + JOBS * 4
"""Seconds for all jobs: several times what they take on an idle machine."""


class Chaos:
    """Breaks one process after another, chosen by a seeded random generator."""

    def __init__(self, rig: Rig, seed: int, steps: int) -> None:
        self.rig = rig
        self.steps = steps
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.stopped: dict[str, float] = {}

    def step(self) -> None:
        now = time.monotonic()
        for name, until in list(self.stopped.items()):
            if now >= until:
                del self.stopped[name]
                self.rig.processes[name].child.send_signal(signal.SIGCONT)
        kind = self.random.choices(
            ("worker", "stop", "coordinator", "server", "submitter"), (5, 3, 2, 1, 1)
        )[0]
        getattr(self, f"break_{kind}")()
        self.done[kind] += 1

    def break_worker(self) -> None:
        name = self.random.choice(WORKERS)
        self.stopped.pop(name, None)
        self.rig.processes[name].kill()
        self.rig.start_worker(name, "--slots", "2")

    def break_stop(self) -> None:
        """Suspend a worker for longer than its lease."""
        name = self.random.choice(WORKERS)
        if name not in self.stopped and self.rig.processes[name].child.poll() is None:
            self.rig.processes[name].child.send_signal(signal.SIGSTOP)
            self.stopped[name] = time.monotonic() + float(self.rig.lease) * 2

    def break_coordinator(self) -> None:
        name = self.random.choice(("coordinator", "standby"))
        self.rig.processes[name].kill()
        self.rig.start_coordinator(name)

    def break_server(self) -> None:
        self.rig.kill_server()
        self.rig.start_server()

    def break_submitter(self) -> None:
        words = ("fleet", "submit", "execute", "write 0.2 killed", "--as", "s1", "--n", "2")
        process = self.rig.start(f"submit-{self.done['submitter']}", "s1", *words)
        try:
            process.child.wait(self.random.uniform(0.5, 2.5))
        except subprocess.TimeoutExpired:
            process.kill()


async def settled(credential: MemberCredential, wanted: set[str], chaos: Chaos) -> list[FleetJob]:
    """Break processes for a while, then wait for all jobs."""
    give_up_at = time.monotonic() + ALL_DONE_TIMEOUT
    while True:
        jobs = await listed(credential, wanted)
        assert time.monotonic() < give_up_at, [one for one in jobs if one["state"] != "done"]
        done = [one for one in jobs if one["state"] == "done"]
        if chaos.done.total() < chaos.steps and len(done) < len(wanted) * 0.9:
            await asyncio.to_thread(chaos.step)
        elif chaos.stopped:
            chaos.stopped = dict.fromkeys(chaos.stopped, 0.0)
            for name in list(chaos.stopped):
                del chaos.stopped[name]
                chaos.rig.processes[name].child.send_signal(signal.SIGCONT)
        if wanted <= {one["id"] for one in done} and len(done) == len(jobs):
            break
        await asyncio.sleep(chaos.random.uniform(0.5, 2.0))
    async with FleetConnection(credential) as connection:
        records = [await read_job(connection, one["id"]) for one in jobs]
    return [one for one in records if one is not None]


async def listed(credential: MemberCredential, wanted: set[str]) -> list[dict[str, Any]]:
    """The listed jobs, and the wanted ones that are too old to be in the list."""
    from dragoman.errors import FleetError

    for _ in range(100):
        try:
            async with FleetConnection(credential) as connection:
                lines: list[Any] = list((await ask(connection, "jobs")).jobs)
                older = wanted - {one.id for one in lines}
                read = [await read_job(connection, job) for job in sorted(older)]
                lines += [one for one in read if one is not None]
                return [{"id": one.id, "state": one.state} for one in lines]
        except FleetError:
            await asyncio.sleep(0.3)
    raise AssertionError("no coordinator answered")


async def late_events(credential: MemberCredential, job: str) -> list[tuple[int, int]]:
    async with FleetConnection(credential) as connection:
        reader = JobReader(connection, job)
        return [(one.attempt, one.number) async for one in reader.follow()]


@with_every_server
@pytest.mark.timeout(ALL_DONE_TIMEOUT + 240 + JOBS)
def test_every_job_ends_in_exactly_one_result_whatever_is_killed_or_stopped(
    rig: Rig, record_property: Callable[[str, object], None], request: pytest.FixtureRequest
) -> None:
    wanted = JOBS if "newest" in request.node.name else JOBS // SHORT
    chaos = Chaos(rig, SEED, wanted // JOBS_PER_STEP)
    rig.start_server()
    for name in ("coordinator", "standby"):
        rig.start_coordinator(name)
    credential = rig.join("submitter", "s1")
    jobs: set[str] = set()
    while len(jobs) < wanted:
        count = min(10, wanted - len(jobs))
        seconds = chaos.random.choice(("0.5", "1.5", "3.0"))
        words = (
            "fleet",
            "submit",
            "execute",
            f"write {seconds} batch{len(jobs)}",
            "--n",
            str(count),
        )
        jobs |= set(rig.call("s1", *words).split())
    for name in WORKERS:
        rig.make_home(name)
        rig.join("worker", name)
        rig.start_worker(name, "--slots", "2")
    records = asyncio.run(settled(credential, jobs, chaos))
    starts = Counter(rig.runs.read_text().split("\n"))
    recorded: Counter[str] = Counter()
    for job in records:
        assert job.state == "done" and job.result is not None, job
        assert [one.number for one in job.attempts] == list(range(1, len(job.attempts) + 1))
        # Every attempt except the last ended before the next one began.
        assert all(one.end in ("lost", "refused") for one in job.attempts[:-1]), job.attempts
        assert job.attempts[-1].end in ("done", "lost"), job.attempts
        recorded[job.spec.prompt.split()[2]] += len(job.attempts)
        if job.attempts[-1].end == "done":
            assert job.result.ok, job.result
            assert job.result.attempt == len(job.attempts)
    # A prompt is never run more often than it has recorded attempts.
    for token, count in starts.items():
        assert not token or count <= recorded[token], (token, count, recorded[token])
    done = [one for one in records if one.attempts[-1].end == "done"]
    for job in chaos.random.sample(done, min(10, len(done))):
        assert job.result is not None
        events = asyncio.run(late_events(credential, job.id))
        assert events == [
            (job.result.attempt, number) for number in range(1, job.result.events + 1)
        ]
        assert job.result.events > 10
    repeated = sum(len(one.attempts) > 1 for one in records)
    ends = Counter(f"{each.end} {each.why}".strip() for one in records for each in one.attempts)
    record_property(
        "fleet",
        f"seed {SEED}, {rig.server_program}: {len(records)} jobs done, {repeated} of them in "
        f"several attempts, {len(records) - len(done)} lost; attempts: {dict(ends)}; "
        f"broken: {dict(chaos.done)}",
    )
