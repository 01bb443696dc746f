"""Code shared by the `install` and `uninstall` commands of `dragoman mcp` and `dragoman acp`, which
add an entry that starts dragoman to another program's settings file, or remove it.

`setup.install` builds the entry and edits the file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.output.terminal import put_data, put_err, put_out

if TYPE_CHECKING:
    from dragoman.setup.install.clients import Client

NAME: Final = "dragoman"

NAMES: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_. -]{0,62}[A-Za-z0-9_])?")
"""The allowed form of an entry's name: programs derive tool names from it, and menus show it."""

WriteOption = Annotated[
    bool,
    typer.Option("--write", help="Write the entry to the file, and keep a backup of the file."),
]
RemoveOption = Annotated[
    bool,
    typer.Option("--write", help="Remove the entry from the file, and keep a backup of the file."),
]
NameOption = Annotated[str, typer.Option("--name", help="The name of the entry.")]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The settings file, if not the one that the program usually reads.",
        dir_okay=False,
        show_default=False,
    ),
]


def check_name(name: str) -> None:
    """Raise `UsageError` if an entry cannot have this name (see `NAMES`)."""
    from dragoman.errors import UsageError

    if not NAMES.fullmatch(name):
        raise UsageError(
            "a name may contain only letters, digits, underscores and, except at its ends, spaces, "
            "dots and hyphens; it must have 1 to 64 characters"
        )


def install(
    client: Client, *, name: str, write: bool, file: Path | None, project: Path | None
) -> None:
    """Print the entry for a program or, with `write`, write it to the program's settings file:
    `file` if it is given, else the file in `project` or, if this is None too, the user's."""
    from dragoman.cli.output.escape import neutral
    from dragoman.setup.install import entries
    from dragoman.setup.install.program import this_program

    path = _file(client, name, file, project)
    where = neutral(str(path))
    if not write:
        put_data(sys.stdout, entries.snippet(client, name, this_program()))
        put_err(
            f"{client.title} reads this from {where}\n"
            "--write adds it and changes nothing else in the file.\n"
        )
        return
    planned = entries.plan(client, path, name, this_program())
    backup = entries.write(planned)
    if not planned.changes:
        put_out(f"{where} already has the entry {name}. Nothing was changed.\n")
    else:
        put_out(f"{where} now has the entry {name}.\n")
        if backup is not None:
            put_out(f"Backup: {neutral(str(backup))}\n")
    put_out(f"Next: {client.after}.\n")


def uninstall(
    client: Client, *, name: str, write: bool, file: Path | None, project: Path | None
) -> None:
    """Show the removal of an entry as a diff or, with `write`, remove it. `file` and `project` are
    as in `install`."""
    from dragoman.cli.output.config_diffs import write_diff
    from dragoman.cli.output.escape import neutral
    from dragoman.config.file_transaction import Change
    from dragoman.setup.install import entries

    path = _file(client, name, file, project)
    where = neutral(str(path))
    planned = entries.plan_removal(client, path, name)
    if not planned.changes:
        put_out(f"{where} has no entry {name}. Nothing was changed.\n")
        return
    if not write:
        write_diff([Change(planned.path, planned.before, planned.after)])
        put_err("--write does this and changes nothing else in the file.\n")
        return
    backup = entries.write(planned)
    put_out(f"The entry {name} was removed from {where}.\n")
    if backup is not None:
        put_out(f"Backup: {neutral(str(backup))}\n")


def _file(client: Client, name: str, file: Path | None, project: Path | None) -> Path:
    from dragoman.errors import UsageError
    from dragoman.setup.install import entries

    check_name(name)
    if file is not None and project is not None:
        raise UsageError("--file and --project both choose the file: use one of them")
    return file if file is not None else entries.file_of(client, project=project)
