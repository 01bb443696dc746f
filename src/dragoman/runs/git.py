"""Run git safely: fixed options and environment, timeout, output limit; stage files in an index.

A repository's configuration can name programs, and an archive or a peer may have written it. Hooks,
file system monitor, transports, askpass and pager are off; a filter runs only as the user's or the
system's configuration defines it (`own_filters`). `delegation.worktree` interprets the output.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.errors import FilterFailed, IsolationFailed, UsageError
from dragoman.transports.process.child import ShutdownTimes
from dragoman.transports.process.query import ProgramOutput, run_program

GIT_TIMEOUT: Final = 60.0
"""Timeout in seconds of one command. 100,000 files take a few seconds; a dead network mount must
not keep the user waiting forever."""

CHECKOUT_TIMEOUT: Final = 300.0
"""Timeout in seconds of a command that writes a whole checkout."""

OUTPUT_SIZE: Final = 256 * 1024 * 1024
"""Maximum size of output, in bytes: a list of more than a million files, or a patch too large to
read."""

COMPLAINT_SIZE: Final = 256 * 1024
"""Maximum number of bytes of stderr to read. It has a line for each file that a patch does not
apply to."""

LINKS_AT_ONCE: Final = 500
"""Maximum number of paths on one command line."""

TIMES: Final = ShutdownTimes(
    flush_timeout=0.0, exit_timeout=0.0, terminate_timeout=2.0, kill_timeout=2.0
)
"""Grace period after SIGTERM: git removes its lock files first."""

SAFE: Final = (
    "git", "--no-pager", "--no-replace-objects",
    "-c", "core.fsmonitor=", "-c", f"core.hooksPath={os.devnull}", "-c", "core.quotePath=false",
    "-c", "color.ui=false", "-c", "core.splitIndex=false", "-c", "core.safecrlf=false",
    "-c", "gc.auto=0", "-c", "advice.addEmbeddedRepo=false", "-c", "submodule.recurse=false",
    "-c", "commit.gpgSign=false", "-c", "protocol.allow=never", "-c", "log.showSignature=false",
    "-c", "credential.helper=", "-c", "core.askPass=", "-c", "core.sshCommand=false",
    "-c", "core.pager=cat", "-c", "core.alternateRefsCommand=true", "-c", "maintenance.auto=false",
)  # fmt: skip
"""The beginning of every command line."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    # Missing objects of a partial clone would be fetched by a program that the repository names.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ASKPASS": "",
    "GIT_SSH_COMMAND": "false",
    "GIT_EDITOR": ":",
    "LC_ALL": "C",
}

CONFIG_COUNT: Final = "GIT_CONFIG_COUNT"
"""Variable with the number of settings in the environment, which override configuration files."""

OLDEST_GIT: Final = (2, 31)
"""The first git version that reads settings from the environment."""

RUNNING: Final = frozenset(
    {"add", "apply", "checkout", "commit", "init", "read-tree", "update-index", "update-ref"}
    | {"worktree", "write-tree"}
)
"""Commands that run filters over files, or hooks because they change an index or a reference."""

COMMANDS: Final = frozenset({"clean", "smudge", "process"})
"""Filter settings that name a command."""

SWITCHES: Final = ("clean", "smudge", "process", "required")
"""All settings of a filter."""

HOOK_OFF: Final = (("enabled", "false"), ("event", ""))
"""Settings that disable a hook defined in the configuration. git 2.54 and newer run such hooks
wherever `core.hooksPath` points, and each has to be disabled by name."""

FILTER_FAILURE: Final = re.compile(
    r"(?:clean filter '(.*)'|smudge filter (.*)) failed$", re.MULTILINE
)
"""Matches git's message when a filter that a file requires did not run."""

FILTER_DIED: Final = "the remote end hung up unexpectedly"
"""git's message if a filter process ends while git waits for its first response. No command
here talks to any other process."""

_BROKEN: Final = (
    "of your git configuration does not work ({}). Install the program that it runs, or remove "
    "it from the configuration"
)


