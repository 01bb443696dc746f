"""Settings of other programs as their users have them."""

from __future__ import annotations

from pathlib import Path

from dragoman.setup.install.clients import ACP_EDITORS, MCP_CLIENTS, Client

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "clients"

CASES = [
    *((client, name) for name, client in MCP_CLIENTS.items()),
    *((client, name) for name, client in ACP_EDITORS.items()),
]
"""Every program with the name of its sample."""


def name_of(value: object) -> str:
    return value.server if isinstance(value, Client) else str(value)


def sample(name: str) -> bytes:
    suffix = "toml" if name == "codex" else "json"
    return (FOLDER / f"{name}.{suffix}").read_bytes()


def as_windows_has_it(data: bytes) -> bytes:
    """With a byte order mark and the line ends of Windows."""
    return b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")
