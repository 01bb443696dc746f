"""Search all files of a directory, with ripgrep or, if it is missing, in Python.

ripgrep only finds the files that have something; lines are found and counted here, so that both
searches find the same. Python alone reads every text file once, in a thread. Reading dominates:
50,000 small files take about half a second. What was found is judged by `symbols` and `rank`.
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
"""Seconds after which a search ends with what it has found so far."""

MAX_LINES_PER_FILE: Final = 5000
"""Lines that are taken of one file: a table of a million rows does not drown the rest."""

MAX_COUNTED: Final = 20
"""Lines of a file that are counted for one pattern: more make no difference to anyone."""

MAX_OUTPUT_SIZE: Final = 32 * 1024 * 1024
"""Bytes of ripgrep's output: the paths of some 300,000 files."""

RIPGREP: Final = (
    "rg", "--files-with-matches", "--null", "--no-unicode", "--no-config", "--no-messages",
    "--hidden", "--no-require-git", "--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global",
    "--max-filesize", str(MAX_FILE_SIZE),
    *(word for name in sorted(SKIPPED) for word in ("--glob", f"!{name}")),
)  # fmt: skip
"""The options make it look at the same files as `file_walk` does: .gitignore files of the
workspace count, and nothing that lies outside of it."""


@dataclass(slots=True)
class Found:
    """The files of a directory, and those that may have something."""

    files: list[str]
    """All files; empty if they were not asked for and ripgrep did without."""
    matching: list[str] = field(default_factory=list)
    """Files to look into, in order: those that ripgrep found, or all."""
    engine: str = "scout"
    unreadable: int = 0
    cut: bool = False
    """Whether it ended early: there are too many files, or the time was up."""


async def find_files_with(
    root: str, pattern: str, under: str = "", *, list_all: bool = False
) -> Found:
    """Find the files below a folder that fit a pattern, a regular expression without Unicode.

    Only ripgrep reads the pattern. Without it all files are to be looked into.
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
    """The files that fit; None without ripgrep, or with one that does not know our options."""
    # Above the workspace no ignore file counts. Below it, what stands above the folder does.
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
    """How many lines of each file fit each of some patterns; files without any are left out.

    The key of each pattern is a word that every line contains that fits, in capitals or not.
    """
    compiled = [(word, compile_bytes(pattern)) for word, pattern in patterns.items()]
    counted: dict[str, dict[str, int]] = {}
    for path, data in _read_all(root, found, stop):
        # Most files do not have a word, which a plain search tells much sooner than a pattern.
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
    """The lines that fit a pattern."""
    compiled = compile_bytes(pattern)
    for path, data in _read_all(root, found, stop):
        for number, line, at in _lines(data, compiled):
            yield Hit(path, number, window(line, at))


def compile_bytes(pattern: str) -> re.Pattern[bytes]:
    """A pattern for the bytes of a file."""
    return re.compile(os.fsencode(pattern), re.MULTILINE)


def _read_all(root: str, found: Found, stop: threading.Event) -> Iterator[tuple[str, bytes]]:
    """The files to look into, as long as there is time."""
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
    """Each line that fits: its number, its bytes, where in it the pattern begins to fit."""
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
