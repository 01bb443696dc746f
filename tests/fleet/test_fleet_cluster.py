"""A cluster of three servers, each with a coordinator, continues when one of them is killed."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from nats.errors import Error as NatsError

from dragoman.fleet.cluster import ROUTE_OFFSET
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.credentials import MemberCredential
from dragoman.fleet.records import FleetJob
from dragoman.fleet.streams import stream_configs
from dragoman.fleet.submitter import JobReader
from dragoman.fleet.team import coordinator_access
from tests.fleet.rig import Process, Rig
from tests.fleet.test_fleet_commands import could_join

NODES = (1, 2, 3)
WORKERS = ("w1", "w2")


def free_ports(count: int) -> list[int]:
    """Find free ports whose route ports are free too."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            if port + ROUTE_OFFSET > 65535:
                continue
            route = stack.enter_context(socket.socket())
            try:
                route.bind(("127.0.0.1", port + ROUTE_OFFSET))
            except OSError:
                continue
            found.append(port)
    return found


class ClusterRig:
    """Three servers with the same keys, each in its own directory."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.addresses = ",".join(f"127.0.0.1:{port}" for port in free_ports(3))

    def folder(self, number: int) -> Path:
        return self.rig.folder.path if number == 1 else self.rig.root / f"server-{number}"

    def start(self, number: int) -> Process:
        folder = self.folder(number)
        if not folder.exists() and number > 1:
            folder.mkdir(mode=0o700)
            shutil.copy(self.rig.folder.file, folder)
        words = (
            "--cluster",
            self.addresses,
            "--node",
            str(number),
            "--lease",
            self.rig.lease,
            "--tls",
        )
        return self.rig.start(
            f"node{number}", "server-home", "fleet", "up", "--dir", str(folder), *words
        )

    def start_all(self) -> None:
        for number in NODES:
            self.rig.wait(partial(_is_up, self.start(number)))
        self.rig.wait(self.leader)

    def leader(self) -> int:
        """The server whose coordinator became leader last; 0 if there is none."""
        told = {
            number: self.rig.processes[f"node{number}"].log.stat().st_mtime_ns
            for number in NODES
            if "coordinating team" in self.rig.processes[f"node{number}"].text()
            and self.rig.processes[f"node{number}"].child.poll() is None
        }
        return max(told, key=lambda number: told[number], default=0)

    def submit(self, token: str, count: int) -> set[str]:
        words = ("fleet", "submit", "execute", f"write 1 {token}", "--n", str(count))
        return set(self.rig.call("s1", *words).split())


def _is_up(process: Process) -> bool:
    return "server listening" in process.text()


async def followed(credential: MemberCredential, jobs: set[str]) -> list[FleetJob]:
    """Follow each job from its first event to its end, like a reader that attaches late."""
    records = []
    async with asyncio.timeout(120), FleetConnection(credential) as connection:
        for job in sorted(jobs):
            reader = JobReader(connection, job)
            events = [(one.attempt, one.number) async for one in reader.follow()]
            assert reader.job is not None and reader.job.result is not None
            result = reader.job.result
            numbers = [number for attempt, number in events if attempt == result.attempt]
            assert numbers == list(range(1, result.events + 1)), events
            records.append(reader.job)
    return records


@pytest.mark.timeout(300)
def test_every_job_gets_one_result_when_a_cluster_of_three_loses_one_server(rig: Rig) -> None:
    cluster = ClusterRig(rig)
    cluster.start_all()
    credential = rig.join("submitter", "s1")
    assert len(credential.urls) == 3
    for name in WORKERS:
        rig.make_home(name)
        rig.join("worker", name)
        rig.start_worker(name, "--slots", "2")
    # A code works wherever the leader is.
    code = rig.folder.invite("worker", "w3", team=None, now=int(time.time()))
    rig.wait(lambda: could_join(rig, "w3", code))
    jobs = cluster.submit("before", 4)
    rig.wait(rig.runs.read_text)
    killed = cluster.leader()
    rig.processes[f"node{killed}"].kill()
    jobs |= cluster.submit("during", 4)
    rig.wait(cluster.leader)
    jobs |= cluster.submit("after", 2)
    records = asyncio.run(followed(credential, jobs))
    # The lost server comes back, and then another one is lost.
    cluster.start(killed)
    rig.wait(lambda: rig.processes[f"node{killed}"].text().count("server listening") == 2)
    asyncio.run(caught_up(rig))
    other = next(number for number in NODES if number != killed)
    rig.processes[f"node{other}"].kill()
    records += asyncio.run(followed(credential, cluster.submit("again", 2)))
    attempts: Counter[str] = Counter()
    for job in records:
        assert job.state == "done" and job.result is not None and job.result.ok, job
        assert [one.end for one in job.attempts[:-1]] == ["lost"] * (len(job.attempts) - 1)
        attempts[job.spec.prompt.split()[2]] += len(job.attempts)
    starts = Counter(rig.runs.read_text().split())
    assert all(count <= attempts[token] for token, count in starts.items()), (starts, attempts)


async def caught_up(rig: Rig) -> None:
    """Wait until each stream has three current copies."""
    keys = rig.folder.read()
    access = coordinator_access(keys, keys.team(None), int(time.time()))
    async with asyncio.timeout(60), FleetConnection(access) as connection:
        jetstream = connection.client.jetstream()
        for config in stream_configs(-1):
            assert config.name is not None
            while True:
                try:
                    info = await jetstream.stream_info(config.name)
                except NatsError:
                    info = None
                if info is not None and info.cluster is not None:
                    copies = info.cluster.replicas or []
                    if len(copies) == 2 and all(one.current for one in copies):
                        assert info.config.num_replicas == 3
                        break
                await asyncio.sleep(0.2)


def test_a_cluster_server_without_the_keys_says_what_to_copy(rig: Rig) -> None:
    addresses = "127.0.0.1:4501,127.0.0.1:4502,127.0.0.1:4503"
    words = ("fleet", "up", "--dir", str(rig.root / "new"), "--cluster", addresses)
    told = rig.call("server-home", *words, "--node", "2", code=2)
    assert "copy fleet.json" in told
    assert "--node" in rig.call("server-home", *words, code=2)
