"""Version report of dragoman, Python and libraries, for `dragoman --version` and `dragoman doctor`.

Starts no agent and opens no connection.
"""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Final

import dragoman

LIBRARIES: Final = ("msgspec", "websockets", "typer", "rich")
"""Libraries whose behaviour affects ours."""


def report() -> str:
    """Format the relevant versions, one per line, dragoman first."""
    parts = [
        f"dragoman {dragoman.__version__}",
        f"{platform.python_implementation()} {platform.python_version()} on {sys.platform}",
    ]
    parts.extend(f"{name} {metadata.version(name)}" for name in LIBRARIES)
    return "\n".join(parts) + "\n"
