"""Measure the web console: event delay, a browser that stops reading, and 50 live sessions.

Run as `python -m bench.console`. It uses real brokers with the scripted agent of the console tests,
`dragoman console` as a process, and WebSocket clients in place of browsers. Figures: the delay of
an event from the agent to the client; the CPU time of broker and agent and the duration of a turn
while a client is stopped (SIGSTOP), compared with the same turn while it reads; and the CPU time
and memory of the server for the first page with 50 live sessions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import httpx2
from websockets.asyncio.client import connect

from bench import report
from bench.__main__ import machine
from tests.console.test_console_load import memory, processor_time
from tests.integration.cli_shell import Cli, cli_in

ROOT = Path(__file__).parents[1]
AGENT = ROOT / "tests" / "console" / "page_agent.py"
TIMEOUT = 120.0
"""Timeout in seconds for one step; the machine may be busy."""

DELAYS = 300
"""Number of events whose delay is measured."""
UPDATES = 5000
"""Number of events in the turn that the stopped client does not read."""
ROUNDS = 20
"""Number of pairs of turns. Every second pair starts with the stopped client."""
SESSIONS = 50
PAGES = 20
"""How often the first page is loaded: once takes less than one tick of the processor clock."""
PAGE = ("/", "/static/main.js", "/static/console.css", "/api/v1/inbox", "/api/v1/work")

BEGIN = "<!-- console figures: written by python -m bench.console --document -->"
END = "<!-- end of the console figures -->"


def prepared(folder: Path) -> Cli:
    """The directories of a user whose only peer is the scripted agent."""
    cli = cli_in(folder)
    cli.extra["DRAGOMAN_WARM"] = "1"
    cli.extra["PYTHONPATH"] = str(ROOT)
    peers = cli.home / "config_home" / "peers"
    peers.mkdir(parents=True)
    command = json.dumps([sys.executable, str(AGENT), str(cli.home)])
    (peers / "page.toml").write_text(
        'name = "page"\ntitle = "page"\nprotocol = "acp"\nroles = []\n'
        f"[[launch]]\ncommand = {command}\n"
    )
    settings = 'enabled_peers = ["page"]\npermissions = "ask"\nmax_idle_brokers = 100\n'
    (cli.home / "config_home" / "config.toml").write_text(settings)
    return cli


class Bench:
    """A running console and a logged-in browser."""

    def __init__(self, cli: Cli, url: str, pid: int, client: httpx2.AsyncClient) -> None:
        self.cli = cli
        self.url = url
        self.pid = pid
        self.client = client

    @property
    def cookies(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.client.cookies.items())

    @property
    def address(self) -> str:
        return self.url.replace("http", "ws", 1) + "api/v1/events"

    def socket(self) -> connect:
        headers = {"origin": self.url.rstrip("/"), "cookie": self.cookies}
        return connect(
            self.address, additional_headers=headers, ping_interval=None, max_size=None, proxy=None
        )

    async def start(self, prompt: str, workspace: Path) -> str:
        body = {"peer": "page", "prompt": prompt, "workspace": str(workspace)}
        answer = await self.client.post("/api/v1/runs", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["session"])

    async def prompt(self, session: str, text: str) -> str:
        answer = await self.client.post(f"/api/v1/sessions/{session}/prompt", json={"text": text})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["job"])


@asynccontextmanager
async def running() -> AsyncIterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="dgm", dir="/tmp") as name:
        cli = prepared(Path(name))
        process = await asyncio.create_subprocess_exec(
            *cli.argv("console", "--listen", "127.0.0.1:0"),
            cwd=cli.cwd,
            env=cli.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            link = (await process.stdout.readline()).decode().strip()
            url, _, secret = link.partition("#token=")
            headers = {"origin": url.rstrip("/")}
            async with httpx2.AsyncClient(
                base_url=url, timeout=TIMEOUT, trust_env=False, headers=headers
            ) as client:
                answer = await client.post("/api/v1/login", json={"token": secret})
                assert answer.status_code == 200, answer.text
                yield Bench(cli, url, process.pid, client)
        finally:
            process.terminate()
            await process.wait()
            await asyncio.to_thread(cli.child, "broker", "stop", "--all")


async def events(socket: Any, session: str) -> AsyncIterator[dict[str, Any]]:
    async for text in socket:
        message = json.loads(text)
        if message["type"] == "events" and message["session"] == session:
            for event in message["events"]:
                yield event


async def until_end(socket: Any, session: str, turns: int = 1) -> None:
    async with asyncio.timeout(TIMEOUT):
        async for event in events(socket, session):
            turns -= event["type"] == "TurnEnded"
            if not turns:
                return


async def measure_delay(bench: Bench) -> list[float]:
    """Seconds from the agent's write until the client gets the event, for sequential events."""
    session = await bench.start("hello", bench.cli.cwd)
    delays = []
    async with bench.socket() as socket, asyncio.timeout(TIMEOUT):
        await socket.send(json.dumps({"type": "follow", "session": session}))
        await until_end(socket, session)
        await bench.prompt(session, f"clock {DELAYS}")
        async for event in events(socket, session):
            if event["type"] == "MessageDelta" and event["role"] == "agent":
                delays.append(time.time() - float(event["text"]))
            if event["type"] == "TurnEnded":
                break
    return delays


