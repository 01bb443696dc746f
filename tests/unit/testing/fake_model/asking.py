"""A small HTTP client for the tests of the fake model, independent of its server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from dragoman.testing.fake_model import FakeModel

TIMEOUT = 10.0
"""Seconds for an answer on loopback, on a machine that is busy."""


@dataclass(frozen=True, slots=True)
class Got:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of the server-sent events, without the mark of the end."""
        lines = [line for line in self.body.decode().splitlines() if line.startswith("data: ")]
        data = [line.removeprefix("data: ") for line in lines]
        return [json.loads(item) for item in data if item != "[DONE]"]


async def connect(model: FakeModel) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(model.url)
    return await asyncio.open_connection(address.hostname, address.port)


def request(method: str, target: str, body: Any = None, **headers: str) -> bytes:
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", "host: x", f"content-length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def read_answer(reader: asyncio.StreamReader, *, head: bool = False) -> Got:
    async with asyncio.timeout(TIMEOUT):
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readline(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
        elif not head:
            body = await reader.readexactly(int(headers["content-length"]))
    return Got(int(first.split(" ")[1]), headers, body)


async def ask(
    model: FakeModel, target: str, body: Any = None, *, method: str = "POST", **headers: str
) -> Got:
    """One request on a connection of its own."""
    reader, writer = await connect(model)
    try:
        writer.write(request(method, target, body, **headers))
        return await read_answer(reader, head=method == "HEAD")
    finally:
        writer.close()
        await writer.wait_closed()
