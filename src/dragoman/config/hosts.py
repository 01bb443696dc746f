"""Validate ``[hosts.NAME]``: names, SSH destinations and paths that are safe on a command line.

`config.schema` has the keys, `config.load` ignores the table in a project's file, and
`dragoman.broker.client` connects.
"""

from __future__ import annotations

import re
from typing import Final

from dragoman.config.schema import ON_HOST, HostSettings
from dragoman.config.validate import short
from dragoman.errors import ConfigInvalid

HOST_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
"""The form of a host's name in the settings. A dot would split the key, and a leading hyphen would
turn the name into an option."""

UNSAFE: Final = re.compile(r"[\x00-\x20\x7f]")
"""Characters that are not allowed in a destination: a space or a control character is a mistake or
an attack."""


SHELL: Final = re.compile(r"""[`'"$\\;&<>|(){}]""")
"""Characters that are not valid in the host part of a destination: a `ProxyCommand` or `Match exec`
of the user's SSH configuration passes it to a shell."""


def check_host(name: str, host: HostSettings, *, origin: str) -> None:
    """Raise `ConfigInvalid` unless the name and the values of a host are valid."""
    key = f"hosts.{short(name)}"
    problem = name_problem(name)
    if problem:
        raise ConfigInvalid(origin, problem, key="hosts")
    if host.destination is not None and (problem := destination_problem(host.destination)):
        raise ConfigInvalid(origin, problem, key=f"{key}.destination")
    for setting, value in (("dragoman", host.dragoman), ("workspace", host.workspace)):
        if value is not None and (not value.startswith("/") or "\0" in value or "\n" in value):
            problem = (
                f"{short(value)!r} is not an absolute path, or contains a line break or a null byte"
            )
            raise ConfigInvalid(origin, problem, key=f"{key}.{setting}")
    if any("\0" in option for option in host.ssh_options):
        raise ConfigInvalid(origin, "an option contains a null byte", key=f"{key}.ssh_options")


def name_problem(name: str) -> str:
    """Return why a text cannot be the name of a host, or an empty string if it can."""
    if HOST_NAME.fullmatch(name):
        return ""
    return (
        f"{short(name)!r} is not a valid host name in the settings: use letters, digits, `_` and "
        "`-`, not starting with `-`; put the address into `destination`"
    )


def destination_problem(destination: str) -> str:
    """Return why a text cannot be an SSH destination, or an empty string if it can.

    `ssh` would treat one that begins with a hyphen as an option, even after ``user@``.
    """
    if not destination:
        return "it is empty"
    host = destination.removeprefix("ssh://").rpartition("@")[2]
    if destination.startswith("-") or host.startswith("-") or not host:
        return (
            f"{short(destination)!r} is not a valid destination: it begins with `-` or has no host"
        )
    if UNSAFE.search(destination):
        return (
            f"{short(destination)!r} is not a valid destination: it contains a space or a control "
            "character"
        )
    if SHELL.search(host):
        return (
            f"{short(destination)!r} is not a valid destination: it contains a character that a "
            "shell would interpret"
        )
    return ""


def split_peer(name: str) -> tuple[str, str | None]:
    """Split a name such as ``codex@box`` into the peer and the host; None if it has no host."""
    peer, at, host = name.partition(ON_HOST)
    return peer, host if at else None


def on_host(peer: str, host: str) -> str:
    """Return the name of a peer on a host, such as ``codex@box``."""
    return f"{peer}{ON_HOST}{host}"


def destination_of(name: str, host: HostSettings) -> str:
    """Return the SSH destination of a host, which is its name unless the settings give another
    one."""
    return host.destination if host.destination is not None else name
