"""The options `--send` and `--fetch` of commands with `--host`.

They are removed from the command line before the command runs: `--send` adds the remote directory
as ``--cwd``, `--fetch` applies the changes after the command has succeeded. `cli.host_option` runs
the command, `cli.host_files` transfers the files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.cli.exit_codes import ExitCode
from dragoman.cli.output.terminal import put_err
from dragoman.errors import DragomanError, UsageError

SEND: Final = "--send"
SEND_IGNORED: Final = "--send-ignored"
FETCH: Final = "--fetch"
FETCH_BRANCH: Final = "--fetch-branch"
WITH_FILES: Final = ("run", "delegate")
"""Commands that can send and fetch files."""


@dataclass(slots=True)
class FileOptions:
    """The options for sending and fetching files."""

    send: bool = False
    ignored: bool = False
    fetch: bool = False
    branch: str = ""


def are_in(words: Sequence[str]) -> bool:
    """Return whether a command line has an option for sending or fetching files."""
    before = words[: words.index("--")] if "--" in words else words
    return any(word == SEND or word.startswith((FETCH, SEND_IGNORED)) for word in before)


def taken(words: Sequence[str]) -> tuple[FileOptions, list[str]]:
    """Split a command line into the options for sending and fetching files, and the other words.
    Raises `UsageError` if --fetch-branch has no name."""
    found, rest = FileOptions(), []
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if word == "--":
            rest += [word, *left]
        elif word == SEND:
            found.send = True
        elif word == SEND_IGNORED:
            found.send = found.ignored = True
        elif word == FETCH:
            found.fetch = True
        elif name == FETCH_BRANCH:
            found.fetch, found.branch = True, value if equals else next(left, "")
            if not found.branch or found.branch.startswith("-"):
                raise UsageError(f"{FETCH_BRANCH} takes the name of a new branch")
        else:
            rest.append(word)
    return found, rest


def run_with_files(
    host: str | None, words: Sequence[str], call: Callable[[Sequence[str]], object]
) -> int:
    """Run a command line that has options for sending or fetching files, and do what these say.

    `words` do not contain `--host`; `call` runs a command line and raises `SystemExit`. Returns the
    exit code. Raises `UsageError` if the options cannot be used with the command.
    """
    options, rest = taken(words)
    command = next((word for word in rest if not word.startswith("-")), "")
    if host is None:
        raise UsageError(f"{_named(options)} is for work on another machine: add --host NAME")
    if command not in WITH_FILES:
        raise UsageError(f"{_named(options)} can only be used with {' and '.join(WITH_FILES)}")
    if options.fetch and not options.send:
        raise UsageError(
            f"{FETCH} needs {SEND}; fetch the changes of an earlier job with "
            f"`dragoman hosts fetch {host} JOB`"
        )
    if options.fetch and "--no-wait" in rest:
        raise UsageError(
            f"{FETCH} has to wait until the job ends: omit --no-wait, or fetch later with "
            f"`dragoman hosts fetch {host} JOB`"
        )
    at = rest.index(command) + 1
    # The directory on this machine to send.
    here, others = _folder(rest[at:])
    return _sent_and_run(host, here, options, [*rest[:at], "--cwd"], others, call)


def _folder(words: Sequence[str]) -> tuple[Path, list[str]]:
    """Return the directory that `--cwd` names, or the current one, and the other words."""
    here, rest = Path.cwd(), []
    left = iter(words)
    for word in left:
        if word == "--":
            rest += [word, *left]
        elif word == "--cwd":
            here = Path(next(left, "."))
        elif word.startswith("--cwd="):
            here = Path(word.partition("=")[2])
        else:
            rest.append(word)
    return here, rest


def _sent_and_run(
    name: str,
    here: Path,
    options: FileOptions,
    before: list[str],
    after: list[str],
    call: Callable[[Sequence[str]], object],
) -> int:
    from dragoman.cli.host_files import fetch, send
    from dragoman.cli.hosts import host_of_settings

    host = host_of_settings(name)
    sent = send(host, here, ignored=options.ignored, branch=options.branch)
    try:
        code = _exit_code(call, ["--host", name, *before, sent.workspace, *after])
    except DragomanError:
        put_err(
            f"dragoman: fetch the changes made there with `dragoman hosts fetch {name} {sent.id}`\n"
        )
        raise
    if not options.fetch:
        put_err(f"dragoman: fetch the changes with `dragoman hosts fetch {name} {sent.id}`\n")
        return code
    if code != ExitCode.OK:
        put_err(
            "dragoman: the changes were not fetched, because the command did not succeed; fetch "
            f"them with `dragoman hosts fetch {name} {sent.id}`\n"
        )
        return code
    try:
        fitted = asyncio.run(fetch(host, here, id=sent.id, branch=options.branch, put=put_err))
    except DragomanError:
        put_err(
            "dragoman: the changes were not fetched; try again with "
            f"`dragoman hosts fetch {name} {sent.id}`\n"
        )
        raise
    return ExitCode.OK if fitted else ExitCode.FAILED


def _exit_code(call: Callable[[Sequence[str]], object], words: Sequence[str]) -> int:
    try:
        call(words)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    return int(ExitCode.OK)


def _named(options: FileOptions) -> str:
    return SEND if options.send else FETCH