@dataclass(frozen=True, slots=True)
class Repository:
    """Directories of a repository."""

    top: Path
    """The top directory of the working tree."""
    git_folder: Path
    """Its own git directory: index and HEAD."""
    common_folder: Path
    """The git directory that all its worktrees share: objects, branches, configuration."""
    pinned: bool = False
    """Whether git gets these paths in its environment and ignores `.git` in the working tree."""

    @property
    def env(self) -> dict[str, str]:
        """The environment in which git finds this repository."""
        if not self.pinned:
            return {}
        return {"GIT_DIR": str(self.git_folder), "GIT_WORK_TREE": str(self.top)}


async def ask(
    args: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = GIT_TIMEOUT,
    limit_size: int = OUTPUT_SIZE,
) -> ProgramOutput:
    """Run git and return its output and exit code. Raises `SpawnError` if git cannot be started,
    and `IsolationFailed` if there are filters that this version of git cannot turn off. A command
    that exceeds `timeout` or `limit_size` is ended, and its output is marked as `cut`.

    Hooks, and filters that only the repository defines, never run, even if `env` was not made with
    `own_filters`.
    """
    env = {**ENVIRONMENT, **(env or {})}
    if not RUNNING.isdisjoint(args) and CONFIG_COUNT not in env:
        env |= await _filters(cwd, env, refuse=False)
    return await run_program(
        (*SAFE, *args),
        cwd=cwd,
        timeout=timeout,
        limit_size=limit_size,
        env=env,
        stderr_tail_size=COMPLAINT_SIZE,
        times=TIMES,
    )


async def demand(
    args: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = GIT_TIMEOUT,
) -> ProgramOutput:
    """Run git, and return its output. Raises `IsolationFailed` if git fails, and what `ask`
    raises."""
    answer = await ask(args, cwd=cwd, env=env, timeout=timeout)
    if not answer.ok:
        doing = f"`git {args[0]}` in {cwd}"
        raise filter_failure(answer, doing, env or {}) or IsolationFailed(
            doing, describe(answer, timeout)
        )
    return answer


def filter_failure(
    answer: ProgramOutput, doing: str, env: Mapping[str, str]
) -> FilterFailed | None:
    """Return the error if git failed because a required filter was refused or failed, or None if
    git failed for another reason."""
    found = FILTER_FAILURE.search(answer.errors)
    if found is None:
        if FILTER_DIED not in answer.errors:
            return None
        # The first line is the shell's message about the program.
        said = answer.errors.strip().partition("\n")[0]
        return FilterFailed(doing, f"a filter {_BROKEN.format(said)}", "")
    name = found[2] if found[1] is None else found[1]
    if name in _refused(env):
        problem = (
            f"the filter {name!r} is defined only by the repository, so it is not run. If you "
            f"trust it, define it in your own configuration (git config --global "
            f"filter.{name}.clean …), or work in the directory itself instead of a copy"
        )
    else:
        problem = f"the filter {name!r} {_BROKEN.format(describe(answer))}"
    return FilterFailed(doing, problem, name)


def describe(answer: ProgramOutput, timeout: float = GIT_TIMEOUT) -> str:
    """Return why git failed, in one line. `timeout` is the one with which it was run."""
    if answer.cut:
        return f"it did not end within {timeout:g} s or printed too much"
    lines = [line for line in answer.errors.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("fatal: ", "error: ")):
            return line.partition(": ")[2]
    return lines[-1] if lines else f"it ended with {answer.exit_code}"


def _refused(env: Mapping[str, str]) -> set[str]:
    """Return the filters that an `own_filters` environment refuses: those whose `process` setting
    is empty."""
    count = int(env.get(CONFIG_COUNT, "0"))
    empty = [
        env[f"GIT_CONFIG_KEY_{at}"] for at in range(count) if not env[f"GIT_CONFIG_VALUE_{at}"]
    ]
    return {key[len("filter.") : -len(".process")] for key in empty if key.endswith(".process")}


