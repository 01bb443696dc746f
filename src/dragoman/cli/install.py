"""Shared code of `install` and `uninstall` of `dragoman mcp` and `dragoman acp`.

`setup.install` builds the entry and edits the settings file of the other program.
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
"""Programs make names of tools of it, and people read it in a menu."""

WriteOption = Annotated[
    bool,
    typer.Option("--write", help="Put the entry into the file, and keep the file as it was."),
]
RemoveOption = Annotated[
    bool,
    typer.Option("--write", help="Take the entry out of the file, and keep the file as it was."),
]
NameOption = Annotated[str, typer.Option("--name", help="What the entry is called.")]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The file to use, instead of the one that the program usually reads.",
        dir_okay=False,
        show_default=False,
    ),
]


def check_name(name: str) -> None:
    """Refuse what no list of servers or agents should show."""
    from dragoman.errors import UsageError

    if not NAMES.fullmatch(name):
        raise UsageError("a name has letters, digits, blanks, dots, hyphens and underscores only")


def install(
    client: Client, *, name: str, write: bool, file: Path | None, project: Path | None
) -> None:
    """Print an entry, or write it."""
    from dragoman.cli.output.escape import neutral
    from dragoman.setup.install import entries
    from dragoman.setup.install.program import this_program

    path = _file(client, name, file, project)
    where = neutral(str(path))
    if not write:
        put_data(sys.stdout, entries.snippet(client, name, this_program()))
        put_err(
            f"{client.title} reads this from {where}\n"
            "--write puts it there and leaves the rest of the file as it is.\n"
        )
        return
    planned = entries.plan(client, path, name, this_program())
    backup = entries.write(planned)
    if not planned.changes:
        put_out(f"{where} has the entry {name} already. Nothing was changed.\n")
    else:
        put_out(f"{where} has the entry {name} now.\n")
        if backup is not None:
            put_out(f"As it was before: {neutral(str(backup))}\n")
    put_out(f"Next: {client.after}.\n")


def uninstall(
    client: Client, *, name: str, write: bool, file: Path | None, project: Path | None
) -> None:
    """Show the removal of an entry as a diff, or write it."""
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
        put_err("--write does it and leaves the rest of the file as it is.\n")
        return
    backup = entries.write(planned)
    put_out(f"{where} has no entry {name} any more.\n")
    if backup is not None:
        put_out(f"As it was before: {neutral(str(backup))}\n")


def _file(client: Client, name: str, file: Path | None, project: Path | None) -> Path:
    from dragoman.errors import UsageError
    from dragoman.setup.install import entries

    check_name(name)
    if file is not None and project is not None:
        raise UsageError("--file and --project both say which file it is")
    return file if file is not None else entries.file_of(client, project=project)
