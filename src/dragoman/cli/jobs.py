"""`dragoman jobs`: list, watch and cancel jobs, and print their results.

The state of a job comes from `runs.jobs`; a running job is followed by `cli.watch`.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_data, put_err
from dragoman.cli.prompt_options import Duration
from dragoman.cli.shared_options import (
    AfterOption,
    CwdOption,
    FormatOption,
    JobArgument,
    LimitOption,
    ListFormat,
    check_limit,
    project_root,
)

if TYPE_CHECKING:
    from dragoman.store import JobRecord

HELP: Final = """
List, watch and cancel the jobs of agents.

Every `dragoman run` is a job. With --no-wait it continues after the command has ended, and so does
a run in a broker whose shell is closed. The output so far is available at any time, even after a
timeout or a crash.

\b
Examples:
  job=$(dragoman run codex "write the tests" --no-wait)
  dragoman jobs list                  the jobs and their states
  dragoman jobs watch $job            follow its output
  dragoman jobs result $job --wait    wait for the answer
  dragoman jobs cancel last           the newest; a job id may be abbreviated
"""

app: Final = new_app(help=HELP, default="list")


@app.command("list", context_settings=CONTEXT)
def list_command(
    *,
    everywhere: Annotated[
        bool, typer.Option("--all", "-a", help="Include jobs of other projects.")
    ] = False,
    running: Annotated[
        bool, typer.Option("--running", help="Only running and waiting jobs.")
    ] = False,
    attempts: Annotated[
        bool, typer.Option("--attempts", help="Include each attempt of a delegation as a job.")
    ] = False,
    limit: LimitOption = 20,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      dragoman jobs list
      dragoman jobs list --running --all
      dragoman jobs list --format json | jq -r 'select(.outcome == "crashed").job'
    """
    from dragoman.cli.output import job_pages
    from dragoman.cli.output.tables import write_list
    from dragoman.runs.jobs import list_jobs

    remedy = "`dragoman jobs list --all` lists the jobs of all projects"
    root = None if everywhere else project_root(cwd, remedy=remedy)
    check_limit(limit)
    found = list_jobs(root=root, running=running, attempts=attempts, limit=limit + 1)
    now = time.time()
    where = "" if root is None else f" in {root}"
    write_list(
        found,
        format,
        head=job_pages.HEAD,
        cells=lambda job: job_pages.as_cells(job, now),
        as_json=job_pages.as_json,
        name=lambda job: job.id,
        empty=f"There are no jobs{where}. `dragoman run PEER PROMPT` starts one.",
        limit=limit,
        drop=job_pages.DROP,
    )


@app.command("fetch", context_settings=CONTEXT, hidden=True)
def fetch_command(job: str = typer.Argument("last")) -> None:
    """With --host, `dragoman hosts fetch` runs instead."""
    from dragoman.errors import UsageError

    raise UsageError(
        f"`jobs fetch {job}` copies the files of a job from another machine: add --host NAME"
    )


@app.command("watch", context_settings=CONTEXT)
def watch_command(
    job: JobArgument,
    *,
    after: AfterOption = None,
    format: FormatOption = ListFormat.TEXT,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="NAME", help="The machine of the job, reached by SSH."),
    ] = None,
) -> None:
    """Show a job from its beginning until it ends. Ctrl-C stops watching; the job continues.

    The exit code is that of the job. With --format json each event has a cursor. After an
    interruption, pass the last cursor to --after to get every event exactly once.

    \b
    Examples:
      dragoman jobs watch j-01h9x2k7ab
      dragoman jobs watch j-01h9x2k7ab --format json | jq .type
      dragoman jobs watch j-01h9x2k7ab --format json --after s-01h9x2k7ab:41
      dragoman jobs watch j-01h9x2k7ab --host box
    """
    if host is not None:
        from dragoman.cli.host_run import watch_job as watch_there

        raise typer.Exit(watch_there(host, job, after=after, format=format))
    from dragoman.cli.watch import watch_job
    from dragoman.runs.jobs import job_id_of

    raise typer.Exit(watch_job(job_id_of(job), after=after, format=format))


@app.command("result", context_settings=CONTEXT)
def result_command(
    job: JobArgument,
    *,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until the job ends.")] = False,
    timeout: Annotated[
        Duration | None,
        typer.Option(
            "--timeout",
            metavar="TIME",
            help="With --wait: the maximum time to wait, such as 90s, 30m or 2h.",
        ),
    ] = None,
    format: FormatOption = ListFormat.TEXT,
) -> None:
    """Print the agent's answer; for a running job, the answer so far.

    The exit code is that of the job, or 3 if it has not ended.

    \b
    Examples:
      dragoman jobs result j-01h9x2k7ab
      dragoman jobs result j-01h9x2k7ab --wait --format json | jq .usage
    """
    import asyncio

    from dragoman.errors import UsageError
    from dragoman.runs.jobs import find_job, job_id_of, wait_for

    if timeout is not None and not wait:
        raise UsageError("--timeout works only with --wait")
    id = job_id_of(job)
    found = asyncio.run(wait_for(id, timeout=timeout) if wait else find_job(id))
    raise typer.Exit(show_result(found, format))


@app.command("cancel", context_settings=CONTEXT)
def cancel_command(job: JobArgument) -> None:
    """Cancel a job. Output received so far is kept.

    \b
    Examples:
      dragoman jobs cancel j-01h9x2k7ab
    """
    import asyncio

    from dragoman.cli.exit_codes import ExitCode
    from dragoman.runs.jobs import cancel_job, job_id_of

    id = job_id_of(job)
    if not asyncio.run(cancel_job(id)):
        put_err(f"{id} has already ended; see `dragoman jobs result {id}`.\n")
        raise typer.Exit(ExitCode.FAILED)
    put_err(f"{id} was cancelled.\n")


def show_result(job: JobRecord, format: ListFormat) -> int:
    """Print the result of a job, or its text so far if it has not ended. Returns the exit code for
    its outcome, or `TIMEOUT` if it has not ended."""
    from dragoman.cli.exit_codes import ExitCode, of_outcome
    from dragoman.cli.output import job_pages
    from dragoman.cli.output.escape import neutral
    from dragoman.cli.output.jsonl import write_json

    over = job.state == "ended"
    if format is ListFormat.JSON:
        write_json(job_pages.as_json(job))
    elif job.text:
        text = job.text.rstrip("\n") + "\n"
        put_data(sys.stdout, text)
    if format is ListFormat.TEXT:
        sys.stdout.flush()
        told = job_pages.state_of(job)
        took = job_pages.took(job, time.time())
        failure = (job.failure or {}).get("message")
        trouble = f": {neutral(str(failure))}" if failure else ""
        put_err(f"[{told}] {took}{trouble}\n" if took else f"[{told}]{trouble}\n")
        put_err(job_pages.notices_of(job))
        put_err(job_pages.stderr_of(job))
    if not over:
        return ExitCode.TIMEOUT
    return of_outcome(job.outcome or "unknown")
