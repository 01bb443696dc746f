"""Print changed files as a unified diff, coloured on a terminal.

The changes are values of `config.file_transaction`. Changes made by an agent are rendered in
`output.agent_changes`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dragoman.cli.output.terminal import paint_for, put

if TYPE_CHECKING:
    from dragoman.config.file_transaction import Change

COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def write_diff(
    changes: Iterable[Change], *, cwd: Path | None = None, stream: TextIO | None = None
) -> None:
    """Write the changes to `stream` (default: stdout). Paths in `cwd` are shown relative to it."""
    stream = stream or sys.stdout
    paint = paint_for(stream)
    for change in changes:
        text = change.diff()
        if cwd is not None and change.path.is_relative_to(cwd):
            text = text.replace(str(change.path), str(change.path.relative_to(cwd)))
        for line in text.splitlines():
            colour = "bold" if line.startswith(("---", "+++")) else COLOURS.get(line[:1])
            put(stream, paint(line, colour) if colour else line, "\n")
