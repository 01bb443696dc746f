"""`dragoman ledger`: list, export or prune the record of delegations.

The data is in `store.ledger`; sums are shown by `cli.stats`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import replace

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_data, put_err
from dragoman.cli.shared_options import (
    FormatOption,
    LimitOption,
    ListFormat,
    YesOption,
    check_limit,
)

if TYPE_CHECKING:
    from dragoman.store.ledger import AttemptRecord

HELP: Final = """
List, export or delete the record of delegations.

The ledger records every routing decision, every attempt and its cost, and what routing learned from
it. It contains no prompts and no answers: those are in `dragoman sessions`.

\b
Examples:
  dragoman ledger list                  the latest attempts
  dragoman ledger export > ledger.jsonl
  dragoman ledger export | jq 'select(.type == "Attempt" and .outcome != "ok")'
  dragoman ledger prune --older-than 90d
"""

app: Final = new_app(help=HELP, default="list")


@app.command("list", context_settings=CONTEXT)
def list_command(*, limit: LimitOption = 20, format: FormatOption = ListFormat.TEXT) -> None:
    """List the latest attempts, newest first.

    \b
    Examples:
      dragoman ledger list
      dragoman ledger list -n 100 --format json | jq -r 'select(.outcome != "ok").job'
    """
    from dragoman.cli.output import stat_pages
    from dragoman.cli.output.tables import write_list
    from dragoman.store.ledger.ledger import Ledger

    check_limit(limit)
    with Ledger.open(_path(), read_only=True) as ledger:
        found = [_shown(attempt) for attempt in ledger.latest(limit + 1)]
    now = time.time()
    write_list(
        found,
        format,
        head=stat_pages.ATTEMPT_HEAD,
        cells=lambda attempt: stat_pages.attempt_cells(attempt, now),
        as_json=stat_pages.attempt_json,
        name=lambda attempt: attempt.job,
        empty="The ledger is empty. `dragoman delegate` adds to it.",
        limit=limit,
        drop=stat_pages.ATTEMPT_DROP,
    )


@app.command("export", context_settings=CONTEXT)
def export_command() -> None:
    """Print the whole ledger, one JSON object per line.

    The type of a line is Decision, Attempt, Posterior or Health.

    \b
    Examples:
      dragoman ledger export > ledger.jsonl
      dragoman ledger export | jq -r 'select(.type == "Attempt").peer' | sort | uniq -c
    """
    from dragoman.cli.output.jsonl import encode
    from dragoman.store.ledger.ledger import Ledger

    with Ledger.open(_path(), read_only=True) as ledger:
        for value in ledger.export():
            put_data(sys.stdout, encode(value, sys.stdout))


@app.command("prune", context_settings=CONTEXT)
def prune_command(
    *,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Delete attempts older than this, such as 90d or 0s.",
        ),
    ],
    learned: Annotated[
        bool, typer.Option("--learned", help="Also delete what was learned about the peers.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Permanently delete old attempts and their decisions.

    What was learned from them is kept unless --learned is given. `events.jsonl` next to the ledger
    is a plain file, which you can delete at any time.

    \b
    Examples:
      dragoman ledger prune --older-than 90d
      dragoman ledger prune --older-than 0s --learned --yes
    """
    from dragoman.cli.output.questions import confirm
    from dragoman.cli.output.times import seconds_of
    from dragoman.store.ledger.ledger import Ledger

    before = time.time() - seconds_of(older_than, option="--older-than")
    path = _path()
    if not os.path.exists(path):
        put_err("There is nothing to delete.\n")
        return
    if not yes and not confirm(f"Delete attempts older than {older_than}?", instead="--yes"):
        put_err("Nothing was deleted.\n")
        return
    with Ledger.open(path) as ledger:
        if ledger.replaced:
            put_err(f"dragoman: {path}: {ledger.replaced}\n")
        gone = ledger.prune(before)
        forgotten = ledger.forget_posteriors() if learned else 0
    put_err(f"Deleted {gone} attempt{'' if gone == 1 else 's'}.\n")
    if learned:
        many = "" if forgotten == 1 else "s"
        put_err(f"Deleted what was learned about {forgotten} choice{many}.\n")


def _shown(attempt: AttemptRecord) -> AttemptRecord:
    """Return the attempt, with the outcome `crashed` if it has none although the process that ran
    it has ended. The next delegation records that outcome."""
    from dragoman.store.jobs import is_alive

    if attempt.outcome is not None or is_alive(attempt.runner):
        return attempt
    return replace(attempt, outcome="crashed")


def _path() -> Path:
    from dragoman.paths import find_paths
    from dragoman.store.ledger.ledger import ledger_path

    return ledger_path(find_paths().state)
