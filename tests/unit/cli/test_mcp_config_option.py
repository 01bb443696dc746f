"""The file that names MCP servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.mcp_config_option import read_servers
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import UsageError


def written(tmp_path: Path, servers: Any) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def test_programs_and_addresses_become_servers(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "clock": {"command": "clock", "args": ["-u"], "env": {"TZ": "UTC"}},
            "web": {"url": "https://example.org/mcp", "headers": {"X-Key": "k"}},
            "old": {"type": "sse", "url": "https://example.org/sse"},
        },
    )
    assert read_servers(path) == [
        acp.McpServerStdio(
            name="clock",
            command="clock",
            args=["-u"],
            env=[acp.EnvVariable(name="TZ", value="UTC")],
        ),
        acp.McpServerHttp(
            name="web",
            url="https://example.org/mcp",
            headers=[acp.HttpHeader(name="X-Key", value="k")],
        ),
        acp.McpServerSse(name="old", url="https://example.org/sse", headers=[]),
    ]


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ([], "expected"),
        ({"x": 1}, "mcpServers.x is not an object"),
        (
            {"x": {"type": "carrier-pigeon"}},
            "unknown type 'carrier-pigeon'; choose from stdio, http, sse",
        ),
        ({"x": {"command": "c", "cwd": "/"}}, "unknown keys for stdio servers: cwd"),
        ({"x": {}}, "x.command must be a non-empty string"),
        ({"x": {"command": "c", "args": "a b"}}, "x.args must be a list of strings"),
        ({"x": {"command": "c", "env": {"A": 1}}}, "x.env must be an object with string values"),
        ({"x": {"url": 3}}, "x.url must be a non-empty string"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, servers: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_servers(written(tmp_path, servers))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_servers(tmp_path / "missing.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UsageError, match="is not valid JSON"):
        read_servers(tmp_path / "bad.json")


def test_a_byte_order_mark_is_accepted_and_endless_lists_are_refused(
    tmp_path: Path,
) -> None:
    file = tmp_path / "servers.json"
    file.write_bytes(b'\xef\xbb\xbf{"mcpServers": {}}')
    assert read_servers(file) == []
    file.write_text("[" * 100_000)
    with pytest.raises(UsageError, match="nested too deeply"):
        read_servers(file)
