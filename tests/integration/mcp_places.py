"""`dragoman serve mcp` as a program, and the official client that drives it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.cli_shell import AGENT, Cli

MODES = ("legacy", "2026-07-28")
"""The two protocols: with a handshake, and without."""

URL = re.compile(rb"listening on (http://127\.0\.0\.1:\d+/mcp); the token is in (.+)\n")
WAIT = 40.0


@dataclass
class Heard:
    """What a client was told while it waited."""

    lines: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.lines.append(message or "")
        self.changed.set()

    async def line_with(self, words: str) -> None:
        async with asyncio.timeout(WAIT):
            while not any(words in line for line in self.lines):
                self.changed.clear()
                await self.changed.wait()


def describe(cli: Cli, name: str, *roles: str, command: tuple[str, ...] = ()) -> None:
    """Give a peer a name: the agent of the tests, or another program."""
    file = cli.home / "config_home" / "peers" / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    argv = json.dumps([*(command or (*AGENT, str(cli.home)))])
    file.write_text(
        f'name = "{name}"\ntitle = "{name}"\nprotocol = "acp"\nroles = {list(roles)}\n\n'
        f"[[launch]]\ncommand = {argv}\n"
    )


def settings(cli: Cli, text: str) -> None:
    folder = cli.home / "config_home"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text)


@asynccontextmanager
async def over_stdio(
    cli: Cli, *words: str, mode: str = "legacy", **how: Any
) -> AsyncIterator[Client]:
    """A client that has started the server, which ends with the block."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "dragoman", "serve", "mcp", *words],
        env=cli.env,
        cwd=cli.cwd,
    )
    with (cli.home / "server.err").open("w") as errors:
        async with Client(stdio_client(parameters, errlog=errors), mode=mode, **how) as client:
            yield client


@dataclass(frozen=True)
class Address:
    """Where a server listens, and what opens its door."""

    url: str
    token: str


@asynccontextmanager
async def listening(cli: Cli, *words: str, quiet: bool = True) -> AsyncIterator[Address]:
    """A server that listens; it is told to end with the block, and has to, without another word
    if it is to be quiet."""
    process = await asyncio.create_subprocess_exec(
        *cli.argv("serve", "mcp", "--http", "0", *words),
        cwd=cli.cwd,
        env=cli.env,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(WAIT):
            line = await process.stderr.readline()
        found = URL.search(line)
        assert found is not None, line
        yield Address(found[1].decode(), _read(os.fsdecode(found[2])))
    finally:
        process.terminate()
        async with asyncio.timeout(WAIT):
            told = await process.stderr.read()
            code = await process.wait()
        assert code == 143
        assert not (quiet and told), told


@asynccontextmanager
async def over_http(address: Address, *, mode: str = "legacy", **how: Any) -> AsyncIterator[Client]:
    """A client of a server that listens."""
    headers = {"Authorization": f"Bearer {address.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=WAIT) as http:
        transport = streamable_http_client(address.url, http_client=http)
        async with Client(transport, mode=mode, **how) as client:
            yield client


def _read(path: str) -> str:
    return Path(path).read_text().strip()


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


__all__ = [
    "MODES",
    "WAIT",
    "Address",
    "Heard",
    "describe",
    "listening",
    "over_http",
    "over_stdio",
    "settings",
    "text_of",
]
