"""Convert a TOML table to a peer descriptor and validate it.

Checks what types cannot express: names, roles, launches, quirks that need a certain protocol, and
that there are no secrets. `ConfigInvalid` names the file and the key. `catalogue.load` supplies the
tables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from dragoman.catalogue.descriptor import PYTHON, Descriptor, Launch
from dragoman.client.options import ADDRESSES, AUTO
from dragoman.config.validate import ROLE, VARIABLE, convert, refuse_secrets
from dragoman.dialects.discovery import ACP, CODEX, DIALECTS, dialect_named
from dragoman.errors import ConfigInvalid, UsageError
from dragoman.wire.framing import MIN_LINE_SIZE

NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
MAX_NAME_SIZE: Final = 64
"""Maximum length of a name: names become file and directory names."""

RESERVED: Final = frozenset({"none", "all"})
"""Words that have another meaning in places that name a peer."""


def describe(
    table: Mapping[str, Any], *, origin: str, folder: Path | None = None, key: str = ""
) -> Descriptor:
    """Convert a table to a descriptor. With `folder`, program paths in launch commands are resolved
    against it. Raises `ConfigInvalid`."""
    refuse_secrets(dict(table), origin=origin, base=key)
    descriptor = convert(dict(table), Descriptor, origin=origin, base=key)
    check(descriptor, origin=origin, key=key)
    return descriptor if folder is None else _absolute(descriptor, folder)


def check(descriptor: Descriptor, *, origin: str, key: str = "") -> None:
    """Raise `ConfigInvalid` for mistakes that the types alone cannot exclude."""

    def refuse(place: str, problem: str) -> None:
        raise ConfigInvalid(origin, problem, key=f"{key}.{place}" if key else place)

    name = descriptor.name
    if NAME.fullmatch(name) is None or len(name) > MAX_NAME_SIZE:
        refuse(
            "name",
            f"{name!r} is not a valid name: use at most {MAX_NAME_SIZE} lower-case letters, digits "
            "and single hyphens, starting with a letter",
        )
    if name in RESERVED:
        refuse("name", f"{name!r} is reserved and cannot be the name of a peer")
    if not descriptor.title.strip():
        refuse("title", "it is empty")
    if not descriptor.launch:
        refuse("launch", "it needs at least one entry, with a command or an address")
    for number, launch in enumerate(descriptor.launch):
        problem = _launch_problem(launch)
        if problem:
            refuse(f"launch[{number}]", problem)
    if descriptor.protocol != AUTO and not _is_dialect(descriptor.protocol):
        try:
            meant = dialect_named(descriptor.protocol)
        except UsageError as error:
            refuse("protocol", str(error))
        else:
            refuse("protocol", f"{descriptor.protocol!r} is called {meant!r} here")
    for place, roles in (("roles", descriptor.roles), ("role_prefixes", descriptor.role_prefixes)):
        for role in roles:
            if ROLE.fullmatch(role) is None:
                refuse(
                    place,
                    f"{role!r} is not a valid role: use lower-case letters, digits and single "
                    "hyphens, starting with a letter",
                )
    if len(set(descriptor.roles)) != len(descriptor.roles):
        refuse("roles", "a role is listed twice")
    for role in descriptor.role_prefixes:
        if role not in descriptor.roles:
            refuse("role_prefixes", f"{role!r} is not among the roles")
    _check_names(descriptor, refuse)
    _check_quirks(descriptor, refuse)
    _check_enforcement(descriptor, refuse)


def _is_dialect(name: str) -> bool:
    if name in DIALECTS:
        return True
    # Not at the top: only descriptors with a dialect of a package need it.
    from dragoman.client.legacy.registry import is_registered

    return is_registered(name)


def _launch_problem(launch: Launch) -> str:
    if bool(launch.command) == (launch.address is not None):
        return "set either a command or an address, not both"
    if launch.command and not launch.command[0].strip():
        return "the program is empty"
    if any("\0" in word for word in launch.command):
        return "the command contains a null character"
    if launch.address is not None and not launch.address.startswith(ADDRESSES):
        return f"{launch.address!r} is not an address: use unix:/path, ws://… or wss://…"
    return ""


def _check_names(descriptor: Descriptor, refuse: Any) -> None:
    for place, names in (
        ("env", descriptor.env),
        ("enforcement.env", descriptor.enforcement.env),
        ("mcp.env", descriptor.mcp.env),
        ("credentials.env", descriptor.credentials.env),
        ("credentials.endpoints", descriptor.credentials.endpoints),
    ):
        for name in names:
            if VARIABLE.fullmatch(name) is None:
                refuse(place, f"{name!r} is not a valid name of an environment variable")
    version = descriptor.version
    for how, value in (("package", version.package), ("flag", version.flag)):
        if (version.how == how) != (value is not None):
            refuse("version", f"`{how}` must be set if and only if `how` is {how!r}")
    if (descriptor.models.listing == "command") != bool(descriptor.models.command):
        refuse("models", "`command` must be set if and only if `listing` is 'command'")
    for place, number in (
        ("handshake_timeout", descriptor.handshake_timeout),
        ("install.node", descriptor.install.node),
    ):
        if number is not None and not number > 0:
            refuse(place, "it must be a number above 0")
    limit = descriptor.max_line_size
    if limit is not None and limit < MIN_LINE_SIZE:
        refuse("max_line_size", f"it must be {MIN_LINE_SIZE} bytes or greater")


def _check_quirks(descriptor: Descriptor, refuse: Any) -> None:
    quirks = descriptor.quirks
    for name in ("missing_file_is_empty", "mode_after_open"):
        if getattr(quirks, name) and descriptor.protocol != ACP:
            refuse(f"quirks.{name}", f"it needs protocol = {ACP!r}")
    if any(not text.strip() for text in quirks.error_texts):
        refuse("quirks.error_texts", "an empty text would match every message")
    if descriptor.canaries.echo is not None and not descriptor.canaries.echo.strip():
        refuse("canaries.echo", "it must not be empty")
    if descriptor.details and descriptor.protocol == AUTO:
        refuse("details", f"they apply to one dialect: name it, such as protocol = {CODEX!r}")


def _check_enforcement(descriptor: Descriptor, refuse: Any) -> None:
    enforcement = descriptor.enforcement
    for name in ("options", "files"):
        if getattr(enforcement, name) and descriptor.protocol != ACP:
            refuse(f"enforcement.{name}", f"it needs protocol = {ACP!r}")
    if enforcement.modes and descriptor.protocol not in (ACP, CODEX):
        refuse("enforcement.modes", f"it needs protocol = {ACP!r} or {CODEX!r}")
    if any(not mode.strip() for mode in enforcement.modes):
        refuse("enforcement.modes", "a mode must have a name")
    if any("\0" in word for word in enforcement.arguments):
        refuse("enforcement.arguments", "an argument contains a null character")
    starting = descriptor.quirks.mode_after_open
    if starting and enforcement.modes and starting not in enforcement.modes:
        refuse(
            "enforcement.modes", f"{starting!r}, the value of quirks.mode_after_open, is not listed"
        )


def _absolute(descriptor: Descriptor, folder: Path) -> Descriptor:
    """Return the descriptor with the program path of each launch command resolved against `folder`.
    Bare program names are not changed."""

    def program(command: tuple[str, ...]) -> tuple[str, ...]:
        if not command or command[0] == PYTHON:
            return command
        first = command[0]
        if "/" in first or first.startswith("~"):
            first = str(folder / os.path.expanduser(first))
        return (first, *command[1:])

    launches = tuple(
        structs.replace(launch, command=program(launch.command)) for launch in descriptor.launch
    )
    return structs.replace(descriptor, launch=launches)
