"""An agent in memory for the unit tests of a broker: it answers as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from msgspec import Raw

from dragoman.broker.protocol import CallerTerms
from dragoman.broker.server.broker import Broker
from dragoman.broker.server.peer import PeerLink
from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError
from dragoman.gateway.relay import Upstream
from dragoman.rpc import LATER, Connection, End
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.memory import memory_pair
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray
from tests.integration.broker_stage import FakeHost, Stage, spec_of


class NearAgent:
    """Handlers of an agent. `asked` has every request, in order; prompts wait for `end`."""

    def __init__(self, **capabilities: Any) -> None:
        self.capabilities = capabilities
        self.asked: list[tuple[str, Any]] = []
        self.told: list[tuple[str, Any]] = []
        self.prompts: list[Request] = []
        self.changed = asyncio.Event()
        self.refuses: dict[str, RemoteError] = {}
        self.holds: set[str] = set()
        """Methods that wait for `release`."""
        self._held: list[Request] = []
        self.connection: Connection | None = None
        self._sessions = 0

    def attach(self, connection: Connection) -> None:
        self.connection = connection

    def noise(self, noise: Noise | Stray) -> None:
        raise AssertionError(noise)

    def notification(self, notification: Notification) -> None:
        self.told.append((notification.method, msgspec.json.decode(notification.params)))
        self.changed.set()

    def request(self, request: Request) -> Any:
        params = msgspec.json.decode(request.params)
        self.asked.append((request.method, params))
        self.changed.set()
        if request.method in self.refuses:
            raise self.refuses[request.method]
        if request.method in self.holds:
            self._held.append(request)
            return LATER
        match request.method:
            case "initialize":
                return {"protocolVersion": 1, "agentCapabilities": self.capabilities}
            case "session/new":
                self._sessions += 1
                return {"sessionId": f"s{self._sessions}"}
            case "session/prompt":
                self.prompts.append(request)
                return LATER
            case _:
                return {}

    def update(self, session: str, text: str) -> None:
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        assert self.connection is not None
        self.connection.post("session/update", {"sessionId": session, "update": update})

    def end(self, stop: str = "end_turn") -> None:
        """Answer the oldest prompt."""
        assert self.connection is not None
        self.connection.answer(self.prompts.pop(0), {"stopReason": stop})

    def release(self) -> None:
        """Answer the requests that wait, and hold no more."""
        self.holds.clear()
        assert self.connection is not None
        while self._held:
            self.connection.answer(self._held.pop(0), {})

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def near(agent: NearAgent, generation: int = 1) -> AsyncIterator[PeerLink]:
    """The agent as a broker's peer."""
    ours, theirs = memory_pair()
    async with Connection(theirs, End.AGENT, agent):
        async with AcpClient(ours, ClientOptions()) as client:
            peer: Any = SimpleNamespace(client=client)
            yield PeerLink(Upstream(client), peer, generation)


def notice(session: str, text: str) -> Notification:
    """An update as it comes from a peer."""
    content = {"type": "text", "text": text}
    params = {
        "sessionId": session,
        "update": {"sessionUpdate": "agent_message_chunk", "content": content},
    }
    raw = msgspec.json.encode(params)
    line = b'{"jsonrpc":"2.0","method":"session/update","params":%b}' % raw
    return Notification("session/update", Raw(raw), line)


class Notes:
    """Who stores things, and only takes notes."""

    def __init__(self) -> None:
        self.trouble = ""
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.marked: list[Any] = []
        self.saved: list[Any] = []
        self.events: list[str] = []
        self.records: dict[str, Any] = {}

    def mark(self, session: Any) -> None:
        self.marked.append(session)

    def hasten(self, session: Any) -> None:
        self.save(session)

    def save(self, session: Any) -> None:
        self.saved.append(session)
        session.log.take()

    def note(self, session: Any, kind: str, data: dict[str, Any]) -> None:
        self.notes.append((kind, data))

    async def fetch(self, key: str, start: int, stop: int) -> tuple[int, list[bytes]]:
        return stop, []

    def created(self, session: Any) -> None:
        self.events.append(f"created {session.id}")

    def found(self, session: Any) -> None:
        self.events.append(f"found {session.id}")

    def moved(self, session: Any) -> None:
        self.events.append(f"moved {session.id}")

    def closed(self, session: Any) -> None:
        self.events.append(f"closed {session.id}")

    async def released(self, session: Any) -> None:
        self.events.append(f"released {session.id}")

    async def settle(self, session: Any) -> None:
        self.events.append(f"settled {session.id}")

    async def first_event(self, session: Any) -> int:
        return int(session.log.first)

    async def find(self, peer_session_id: str, key: str | None) -> Any:
        return self.records.get(peer_session_id)


class FakeCaller:
    """What a session and its questions need of a caller."""

    def __init__(self, connection: Connection, *, offers: tuple[str, ...] = ()) -> None:
        self.connection = connection
        self.sessions: dict[str, Any] = {}
        self.terms = CallerTerms()
        self.greeted = False
        self.capabilities = acp.ClientCapabilities()
        self._offers = offers

    def offers(self, method: str) -> bool:
        return method in self._offers


class Client:
    """The other end of a caller's connection."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.questions: list[Request] = []
        self.changed = asyncio.Event()

    def attach(self, connection: Connection) -> None:
        pass

    def noise(self, noise: Noise | Stray) -> None:
        pass

    def notification(self, notification: Notification) -> None:
        if notification.method == "session/update":
            params = msgspec.json.decode(notification.params)
            self.heard.append(params["update"]["content"]["text"])
        self.changed.set()

    def request(self, request: Request) -> Any:
        self.questions.append(request)
        self.changed.set()
        return LATER

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def called(*offers: str) -> AsyncIterator[tuple[Any, Client, Connection]]:
    """A caller, who it is, and its own end of the connection."""
    ours, theirs = memory_pair()
    client = Client()
    async with (
        Connection(ours, End.AGENT) as connection,
        Connection(theirs, End.CLIENT, client) as other,
    ):
        yield FakeCaller(connection, offers=offers), client, other


@asynccontextmanager
async def standing(folder: Path, *agents: NearAgent, **fields: Any) -> AsyncIterator[Stage]:
    """A broker before agents in memory, one for each start."""
    host = FakeHost()

    def start(number: int) -> Any:
        return near(agents[min(number, len(agents)) - 1], number)

    broker = Broker(spec_of(folder, **fields), cast("Any", host), open=start)
    tasks = TaskOwner("standing")
    running = tasks.start(broker.run(), "run the broker")
    try:
        yield Stage(broker, host, folder)
    finally:
        broker.stop(drain=False)
        async with asyncio.timeout(5):
            await asyncio.wait([running])
        await tasks.aclose()


def dies(agent: NearAgent) -> None:
    """The agent's process is gone."""
    assert agent.connection is not None
    stream: Any = agent.connection._stream
    stream.break_link("killed")