def work_time(bench: Bench) -> float:
    """CPU time of the broker and the agent: all processes of this user except the console."""
    home = os.fsencode(bench.cli.home)
    total = 0.0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (bench.pid, os.getpid()):
            with suppress(OSError):
                if home in Path(f"/proc/{name}/environ").read_bytes():
                    total += processor_time(int(name))
    return total


@dataclass(frozen=True, slots=True)
class TurnCost:
    seconds: float
    processor: float


async def turn_cost(bench: Bench, session: str) -> TurnCost:
    """The cost of a turn with many events. The duration is that of the job, which does not include
    the browser."""
    before = work_time(bench)
    job = await bench.prompt(session, f"many {UPDATES}")
    async with asyncio.timeout(TIMEOUT):
        while True:
            found = (await bench.client.get(f"/api/v1/sessions/{session}")).json()["job"]
            if found is not None and found["id"] == job and found["state"] == "ended":
                seconds = float(found["endedAt"]) - float(found["startedAt"])
                return TurnCost(seconds, work_time(bench) - before)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def reader(bench: Bench, session: str) -> AsyncIterator[int]:
    """Start a client that follows a session and reads. Yields its process id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.console_reader",
        bench.address,
        bench.url.rstrip("/"),
        bench.cookies,
        session,
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT):
            assert await process.stdout.readline() == b"following\n"
        yield process.pid
    finally:
        process.kill()
        await process.wait()


async def followed_cost(bench: Bench, session: str, *, stopped: bool) -> TurnCost:
    """The cost of a turn that a client follows, either reading or stopped."""
    async with reader(bench, session) as pid:
        if stopped:
            os.kill(pid, signal.SIGSTOP)
        return await turn_cost(bench, session)


async def measure_slow_browser(bench: Bench) -> list[tuple[TurnCost, TurnCost]]:
    """Pairs of turns, with a reading client and with a stopped one. The order alternates, so that
    the load of the machine and the growth of the session affect both equally."""
    session = await bench.start("hello", bench.cli.cwd)
    await turn_cost(bench, session)
    pairs = []
    for number in range(ROUNDS):
        first = bool(number % 2)
        costs = {
            stopped: await followed_cost(bench, session, stopped=stopped)
            for stopped in (first, not first)
        }
        pairs.append((costs[False], costs[True]))
    return pairs


async def working(bench: Bench) -> int:
    """The number of sessions with a running turn."""
    found = (await bench.client.get("/api/v1/work")).json()["work"]
    return sum(item["state"] == "working" for item in found)


async def measure_live(bench: Bench) -> tuple[float, int]:
    """CPU time of the first page and its data, and memory in MiB, with 50 running sessions."""
    for number in range(SESSIONS):
        folder = bench.cli.cwd / f"project{number}"
        folder.mkdir()
        os.mkfifo(folder / "GO")
        await bench.start("stream", folder)
    async with asyncio.timeout(TIMEOUT):
        while await working(bench) < SESSIONS:  # noqa: ASYNC110 - they are other processes
            await asyncio.sleep(0.2)
    before = processor_time(bench.pid)
    for _ in range(PAGES):
        for path in PAGE:
            answer = await bench.client.get(path)
            assert answer.status_code == 200, path
        async with bench.socket() as socket:
            await socket.recv()
    return (processor_time(bench.pid) - before) / PAGES, memory(bench.pid)


async def measured(*, sessions: bool) -> str:
    lines = []
    async with running() as bench:
        delays = [each * 1000 for each in await measure_delay(bench)]
        cuts = statistics.quantiles(delays, n=20)
        lines.append(
            f"event delay, agent to browser      p50 {cuts[9]:.1f} ms   p95 {cuts[18]:.1f} ms"
            f"   ({len(delays)} events)"
        )
        pairs = await measure_slow_browser(bench)
        for name, value in (
            ("cpu of agent and broker", attrgetter("processor")),
            ("time of the turn", attrgetter("seconds")),
        ):
            ratios = sorted(value(stopped) / value(read) for read, stopped in pairs)
            low, _, high = statistics.quantiles(ratios, n=4)
            lines.append(
                f"stopped browser, {name:<24}  {statistics.median(ratios):.2f} of a reading one"
                f"   (middle half {low:.2f}..{high:.2f}, all {ratios[0]:.2f}..{ratios[-1]:.2f}, "
                f"{len(ratios)} pairs, {UPDATES:,} events)"
            )
    if sessions:
        async with running() as bench:
            cpu, size = await measure_live(bench)
            lines.append(
                f"first page, {SESSIONS} live sessions        cpu {cpu:.3f} s (goal 1 s)   "
                f"rss {size} MiB (goal 150 MiB)"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="skip the 50 live sessions")
    parser.add_argument("--document", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    found = asyncio.run(measured(sessions=not options.quick))
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    text = f"{about}\n\n{found}\n"
    sys.stdout.write(text)
    if options.document is not None:
        document = options.document.read_text()
        options.document.write_text(report.documented(document, text, begin=BEGIN, end=END))


if __name__ == "__main__":
    main()
