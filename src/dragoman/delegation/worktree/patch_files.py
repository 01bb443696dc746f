"""Split a git patch into its files: path, kind of change, line counts and hunks.

Parses the text only and needs no repository. `patch` and `uncommitted` create patches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from dragoman.events.words import FileOp

MAX_FILE_SIZE: Final = 200_000
"""Maximum number of characters of one file's hunks to return: more than a user reads."""

_HEAD: Final = b"diff --git "
_ESCAPES: Final = {
    b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v",
    b'"': b'"', b"\\": b"\\",
}  # fmt: skip
_ESCAPED: Final = re.compile(rb"\\([0-7]{3}|.)")


class PatchFile(Struct, frozen=True, kw_only=True):
    """The changes that a patch makes to one file."""

    path: str
    op: FileOp
    old_path: str | None = None
    """Its earlier path, if it was moved."""
    binary: bool = False
    added: int = 0
    removed: int = 0
    diff: str = ""
    """The hunks, from the first line that begins with ``@@``; empty for a binary file."""
    cut: bool = False
    """Whether `diff` is only the beginning."""


def files_in(patch: bytes) -> tuple[PatchFile, ...]:
    """Return the files of a patch, in order. Text before the first file is ignored."""
    return tuple(_file(lines) for lines in _pieces(patch))


def _pieces(patch: bytes) -> Iterator[list[bytes]]:
    piece: list[bytes] | None = None
    # Every content line starts with a sign, so only a header can begin like this.
    for line in patch.split(b"\n"):
        if line.startswith(_HEAD):
            if piece is not None:
                yield piece
            piece = []
        if piece is not None:
            piece.append(line)
    if piece is not None:
        yield piece


def _file(lines: list[bytes]) -> PatchFile:
    before = after = None
    op, binary, first = FileOp.MODIFY, False, len(lines)
    for number, line in enumerate(lines):
        if line.startswith(b"@@ "):
            first = number
            break
        if line.startswith(b"new file mode"):
            op = FileOp.ADD
        elif line.startswith(b"deleted file mode"):
            op = FileOp.DELETE
        elif line.startswith(b"rename from "):
            op, before = FileOp.MOVE, _unquoted(line.removeprefix(b"rename from "))
        elif line.startswith(b"rename to "):
            after = _unquoted(line.removeprefix(b"rename to "))
        elif line.startswith((b"GIT binary patch", b"Binary files ")):
            binary = True
        elif line.startswith(b"--- ") and op is not FileOp.MOVE:
            before = _without_prefix(line.removeprefix(b"--- "))
        elif line.startswith(b"+++ ") and op is not FileOp.MOVE:
            after = _without_prefix(line.removeprefix(b"+++ "))
    body = lines[first:]
    while body and not body[-1]:
        # Empty lines at the end come from the split, not from the hunks.
        body.pop()
    text = b"\n".join(body).decode("utf-8", "replace")
    path = after or before or _path_of_head(lines[0])
    return PatchFile(
        path=path.decode("utf-8", "backslashreplace"),
        op=op,
        old_path=before.decode("utf-8", "backslashreplace")
        if op is FileOp.MOVE and before is not None
        else None,
        binary=binary,
        added=sum(line.startswith(b"+") for line in body),
        removed=sum(line.startswith(b"-") for line in body),
        diff=text[:MAX_FILE_SIZE],
        cut=len(text) > MAX_FILE_SIZE,
    )


def _without_prefix(word: bytes) -> bytes | None:
    """Return the path of a ``---`` or ``+++`` line without ``a/`` or ``b/``, or None if there is no
    file."""
    name = _unquoted(word.removesuffix(b"\t"))
    return None if name == b"/dev/null" else name[2:]


def _path_of_head(line: bytes) -> bytes:
    """Return the path from the first line of a file's part of a patch, which contains it twice. For
    empty and binary files, the path is nowhere else."""
    rest = line.removeprefix(_HEAD)
    if rest.startswith(b'"'):
        return _unquoted(rest[: len(rest) // 2])[2:]
    # Both halves are equal except for their prefixes, so spaces in the path are unambiguous.
    return rest[: len(rest) // 2][2:]


def _unquoted(word: bytes) -> bytes:
    if not (len(word) > 1 and word.startswith(b'"') and word.endswith(b'"')):
        return word

    def plain(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if escape.isdigit() and len(escape) == 3:
            return bytes([int(escape, 8) & 0xFF])
        return _ESCAPES.get(escape, escape)

    return _ESCAPED.sub(plain, word[1:-1])
