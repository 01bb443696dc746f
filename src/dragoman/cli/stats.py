"""`dragoman stats`: show outcomes and cost of delegations.

`store.ledger` computes the sums, `output.stat_pages` renders them.
"""

from __future__ import annotations

import enum
import sys
import time
from contextlib import suppress
from typing import Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.errors import UsageError

app: Final = new_app()


class By(enum.StrEnum):
    """What totals can be grouped by."""

    WORK = "work"
    ROLE = "role"
    PEER = "peer"
    MODEL = "model"
    DAY = "day"
    MACHINE = "machine"


class StatsFormat(enum.StrEnum):
    """Output formats of `dragoman stats`."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only attempts since this time: a date, or an age such as 12h or 30d.",
        show_default=False,
    ),
]


@app.command(context_settings=CONTEXT)
def stats(
    *,
    by: Annotated[
        By, typer.Option("--by", help="What to group by; work is each role with each peer.")
    ] = (By.WORK),
    since: SinceOption = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Only attempts before this time.",
            show_default=False,
        ),
    ] = None,
    chart: Annotated[
        bool | None,
        typer.Option(
            "--chart/--no-chart",
            help="Show bars below the table. The default on a terminal.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        StatsFormat,
        typer.Option("--format", help="text for people, json or csv for programs."),
    ] = StatsFormat.TEXT,
) -> None:
    """Show the success rate and cost of peers by kind of work.

    Every attempt counts once. It is done if its turn was ok and neither a check nor a verdict found
    it bad. A cost that the peer did not report is unknown, not zero; ~ marks an estimated cost.
    Days are in this machine's time zone.

    \b
    Examples:
      dragoman stats                             each role with each peer, of all time
      dragoman stats --by peer --since 30d
      dragoman stats --by day --since 2026-01-01 --until 2026-02-01
      dragoman stats --by model --format csv > costs.csv
      dragoman stats --by machine                this machine, hosts and workers
    """
    from dragoman.cli.output import stat_pages
    from dragoman.cli.output.tables import write_list
    from dragoman.cli.output.terminal import is_terminal
    from dragoman.paths import find_paths
    from dragoman.store.ledger.ledger import Ledger, ledger_path

    now = time.time()
    bounds = (_instant(since, "--since", now), _instant(until, "--until", now))
    with Ledger.open(ledger_path(find_paths().state), read_only=True) as ledger:
        rows = ledger.stats(by.value, since=bounds[0], until=bounds[1])
    if format is StatsFormat.CSV:
        stat_pages.write_csv(rows, by.value, sys.stdout)
        return
    machines = any(row.machine for row in rows)
    write_list(
        rows,
        format,
        head=stat_pages.head(by.value, machines=machines),
        cells=lambda row: stat_pages.as_cells(row, by.value, machines=machines),
        as_json=lambda row: stat_pages.as_json(row, by.value),
        empty="Nothing was delegated in this period. `dragoman delegate` delegates a task.",
        drop=stat_pages.DROP,
    )
    if rows and format is StatsFormat.TEXT:
        put_err(*(f"{line}\n" for line in stat_pages.summary(rows)))
    charted = chart if chart is not None else is_terminal(sys.stdout)
    if rows and charted and format is StatsFormat.TEXT:
        put_out("\n")
        stat_pages.write_chart(rows, sys.stdout, by.value)


def _instant(text: str | None, option: str, now: float) -> float | None:
    """Parse the value of a time option: a date in this machine's time zone, or an age before `now`.
    None if there is no value. Raises `UsageError` if it is invalid."""
    from datetime import datetime

    from dragoman.cli.output.times import parse_age

    if text is None:
        return None
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromisoformat(text).timestamp()
    try:
        return now - parse_age(text)
    except ValueError:
        raise UsageError(
            f"{option} takes a date such as 2026-01-31, or an age such as 12h or 30d, not {text!r}"
        ) from None
