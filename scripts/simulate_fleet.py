"""Simulate the coordinator of a large fleet: its decisions and messages, without a server.

    python scripts/simulate_fleet.py [--workers 1000] [--jobs 20000] [--job-seconds 120]

Heartbeats, leases, assignments and results go through the real `Schedule`, encoded and decoded as
on the wire. Time is simulated; CPU time is measured, without that of the server and the network.
"""

from __future__ import annotations

import argparse
import heapq
import random
import time

from dragoman.fleet.records import (
    AttemptEnded,
    Beat,
    FleetResult,
    JobSpec,
    ObjectRef,
    RunningJob,
    decode,
    encode,
)
from dragoman.fleet.schedule import Schedule

LEASE = 15.0
BEAT_INTERVAL = LEASE / 5
SPEC = JobSpec(
    role="execute",
    prompt="fix the failing test " * 20,
    bundle=ObjectRef(owner="s1", id="0" * 32, chunks=1, size=100_000, key="0" * 64),
    packed={"project": "p" * 40, "head": "0" * 40, "sent": "0" * 40, "digest": "0" * 64},
)
DONE = encode(AttemptEnded(result=FleetResult(ok=True, outcome="ok", text="done " * 100)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--job-seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    plan = Schedule(epoch=1, lease=LEASE)
    running: dict[str, dict[str, int]] = {f"w{number}": {} for number in range(given.workers)}
    spent = {"heartbeats": 0.0, "submissions": 0.0, "assignments": 0.0, "results": 0.0}
    counts = dict.fromkeys(spent, 0)
    # The simulated events: time, kind, worker, job.
    moments: list[tuple[float, str, str, str]] = [
        (rng.uniform(0, BEAT_INTERVAL), "beat", name, "") for name in running
    ]
    # Jobs arrive as fast as the fleet can run them.
    rate = given.workers / given.job_seconds
    at = 0.0
    for number in range(given.jobs):
        at += rng.expovariate(rate)
        moments.append((at, "submit", "s1", f"f{number}"))
    moments.append((1.0, "assign", "", ""))
    heapq.heapify(moments)
    done = 0
    while done < given.jobs:
        now, kind, who, job = heapq.heappop(moments)
        began = time.process_time()
        if kind == "beat":
            listed = tuple(RunningJob(name, attempt) for name, attempt in running[who].items())
            sent = encode(Beat(boot="b", slots=1, running=listed, labels=("linux",)))
            began = time.process_time()
            reply = plan.beat(who, decode(sent, Beat), now)
            encode(reply)
            _count(spent, counts, "heartbeats", began)
            heapq.heappush(moments, (now + BEAT_INTERVAL, "beat", who, ""))
        elif kind == "submit":
            record = plan.submitted(job, who, SPEC, at=now)
            assert record is not None
            encode(record)
            plan.applied(record, now)
            _count(spent, counts, "submissions", began)
        elif kind == "assign":
            for record in plan.assignments(now, at=now):
                began = time.process_time()
                current = record.current
                assert current is not None
                encode(record)
                plan.applied(record, now)
                plan.sent(current.worker)
                running[current.worker][record.id] = current.number
                over = now + rng.expovariate(1 / given.job_seconds)
                heapq.heappush(moments, (over, "result", current.worker, record.id))
                _count(spent, counts, "assignments", began)
            heapq.heappush(moments, (now + 0.5, "assign", "", ""))
        else:
            attempt = running[who].pop(job)
            ended = plan.ended(who, job, attempt, decode(DONE, AttemptEnded), at=now)
            assert ended is not None
            encode(ended)
            plan.applied(ended, now)
            plan.forget(job)
            done += 1
            _count(spent, counts, "results", began)
    print(f"{given.workers} workers, {given.jobs} jobs of {given.job_seconds:.0f} s on average")
    print(f"simulated time {now:.0f} s, {given.jobs / now * 86400:.0f} jobs per day")
    for name, seconds in spent.items():
        each = seconds / max(counts[name], 1) * 1e6
        share = seconds / now * 100
        print(f"{name:12} {counts[name]:8} x {each:6.1f} us of CPU, {share:5.2f} % of a core")


def _count(spent: dict[str, float], counts: dict[str, int], name: str, began: float) -> None:
    spent[name] += time.process_time() - began
    counts[name] += 1


if __name__ == "__main__":
    main()
