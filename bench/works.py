"""The workloads: what a client does while the clock runs, written once for all contestants.

Contains the workloads, the checks that they were really done, and the entry point of a client
process, which prints its figures as one line of JSON. It uses a library only through `Driver`,
whose methods call the library directly where possible. `bench.script` is the counterpart for the
agents.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

from bench import script
from bench.measure import Growth, Stopwatch, children_cpu, descendants, memory, own_cpu, place

Figures = dict[str, float]

WARM_UP = 200
"""Number of messages before the clock starts, so that caches, decoders and the specializing
interpreter are as warm as in the middle of a session."""

ROUNDS = 3
"""How often the workload is timed in one process; the median counts. The fastest contestants need
only a few hundredths of a second, so a single interruption matters."""

IN_FLIGHT = 64


class Reader:
    """The consumer of the updates of one session. It checks that they arrive in order."""

    __slots__ = ("_expected", "_seen", "finished")

    def expect(self, texts: Sequence[str]) -> None:
        self._expected = texts
        self._seen = 0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, text: str) -> None:
        seen = self._seen
        if text != self._expected[seen]:
            # An exception would end up in the log of a library. The workload checks the future.
            self.finished.set_exception(ValueError(f"update {seen} is not the one expected"))
            return
        self._seen = seen = seen + 1
        if seen == len(self._expected):
            self.finished.set_result(None)


class Driver(Protocol):
    """A contestant's client, opened once per connection."""

    async def open(self, agent: Sequence[str]) -> int:
        """Start the agent, initialize, and return the agent's process id."""

    async def new_session(self, reader: Reader) -> str:
        """Open a session whose updates go to `reader` from an async consumer."""

    def prompt(self, session_id: str, text: str) -> Awaitable[object]: ...

    def set_mode(self, session_id: str, mode_id: str) -> Awaitable[object]: ...

    async def close(self) -> None:
        """Close the connection. Afterwards the agent has exited and is reaped."""


class FileDriver(Driver, Protocol):
    """A client that answers requests for files."""

    workspace: str
    """The directory of the sessions that are opened from now on."""


Work = Callable[[Driver, int], Awaitable[Figures]]


async def rounds(driver: Driver, session: str, work: Callable[[], Awaitable[None]]) -> Figures:
    """Time a workload. The garbage collectors of both processes start from the same state."""
    watches: list[Stopwatch] = []
    for _ in range(ROUNDS):
        await driver.set_mode(session, script.COLLECT)
        gc.collect()
        with Stopwatch() as watch:
            await work()
        watches.append(watch)
    return {
        "wall": statistics.median(watch.wall for watch in watches),
        "cpu": statistics.median(watch.cpu for watch in watches),
        "agent_cpu": statistics.median(watch.below for watch in watches),
    }


async def turn(driver: Driver, session: str, reader: Reader, text: str, answer: list[str]) -> None:
    reader.expect(answer)
    await driver.prompt(session, text)
    await reader.finished


async def stream(driver: Driver, count: int) -> Figures:
    """Small updates from the agent during one prompt."""
    reader = Reader()
    session = await driver.new_session(reader)
    await turn(driver, session, reader, f"stream {WARM_UP}", script.update_texts(WARM_UP))
    texts = script.update_texts(count)

    async def once() -> None:
        await turn(driver, session, reader, f"stream {count}", texts)

    # The first run measures memory: later runs reuse what it allocated.
    with Growth() as growth:
        await once()
    figures = await rounds(driver, session, once)
    return {**figures, "client_peak": growth.client, "agent_peak": growth.agents}


async def sequential(driver: Driver, count: int) -> Figures:
    """Small sequential requests to the agent."""
    session = await driver.new_session(Reader())
    for _ in range(WARM_UP):
        await driver.set_mode(session, "code")
    clock = time.perf_counter
    set_mode = driver.set_mode
    latencies: list[float] = []

    async def one_after_another() -> None:
        before = clock()
        for _ in range(count):
            await set_mode(session, "code")
            after = clock()
            latencies.append(after - before)
            before = after

    figures = await rounds(driver, session, one_after_another)
    figures["p50"] = statistics.median(latencies)
    return figures


async def in_flight(driver: Driver, count: int) -> Figures:
    """Small requests to the agent, many in flight."""
    session = await driver.new_session(Reader())
    set_mode = driver.set_mode

    async def all_of(requests: int) -> None:
        left = iter(range(requests))

        async def one_after_another() -> None:
            for _ in left:
                await set_mode(session, "code")

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(one_after_another())

    await all_of(WARM_UP)
    return await rounds(driver, session, lambda: all_of(count))


