"""Convert prompt blocks and MCP servers to what a legacy dialect accepts.

Links and text resources become prompt text if the dialect has no block for them. Any other
unsupported block raises `Unsupported` before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.legacy.base import ClientEnd
from dragoman.errors import Unsupported
from dragoman.events.parts import (
    Audio,
    Block,
    Capabilities,
    Image,
    Link,
    OtherBlock,
    Resource,
    Text,
)


def prompt_blocks(
    blocks: Sequence[Block], end: ClientEnd, capabilities: Capabilities
) -> list[Block]:
    """Return the blocks of a prompt in the form that the dialect accepts. Raises `Unsupported` for
    a block that it does not accept in any form."""
    return [_fitting(block, end, capabilities) for block in blocks]


def _fitting(block: Block, end: ClientEnd, can: Capabilities) -> Block:
    able: bool | None = True
    match block:
        case Image():
            able, what = can.image, "images"
        case Audio():
            able, what = can.audio, "audio"
        case Resource():
            able, what = can.embedded, "embedded bytes"
        case OtherBlock(kind=kind):
            what = f"{kind!r} blocks"
        case _:
            what = f"{type(block).__name__} blocks"
    if isinstance(block, end.blocks) and able is not False:
        return block
    if isinstance(block, Link):
        return Text(f"[{block.name}]({block.uri})")
    if isinstance(block, Resource) and block.text is not None:
        return Text(f"<context uri={block.uri!r}>\n{block.text}\n</context>")
    raise Unsupported(f"an agent of the {end.name} dialect accepts no {what} in a prompt")


def servers(wanted: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the MCP servers as plain JSON: ``local`` with a command, ``remote`` with a URL. Raises
    `Unsupported` for a server of any other type."""
    return [_server(server) for server in wanted]


def _server(server: Any) -> Mapping[str, Any]:
    match server:
        case acp.McpServerStdio():
            return {
                "type": "local",
                "command": server.command,
                "args": list(server.args),
                "environment": {pair.name: pair.value for pair in server.env},
            }
        case acp.McpServerHttp() | acp.McpServerSse():
            headers = {pair.name: pair.value for pair in server.headers}
            return {"type": "remote", "url": server.url, "headers": headers}
        case {"type": "local" | "remote"}:
            assert isinstance(server, Mapping)
            return server
        case _:
            # Only its type: a server may contain secrets.
            kind = type(server).__name__
            raise Unsupported(f"the dialect does not support an MCP server given as {kind}")
