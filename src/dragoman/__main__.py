"""`python -m dragoman`: what is installed here, as a bug report needs it.

It knows the versions and nothing else; it starts no agent and opens no connection.
"""

from __future__ import annotations

import platform
import sys
from importlib import metadata

import dragoman


def report() -> str:
    """One line per thing whose version matters."""
    parts = [
        f"dragoman {dragoman.__version__}",
        f"{platform.python_implementation()} {platform.python_version()} on {sys.platform}",
    ]
    parts.extend(f"{name} {metadata.version(name)}" for name in ("msgspec", "websockets"))
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(report())
