"""Parse the ``--mcp-config`` file: MCP servers for the agent's session.

The format is ``{"mcpServers": {NAME: {…}}}``; an entry has `command` with `args` and `env`, or
`url` with `headers` and `type` http or sse. The agent starts the servers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dragoman.cli.read_input import MAX_CONFIG_SIZE, read_named
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import UsageError

_KEYS: Final = {
    "stdio": {"type", "command", "args", "env"},
    "http": {"type", "url", "headers"},
    "sse": {"type", "url", "headers"},
}


def read_servers(path: Path) -> list[acp.McpServer]:
    """Read the servers from a file. Raises `UsageError` if it is invalid."""
    try:
        told: Any = json.loads(read_named(path, max_size=MAX_CONFIG_SIZE).decode("utf-8-sig"))
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply") from None
    entries = told.get("mcpServers", told.get("mcp_servers")) if isinstance(told, dict) else None
    if not isinstance(entries, dict):
        raise UsageError(f'{path}: expected {{"mcpServers": {{NAME: {{…}}}}}}')
    return [_server(path, name, entry) for name, entry in entries.items()]


def _server(path: Path, name: str, entry: Any) -> acp.McpServer:
    where = f"{path}: mcpServers.{name}"
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is not an object")
    kind = entry.get("type") or ("http" if "url" in entry else "stdio")
    known = _KEYS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise UsageError(f"{where}: unknown type {kind!r}; choose from {', '.join(_KEYS)}")
    unknown = sorted(set(entry) - known)
    if unknown:
        raise UsageError(f"{where}: unknown keys for {kind} servers: {', '.join(unknown)}")
    if kind == "stdio":
        env = [acp.EnvVariable(name=n, value=v) for n, v in _pairs(where, entry, "env")]
        command = _text(where, entry, "command")
        return acp.McpServerStdio(name=name, command=command, args=_words(where, entry), env=env)
    url = _text(where, entry, "url")
    headers = [acp.HttpHeader(name=n, value=v) for n, v in _pairs(where, entry, "headers")]
    if kind == "sse":
        return acp.McpServerSse(name=name, url=url, headers=headers)
    return acp.McpServerHttp(name=name, url=url, headers=headers)


def _text(where: str, entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}.{key} must be a non-empty string")
    return value


def _words(where: str, entry: Mapping[str, Any]) -> list[str]:
    words = entry.get("args") or []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"{where}.args must be a list of strings")
    return words


def _pairs(where: str, entry: Mapping[str, Any], key: str) -> Iterator[tuple[str, str]]:
    pairs = entry.get(key) or {}
    if not isinstance(pairs, dict) or not all(isinstance(v, str) for v in pairs.values()):
        raise UsageError(f"{where}.{key} must be an object with string values")
    yield from pairs.items()
