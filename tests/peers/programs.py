"""The real programs that these tests talk to: how they are started, and in which surroundings.

Owns command lines and environments. What is installed, and where, is known by
scripts/peers/install.py, which `make test-peers` runs first.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.peers import install

PEERS = ("codex", "gemini", "qwen", "copilot")


def peer_program(name: str) -> list[str]:
    """The command line of codex, gemini, qwen or copilot, to which its arguments are added."""
    if not install.pins()[name].folder.is_dir():
        pytest.fail(f"{name} is not installed: run these tests with make test-peers")
    return install.program(name)


def sdk_folder() -> Path:
    """The folder with the node_modules of the official TypeScript SDK."""
    pin = install.pins()["acp-sdk"]
    if not pin.folder.is_dir():
        pytest.fail("the TypeScript SDK is not installed: run these tests with make test-peers")
    return pin.folder


def node_program() -> str:
    """The pinned node."""
    return str(install.node())


def peer_environment(home: Path) -> dict[str, str]:
    """What a peer finds in its environment: a home of its own, and the pinned programs before
    others, node first.

    Nothing in it leads to the configuration or the credentials of whoever runs the tests.
    """
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "PATH": os.pathsep.join([*_folders(), os.environ.get("PATH", os.defpath)]),
        "TERM": "dumb",
    }


def _folders() -> list[str]:
    """The folders with the pinned node and the peers' programs."""
    pins = install.pins()
    peers = (pins[name].folder / "node_modules" / ".bin" for name in PEERS)
    return [str(install.node().parent), *map(str, peers)]


def sdk_module() -> Path:
    """The module of the TypeScript SDK with the stable protocol."""
    return sdk_folder() / "node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js"
