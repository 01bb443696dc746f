"""Tests of MCP server descriptors."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dragoman.dialects.acp import v1
from tests.unit.dialects.acp.v1 import samples


def test_each_server_has_its_type() -> None:
    kinds = [type(v1.convert(server, v1.McpServer)) for server in samples.SERVERS]
    assert kinds == [v1.McpServerStdio, v1.McpServerStdio, v1.McpServerHttp, v1.McpServerSse]


def test_a_program_has_no_type_and_always_its_lists_on_the_wire() -> None:
    server = v1.McpServerStdio(name="n", command="/c", args=[], env=[])
    assert json.loads(v1.encode(server)) == {"name": "n", "command": "/c", "args": [], "env": []}


def test_a_program_that_says_stdio_is_a_program() -> None:
    message = {"type": "stdio", "name": "n", "command": "/c", "args": [], "env": []}
    server = v1.decode(json.dumps(message).encode(), v1.McpServer)
    assert isinstance(server, v1.McpServerStdio)
    assert json.loads(v1.encode(server)) == message


@pytest.mark.parametrize("kind", ["carrier_pigeon", "acp", 7, None])
def test_a_server_of_an_unknown_type_is_never_a_program(kind: Any) -> None:
    message = {"type": kind, "name": "n", "command": "/c", "args": [], "env": []}
    server = v1.decode(json.dumps(message).encode(), v1.McpServer)
    assert server == v1.UnknownMcpServer(raw=message)
    assert json.loads(v1.encode(server)) == message


@pytest.mark.parametrize("key", ["name", "command", "args", "env"])
def test_a_program_needs_all_its_fields(key: str) -> None:
    message = {"name": "n", "command": "/c", "args": [], "env": []}
    del message[key]
    with pytest.raises(msgspec.ValidationError, match=f"`{key}`"):
        v1.decode(json.dumps(message).encode(), v1.McpServer)
