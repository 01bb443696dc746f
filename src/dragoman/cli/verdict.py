"""`dragoman verdict`: rate delegated work as good or bad.

`delegation.journal` records the rating and updates what routing learned.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_err
from dragoman.cli.shared_options import FormatOption, JobArgument, ListFormat

if TYPE_CHECKING:
    from dragoman.paths import Paths

HELP: Final = """
Rate delegated work as good or bad.

A successful turn counts as good until you rate it. Bad work earns its peer no credit, however cheap
and fast it was. You can change a verdict.

\b
Examples:
  dragoman verdict j-01h9x2k7ab bad
  dragoman verdict last good --format json
"""

app: Final = new_app()


class VerdictWord(enum.StrEnum):
    """The possible verdicts."""

    GOOD = "good"
    BAD = "bad"


@app.command(help=HELP, context_settings=CONTEXT)
def verdict(
    job: JobArgument,
    word: Annotated[VerdictWord, typer.Argument(metavar="good|bad", show_default=False)],
    *,
    format: FormatOption = ListFormat.TEXT,
) -> None:
    from dragoman.cli.output.jsonl import write_json
    from dragoman.delegation.journal import give_verdict
    from dragoman.errors import UnknownJob
    from dragoman.paths import find_paths
    from dragoman.runs.jobs import job_id_of
    from dragoman.runs.sessions import LAST

    paths = find_paths()
    if job == LAST:
        job = _last_delegation(paths)
    try:
        given = give_verdict(job, word.value, paths=paths)
    except UnknownJob:
        job = job_id_of(job, paths=paths)
        given = give_verdict(job, word.value, paths=paths)
    if format is ListFormat.JSON:
        write_json(
            {
                "type": "Verdict",
                "job": job,
                "verdict": word.value,
                "before": given.verdict,
                "peer": given.peer,
                "role": given.role,
            }
        )
    elif format is ListFormat.TEXT:
        put_err(f"{given.peer} ({given.role}): {word.value}\n")


def _last_delegation(paths: Paths) -> str:
    """Return the job id of the latest attempt in the ledger: only delegated work gets a verdict.
    Raises `UnknownJob` if there is none."""
    from dragoman.errors import UnknownJob
    from dragoman.store.ledger.ledger import Ledger, ledger_path

    with Ledger.open(ledger_path(paths.state), read_only=True) as ledger:
        found = ledger.latest(1)
    if not found:
        raise UnknownJob("nothing has been delegated yet")
    return found[0].job
