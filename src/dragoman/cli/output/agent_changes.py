"""Render the file changes of an agent as a few diff lines per file.

Uses the agent's diff, or computes one from the old and new text. `turn_text` colours the
lines.
"""

from __future__ import annotations

import os
from typing import Final

from dragoman.cli.output.escape import neutral
from dragoman.events.parts import FileChange
from dragoman.events.words import FileOp

SHOWN_LINES: Final = 40
"""Maximum number of diff lines shown per file, about a screenful, unless all are requested."""

COMPARED_SIZE: Final = 400_000
"""Maximum total characters of two texts to compare. Larger ones would take seconds."""

_WORDS: Final = {
    FileOp.ADD: "new file",
    FileOp.MODIFY: "changed",
    FileOp.DELETE: "deleted",
    FileOp.MOVE: "moved",
    FileOp.COPY: "copied",
    FileOp.UNKNOWN: "changed",
}


def lines_of(change: FileChange, *, limit: int | None = SHOWN_LINES) -> list[str]:
    """Return a heading and at most `limit` lines of the diff (None: all of them). If lines are left
    out, one more line says how many."""
    came_from = f" from {change.old_path}" if change.old_path else ""
    head = neutral(f"{change.path} ({_word(change)}{came_from})").replace("\n", " ")
    lines = _diff(change)
    if limit is not None and len(lines) > limit:
        lines = [*lines[:limit], f"… {len(lines) - limit} more lines (--verbose shows all)"]
    return [head, *lines]


def _word(change: FileChange) -> str:
    # Most agents send an empty old text for a new file as well as for an empty one.
    is_empty = change.op is FileOp.MODIFY and change.old_text == ""
    if is_empty and os.path.isabs(change.path) and not os.path.lexists(change.path):
        return _WORDS[FileOp.ADD]
    return _WORDS[change.op]


def _diff(change: FileChange) -> list[str]:
    if change.diff is not None:
        lines = neutral(change.diff).splitlines()
        # The heading already names the file.
        return [line for line in lines if not line.startswith(("--- ", "+++ ", "diff ", "index "))]
    old, new = change.old_text or "", change.new_text
    if new is None:
        return [] if change.op is FileOp.DELETE or not old else ["(the new text is unknown)"]
    if len(old) + len(new) > COMPARED_SIZE:
        return [f"(changed from {len(old)} to {len(new)} characters)"]
    import difflib  # Most turns show no change.

    before, after = neutral(old).splitlines(), neutral(new).splitlines()
    return list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
