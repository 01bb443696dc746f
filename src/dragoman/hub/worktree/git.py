"""git, as a program that is run for its answer.

Owns the beginning of every command line and the environment, the bounds on time and output, and
where a repository has its parts. A repository can name programs in its configuration: hooks, a file
system monitor and transports are switched off here, and so are filters that the repository itself
defines, where a peer may have written them (`own_filters`). Filters of the user's own configuration
run, as with every `git status`. What the answers mean, `snapshot` and `isolation` know.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.errors import ConnectionLost, IsolationFailed, UsageError
from dragoman.rpc.tasks import finish
from dragoman.transports import spawn
from dragoman.transports.child import ShutdownTimes

GIT_TIMEOUT: Final = 60.0
"""Seconds for one command. Looking at 100,000 files takes a few; a dead network mount does not
keep the user waiting for ever."""

CHECKOUT_TIMEOUT: Final = 300.0
"""Seconds for a command that writes a whole checkout."""

OUTPUT_SIZE: Final = 256 * 1024 * 1024
"""Bytes of an answer: a list of more than a million files, or a patch that nobody reads."""

COMPLAINT_SIZE: Final = 256 * 1024
"""Bytes of what git says about what went wrong: every file that a patch does not fit has a line."""

LINKS_AT_ONCE: Final = 500
"""Paths on one command line, which has its limits."""

TIMES: Final = ShutdownTimes(
    flush_timeout=0.0, exit_timeout=0.0, terminate_timeout=2.0, kill_timeout=2.0
)
"""Asked to end, git removes its lock files first, which takes a moment."""

SAFE: Final = (
    "git", "--no-pager", "--no-replace-objects",
    "-c", "core.fsmonitor=", "-c", f"core.hooksPath={os.devnull}", "-c", "core.quotePath=false",
    "-c", "color.ui=false", "-c", "core.splitIndex=false", "-c", "core.safecrlf=false",
    "-c", "gc.auto=0", "-c", "advice.addEmbeddedRepo=false", "-c", "submodule.recurse=false",
    "-c", "commit.gpgSign=false", "-c", "protocol.allow=never",
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What git said. The exit code is None if it was ended before its time or killed."""

    exit_code: int | None
    output: bytes
    complaint: str
    cut: bool = False
    """Whether time or room was up."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.cut

    @property
    def text(self) -> str:
        """The output as one text, for answers that are a name or a number."""
        return os.fsdecode(self.output).rstrip("\n")


@dataclass(frozen=True, slots=True)
class Repository:
    """Where a repository has its parts."""

    top: Path
    """The folder with the files."""
    git_folder: Path
    """Its own folder of git: index and HEAD."""
    common_folder: Path
    """The folder that all its worktrees share: objects, branches, configuration."""
    pinned: bool = False
    """Whether git is told where these are, and does not believe the `.git` in the files."""

    @property
    def env(self) -> dict[str, str]:
        """The environment in which git finds this repository."""
        if not self.pinned:
            return {}
        return {"GIT_DIR": str(self.git_folder), "GIT_WORK_TREE": str(self.top)}


class _Collector:
    def __init__(self, limit_size: int) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.kept = bytearray()
        self.cut = False
        self._limit_size = limit_size

    def data_received(self, data: bytes) -> None:
        if self.over.done():
            return
        self.kept += data
        if len(self.kept) > self._limit_size:
            self.cut = True
            self.over.set_result(None)

    def stream_ended(self, failure: ConnectionLost) -> None:
        if not self.over.done():
            self.over.set_result(None)


async def ask(
    args: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = GIT_TIMEOUT,
    limit_size: int = OUTPUT_SIZE,
) -> Answer:
    """Run git to its end. `SpawnError` if there is none; what git says otherwise is the answer."""
    stream = await spawn(
        (*SAFE, *args),
        cwd=cwd,
        env={**ENVIRONMENT, **(env or {})},
        stderr_tail_size=COMPLAINT_SIZE,
        times=TIMES,
    )
    collector = _Collector(limit_size)
    try:
        stream.start(collector)
        await asyncio.wait([collector.over], timeout=timeout)
        cut = collector.cut or not collector.over.done()
        exit_code = stream.exit_code
    finally:
        await finish(stream.aclose())
    return Answer(exit_code, bytes(collector.kept), stream.stderr_tail(), cut)


async def demand(
    args: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = GIT_TIMEOUT,
) -> Answer:
    """Run git; `IsolationFailed` unless it did what it was told."""
    answer = await ask(args, cwd=cwd, env=env, timeout=timeout)
    if not answer.ok:
        raise IsolationFailed(f"`git {args[0]}` in {cwd}", describe(answer, timeout))
    return answer


def describe(answer: Answer, timeout: float = GIT_TIMEOUT) -> str:
    """What went wrong, in a line."""
    if answer.cut:
        return f"it did not end within {timeout:g} s or printed too much"
    lines = [line for line in answer.complaint.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("fatal: ", "error: ")):
            return line.partition(": ")[2]
    return lines[-1] if lines else f"it ended with {answer.exit_code}"


async def find_repository(folder: Path) -> tuple[Repository | None, str]:
    """The repository that a folder is in; None and the reason where there is none to work with."""
    answer = await ask(
        ("rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir"), cwd=folder
    )
    if not answer.ok:
        return None, describe(answer)
    lines = answer.text.split("\n")
    if len(lines) != 3:
        return None, "the name of a folder has a line break in it"
    top, git_folder, common = lines
    # The last one is told relative to where the question was asked.
    return Repository(Path(top), real(Path(git_folder)), real(folder / common)), ""


def real(path: Path) -> Path:
    """A path without links."""
    return Path(os.path.realpath(path))


def real_folder(path: Path) -> Path:
    """A folder's path without links; `UsageError` if there is no such folder."""
    folder = real(path)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {path}")
    return folder


