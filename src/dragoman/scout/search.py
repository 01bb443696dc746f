"""Search all files of a directory, with ripgrep or, if it is missing, in Python.

ripgrep only finds the files with a match; lines are found and counted here, so that both searches
have the same results. Python alone reads every text file once, in a thread. Reading dominates:
50,000 small files take about half a second. `symbols` and `rank` evaluate the result.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from dragoman.errors import SpawnError
from dragoman.rpc.tasks import check, in_thread
from dragoman.scout.file_walk import MAX_FILE_SIZE, Walk, read_text
from dragoman.scout.gitignore import SKIPPED
from dragoman.scout.hits import Hit, window
from dragoman.transports.process.query import run_program

SEARCH_TIMEOUT: Final = 45.0
"""Seconds after which a search ends with its results so far."""

MAX_LINES_PER_FILE: Final = 5000
"""Maximum number of lines from one file: a table of a million rows must not drown the rest."""

MAX_COUNTED: Final = 20
"""Maximum number of matching lines counted per file and pattern: more make no difference."""

MAX_OUTPUT_SIZE: Final = 32 * 1024 * 1024
"""Maximum size of ripgrep's output, in bytes: the paths of some 300,000 files."""

RIPGREP: Final = (
    "rg", "--files-with-matches", "--null", "--no-unicode", "--no-config", "--no-messages",
    "--hidden", "--no-require-git", "--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global",
    "--max-filesize", str(MAX_FILE_SIZE),
    *(word for name in sorted(SKIPPED) for word in ("--glob", f"!{name}")),
)  # fmt: skip
"""The options make it search the same files as `file_walk`: .gitignore files of the workspace
count, and none outside it."""


@dataclass(slots=True)
class Found:
    """The files of a directory, and those that may have a match."""

    files: list[str]
    """All files; empty if they were not requested and ripgrep has found the matching ones."""
    matching: list[str] = field(default_factory=list)
    """Files to search, in order: those that ripgrep found, or all."""
    engine: str = "scout"
    unreadable: int = 0
    cut: bool = False
    """Whether the search ended early, because of too many files or the time limit."""


async def find_files_with(
    root: str, pattern: str, under: str = "", *, list_all: bool = False
) -> Found:
    """Find the files in which a pattern matches, below the directory `under`. The pattern is a
    regular expression without Unicode.

    Only ripgrep uses the pattern. Without ripgrep, `Found.matching` contains all files.
    """
    walk = Walk(root, under)
    found = Found([])
    matching = await _ask_ripgrep(root, pattern, under, found)
    if matching is None or list_all:
        found.files = await in_thread(root, lambda stop: list(walk.files(stop)))
        found.unreadable, found.cut = walk.unreadable, found.cut or walk.cut
    found.matching = found.files if matching is None else matching
    found.engine = "scout" if matching is None else "ripgrep"
    return found


async def _ask_ripgrep(root: str, pattern: str, under: str, found: Found) -> list[str] | None:
    """Return the matching files; None if ripgrep is missing or does not know our options. Notes in
    `found` whether the search ended early."""
    # Ignore files above the workspace do not count. Inside it, those above the directory do.
    above = () if under else ("--no-ignore-parent",)
    argv = [*RIPGREP, *above, "--regexp", pattern, "--", f"./{under}"]
    try:
        ran = await run_program(argv, cwd=root, limit_size=MAX_OUTPUT_SIZE, timeout=SEARCH_TIMEOUT)
    except SpawnError:
        return None
    if ran.exit_code not in (0, 1, None) and not ran.output:
        return None
    found.cut = ran.cut
    paths = os.fsdecode(ran.output).split("\0")[:-1]
    return sorted(path.removeprefix("./").replace(os.sep, "/") for path in paths)


def count_lines(
    root: str, patterns: Mapping[str, str], found: Found, stop: threading.Event
) -> dict[str, dict[str, int]]:
    """Return how many lines of each file match each pattern, up to `MAX_COUNTED`, without files
    that have no match.

    The key of each pattern is a word in lower case that every matching line contains; there it may
    have capital letters.
    """
    compiled = [(word, compile_bytes(pattern)) for word, pattern in patterns.items()]
    counted: dict[str, dict[str, int]] = {}
    for path, data in _read_all(root, found, stop):
        # Most files do not contain the word, and a plain search shows that much faster than a
        # pattern.
        lower = data.lower()
        counts = {
            word: number
            for word, pattern in compiled
            if os.fsencode(word) in lower
            and (number := sum(1 for _ in islice(_lines(data, pattern), MAX_COUNTED)))
        }
        if counts:
            counted[path] = counts
    return counted


def lines_with(root: str, pattern: str, found: Found, stop: threading.Event) -> Iterator[Hit]:
    """Yield the lines of `found.matching` that match a pattern, up to `MAX_LINES_PER_FILE` of each
    file."""
    compiled = compile_bytes(pattern)
    for path, data in _read_all(root, found, stop):
        for number, line, at in _lines(data, compiled):
            yield Hit(path, number, window(line, at))


def compile_bytes(pattern: str) -> re.Pattern[bytes]:
    """Return a pattern for the bytes of a file."""
    return re.compile(os.fsencode(pattern), re.MULTILINE)


def _read_all(root: str, found: Found, stop: threading.Event) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each file to search, for at most `SEARCH_TIMEOUT`."""
    give_up_at = time.monotonic() + SEARCH_TIMEOUT
    for number, path in enumerate(found.matching):
        if number % 256 == 0:
            check(stop)
            if time.monotonic() > give_up_at:
                found.cut = True
                return
        try:
            data = read_text(root, path)
        except OSError:
            found.unreadable += 1
            continue
        yield path, data


def _lines(data: bytes, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, bytes, int]]:
    """Yield each matching line, up to `MAX_LINES_PER_FILE`: its number, its bytes, and where in it
    the match begins."""
    number = 1
    start = counted = 0
    for _ in range(MAX_LINES_PER_FILE):
        found = pattern.search(data, start)
        if found is None:
            return
        # A pattern may begin with the line break before the word.
        at = found.start() + (data[found.start() : found.start() + 1] == b"\n")
        number += data.count(b"\n", counted, at)
        begin = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield number, data[begin:end], at - begin
        counted, start = at, end
        if start >= len(data):
            return
