"""What git tells about a folder, without letting the repository run anything.

Owns the command lines of git, what keeps a hostile repository from having its own programs run by
them, and the reading of their output. A checkout can name commands in its configuration (a file
system monitor, a signature checker, filters, hooks, a transport): all of them are switched off, and
only subcommands are used that compare no file contents. It does not know what is done with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dragoman.errors import SpawnError
from dragoman.scout import programs
from dragoman.scout.intents import Changes

DEFAULT_COUNT: Final = 10
MAX_COUNT: Final = 200
"""Commits that are told of."""

MAX_OUTPUT_SIZE: Final = 4 * 1024 * 1024
"""Bytes of git's output that are read."""

SAFE: Final = (
    "git", "--no-pager", "--no-replace-objects",
    "-c", "core.fsmonitor=", "-c", f"core.hooksPath={os.devnull}",
    "-c", "log.showSignature=false", "-c", "core.quotePath=false", "-c", "color.ui=false",
    "-c", "protocol.allow=never", "-c", "submodule.recurse=false", "--literal-pathspecs",
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


def log_command(asked: Changes) -> list[str]:
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


def status_commands(path: str) -> list[list[str]]:
    """The command lines that ask for what is not committed: staged, changed, new.

    Not `git status`, which reads changed files by way of the filters that the repository names.
    """
    where = ["--", path or "."]
    raw = ["--raw", "-z", "--relative", "--no-renames", "--no-ext-diff", "--no-textconv"]
    ignored = "--ignore-submodules=all"
    return [
        [*SAFE, "diff-index", "--cached", *raw, ignored, "HEAD", *where],
        [*SAFE, "diff-files", *raw, ignored, *where],
        [*SAFE, "ls-files", "-z", "--others", "--exclude-standard", *where],
    ]


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


def parse_names(output: bytes) -> list[Touched]:
    """The files in a plain list of names."""
    return [Touched(name, "new") for name in os.fsdecode(output).split("\0") if name]


async def find_history(root: str, asked: Changes) -> History:
    """What changed in a folder. Raises `NoHistory` where nobody can tell."""
    ran, output = await _git(root, log_command(asked))
    complaint = ran.complaint.strip()
    if ran.exit_code not in (0, None) and "does not have any commits" not in complaint:
        if "not a git repository" in complaint or not complaint:
            raise NoHistory("this folder is not in a git repository")
        raise NoHistory(complaint.splitlines()[-1][:300])
    commits = parse_log(output)
    uncommitted: dict[str, Touched] = {}
    if not asked.author:
        readers = (parse_raw, parse_raw, parse_names)
        for argv, read in zip(status_commands(asked.path), readers, strict=True):
            ended, listed = await _git(root, argv)
            if ended.exit_code == 0:
                for touched in read(listed):
                    uncommitted.setdefault(touched.path, touched)
    return History(tuple(commits), tuple(uncommitted.values()), ran.cut)


async def _git(root: str, argv: list[str]) -> tuple[programs.Ran, bytes]:
    try:
        return await programs.collect(argv, cwd=root, limit_size=MAX_OUTPUT_SIZE, env=ENVIRONMENT)
    except SpawnError:
        raise NoHistory("git is not installed here") from None