async def find_repository(folder: Path) -> tuple[Repository | None, str]:
    """Return the repository of a directory, or None and the reason if there is no usable one."""
    answer = await ask(
        ("rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir"), cwd=folder
    )
    if not answer.ok:
        return None, describe(answer)
    lines = answer.text.split("\n")
    if len(lines) != 3:
        return None, "the name of a directory contains a line break"
    top, git_folder, common = lines
    here = real(folder)
    found = next((each for each in (here, *here.parents) if has_repository(each)), None)
    if found is None or found != real(Path(top)):
        # An archive could otherwise have the files of another directory copied for a peer.
        return None, f"its configuration says that its files are in {top} (core.worktree)"
    # The last path is relative to the directory of the command.
    return Repository(Path(top), real(Path(git_folder)), real(folder / common)), ""


def real(path: Path) -> Path:
    """Return the path with symbolic links resolved."""
    return Path(os.path.realpath(path))


def real_folder(path: Path) -> Path:
    """Return the real path of a directory. Raises `UsageError` if it is not one."""
    folder = real(path)
    if not os.path.isdir(folder):
        raise UsageError(f"there is no directory {path}")
    return folder


def is_folder(path: Path) -> bool:
    """Return whether a path is a directory; False if that cannot be determined."""
    return os.path.isdir(path)


def has_repository(folder: Path) -> bool:
    """Return whether a directory is the top of a repository, valid or not."""
    return os.path.lexists(folder / ".git")


