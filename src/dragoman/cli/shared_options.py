"""Typer options shared by several commands: `--format`, `--limit`, `--after`, `--cwd`, `--yes`.

Imports nothing that prints or runs.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.prompt_options import complete_job
from dragoman.errors import UsageError


class ListFormat(enum.StrEnum):
    """How a command prints what it found."""

    TEXT = "text"
    JSON = "json"
    QUIET = "quiet"


FormatOption = Annotated[
    ListFormat,
    typer.Option("--format", help="text for people, json for programs: one object a line."),
]
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", metavar="NUMBER", help="At most so many.")
]
JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The id of a job or its beginning; `last` is the newest one.",
        show_default=False,
        autocompletion=complete_job,
    ),
]
AfterOption = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="CURSOR",
        help="Go on behind the event with this cursor.",
        show_default=False,
    ),
]
CwdOption = Annotated[
    Path | None,
    typer.Option(
        "--cwd",
        metavar="FOLDER",
        help="The folder to work in, instead of this one.",
        exists=True,
        file_okay=False,
        resolve_path=True,
        show_default=False,
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; the answer is yes.")]


def check_limit(limit: int) -> None:
    """Raise `UsageError` for a value of `LimitOption` that is not a number of things."""
    if limit < 1:
        raise UsageError(f"--limit takes a number from 1 on, not {limit}")
