"""Folders as a caller names them.

Owns what a relative path or a `~` means. It looks at no disk: whether a folder exists is for the
agent to find out. What may be read and written inside one is in `services.workspace`.
"""

from __future__ import annotations

from pathlib import Path


def absolute(path: str | Path) -> Path:
    """The folder from the root, seen from where we are."""
    return Path(path).expanduser().absolute()
