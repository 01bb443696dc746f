"""The option `--host`, before or after a command: run the command on another machine.

`run`, `chat` and `jobs watch` have the option themselves and render the remote events. The commands
in `RELAYED` are run by the remote dragoman, and their output is shown here (`cli.host_command`).
`cli.host_send` handles the options that send and fetch files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from dragoman.cli import host_send
from dragoman.errors import UsageError

HELP_WORDS: Final = ("-h", "--help")

OWN: Final = ("run", "chat")
"""Commands that parse the option themselves."""

RELAYED: Final = (
    *("delegate", "sessions", "jobs", "peers", "broker"),
    *("explain", "stats", "verdict", "ledger", "policy", "doctor"),
)
"""Commands that the remote dragoman runs."""

LOCAL: Final = ("hosts",)
"""Commands that are never run on a host."""


def placed(words: Sequence[str], call: Callable[[Sequence[str]], object]) -> list[str]:
    """Return the command line to run on this machine, with `--host` behind a command that parses
    the option itself. ``jobs fetch`` becomes ``hosts fetch``, and a request for help loses the
    option.

    Two kinds of commands are run at once and end the process: those that the host runs, and those
    that send or fetch files, which are run with `call`. Raises `UsageError` if the command cannot
    be used with `--host`.
    """
    host, rest = split(words)
    command = next((word for word in rest if not word.startswith("-")), None)
    if command in LOCAL:
        return list(words)
    asks_help = any(word in HELP_WORDS for word in rest)
    if host is not None and rest[:2] == ["jobs", "fetch"]:
        return ["hosts", "fetch", *rest[2:]] if asks_help else ["hosts", "fetch", host, *rest[2:]]
    if host_send.are_in(rest) and not asks_help:
        sys.exit(host_send.run_with_files(host, rest, call))
    if host is None or command is None:
        return list(words)
    if asks_help:
        return rest
    at = rest.index(command) + 1
    if command == "jobs" and rest[at : at + 1] == ["watch"]:
        at += 1
    elif command not in OWN:
        if command not in RELAYED:
            known = ", ".join((*OWN, *RELAYED))
            raise UsageError(f"--host cannot be used with {command}, only with {known}")
        from dragoman.cli.host_command import run_there

        sys.exit(run_there(host, rest))
    return [*rest[:at], "--host", host, *rest[at:]]


def split(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split a command line into the value of --host, or None without this option, and the other
    words. Raises `UsageError` if the option has no value."""
    host: str | None = None
    rest: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            rest += [word, *left]
        elif word == "--host":
            host = next(left, None)
            if host is None or host.startswith("-"):
                raise UsageError("--host takes the name of a host; see `dragoman hosts list`")
        elif word.startswith("--host="):
            host = word.partition("=")[2]
        else:
            rest.append(word)
    return host, rest
