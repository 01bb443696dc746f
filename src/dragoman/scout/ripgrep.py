"""Searching with ripgrep: what it is told, and what it answers.

Owns its command line and its JSON. The options make it look at the same files as `file_walk` does:
.gitignore files of the workspace count, and nothing that lies outside of it. It starts nothing:
`search` does.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.scout.gitignore import SKIPPED
from dragoman.scout.hits import Hit, Query, window

MAX_FILE_SIZE: Final = 32 * 1024 * 1024
"""Bytes of a file beyond which it is not searched: no source code is that large."""

MAX_LINES_PER_FILE: Final = 5000
"""Lines that are told of one file: a table of a million rows does not drown the rest."""

MAX_MESSAGE_SIZE: Final = 8 * 1024 * 1024
"""Bytes of one message that are kept while it arrives: a matching line longer than this (in a
minified file) is passed over."""

PROGRAM: Final = "rg"


class RipgrepText(msgspec.Struct):
    """Text, or bytes that are none, in base64."""

    text: str | None = None
    encoded: str | None = msgspec.field(default=None, name="bytes")

    def raw(self) -> bytes:
        if self.text is not None:
            return self.text.encode("utf-8", "replace")
        try:
            return base64.b64decode(self.encoded or "")
        except (binascii.Error, ValueError):
            return b""


class Span(msgspec.Struct):
    start: int


class RipgrepMatch(msgspec.Struct):
    path: RipgrepText
    lines: RipgrepText
    line_number: int | None = None
    submatches: list[Span] = []


class FoundMessage(msgspec.Struct):
    data: RipgrepMatch


class Stats(msgspec.Struct):
    searches: int = 0


class Summary(msgspec.Struct):
    stats: Stats


class SummaryMessage(msgspec.Struct):
    data: Summary


def command(query: Query) -> list[str]:
    """The command line, to be run in the root folder."""
    argv = [
        PROGRAM, "--json", "--no-config", "--no-messages", "--fixed-strings", "--hidden",
        "--no-require-git", "--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global",
        "--max-filesize", str(MAX_FILE_SIZE), "--max-count", str(MAX_LINES_PER_FILE),
    ]  # fmt: skip
    if query.words:
        argv.append("--word-regexp")
    if not query.under:
        # Above the workspace nothing counts. Below it, what stands above the folder does.
        argv.append("--no-ignore-parent")
    for name in sorted(SKIPPED):
        argv += ["--glob", f"!{name}"]
    for term in query.terms:
        argv += ["--regexp", term]
    return [*argv, "--", f"./{query.under}"]


class Output:
    """Reads the messages as they come and hands on what they tell."""

    def __init__(self, sink: Callable[[Hit], bool], query: Query) -> None:
        self.searched: int | None = None
        """How many files were searched; None until the end was told."""
        self._sink = sink
        self._pattern = query.pattern()
        self._rest = bytearray()
        self._passing_over = False
        self._match = msgspec.json.Decoder(FoundMessage)
        self._summary = msgspec.json.Decoder(SummaryMessage)

    def feed(self, data: bytes) -> bool:
        """More output came. False if nobody wants more."""
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        for line in lines:
            if self._passing_over:
                self._passing_over = False
            elif not self._message(line):
                return False
        if len(rest) > MAX_MESSAGE_SIZE:
            self._passing_over = True
            self._rest = bytearray()
        return True

    def _message(self, line: bytearray) -> bool:
        try:
            if line.startswith(b'{"type":"match"'):
                return self._found(self._match.decode(line).data)
            if b'"type":"summary"' in line:
                self.searched = self._summary.decode(line).data.stats.searches
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # A message of a kind that later versions may have.
        return True

    def _found(self, found: RipgrepMatch) -> bool:
        path = os.fsdecode(found.path.raw()).removeprefix("./")
        raw = found.lines.raw()
        at = found.submatches[0].start if found.submatches else 0
        text = window(raw, at)
        if not self._pattern.search(text):
            return True
        return self._sink(Hit(path.replace(os.sep, "/"), found.line_number or 1, text))
