"""A door, an editor before it that a test plays, and peers behind it on sockets of this process."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dragoman.acp_server.server import AcpServer, ServerContext
from dragoman.agent import Agent, Session, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.methods import cancel_notice
from dragoman.errors import RemoteError
from dragoman.rpc import Connection, ConnectionSettings, End
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.memory import memory_pair
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

FOLDERS = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")
WAIT_TIMEOUT = 20.0

MODELS = acp.SessionConfigSelect(
    id="model",
    name="Model",
    category="model",
    current_value="small",
    options=[
        acp.SessionConfigSelectOption(value="small", name="Small"),
        acp.SessionConfigSelectOption(value="large", name="Large"),
    ],
)


class Peer:
    """An agent that does what the first word of a prompt says, and remembers what it was told."""

    def __init__(self, name: str, *, forgets: bool = False, many_folders: bool = False) -> None:
        self.name = name
        self.prompts: list[str] = []
        self.sessions: list[str] = []
        self.cancelled = asyncio.Event()
        self.waiting = asyncio.Event()
        self.agent = agent = Agent(
            name,
            version="1",
            modes=[acp.SessionMode(id="code", name="Code"), acp.SessionMode(id="plan", name="P")],
            options=[MODELS],
            embedded_context=True,
            additional_directories=many_folders,
        )
        agent.new_session(self._new)
        agent.prompt(self._prompt)
        agent.command("dance", "Dance a little")(self._dance)
        if not forgets:
            agent.resume_session(self._resume)

    async def _new(self, session: Session) -> None:
        self.sessions.append(f"new {session.id}")

    async def _resume(self, session: Session) -> None:
        self.sessions.append(f"resumed {session.id}")

    async def _dance(self, turn: Turn, where: str) -> None:
        await turn.say(f"{self.name} danced")

    async def _prompt(self, turn: Turn) -> str | None:
        told = [
            block.resource.text
            for block in turn.blocks(acp.EmbeddedResource)
            if isinstance(block.resource, acp.TextResourceContents)
        ]
        self.prompts.append("\n".join([*told, turn.text]))
        word, _, rest = turn.text.partition(" ")
        match word:
            case "wait":
                await turn.say("waiting")
                self.waiting.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.set()
            case "ask":
                async with turn.tool("Write it", kind="edit", locations=[rest]) as tool:
                    allowed = await turn.ask_permission(tool)
                    await turn.say("allowed" if allowed else "refused")
            case "read":
                try:
                    await turn.say(await turn.read_file(rest))
                except RemoteError as error:
                    await turn.say(f"error: {error.message}")
            case "write":
                try:
                    await turn.write_file(rest, "new")
                    await turn.say("written")
                except RemoteError as error:
                    await turn.say(f"error: {error.message}")
            case "run":
                async with await turn.terminal("make", ["it"]) as terminal:
                    await terminal.wait()
                    await turn.say((await terminal.output()).output)
            case "form":
                schema = acp.ElicitationSchema(properties={})
                answer = await turn.client.ask_form("which?", schema)
                await turn.say(type(answer).__name__)
            case "plan":
                await turn.plan(["first", "second"])
                async with turn.tool("Edit", kind="edit", locations=["/w/a.py"]):
                    pass
                await turn.say(f"{self.name} has a plan")
            case "folders":
                await turn.say(" ".join(path.name for path in turn.session.roots))
            case "settings":
                await turn.say(f"{turn.session.options['model']} {turn.session.mode}")
            case "die":
                await turn.client._connection.aclose()
            case "refuse":
                return "refusal"
            case "fail":
                raise RemoteError(-32603, "it broke")
            case "title":
                await turn.title(rest)
            case _:
                await turn.say(f"{self.name} heard {turn.text}")
        return None


@dataclass
class Editor:
    """A client of the door."""

    updates: list[dict[str, Any]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    serve: Callable[[str, Any], Any] = lambda method, params: allow(params)
    connection: Connection = field(init=False)
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        self.connection = connection

    def notification(self, notification: Notification) -> None:
        params = json.loads(bytes(notification.params))
        self.updates.append({"session": params["sessionId"], **params["update"]})
        self.heard.set()

    def request(self, request: Request) -> Any:
        params = json.loads(bytes(request.params))
        self.requests.append({"method": request.method, "after": len(self.updates), **params})
        self.heard.set()
        return self.serve(request.method, params)

    def noise(self, noise: Noise | Stray) -> None:
        raise AssertionError(noise)

    # -- for tests

    async def call(self, method: str, **params: Any) -> Any:
        async with asyncio.timeout(WAIT_TIMEOUT):
            return json.loads(bytes(await self.connection.call(method, params)))

    async def hello(self, **capabilities: Any) -> Any:
        return await self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)

    async def open(self, cwd: Path, *others: Path, peer: str | None = None) -> str:
        """A new session, with somebody chosen."""
        folders = {"additionalDirectories": [str(path) for path in others]} if others else {}
        opened = await self.call("session/new", cwd=str(cwd), mcpServers=[], **folders)
        session = str(opened["sessionId"])
        if peer is not None:
            await self.set(session, "peer", peer)
        return session

    async def set(self, session: str, option: str, value: str) -> dict[str, Any]:
        """Set an option; all options and their values."""
        answer = await self.call(
            "session/set_config_option", sessionId=session, configId=option, value=value
        )
        return values(answer["configOptions"])

    async def prompt(self, session: str, text: str, *blocks: Any) -> str:
        """The stop reason; what was told is in `updates`."""
        self.updates.clear()
        prompt = [{"type": "text", "text": text}, *blocks]
        answer = await self.call("session/prompt", sessionId=session, prompt=prompt)
        return str(answer["stopReason"])

    async def until(self, seen: Callable[[Editor], Any]) -> None:
        """Wait until something has been told."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not seen(self):
                self.heard.clear()
                await self.heard.wait()

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    @property
    def text(self) -> str:
        """What the agent has said since the last prompt."""
        return "".join(update["content"]["text"] for update in self.told("agent_message_chunk"))


