"""scout as a child process of a test: how it is started, and which programs it can see.

It owns the surroundings: a state folder of its own, and a PATH with git, and with ripgrep or
without it. What is asked is the business of the tests.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dragoman import connect
from dragoman.client.conversation import Peer
from scripts.peers import install

COMMAND = [sys.executable, "-P", "-m", "dragoman.scout"]

WAIT_TIMEOUT = 40.0
"""Seconds until a wait is a failure. Generous, because the machine may be busy with other tests."""

SOURCE = Path(__file__).resolve().parents[2] / "src"

_PLACE = re.compile(r"`([^`\n]+):(\d+)`")


def find_ripgrep() -> str | None:
    """A ripgrep of this machine: installed, or one that a peer brought along."""
    found = shutil.which("rg")
    if found is None:
        brought = install.cache().glob("codex-*/node_modules/@openai/*/vendor/*/codex-path/rg")
        found = next((str(path) for path in brought if os.access(path, os.X_OK)), None)
    return found


def programs(folder: Path, *names: str) -> str:
    """A PATH with these programs and no others; `rg` may be anywhere on this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        found = find_ripgrep() if name == "rg" else shutil.which(name)
        assert found is not None, f"{name} is not installed"
        if not (folder / name).exists():
            (folder / name).symlink_to(found)
    return str(folder)


@asynccontextmanager
async def scout(
    workspace: Path, state: Path, *, path: str | None = None, **options: Any
) -> AsyncIterator[Peer]:
    """A running scout, started as anybody would start it."""
    env = {"DRAGOMAN_STATE_HOME": str(state), "PYTHONPATH": str(SOURCE)}
    if path is not None:
        env["PATH"] = path
    async with connect(COMMAND, workspace=workspace, env=env, **options) as peer:
        yield peer


def places(text: str) -> list[str]:
    """The places that an answer names, in order."""
    return [f"{path}:{line}" for path, line in _PLACE.findall(text)]