def large_text(size: int) -> str:
    """Text like a source file: ASCII, with line ends and quotes that JSON has to escape."""
    line = '    print("the value of %s is %d", name, values[index])  # a comment, as in real code\n'
    return ("echo\n" + line * (size // len(line) + 1))[:size]


LARGE_TURNS = {1: 10, 15: 2}
"""By size in MiB: how often the message makes a round trip while the clock runs."""


async def large(driver: Driver, size_mib: int) -> Figures:
    """One large message to the agent, echoed in one large update."""
    reader = Reader()
    session = await driver.new_session(reader)
    text = large_text(size_mib * 1024 * 1024)
    await turn(driver, session, reader, text, [text])

    async def there_and_back() -> None:
        for _ in range(LARGE_TURNS[size_mib]):
            await turn(driver, session, reader, text, [text])

    return await rounds(driver, session, there_and_back)


async def asks(driver: Driver, count: int) -> Figures:
    """Sequential permission requests of the agent during one prompt."""
    session = await driver.new_session(Reader())
    await driver.prompt(session, f"ask {WARM_UP}")

    async def answer() -> None:
        await driver.prompt(session, f"ask {count}")

    return await rounds(driver, session, answer)


def write_files(folder: Path) -> None:
    """Write the files of `bench.script`."""
    for number in range(script.FILES):
        path = folder / script.file_name(number)
        path.parent.mkdir(exist_ok=True)
        path.write_text(script.FILE_TEXT)


async def files(driver: Driver, count: int) -> Figures:
    """Sequential requests of the agent for the text of small files during one prompt.

    The files exist on disk. A client without a file service answers with the same text.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        cast(FileDriver, driver).workspace = folder
        session = await driver.new_session(Reader())
        await driver.prompt(session, f"read {WARM_UP} {folder}")

        async def answer() -> None:
            await driver.prompt(session, f"read {count} {folder}")

        return await rounds(driver, session, answer)


SESSION_UPDATES = 100


async def sessions(driver: Driver, count: int) -> Figures:
    """Many sessions on one connection, all with a running turn and interleaved updates."""
    readers = {}
    for _ in range(count):
        reader = Reader()
        readers[await driver.new_session(reader)] = reader

    async def all_of(updates: int, texts: list[str]) -> None:
        command = f"together {count} {updates}"
        async with asyncio.TaskGroup() as group:
            for session, reader in readers.items():
                group.create_task(turn(driver, session, reader, command, texts))

    await all_of(1, script.update_texts(1))
    texts = script.update_texts(SESSION_UPDATES)
    return await rounds(driver, next(iter(readers)), lambda: all_of(SESSION_UPDATES, texts))


async def idle(driver: Driver, count: int) -> Figures:
    """Sessions in which nothing happens."""
    for _ in range(10):
        await driver.new_session(Reader())
    gc.collect()
    with Growth() as growth:
        for _ in range(count):
            await driver.new_session(Reader())
    return {"client_each": growth.client / count, "agent_each": growth.agents / count}


CONNECTED_WORKS: dict[str, Work] = {
    "stream": stream,
    "sequential": sequential,
    "in_flight": in_flight,
    "large": large,
    "asks": asks,
    "files": files,
    "sessions": sessions,
    "idle": idle,
}


async def connected(
    driver: Driver, work: Work, size: int, placement: str, agent: list[str]
) -> Figures:
    """Run one workload on a connection that is opened before."""
    pid = await driver.open(agent)
    try:
        place(placement)
        figures = await work(driver, size)
    finally:
        await driver.close()
    must_be_gone(pid)
    return figures


async def spawns(new_driver: Callable[[], Driver], count: int, agent: list[str]) -> Figures:
    """Start agents sequentially: time to the first response, and memory at that moment.

    The first one in a process is reported separately: it may pay for what all later ones share.
    """
    watches: list[Stopwatch] = []
    sizes: list[dict[str, int]] = []
    for _ in range(count + 1):
        driver = new_driver()
        with Stopwatch() as watch:
            pid = await driver.open(agent)
        sizes.append(memory(pid))
        await driver.close()
        must_be_gone(pid)
        watches.append(watch)
    first, *later = watches
    return {
        "first": first.wall,
        "wall": statistics.median(watch.wall for watch in later),
        "cpu": statistics.median(watch.cpu for watch in later),
        "rss": statistics.median(size["rss"] for size in sizes),
        "pss": statistics.median(size["pss"] for size in sizes),
    }


def must_be_gone(pid: int) -> None:
    if pid in descendants():
        raise SystemExit(f"the agent is still running: {pid}")


def client(new_driver: Callable[[], Driver], arguments: list[str]) -> None:
    """The main function of a client process. Arguments: WORK SIZE PLACEMENT AGENT-COMMAND…"""
    name, size, placement, *agent = arguments
    if name == "spawn":
        place(placement)
        figures = asyncio.run(spawns(new_driver, int(size), agent))
    else:
        work = CONNECTED_WORKS[name]
        figures = asyncio.run(connected(new_driver(), work, int(size), placement, agent))
    # The agents are reaped, so this is the CPU time of the whole process tree.
    figures["life_cpu"] = own_cpu() + children_cpu()
    sys.stdout.write(json.dumps(figures) + "\n")
