"""Parse a .gitignore file and decide whether it excludes a path.

The last matching line decides, ``!`` includes again, and a pattern with a slash is anchored at the
directory of the file. Pure: `file_walk` finds and reads the files.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_LINES: Final = 5000
"""Maximum number of lines read from one file: more than any real file has, few enough to stay
fast."""

SKIPPED: Final = frozenset(
    {
        ".git", ".hg", ".svn", ".bzr", ".jj",
        "node_modules", "bower_components", "__pycache__", ".venv", ".tox", ".nox",
        ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".gradle", ".terraform",
    }
)  # fmt: skip
"""Directories that are never entered: they contain histories, caches and third-party code, and
exist even in a repository without a .gitignore."""


class _Line(NamedTuple):
    keeps_out: bool
    folders_only: bool
    by_name: bool
    pattern: re.Pattern[str]


class IgnoreFile:
    """The rules of one .gitignore file, for the paths below its directory."""

    __slots__ = ("_any_name", "_any_path", "_lines")

    def __init__(self, text: str) -> None:
        self._lines = [
            line for raw in text.splitlines()[:MAX_LINES] if (line := _parse(raw)) is not None
        ]
        self._lines.reverse()
        # For nearly every name, one match shows that no rule applies.
        self._any_name = _union([line.pattern for line in self._lines if line.by_name])
        self._any_path = _union([line.pattern for line in self._lines if not line.by_name])

    def __bool__(self) -> bool:
        return bool(self._lines)

    def decide(self, path: str, name: str, *, is_folder: bool) -> bool | None:
        """Return whether a path (relative to the file's directory) is ignored, or None if no rule
        matches."""
        named = self._any_name is not None and self._any_name.fullmatch(name)
        placed = self._any_path is not None and self._any_path.fullmatch(path)
        if not named and not placed:
            return None
        for line in self._lines:
            if line.folders_only and not is_folder:
                continue
            if line.pattern.fullmatch(name if line.by_name else path):
                return line.keeps_out
        return None


def _union(patterns: list[re.Pattern[str]]) -> re.Pattern[str] | None:
    return re.compile("|".join(each.pattern for each in patterns)) if patterns else None


def _parse(raw: str) -> _Line | None:
    text = raw.rstrip("\r\n")
    if text.startswith("#") or len(text) > 1000:
        return None
    # Trailing spaces do not count, unless one is escaped.
    stripped = text.rstrip(" ")
    if stripped.endswith("\\") and stripped != text:
        stripped += " "
    text = stripped
    keeps_out = not text.startswith("!")
    if not keeps_out:
        text = text[1:]
    folders_only = text.endswith("/")
    text = text.rstrip("/") if folders_only else text
    by_name = "/" not in text
    text = text.lstrip("/")
    if not text:
        return None
    if not by_name and text.startswith("**/") and "/" not in text[3:]:
        text, by_name = text[3:], True
    try:
        return _Line(keeps_out, folders_only, by_name, re.compile(f"(?:{translate(text)})"))
    except re.error:
        # A set such as [z-a], which git does not accept as a pattern either.
        return None


def translate(glob: str) -> str:
    """Return a git pattern as a regular expression for a whole path."""
    # Repeated stars mean the same as one or two, but would make matching slow.
    glob = re.sub(r"\*{3,}", "**", glob)
    out: list[str] = []
    at = 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            out.append("(?:[^/]+/)*")
            at += 3
        elif glob[at:] == "**" and (at == 0 or glob[at - 1] == "/"):
            out.append(".+")
            at += 2
        elif char == "*":
            out.append("[^/]*")
            while glob[at : at + 1] == "*":
                at += 1
        elif char == "?":
            out.append("[^/]")
            at += 1
        elif char == "[":
            end = glob.find("]", at + 2)
            if end < 0:
                out.append(r"\[")
                at += 1
            else:
                inner = glob[at + 1 : end].replace("\\", "\\\\")
                inner = f"^{inner[1:]}" if inner[0] in "!^" else inner
                out.append(f"(?!/)[{inner}]")
                at = end + 1
        elif char == "\\" and at + 1 < len(glob):
            out.append(re.escape(glob[at + 1]))
            at += 2
        else:
            out.append(re.escape(char))
            at += 1
    return "".join(out)
