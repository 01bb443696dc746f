"""Brokers for tests: in this process, with a real child process behind them.

Owns the way to a broker with callers on streams in memory, and the small vocabulary in which the
tests talk to it. The agent is `broker_agent`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from dragoman.broker.server.broker import Broker
from dragoman.broker.spec import BrokerSpec, Folders
from dragoman.client.budgets import Budgets
from dragoman.errors import ConnectionLost
from dragoman.rpc import Connection, End
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.memory import memory_pair
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

TIMEOUT = 40.0
"""Seconds for anything that a test waits for; what takes longer is stuck."""

BUDGETS = Budgets(cancel_grace=2.0, replay_quiet=0.3)
"""Short for an agent that does not stop, and long enough for one that does on a busy machine."""

AGENT = Path(__file__).with_name("broker_agent.py")


def command(*flags: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(AGENT), *flags)


def spec_of(folder: Path, *flags: str, **fields: Any) -> BrokerSpec:
    """A spec with folders of its own below `folder`."""
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    paths = Folders(
        state=str(folder / "state"), runtime=str(folder / "run"), data=str(folder / "data")
    )
    fields.setdefault("command", command(*flags))
    fields.setdefault("budgets", BUDGETS)
    return BrokerSpec(
        peer="agent", workspace=str(workspace), paths=paths, **({"protocol": "acp"} | fields)
    )


class FakeHost:
    """A process around a broker that only takes notes."""

    def __init__(self) -> None:
        self.released = False
        self.peers: list[int] = []
        self.ended: list[int] = []
        self.idle: list[bool] = []
        self.ttl: float | None = None

    def release(self) -> None:
        self.released = True

    def peer_started(self, pid: int) -> None:
        self.peers.append(pid)

    def peer_ended(self, pid: int) -> None:
        self.ended.append(pid)

    def idle_changed(self, idle: bool) -> None:
        self.idle.append(idle)

    def keep_for(self, ttl: float) -> None:
        self.ttl = ttl


class TestCaller:
    """A caller that sees everything that comes to it."""

    __test__ = False

    def __init__(self, connection_of: Callable[[TestCaller], Connection]) -> None:
        self.updates: list[dict[str, Any]] = []
        self.told: list[tuple[str, Any]] = []
        """Every other notification."""
        self.questions: list[Request] = []
        self.answer: Callable[[Request], Any] | None = None
        self.changed = asyncio.Event()
        self.connection = connection_of(self)

    # -- the handlers of its connection

    def attach(self, connection: Connection) -> None:
        pass

    def notification(self, notification: Notification) -> None:
        if notification.method == "session/update":
            self.updates.append(msgspec.json.decode(notification.params))
        else:
            self.told.append((notification.method, msgspec.json.decode(notification.params)))
        self.changed.set()

    def request(self, request: Request) -> Any:
        self.questions.append(request)
        self.changed.set()
        if self.answer is None:
            return self.never()
        return self.answer(request)

    def noise(self, noise: Noise | Stray) -> None:
        pass

    async def never(self) -> Any:
        await asyncio.Event().wait()

    # -- what a test says

    async def call(self, method: str, params: Any = None) -> Any:
        raw = await self.connection.call(method, params or {}, timeout=TIMEOUT)
        return msgspec.json.decode(raw)

    async def greet(self, **capabilities: Any) -> Any:
        params = {"protocolVersion": 1, "clientCapabilities": capabilities}
        return await self.call("initialize", params)

    async def new(self, folder: Path, **meta: Any) -> str:
        params: dict[str, Any] = {"cwd": str(folder / "workspace"), "mcpServers": []}
        if meta:
            params["_meta"] = {"dragoman": meta}
        found: str = (await self.call("session/new", params))["sessionId"]
        return found

    def prompting(self, session: str, text: str, **meta: Any) -> Any:
        params: dict[str, Any] = {
            "sessionId": session,
            "prompt": [{"type": "text", "text": text}],
        }
        if meta:
            params["_meta"] = {"dragoman": meta}
        return self.call("session/prompt", params)

    def cancel(self, session: str) -> None:
        self.connection.post("session/cancel", {"sessionId": session})

    def texts(self, session: str | None = None) -> list[str]:
        return [
            each["update"]["content"]["text"]
            for each in self.updates
            if "content" in each["update"] and session in (None, each["sessionId"])
        ]

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until something is so, looking whenever something came."""
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def heard(self, text: str) -> None:
        await self.until(lambda: any(text in each for each in self.texts()))


class Stage:
    """A broker that runs, and callers of it."""

    def __init__(self, broker: Broker, host: FakeHost, folder: Path) -> None:
        self.broker = broker
        self.host = host
        self.folder = folder
        # As in a process: a broker that ends closes its callers last, after they are answered.
        self._callers = TaskOwner("callers")

    @asynccontextmanager
    async def caller(
        self, *, greet: bool = True, buffer_size: int = 64 * 1024, **capabilities: Any
    ) -> AsyncIterator[TestCaller]:
        near, far = memory_pair(buffer_size=buffer_size)
        serving = self._callers.start(self.broker.serve(far), "serve a caller")
        caller = TestCaller(lambda handlers: Connection(near, End.CLIENT, handlers))
        caller.connection.start()
        try:
            if greet:
                await caller.greet(**capabilities)
            yield caller
        finally:
            await caller.connection.aclose()
            async with asyncio.timeout(TIMEOUT):
                await asyncio.wait([serving])

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait for something that nobody announces."""
        async with asyncio.timeout(TIMEOUT):
            while not condition():  # noqa: ASYNC110 - there is nothing to be told by
                await asyncio.sleep(0.005)


@asynccontextmanager
async def stage(folder: Path, *flags: str, **fields: Any) -> AsyncIterator[Stage]:
    """A broker in this process, for as long as the block lasts."""
    host = FakeHost()
    broker = Broker(spec_of(folder, *flags, **fields), cast("Any", host))
    tasks = TaskOwner("stage")
    running = tasks.start(broker.run(), "run the broker")
    try:
        yield Stage(broker, host, folder)
    finally:
        broker.stop(drain=False)
        async with asyncio.timeout(TIMEOUT):
            await asyncio.wait([running])
        await tasks.aclose()


def stored(folder: Path) -> Iterator[dict[str, Any]]:
    """Every stored session with its lines."""
    from dragoman.store import Store, store_path

    store = Store.open(store_path(folder / "state"), read_only=True)
    try:
        for record in store.sessions():
            lines = list(store.lines(record.key))
            yield {"record": record, "lines": lines}
    finally:
        store.close()


__all__ = [
    "ConnectionLost",
    "FakeHost",
    "Stage",
    "TestCaller",
    "command",
    "spec_of",
    "stage",
    "stored",
]
