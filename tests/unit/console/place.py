"""A console that runs in this process, and an HTTP client that acts as its browser."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from dragoman.console.access import ConsoleAccess
from dragoman.console.server import ConsoleOptions, serve_console
from dragoman.paths import Paths
from dragoman.rpc.tasks import TaskOwner

TIMEOUT = 20.0


@contextmanager
def short_paths() -> Iterator[Paths]:
    """dragoman's directories, with paths that are short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="dgm") as name:
        folder = Path(name).resolve()
        yield Paths(
            config=folder / "config",
            data=folder / "data",
            cache=folder / "cache",
            state=folder / "state",
            runtime=folder / "run",
        )


@dataclass
class Place:
    """A running console."""

    url: str
    link: str
    paths: Paths

    @property
    def access(self) -> ConsoleAccess:
        return ConsoleAccess(self.paths)

    @property
    def secret(self) -> str:
        return self.link.partition("#token=")[2]

    @property
    def origin(self) -> dict[str, str]:
        return {"origin": self.url.rstrip("/")}

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def client(self, **options: Any) -> httpx2.AsyncClient:
        options.setdefault("headers", self.origin)
        return httpx2.AsyncClient(base_url=self.url, timeout=TIMEOUT, trust_env=False, **options)

    @asynccontextmanager
    async def browser(self, rights: Any = "act") -> AsyncIterator[httpx2.AsyncClient]:
        """A client that is logged in."""
        async with self.client() as client:
            answer = await client.post(
                "/api/v1/login", json={"token": self.access.new_link(rights)}
            )
            assert answer.status_code == 200, answer.text
            yield client

    def socket(
        self, client: httpx2.AsyncClient, protocols: Sequence[str] = (), **headers: str
    ) -> connect:
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        address = self.url.replace("http", "ws", 1) + "api/v1/events"
        return connect(
            address,
            additional_headers={**self.origin, "cookie": cookies, **headers},
            subprotocols=[Subprotocol(each) for each in protocols] or None,
            ping_interval=None,
            max_size=None,
            proxy=None,
        )


async def told(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of a type."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            message: dict[str, Any] = json.loads(await socket.recv())
            if message["type"] == kind:
                return message


@asynccontextmanager
async def console(paths: Paths, **options: Any) -> AsyncIterator[Place]:
    stop = asyncio.Event()
    heard: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
    tasks = TaskOwner("test")
    serving = tasks.start(
        serve_console(
            ConsoleOptions(**{"port": 0, **options}),
            paths=paths,
            stop=stop,
            on_listening=lambda url, link: heard.set_result((url, link)),
        ),
        "serve",
    )
    async with asyncio.timeout(TIMEOUT):
        either: set[asyncio.Future[Any]] = {serving, heard}
        done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if serving in done:
        await serving
    url, link = heard.result()
    try:
        yield Place(url, link, paths)
    finally:
        stop.set()
        async with asyncio.timeout(TIMEOUT):
            await serving
