"""Measure the local cost of work on another machine: CPU time of a warm turn, events per second.

Run as `python -m bench.hosts`. The other machine is the sshd on loopback of tests/hosts, with its
own user and HOME if possible. It compares three ways to prompt the same agent from one process: a
local broker, `connect(host=)`, and a job as submitted and followed by `run --host` and `chat
--host`. The CPU time is that of this process and its ssh processes, not that of the remote side.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import dragoman
from bench import report
from bench.__main__ import machine
from dragoman.broker.client.ssh_command import host_named
from dragoman.broker.host_protocol import HostPrompt
from dragoman.config import load_config
from dragoman.paths import find_paths
from dragoman.runs.host_link import FollowedJob, HostLink
from dragoman.store.records import new_job_id
from tests.hosts.far_machine import AGENT, FarMachine, below, far_machine, missing, name_of

ROOT = Path(__file__).parents[1]

TURNS = 40
"""Number of turns in a batch. CPU clocks are exact, but the first turn after a pause is slower."""
ROUNDS = 9
"""Number of batches for each way; the order changes from round to round."""
QUICK_ROUNDS = 3
EVENTS = 20_000
"""Number of events of one prompt."""
TIMEOUT = 600.0
GOAL = 0.002
"""Maximum CPU seconds that a turn on a host may add on the local side."""

BEGIN = "<!-- host figures: written by python -m bench.hosts --document -->"
END = "<!-- end of the host figures -->"

LOCAL, CONNECT, JOB = "local broker", "connect(host=)", "run --host"
Ask = Callable[[str], Awaitable[int]]
"""Sends a prompt and returns the length of the answer in characters."""


# -- inside the measured process


def ssh_processes() -> list[int]:
    return [pid for pid in below(os.getpid()) if name_of(pid).strip() == "ssh"]


def processor_time(ssh: list[int]) -> float:
    """CPU seconds used so far by this process and its ssh processes."""
    total = time.process_time()
    for pid in ssh:
        total += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return total


@asynccontextmanager
async def ways(workspace: str) -> AsyncIterator[dict[str, Ask]]:
    """The three ways to prompt the agent, each with an open session."""
    async with AsyncExitStack() as stack:
        found: dict[str, Ask] = {}
        each: tuple[tuple[str, dict[str, Any]], ...] = (
            (LOCAL, {"workspace": "."}),
            (CONNECT, {"workspace": workspace, "host": "box"}),
        )
        for name, options in each:
            peer = await stack.enter_async_context(dragoman.connect("far", **options))
            session = await stack.enter_async_context(peer.session())

            async def ask(prompt: str, session: Any = session) -> int:
                return len((await session.ask(prompt)).text)

            found[name] = ask
        settings = load_config(Path.cwd(), find_paths()).settings
        link = HostLink(host_named("box", settings.hosts), on_notice=lambda text: None)
        stack.push_async_callback(link.aclose)
        key: str | None = None

        async def submit(prompt: str) -> int:
            nonlocal key
            job = new_job_id()
            asked = HostPrompt(
                job=job, peer="far", words=[prompt], cwd=workspace, session=key, lasting=True
            )
            submitted = await link.submit(asked)
            key = submitted.session
            followed = FollowedJob(link, job)
            async for _ in followed.events():
                pass
            assert followed.ended is not None
            return len(followed.ended.text)

        found[JOB] = submit
        yield found


async def inside(workspace: str, rounds: int) -> dict[str, Any]:
    """Measure all ways: CPU seconds of a turn, and the duration of a turn with many events."""
    async with ways(workspace) as asks:
        cpu: dict[str, list[float]] = {name: [] for name in asks}
        wall: dict[str, list[float]] = {name: [] for name in asks}
        streams: dict[str, list[float]] = {name: [] for name in asks}
        for ask in asks.values():
            for _ in range(TURNS):
                await ask("hello")
            await ask("stream 1000")
        ssh = ssh_processes()
        assert len(ssh) == len(asks) - 1, "each way to the host has its own connection"
        for number in range(rounds):
            order = list(asks.items())
            order = order[number % len(order) :] + order[: number % len(order)]
            for name, ask in order:
                before, at = processor_time(ssh), time.perf_counter()
                for _ in range(TURNS):
                    assert await ask("hello")
                wall[name].append((time.perf_counter() - at) / TURNS)
                cpu[name].append((processor_time(ssh) - before) / TURNS)
            for name, ask in order:
                at = time.perf_counter()
                assert await ask(f"stream {EVENTS}") > EVENTS
                streams[name].append(time.perf_counter() - at)
    return {"cpu": cpu, "wall": wall, "streams": streams}


# -- outside the measured process


def measure(far: FarMachine, rounds: int) -> dict[str, Any]:
    """Run the measurement as a local user who has the same agent as the other machine."""
    peers = far.cli.home / "config_home" / "peers"
    peers.mkdir(parents=True, exist_ok=True)
    command = json.dumps([sys.executable, str(AGENT), str(far.cli.home)])
    (peers / "far.toml").write_text(
        'name = "far"\ntitle = "far"\nprotocol = "acp"\nroles = []\n'
        f"[[launch]]\ncommand = {command}\n"
    )
    words = [sys.executable, "-m", "bench.hosts", "--inside", str(far.work), str(rounds)]
    env = {**far.cli.env, "PYTHONPATH": str(ROOT), "DRAGOMAN_WARM": "1"}
    try:
        done = subprocess.run(
            words,
            cwd=far.cli.cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    finally:
        far.cli.child("broker", "stop", "--all")
    if done.returncode:
        raise SystemExit(f"the measurement exited with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lines_of(found: dict[str, Any]) -> list[str]:
    lines = [f"A warm turn, on this side; medians of {len(found['cpu'][LOCAL])} x {TURNS} turns"]
    for name in (LOCAL, CONNECT, JOB):
        cpu, wall = statistics.median(found["cpu"][name]), statistics.median(found["wall"][name])
        line = f"  {name:<18} cpu {cpu * 1000:>6.2f} ms   wall {wall * 1000:>6.2f} ms"
        if name != LOCAL:
            pairs = zip(found["cpu"][name], found["cpu"][LOCAL], strict=True)
            added = sorted(there - here for there, here in pairs)
            more = statistics.median(added)
            line += (
                f"   adds {more * 1000:.2f} ms of cpu ({added[0] * 1000:.2f}.."
                f"{added[-1] * 1000:.2f})   at most {GOAL * 1000:g} ms: "
                f"{'yes' if more <= GOAL else 'NO'}"
            )
        lines.append(line)
    lines += ["", f"{EVENTS:,} events in one prompt, over ssh on loopback"]
    for name in (LOCAL, CONNECT, JOB):
        seconds = found["streams"][name]
        line = f"  {name:<18} {EVENTS / statistics.median(seconds):>9,.0f} events/s"
        if name != LOCAL:
            pairs = zip(found["streams"][LOCAL], seconds, strict=True)
            ratios = sorted(here / there for here, there in pairs)
            line += (
                f"   {statistics.median(ratios):.2f} of the local broker "
                f"({ratios[0]:.2f}..{ratios[-1]:.2f})"
            )
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hosts", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--document", type=Path, help="also write the figures to this file")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        workspace, rounds = options.inside
        sys.stdout.write(json.dumps(asyncio.run(inside(workspace, int(rounds)))))
        return
    if reason := missing():
        sys.stdout.write(f"work on another machine not measured: {reason}\n")
        return
    with far_machine() as far:
        far.name_host()
        found = measure(far, QUICK_ROUNDS if options.quick else ROUNDS)
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    text = f"{about}\n\n" + "\n".join(lines_of(found)) + "\n"
    sys.stdout.write(text)
    if options.document is not None:
        document = options.document.read_text()
        options.document.write_text(report.documented(document, text, begin=BEGIN, end=END))


if __name__ == "__main__":
    main()
