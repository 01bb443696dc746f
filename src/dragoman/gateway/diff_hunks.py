"""Parse the hunks of a unified diff into pairs of old and new text.

ACP v1 shows a file change as an old and a new text, so each hunk becomes one pair. Input that is
not the diff of one file returns an empty list; `events_to_acp` then shows the diff as text.
"""

from __future__ import annotations

import re
from typing import Final

_HEADER: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")

_NO_NEWLINE: Final = "\\"
"""Begins the line which says that the one before it has no newline in the file."""


def hunks_of(diff: str) -> list[tuple[str, str]]:
    """The text before and after each hunk; nothing if this is not the diff of one file."""
    # Not splitlines, which also cuts at characters that are ordinary ones in a file.
    lines = diff.removesuffix("\n").split("\n")
    pairs: list[tuple[str, str]] = []
    at = 0
    while at < len(lines):
        header = _HEADER.match(lines[at])
        at += 1
        if header is None:
            if pairs:
                return []
            continue
        old, new = (1 if count is None else int(count) for count in header.groups())
        before: list[str] = []
        after: list[str] = []
        while at < len(lines) and (len(before) < old or len(after) < new or _bare(lines[at])):
            line = lines[at]
            at += 1
            if _bare(line):
                _cut(before, after, lines[at - 2])
            elif line[:1] in (" ", ""):
                before.append(line[1:] + "\n")
                after.append(line[1:] + "\n")
            elif line[0] == "-":
                before.append(line[1:] + "\n")
            elif line[0] == "+":
                after.append(line[1:] + "\n")
            else:
                return []
        if (len(before), len(after)) != (old, new):
            return []
        pairs.append(("".join(before), "".join(after)))
    return pairs


def _bare(line: str) -> bool:
    return line.startswith(_NO_NEWLINE)


def _cut(before: list[str], after: list[str], line: str) -> None:
    """The line before had no newline, on the sides on which it stands."""
    for lines, other in ((before, "+"), (after, "-")):
        if lines and not line.startswith(other):
            lines[-1] = lines[-1].removesuffix("\n")
