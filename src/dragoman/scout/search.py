"""Search for words in all files of a directory, with ripgrep or, if it is missing, in Python.

The Python search reads every text file once, in a thread, and splits it into lines only if it
contains a term. Reading dominates: 50,000 small files take about half a second. Interpreting the
hits is left to `symbols` and `answers`.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from dragoman.client.services.worker_thread import check, in_thread
from dragoman.errors import SpawnError
from dragoman.scout import languages, programs, ripgrep
from dragoman.scout.file_walk import Walk
from dragoman.scout.hits import Hit, Query, window

SEARCH_TIMEOUT: Final = 45.0
"""Seconds after which our own search tells what it has found so far."""

READ_SIZE: Final = 64 * 1024
"""What is read at first. Nearly every source file fits, and a larger buffer is slower: it is
fetched from the operating system for each file anew (measured: five times as long)."""

BINARY_SIZE: Final = 8 * 1024
"""How far into a file a NUL byte is looked for, which no text has."""

_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    # Should a FIFO or a device have taken the place of the file, opening it returns at once.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)

Sink = Callable[[Hit], bool]
"""Gets each line that was found, in any order, and says whether more is wanted. It is called in one
thread at a time, which need not be that of the loop."""


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search went through."""

    engine: str
    files: int | None
    """How many files were looked into, where that is known."""
    unreadable: int = 0
    large: int = 0
    """Files that were passed over because of their size."""
    cut: bool = False
    """Whether it ended early: enough was found, or the time was up."""


async def search(root: str, query: Query, sink: Sink) -> Searched:
    """Hand over every line with one of the terms."""
    output = ripgrep.Output(sink, query)
    try:
        ran = await programs.run(ripgrep.command(query), cwd=root, on_output=output.feed)
    except SpawnError:
        pass  # It is not installed, or is no program.
    else:
        if output.searched is not None or ran.cut:
            return Searched("ripgrep", output.searched, cut=ran.cut)
        # It did not get as far as its summary: a version that does not know our options.
    return await in_thread(root, lambda stop: search_files(root, query, sink, stop))


def search_files(root: str, query: Query, sink: Sink, stop: threading.Event) -> Searched:
    """The same without help, in the thread of the caller."""
    terms = [os.fsencode(term) for term in query.terms]
    pattern = query.pattern()
    walk = Walk(root, query.under)
    give_up_at = time.monotonic() + SEARCH_TIMEOUT
    files = unreadable = large = 0
    # Joined by hand, here and nowhere else: for 50,000 files the difference can be felt.
    base = os.path.join(root, "")
    for path in walk.files(stop):
        files += 1
        if files % 256 == 0:
            check(stop)
            if time.monotonic() > give_up_at:
                return Searched("scout", files, unreadable, large, cut=True)
        if path.rpartition(".")[2] in languages.BINARY_ENDINGS:
            continue
        try:
            data = read_text(base + path)
        except TooLargeToSearch:
            large += 1
            continue
        except OSError:
            unreadable += 1
            continue
        if not any(term in data for term in terms):
            continue
        for line, raw, at in _lines(data, terms):
            text = window(raw, at)
            if pattern.search(text) and not sink(Hit(path, line, text)):
                return Searched("scout", files, unreadable, large, cut=True)
    return Searched("scout", files, unreadable + walk.unreadable, large, cut=walk.cut)


class TooLargeToSearch(Exception):
    """A file that is passed over because of its size."""


def read_text(path: str, *, binary: bool = False) -> bytes:
    """A whole text file; nothing if it is no text, unless that is wanted, too.

    Never follows a link and never waits.
    """
    fd = os.open(path, _FLAGS)
    try:
        data = os.read(fd, READ_SIZE)
        if not binary and b"\0" in data[:BINARY_SIZE]:
            return b""
        if len(data) < READ_SIZE:
            return data
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return b""
        if info.st_size > ripgrep.MAX_FILE_SIZE:
            raise TooLargeToSearch
        # Read and not mapped: a file that shrinks while it is mapped kills the process.
        chunks = [data]
        left = ripgrep.MAX_FILE_SIZE
        while data and left > 0:
            data = os.read(fd, min(left, 1024 * 1024))
            chunks.append(data)
            left -= len(data)
        return b"".join(chunks)
    finally:
        os.close(fd)


def _lines(data: bytes, terms: list[bytes]) -> Iterator[tuple[int, bytes, int]]:
    """Each line with a term in it: its number, its bytes around the term, where the term is."""
    number = 1
    start = 0
    for _ in range(ripgrep.MAX_LINES_PER_FILE):
        at = min((found for term in terms if (found := data.find(term, start)) >= 0), default=-1)
        if at < 0:
            return
        number += data.count(b"\n", start, at)
        begin = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield number, data[begin:end], at - begin
        start = end + 1
        number += 1
        if start >= len(data):
            return