def is_folder(path: Path) -> bool:
    return path.is_dir()


def has_repository(folder: Path) -> bool:
    """Whether a folder is the top of a repository, working or not."""
    return os.path.lexists(folder / ".git")


async def own_filters(repository: Repository) -> dict[str, str]:
    """An environment in which the filters of a repository's own configuration do not run.

    They are commands that git runs over files, with many of its commands. A peer that may write
    files could have written them, and must not have them run by our look at what it did.
    """
    told = (
        "config",
        "--local",
        "--includes",
        "--null",
        "--name-only",
        "--get-regexp",
        r"^filter\.",
    )
    names = await ask(told, cwd=repository.top, env=repository.env)
    # Between the first dot and the last one, there may be others.
    keys = (os.fsdecode(key).partition(".")[2] for key in names.output.split(b"\0"))
    switches = [
        (f"filter.{name}.{switch}", value)
        for name in dict.fromkeys(key.rpartition(".")[0] for key in keys)
        for switch, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "no"))
        if name
    ]
    env = {"GIT_CONFIG_COUNT": str(len(switches))} if switches else {}
    for number, (key, value) in enumerate(switches):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env


async def stage_everything(
    repository: Repository,
    folder: Path,
    index: Path,
    *,
    objects: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], Answer]:
    """Put the files as they are now into an index of their own, and how that went.

    All that is tracked, and what is untracked in `folder`: a repository may be a whole home.
    Returns the environment with which git uses this index. The user's index is only read. The
    contents go into `objects`, where one is given, and into the repository otherwise.
    """
    copy_index(repository, index)  # Some milliseconds, for the largest of them.
    env = {**repository.env, **(env or {}), "GIT_INDEX_FILE": str(index)}
    await _pass_over_links(repository, index, env)
    quick: tuple[str, ...] = ()
    if objects is not None:
        os.makedirs(objects, exist_ok=True)
        env["GIT_OBJECT_DIRECTORY"] = str(objects)
        env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(repository.common_folder / "objects")
        quick = ("-c", "core.looseCompression=0")
    # A file that cannot be read shall not keep the others from being looked at.
    add = (*quick, "add", "--ignore-errors")
    if folder != repository.top:
        answer = await ask((*add, "--update"), cwd=repository.top, env=env)
        if not answer.ok:
            return env, answer
    return env, await ask((*add, "--all", "--", "."), cwd=folder, env=env)


async def _pass_over_links(repository: Repository, index: Path, env: Mapping[str, str]) -> None:
    """Let git leave nested repositories alone in an index of ours.

    It would run `git status` in each of them, by the configuration that it finds there. They are
    looked into one by one, with the care that each needs.
    """
    if not _may_have_links(index):
        return
    listed = await ask(("ls-files", "--stage", "-z"), cwd=repository.top, env=env)
    names = [os.fsdecode(name) for name in links_of(listed.output)]
    for start in range(0, len(names), LINKS_AT_ONCE):
        some = names[start : start + LINKS_AT_ONCE]
        await ask(("update-index", "--skip-worktree", "--", *some), cwd=repository.top, env=env)


def links_of(listing: bytes) -> list[bytes]:
    """The nested repositories in what `git ls-files --stage -z` says."""
    if b"160000 " not in listing:
        return []
    lines = listing.split(b"\0")
    return [line.partition(b"\t")[2] for line in lines if line.startswith(b"160000 ")]


def _may_have_links(index: Path) -> bool:
    """Whether an index has entries of nested repositories, by the bytes of their mode."""
    try:
        return b"\x00\x00\xe0\x00" in index.read_bytes()
    except OSError:
        return False


async def is_ignored(repository: Repository, folder: Path) -> bool:
    """Whether git looks away from a folder of its repository."""
    if folder == repository.top:
        return False
    return (await ask(("check-ignore", "--quiet", "--", str(folder)), cwd=repository.top)).ok


def copy_index(repository: Repository, index: Path) -> None:
    """A copy of the user's index; none where it is not there yet.

    The copy keeps the time of the original: git looks into every file that is not older than its
    index, and would otherwise overlook a change within the same tick of the clock.
    """
    try:
        shutil.copy2(repository.git_folder / "index", index)
    except FileNotFoundError:
        index.unlink(missing_ok=True)


def _quoted(path: Path) -> str:
    """A path for a list that is separated by colons."""
    text = str(path)
    if os.pathsep not in text and not text.startswith('"'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