def values(options: list[dict[str, Any]]) -> dict[str, Any]:
    return {option["id"]: option["currentValue"] for option in options}


def allow(params: Any) -> Any:
    """Say yes to a question for permission."""
    chosen = next(one for one in params["options"] if one["kind"] == "allow_once")
    return {"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}


@dataclass
class House:
    """A folder with everything in it."""

    folder: Path
    peers: dict[str, Peer]
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def environ(self) -> dict[str, str]:
        own = {f"DRAGOMAN_{name}": str(self.folder / name.lower()) for name in FOLDERS}
        return {"PATH": os.environ["PATH"], "DRAGOMAN_WARM": "0", **own, **self.extra}

    def front(self, **options: Any) -> ServerContext:
        return ServerContext(environ=self.environ, **options)

    def settings(self, more: str = "") -> None:
        text = f"enabled_peers = {list(self.peers)}\n{more}"
        (self.folder / "config_home" / "config.toml").write_text(text)

    @asynccontextmanager
    async def editor(self, **options: Any) -> AsyncIterator[Editor]:
        """A client that has just connected."""
        near, far = memory_pair()
        tasks = TaskOwner("test")
        serving = tasks.start(AcpServer(self.front(**options)).serve(far), "the door")
        editor = Editor()
        settings = ConnectionSettings(cancel_notice=cancel_notice)
        connection = Connection(near, End.CLIENT, editor, settings=settings)
        try:
            async with connection:
                yield editor
            async with asyncio.timeout(WAIT_TIMEOUT):
                await serving
        finally:
            await tasks.aclose()


@asynccontextmanager
async def house(folder: Path, *peers: Peer, more: str = "") -> AsyncIterator[House]:
    """A place where these peers are enabled, and all of them claim the role review."""
    built = House(folder, {peer.name: peer for peer in peers})
    (folder / "work").mkdir()
    descriptions = folder / "config_home" / "peers"
    descriptions.mkdir(parents=True)
    built.settings(more)
    async with AsyncExitStack() as stack:
        for peer in peers:
            path = folder / f"{peer.name}.sock"
            stack.push_async_callback((await peer.agent.serve_unix(path)).aclose)
            (descriptions / f"{peer.name}.toml").write_text(
                f'name = "{peer.name}"\ntitle = "{peer.name.title()}"\nprotocol = "acp"\n'
                f'roles = ["review"]\n[[launch]]\naddress = "unix:{path}"\n'
            )
        yield built


def encoded(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))
