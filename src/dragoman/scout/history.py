"""What git tells about a folder, without letting the repository run anything.

Owns the command lines of git, what keeps a hostile repository from having its own programs run by
them, and the reading of their output. A checkout can name commands in its configuration (a file
system monitor, a signature checker, hooks, a transport): all of them are switched off, and what has
no switch (the filters through which contents are compared) is not asked for: which files changed is
found out here, from the list of what git last saw. It does not know what is done with it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dragoman.client.services.worker_thread import check, in_thread
from dragoman.errors import SpawnError
from dragoman.scout import programs
from dragoman.scout.intents import RecentChanges
from dragoman.scout.search import TooLargeToSearch, read_text

DEFAULT_COUNT: Final = 10
MAX_COUNT: Final = 200
"""Commits that are told of."""

MAX_OUTPUT_SIZE: Final = 4 * 1024 * 1024
"""Bytes of git's output that are read."""

MAX_INDEX_SIZE: Final = 64 * 1024 * 1024
"""Bytes of the list of files that are read: some 200,000 files."""

SAFE: Final = (
    "git", "--no-pager", "--no-replace-objects",
    "-c", "core.fsmonitor=", "-c", f"core.hooksPath={os.devnull}",
    "-c", "log.showSignature=false", "-c", "core.quotePath=false", "-c", "color.ui=false",
    "-c", "protocol.allow=never", "-c", "submodule.recurse=false", "--literal-pathspecs",
    "-c", "credential.helper=", "-c", "core.askPass=", "-c", "core.sshCommand=false",
    "-c", "core.pager=cat", "-c", "core.alternateRefsCommand=true",
)  # fmt: skip
"""How every command line begins."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    # Missing objects of a partial clone would be fetched, by a program that the repository names.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "LC_ALL": "C",
}

_FIELD: Final = "\x1f"
_RECORD: Final = "\x1e"
_FORMAT: Final = "%x1e" + "%x1f".join(("%H", "%h", "%an", "%as", "%ar", "%s")) + "%x1f"
_STATES: Final = {"A": "added", "D": "deleted", "M": "changed", "R": "renamed", "T": "changed"}


@dataclass(frozen=True, slots=True)
class Touched:
    """A file, and what happened to it."""

    path: str
    how: str


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit, with the files it touched below the folder."""

    id: str
    short_id: str
    author: str
    date: str
    age: str
    subject: str
    files: tuple[Touched, ...]


@dataclass(frozen=True, slots=True)
class History:
    """What was found out."""

    commits: tuple[Commit, ...]
    uncommitted: tuple[Touched, ...]
    cut: bool = False


class NoHistory(Exception):
    """There is no git here, or no repository. The text says which."""


def log_command(asked: RecentChanges) -> list[str]:
    """The command line that asks for commits."""
    count = min(asked.count or DEFAULT_COUNT, MAX_COUNT)
    argv = [
        *SAFE, "log", f"--max-count={count}", f"--format={_FORMAT}", "--name-status", "-z",
        "--relative", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
        "--no-show-signature", "--no-decorate", "--no-mailmap",
    ]  # fmt: skip
    if asked.since:
        argv.append(f"--since={asked.since}")
    if asked.author:
        argv += [f"--author={asked.author}", "--regexp-ignore-case", "--fixed-strings"]
    return [*argv, "--", asked.path or "."]


def staged_command(path: str) -> list[str]:
    """The command line that asks for what is staged."""
    return [
        *SAFE, "diff-index", "--cached", "--raw", "-z", "--relative", "--no-renames",
        "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "HEAD", "--", path or ".",
    ]  # fmt: skip


def new_command(path: str) -> list[str]:
    """The command line that asks for files that git does not know."""
    return [*SAFE, "ls-files", "-z", "--others", "--exclude-standard", "--", path or "."]


def index_command(path: str) -> list[str]:
    """The command line that asks for the files that git knows, and how it last saw them.

    Neither `git status` nor `git diff-files` will do: both read files by way of the filters that
    the repository names.
    """
    return [*SAFE, "ls-files", "-z", "-t", "--stage", "--debug", "--", path or "."]


def parse_log(output: bytes) -> list[Commit]:
    """The commits in the output of `log_command`."""
    commits = []
    for record in os.fsdecode(output).split(_RECORD)[1:]:
        fields = record.split(_FIELD)
        if len(fields) < 7:
            continue  # The output was cut in the middle of this one.
        id, short_id, author, date, age, subject = fields[:6]
        words = [word for word in fields[6].lstrip("\0\n").split("\0") if word]
        files = tuple(
            Touched(path, _STATES.get(state.strip()[:1], "changed"))
            for state, path in zip(words[::2], words[1::2], strict=False)
        )
        commits.append(Commit(id, short_id, author, date, age, subject, files))
    return commits


