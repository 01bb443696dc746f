"""Find writes outside the workspace in a peer's tool calls.

Uses only what the tool calls report. A command can write anywhere without reporting it, so an empty
result proves nothing. `snapshot` finds the changes inside the workspace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from dragoman.events.view import Tool
from dragoman.events.words import ChangeStage, ToolKind, ToolStatus

WRITING: Final = frozenset({ToolKind.EDIT, ToolKind.DELETE, ToolKind.MOVE})
"""Kinds of tools whose locations are files that they write. Other kinds list what they read."""

_NOT_DONE: Final = frozenset({ToolStatus.FAILED, ToolStatus.DECLINED, ToolStatus.CANCELLED})
_NOT_MADE: Final = frozenset({ChangeStage.PROPOSED, ChangeStage.DECLINED, ChangeStage.FAILED})


def outside_writes(tools: Iterable[Tool], roots: Sequence[Path]) -> tuple[str, ...]:
    """Return the files outside all `roots` that tool calls wrote, as real paths, each once.

    The first root is the workspace; relative paths are resolved against it.
    """
    real_roots = [os.path.realpath(root) for root in roots]
    found: dict[str, None] = {}
    for tool in tools:
        for name in written(tool):
            plain = _plain(name)
            if "\0" in plain:
                continue
            path = os.path.realpath(os.path.join(real_roots[0], plain))
            if not any(path == root or path.startswith(_inside(root)) for root in real_roots):
                found[path] = None
    return tuple(found)


def written(tool: Tool) -> list[str]:
    """Return the files that a tool call says it wrote; none if it was refused or failed."""
    if tool.status in _NOT_DONE:
        return []
    names: list[str] = []
    if tool.stage not in _NOT_MADE:
        for change in tool.changes:
            names.append(change.path)
            if change.old_path is not None:
                names.append(change.old_path)
        if tool.kind in WRITING:
            names += [location.path for location in tool.locations]
    return [name for name in dict.fromkeys(names) if name and "\0" not in name]


def _inside(root: str) -> str:
    return root if root.endswith(os.sep) else root + os.sep


def _plain(name: str) -> str:
    """Return a path as a plain one: that of a file URL, or with a leading ``~`` expanded."""
    if name.startswith("file://"):
        # Not `urlsplit`, which raises an error for an invalid host.
        place = re.split(r"[?#]", name.removeprefix("file://"), maxsplit=1)[0]
        _, slash, path = place.partition("/")
        return unquote(slash + path)
    return os.path.expanduser(name) if name.startswith("~") else name
