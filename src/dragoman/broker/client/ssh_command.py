"""Build the `ssh` command line for another machine, and explain its failures.

The user's own SSH settings apply. No destination can become an option of `ssh`, and no argument a
second command in the remote shell: destinations are checked, and arguments are quoted. The module
`ssh` keeps a connection open, `ssh_once` runs one command; `config.hosts` checks the settings.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.config.hosts import destination_of, destination_problem, name_problem
from dragoman.config.schema import HostSettings
from dragoman.errors import (
    AuthRequired,
    DragomanError,
    FileFailed,
    HostUnavailable,
    ProcessExited,
    RemoteError,
    SpawnError,
    StoreFull,
    StoreRefused,
    UsageError,
)
from dragoman.errors.usage import nearest, shown
from dragoman.wire import codes

SSH_VARIABLE: Final = "DRAGOMAN_SSH"
"""The environment variable that names the program to use instead of `ssh`."""

FIXED: Final = ("-T", "-oBatchMode=yes", "-oForwardAgent=no", "-oClearAllForwardings=yes")
"""Options that apply regardless of the user's configuration: no terminal, no prompts, no agent
forwarding, no forwarded ports. They come first, because ssh uses the first value of an option."""

UNLESS_SET: Final = (
    *("-oServerAliveInterval=5", "-oServerAliveCountMax=3"),
    *("-oForwardX11=no", "-oControlMaster=no"),
)
"""Options that the settings of a host may override, but the user's configuration may not.

A dead connection is detected after 15 seconds; the system would need a quarter of an hour or
longer. An existing shared connection is used, but ours is not shared with other programs: it ends
with the command."""

NO_AGENT: Final = "-a"
"""Forbids agent forwarding once more. It comes last, because `-A` in the options of a host would
override `FIXED`."""


QUIET_REMEDY: Final = (
    "let the shell's startup files print only in a terminal: "
    "put `[ -t 1 ] || return` before the commands that print"
)
"""The remedy for a login shell that prints too much."""


@dataclass(frozen=True, slots=True)
class Host:
    """Another machine, as defined in the settings."""

    name: str
    settings: HostSettings

    @property
    def program(self) -> str:
        """The remote dragoman: a full path, or a name that the remote shell finds."""
        return self.settings.dragoman or "dragoman"


def host_named(name: str, hosts: Mapping[str, HostSettings]) -> Host:
    """Return the host of this name in the settings. Raises `UsageError` if there is none."""
    if name in hosts:
        return Host(name, hosts[name])
    if problem := name_problem(name):
        raise UsageError(problem)
    near = nearest(name, hosts)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(
        f"your settings have no host {shown(name)}{meant}; list the hosts with "
        f"`dragoman hosts list`, or add this one with `dragoman hosts add {name}`"
    )


def ssh_command(host: Host, words: Sequence[str]) -> list[str]:
    """Return the command line that runs these words on a host, each quoted for its shell. Raises
    `UsageError` if the destination of the host is not allowed."""
    destination = destination_of(host.name, host.settings)
    if problem := destination_problem(destination):
        raise UsageError(f"hosts.{host.name}.destination: {problem}")
    return [
        os.environ.get(SSH_VARIABLE) or "ssh",
        *FIXED,
        *host.settings.ssh_options,
        *UNLESS_SET,
        NO_AGENT,
        "--",
        destination,
        shlex.join(words),
    ]


def explain_spawn(host: Host, error: SpawnError) -> HostUnavailable:
    """Return the error for an ssh that could not be started, with its remedy."""
    install = f"install the OpenSSH client, or name the program in {SSH_VARIABLE}"
    return HostUnavailable(host.name, str(error), remedy=install)


def explain_exit(host: Host, error: ProcessExited) -> HostUnavailable:
    """Return the error, with a remedy, for an exit of ssh or of the remote dragoman."""
    name, program = host.name, host.program
    bootstrap = f"install dragoman there with `dragoman hosts bootstrap {name}`"
    check = f"see what is installed there with `dragoman hosts check {name}`"
    by_hand = f"try it manually: {by_hand_command(host)}"
    said = error.stderr_tail
    code = error.exit_code
    if code == 255:
        last = reason(said)
        for text, problem, remedy, passing in _SSH_FAILURES:
            if text in said:
                remedy = remedy.format(
                    destination=destination_of(name, host.settings),
                    name=name,
                    by_hand=by_hand_command(host),
                )
                return HostUnavailable(
                    name, f"{problem}: {last}", remedy=remedy or by_hand, passing=passing
                )
        return HostUnavailable(
            name, last or "ssh exited without a message", remedy=by_hand, passing=True
        )
    if code in (126, 127) or "No module named" in said:
        last = reason(said, program, "No module named", "not found", "No such file")
        if "No module named" in last:
            problem = f"{program} is incomplete there: {last}"
        elif "python" in last.replace(program, "").lower():
            problem = f"the Python of {program} was not found there: {last}"
            bootstrap = f"install Python there if it has none, and then {bootstrap}"
        elif code == 126:
            problem = f"{program} cannot be run there: {last}"
        else:
            problem = f"{program} or its Python was not found there: {last}"
        return HostUnavailable(name, problem, remedy=f"{bootstrap}; {check}")
    if "No such command" in said or "no such option" in said.lower():
        last = reason(said, "No such command", "no such option", "No such option")
        return HostUnavailable(
            name, f"dragoman there is too old for `--host`: {last}", remedy=bootstrap
        )
    if any(text in said for text in FULL):
        return _full(host, reason(said, *FULL))
    how = f"signal {error.signal}" if error.signal else f"exit code {code}"
    last = reason(said, OWN_ERROR).removeprefix(OWN_ERROR)
    return HostUnavailable(
        name,
        f"{program} exited before it answered ({how})" + (f": {last}" if last else ""),
        remedy=check,
        passing=error.signal is not None,
    )


def reason(said: str, *signs: str) -> str:
    """Return the line of stderr that says why a command failed: the last one with one of `signs`,
    or else the last one. The remote shell may print other lines, even when it ends."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for line in reversed(lines):
        if any(sign in line for sign in signs):
            return line
    return lines[-1] if lines else ""