def parse_raw(output: bytes) -> list[Touched]:
    """The files in the output of git's raw differences."""
    words = os.fsdecode(output).split("\0")
    return [
        Touched(path, _STATES.get(head.rsplit(" ", 1)[-1][:1], "changed"))
        for head, path in zip(words[::2], words[1::2], strict=False)
        if head.startswith(":") and path
    ]


@dataclass(frozen=True, slots=True)
class FileHistory:
    """A file as git last saw it."""

    path: str
    digest: str
    modified_at: int
    """In nanoseconds."""
    size: int


_SEEN: Final = re.compile(
    # The mark H is for ordinary files; S is for those that are left out of a sparse checkout.
    r"H 100\d{3} (?P<digest>[0-9a-f]{40,64}) 0\t(?P<path>[^\0]+)\0"
    r"\s*ctime: \d+:\d+\s+mtime: (?P<seconds>\d+):(?P<nanos>\d+)\s+dev: \d+\s+ino: \d+"
    r"\s+uid: \d+\s+gid: \d+\s+size: (?P<size>\d+)"
)


def parse_index(output: bytes) -> list[FileHistory]:
    """The files in the output of `index_command`. Where git words it differently there are none."""
    return [
        FileHistory(
            found["path"],
            found["digest"],
            int(found["seconds"]) * 10**9 + int(found["nanos"]),
            int(found["size"]),
        )
        for found in _SEEN.finditer(os.fsdecode(output))
    ]


def compare(root: str, seen: Iterable[FileHistory], stop: threading.Event) -> list[Touched]:
    """Those of the files that are not any more as git saw them."""
    changed = []
    for number, each in enumerate(seen):
        if number % 256 == 0:
            check(stop)
        path = os.path.join(root, each.path)
        try:
            info = os.lstat(path)
        except OSError:
            changed.append(Touched(each.path, "deleted"))
            continue
        if info.st_size == each.size and info.st_mtime_ns == each.modified_at:
            continue
        if info.st_size != each.size or _digest(path, len(each.digest)) != each.digest:
            changed.append(Touched(each.path, "changed"))
    return changed


def _digest(path: str, length: int) -> str:
    """The name that git gives to the contents of a file, if no filter comes between."""
    from hashlib import sha1, sha256

    try:
        data = read_text(path, binary=True)
    except (OSError, TooLargeToSearch):
        return ""
    made = sha1 if length == 40 else sha256
    return made(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def parse_names(output: bytes) -> list[Touched]:
    """The files in a plain list of names."""
    return [Touched(name, "new") for name in os.fsdecode(output).split("\0") if name]


async def find_history(root: str, asked: RecentChanges) -> History:
    """What changed in a folder. Raises `NoHistory` where nobody can tell."""
    ran, output = await _git(root, log_command(asked))
    complaint = ran.complaint.strip()
    if ran.exit_code not in (0, None) and "does not have any commits" not in complaint:
        if "not a git repository" in complaint or not complaint:
            raise NoHistory("this folder is not in a git repository")
        raise NoHistory(complaint.splitlines()[-1][:300])
    commits = parse_log(output)
    uncommitted = {} if asked.author else await _uncommitted(root, asked.path)
    return History(tuple(commits), tuple(uncommitted.values()), ran.cut)


async def _uncommitted(root: str, path: str) -> dict[str, Touched]:
    """What is changed and not committed: staged, changed since then, new."""
    found: dict[str, Touched] = {}
    _, staged = await _git(root, staged_command(path))
    _, index = await _git(root, index_command(path), limit_size=MAX_INDEX_SIZE)
    changed = await in_thread(root, lambda stop: compare(root, parse_index(index), stop))
    _, new = await _git(root, new_command(path))
    for touched in (*parse_raw(staged), *changed, *parse_names(new)):
        found.setdefault(touched.path, touched)
    return found


async def _git(
    root: str, argv: list[str], *, limit_size: int = MAX_OUTPUT_SIZE
) -> tuple[programs.Ran, bytes]:
    try:
        return await programs.collect(argv, cwd=root, limit_size=limit_size, env=ENVIRONMENT)
    except SpawnError:
        raise NoHistory("git is not installed here") from None
