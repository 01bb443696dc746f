"""Options shared by several commands, with their checks.

The options are `--format`, `--limit`, `--after`, `--cwd`, `--yes` and the argument JOB; `Preset`
has the permission presets. `check_limit`, `check_peer` and `require_extra` check values, and
`project_root` returns the project of `--cwd`. Imports nothing that prints or runs.
"""

from __future__ import annotations

import enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.completions import complete_job
from dragoman.errors import UsageError
from dragoman.errors.usage import shown


class ListFormat(enum.StrEnum):
    """Output formats of commands that list things."""

    TEXT = "text"
    JSON = "json"
    QUIET = "quiet"


class Preset(enum.StrEnum):
    """Permission presets: the values of the setting `permissions`."""

    ASK = "ask"
    APPROVE_READS = "approve-reads"
    APPROVE_ALL = "approve-all"
    DENY_ALL = "deny-all"


FormatOption = Annotated[
    ListFormat,
    typer.Option("--format", help="text for people, json for programs: one object per line."),
]
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", metavar="NUMBER", help="Maximum number to show.")
]
JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The id of a job or the beginning of it; `last` is the newest.",
        show_default=False,
        autocompletion=complete_job,
    ),
]
AfterOption = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="CURSOR",
        help="Continue after the event with this cursor.",
        show_default=False,
    ),
]
CwdOption = Annotated[
    Path | None,
    typer.Option(
        "--cwd",
        metavar="DIR",
        help="The working directory. Default: the current one.",
        exists=True,
        file_okay=False,
        resolve_path=True,
        show_default=False,
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def check_limit(limit: int) -> None:
    """Raise `UsageError` for a `LimitOption` below 1."""
    if limit < 1:
        raise UsageError(f"--limit must be at least 1, not {limit}")


def require_extra(extra: str, *modules: str) -> None:
    """Raise `UsageError` if a Python package of an extra is not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise UsageError(
                f"the Python package {module} is not installed",
                remedy=f"install it with pip install 'dragoman[{extra}]'",
            )


def project_root(cwd: Path | None, *, remedy: str) -> Path:
    """Return the root of the project that contains `cwd` (default: the current directory). Raises
    `UsageError` with `remedy` if the path of the root is not UTF-8 text: no agent can work there,
    so nothing is stored."""
    from dragoman.store import root_of

    root = root_of(cwd or Path.cwd())
    try:
        str(root).encode()
    except UnicodeEncodeError:
        raise UsageError(
            "the path of the project is not UTF-8 text, so it has no stored sessions or jobs: "
            f"{shown(str(root))}",
            remedy=remedy,
        ) from None
    return root


def check_peer(peer: str, cwd: Path | None) -> None:
    """Raise `UnknownPeer` for a name that is neither that of a peer, even one with an invalid
    descriptor, nor that of the peer of a stored session."""
    from dragoman.errors import UnknownPeer
    from dragoman.errors.usage import nearest
    from dragoman.runs.context import load_context
    from dragoman.store.open import open_store

    catalogue = load_context(cwd).catalogue
    name = peer.partition("@")[0]
    if name in catalogue or catalogue.problem_of(name):
        return
    with open_store(read_only=True) as store:
        if not store.sessions(peer=peer, limit=1):
            raise UnknownPeer(peer, nearest(name, catalogue.names))