async def own_filters(
    repository: Repository, *, refuse: bool = False, env: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return an environment in which no hook and no filter from a repository's own configuration
    runs.

    Filters are commands that git runs over files. The author of an archive, or a peer that may
    write files, could have defined them. A filter that the user or the system also defines runs as
    they define it. With `refuse`, git fails at a file that needs any other filter (`filter_failure`
    turns that into an error); otherwise such a file is read unfiltered. `env` has additional
    variables for git.
    """
    return await _filters(repository.top, {**repository.env, **(env or {})}, refuse=refuse)


async def _filters(cwd: Path, env: Mapping[str, str], *, refuse: bool) -> dict[str, str]:
    told = ("config", "--includes", "--show-scope", "--null", "--get-regexp", r"^(filter|hook)\.")
    listed = await ask(told, cwd=cwd, env=env)
    if listed.cut or listed.exit_code not in (0, 1):
        # An older git does not report scopes. Without any filter that does not matter.
        plain = await ask((*told[:2], *told[3:]), cwd=cwd, env=env)
        if plain.ok or plain.cut:
            await _check_version(cwd)
            raise IsolationFailed("reading the filters of the repository", describe(listed))
    parts = [os.fsdecode(part) for part in listed.output.split(b"\0")]
    own: dict[str, set[str]] = {}
    trusted: dict[str, dict[str, str]] = {}
    hooks: dict[str, None] = {}
    for scope, entry in zip(parts[::2], parts[1::2], strict=False):
        key, equals, value = entry.partition("\n")
        section, _, rest = key.partition(".")
        # The name is between the first dot and the last one; it may contain dots, and may be empty.
        name, named, switch = rest.rpartition(".")
        if not named:
            continue
        if section == "hook":
            hooks[name] = None
        elif scope in ("system", "global"):
            # A key without a value is true.
            trusted.setdefault(name, {})[switch] = value if equals else "true"
        else:
            own.setdefault(name, set()).add(switch)
    if own:
        await _check_version(cwd)
    switches = [(f"hook.{name}.{key}", value) for name in hooks for key, value in HOOK_OFF]
    for name, said in own.items():
        values = trusted.get(name, {})
        if COMMANDS.isdisjoint(values) or ("process" in said and "process" not in values):
            # Disable the whole filter: it has no trusted command, or an untrusted `process`, which
            # takes precedence over trusted commands. An empty `process` overrides it, but git has
            # no way to unset it.
            values, said = {"required": "true" if refuse else "no"}, set(SWITCHES)
        for switch in SWITCHES:
            if switch in said:
                value = values.get(switch, "no" if switch == "required" else "")
                switches.append((f"filter.{name}.{switch}", value))
    # The count tells `ask` not to look for filters again.
    found = {CONFIG_COUNT: str(len(switches))}
    for number, (key, value) in enumerate(switches):
        found[f"GIT_CONFIG_KEY_{number}"] = key
        found[f"GIT_CONFIG_VALUE_{number}"] = value
    return found


async def _check_version(cwd: Path) -> None:
    """Raise `IsolationFailed` if this git does not read settings from the environment."""
    said = await ask(("version",), cwd=cwd)
    found = re.search(r"(\d+)\.(\d+)", said.text)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        oldest = ".".join(map(str, OLDEST_GIT))
        raise IsolationFailed(
            "disabling the filters of the repository",
            f"git {oldest} or newer is needed, and this is {said.text!r}",
        )


async def stage_everything(
    repository: Repository,
    folder: Path,
    index: Path,
    *,
    objects: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], ProgramOutput]:
    """Stage the current files in a separate index. Returns the environment in which git uses that
    index, and the output of git.

    Stages all tracked files, but only those untracked files that are below `folder`, because a
    repository may be a whole home directory. The user's index is only read. The contents go into
    `objects` if it is given, and into the repository otherwise.
    """
    copy_index(repository, index)  # Takes a few milliseconds for the largest index.
    filters = {} if env and CONFIG_COUNT in env else await own_filters(repository)
    env = {**repository.env, **filters, **(env or {}), "GIT_INDEX_FILE": str(index)}
    await _pass_over_links(repository, index, env)
    quick: tuple[str, ...] = ()
    if objects is not None:
        os.makedirs(objects, exist_ok=True)
        env["GIT_OBJECT_DIRECTORY"] = str(objects)
        env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(repository.common_folder / "objects")
        quick = ("-c", "core.looseCompression=0")
    # A file that cannot be read must not keep the others from being staged.
    add = (*quick, "add", "--ignore-errors")
    if folder != repository.top:
        answer = await ask((*add, "--update"), cwd=repository.top, env=env)
        if not answer.ok:
            return env, answer
    return env, await ask((*add, "--all", "--", "."), cwd=folder, env=env)


async def _pass_over_links(repository: Repository, index: Path, env: Mapping[str, str]) -> None:
    """Make git skip nested repositories in our index.

    git would otherwise run `git status` in each of them with the configuration found there. The
    caller handles nested repositories one by one instead.
    """
    if not _may_have_links(index):
        return
    listed = await ask(("ls-files", "--stage", "-z"), cwd=repository.top, env=env)
    names = [os.fsdecode(name) for name in links_of(listed.output)]
    for start in range(0, len(names), LINKS_AT_ONCE):
        some = names[start : start + LINKS_AT_ONCE]
        await ask(("update-index", "--skip-worktree", "--", *some), cwd=repository.top, env=env)


def links_of(listing: bytes) -> list[bytes]:
    """Return the paths of the nested repositories in the output of `git ls-files --stage -z`."""
    if b"160000 " not in listing:
        return []
    lines = listing.split(b"\0")
    return [line.partition(b"\t")[2] for line in lines if line.startswith(b"160000 ")]


def _may_have_links(index: Path) -> bool:
    """Return whether an index may have entries of nested repositories, judging by the bytes of
    their mode."""
    try:
        return b"\x00\x00\xe0\x00" in index.read_bytes()
    except OSError:
        return False


async def is_ignored(repository: Repository, folder: Path) -> bool:
    """Return whether git ignores a file or directory of the repository."""
    if folder == repository.top:
        return False
    return (await ask(("check-ignore", "--quiet", "--", str(folder)), cwd=repository.top)).ok


def copy_index(repository: Repository, index: Path) -> None:
    """Copy the user's index to `index`. Without one, there is no file at `index` afterwards.

    The copy keeps the original's time: git reads every file that is not older than its index, and
    would otherwise miss a change within the same clock tick.
    """
    try:
        shutil.copy2(repository.git_folder / "index", index)
    except FileNotFoundError:
        index.unlink(missing_ok=True)


def _quoted(path: Path) -> str:
    """Return a path quoted for a colon-separated list."""
    text = str(path)
    if os.pathsep not in text and not text.startswith('"'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
