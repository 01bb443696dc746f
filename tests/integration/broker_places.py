"""A user's folders for tests of brokers, and the proof that nothing is left behind in them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dragoman.broker.client.hello import ask_broker
from dragoman.broker.endpoint import Endpoint, endpoint_of
from dragoman.broker.protocol import STATUS
from dragoman.broker.records import BrokerRecord, read_records
from dragoman.broker.spec import BrokerSpec, Folders, endpoint_name
from dragoman.transports.process.identity import (
    ProcessIdentity,
    ProcessState,
    identify,
    kill,
    state_of,
)

PROGRAM = (sys.executable, str(Path(__file__).with_name("broker_standin.py")))
GONE_TIMEOUT = 30.0
"""Seconds for what other processes do; the machine may be busy."""


@dataclass(frozen=True)
class Place:
    """Where the brokers of one test are."""

    folder: Path

    @property
    def brokers(self) -> Path:
        return self.folder / "run" / "brokers"

    def spec(self, **fields: Any) -> BrokerSpec:
        chosen: dict[str, Any] = {
            "peer": "tool",
            "command": ("tool",),
            "env": {"PATH": "/usr/bin:/bin"},
            "workspace": str(self.folder),
            "paths": Folders(
                state=str(self.folder / "state"),
                runtime=str(self.folder / "run"),
                data=str(self.folder / "data"),
            ),
        }
        return BrokerSpec(**{**chosen, **fields})

    def endpoint(self, spec: BrokerSpec) -> Endpoint:
        return endpoint_of(endpoint_name(spec), spec.paths)

    def records(self) -> list[BrokerRecord]:
        return [record for _, record in read_records(self.brokers) if record is not None]

    def log(self, spec: BrokerSpec) -> str:
        path = self.endpoint(spec).log
        return path.read_text() if path.exists() else ""


@contextmanager
def broker_place() -> Iterator[Place]:
    """Folders with short paths. At the end every broker is killed, and its processes are gone."""
    # The folders of pytest have paths that are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="dgm") as name:
        place = Place(Path(name).resolve())
        try:
            yield place
        finally:
            for log in sorted(place.folder.glob("state/logs/*.log")):
                # Shown with a test that fails.
                sys.stderr.write(f"{log.name}:\n{log.read_text()}\n")
            for record in place.records():
                kill(record.broker, signal.SIGKILL)
                for one in (record.broker, *record.children):
                    wait_dead(one)
            for stray in writers_to(place.folder):
                kill(stray, signal.SIGKILL)
                raise AssertionError(f"a broker without a record was left: {stray.pid}")


def writers_to(folder: Path) -> list[ProcessIdentity]:
    """The processes whose log is in a folder, after some time for those that are about to end."""
    give_up_at = time.monotonic() + GONE_TIMEOUT
    while True:
        found: list[ProcessIdentity] = []
        for link in Path("/proc").glob("[0-9]*/fd/2"):
            with suppress(OSError):
                if os.readlink(link).startswith(str(folder)):
                    found += filter(None, [identify(int(link.parts[2]))])
        if not found or time.monotonic() >= give_up_at:
            return found
        time.sleep(0.05)


def wait_dead(process: ProcessIdentity) -> None:
    """Wait until a process is gone; its parent, which may be this one, need not have reaped it."""
    give_up_at = time.monotonic() + GONE_TIMEOUT
    while state_of(process) is ProcessState.ALIVE:
        assert time.monotonic() < give_up_at, f"process {process.pid} lives on"
        time.sleep(0.01)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something that other processes do has come true."""
    async with asyncio.timeout(GONE_TIMEOUT):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def peer_of(place: Place, spec: BrokerSpec) -> ProcessIdentity:
    """The process of the peer behind a broker, as soon as it is started."""
    give_up_at = time.monotonic() + GONE_TIMEOUT
    while True:
        status = await ask_broker(place.endpoint(spec).address, STATUS, {})
        found = identify(status["peerPid"])
        recorded = [one.pid for record in place.records() for one in record.children]
        if found is not None and found.pid in recorded:
            return found
        assert time.monotonic() < give_up_at, "there is no peer"


def as_json(spec: BrokerSpec) -> str:
    return msgspec.json.encode(spec).decode()