def explain_remote(host: Host, error: DragomanError) -> DragomanError:
    """Return the error to raise for one that dragoman on the host reported. A full disk or a
    missing login on the host must not look like one on this machine. Whether the request may have
    run stays the same."""
    if isinstance(error, RemoteError) and error.code == codes.AUTH_REQUIRED:
        hint = f"log in to the agent on {host.name}: `{by_hand_command(host)}`"
        return AuthRequired(error.message, hint=hint, data=error.data)
    if isinstance(error, StoreFull) or any(text in str(error) for text in FULL):
        return _full(host, str(error), may_have_run=error.may_have_run)
    if isinstance(error, FileFailed | StoreRefused) or READ_ONLY in str(error):
        remedy = "check its permissions and those of its directory there"
        if READ_ONLY in str(error):
            remedy = (
                "have it mounted writable, or set DRAGOMAN_STATE_HOME there to another directory"
            )
        return HostUnavailable(
            host.name,
            f"a file there cannot be used: {error}",
            remedy=remedy,
            may_have_run=error.may_have_run,
        )
    if isinstance(error, SpawnError):
        # Without the name, the program would seem to be missing on this machine.
        error.args = (f"{host.name}: {error}",)
    return error


def _full(host: Host, problem: str, *, may_have_run: bool = False) -> HostUnavailable:
    return HostUnavailable(
        host.name,
        f"the disk there is full: {problem}",
        remedy="free some space there and try again",
        may_have_run=may_have_run,
    )


def by_hand_command(host: Host) -> str:
    """Return the command with which the user can log in to the host."""
    words = ["ssh", *host.settings.ssh_options, "--", destination_of(host.name, host.settings)]
    return shlex.join(words)


OWN_ERROR: Final = "dragoman: "
"""The beginning of the line in which dragoman says why it failed."""

FULL: Final = ("No space left on device", "Disk quota exceeded")
"""Messages of the system for a full disk."""

READ_ONLY: Final = "Read-only file system"
"""Message of the system for a disk that is mounted read-only."""

_SSH_FAILURES: Final = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key has changed",
        "if the machine was reinstalled, remove the old key with `ssh-keygen -R`; otherwise "
        "do not connect: another machine may be answering in its place",
        False,
    ),
    (
        "Host key verification failed",
        "the host key is unknown",
        "connect once manually and compare the key: {by_hand}",
        False,
    ),
    (
        "Permission denied (",
        "the host does not accept your key, or asks for a password, which dragoman cannot enter",
        "set up a key (ssh-copy-id {destination}), or load it into your agent with ssh-add",
        False,
    ),
    (
        "Too many authentication failures",
        "the host does not accept the offered keys",
        "name the right key with IdentityFile and IdentitiesOnly in ~/.ssh/config",
        False,
    ),
    (
        "Could not resolve hostname",
        "the host name cannot be resolved",
        "check the spelling, or set hosts.{name}.destination to its address",
        True,
    ),
    (
        "Connection refused",
        "no SSH server is listening there",
        "start sshd there, or check the port",
        True,
    ),
    (
        "Cannot execute command-line and remote command",
        "your SSH configuration has a RemoteCommand for this host",
        "add `-oRemoteCommand=none` to hosts.{name}.ssh_options in your settings",
        False,
    ),
    (
        "Unable to negotiate with",
        "the host and ssh on this machine have no key or cipher method in common",
        "update OpenSSH on the older machine, or set the method in ~/.ssh/config",
        False,
    ),
    ("Bad owner or permissions", "ssh rejects its configuration file", "", False),
    ("Bad configuration option", "ssh rejects its configuration file", "", False),
)
"""For each ssh message: what it means, what to do, and whether it may resolve itself."""
