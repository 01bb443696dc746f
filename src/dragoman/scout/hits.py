"""Prepare a found line for display: decoded, cut to a window around the match, without control
characters."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

MAX_BEFORE: Final = 400
MAX_AFTER: Final = 600
"""Maximum number of bytes of a line to keep before and after the match. Lines written by people are
shorter; lines of minified files can have megabytes."""

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that affect terminals, or cannot be sent at all."""


class Hit(NamedTuple):
    """One line of one file; line 0 stands for the file as a whole."""

    path: str
    """Path relative to the root, with slashes; bytes that are not UTF-8 are surrogates, as returned
    by `os.fsdecode`."""
    line: int
    text: str


def window(line: bytes, at: int) -> str:
    """Return the text of a line around the byte position `at`, decoded and cleaned."""
    start = max(0, at - MAX_BEFORE)
    text = line[start : at + MAX_AFTER].decode("utf-8", "replace").rstrip("\r\n")
    # There is text before it, so it must not look like the start of a line.
    return clean(("… " if start else "") + text)


def clean(text: str) -> str:
    """Return a text in which characters that affect a terminal or cannot be sent are replaced."""
    return _CONTROLS.sub("\ufffd", text)


def shown_path(path: str) -> str:
    """Return a path as text on one line; bytes that are not UTF-8 are replaced."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return clean(text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t"))


def is_text_path(path: str) -> bool:
    """Return whether a client that gets the path as text can open the file."""
    return shown_path(path) == path
