"""`dragoman fleet`: run a fleet's server, join a fleet, run a worker, submit and follow jobs.

The package `dragoman.fleet` does the work; `output.fleet_pages` prints the results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.fleet_server import coordinator_command, up_command
from dragoman.cli.fleet_setup import (
    AsOption,
    FolderOption,
    JobArgument,
    TeamOption,
    as_submitter,
    fleet_folder,
    require_fleet,
    require_positive,
    show_notice,
    stop_event,
    until_stopped,
    words_of,
)
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.shared_options import CwdOption, FormatOption, ListFormat
from dragoman.errors import FleetError, FleetUnreachable, UsageError

if TYPE_CHECKING:
    from dragoman.fleet.connection import FleetConnection
    from dragoman.fleet.subjects import MemberKind

HELP: Final = """
Share machines: submit jobs and have your team's workers run them.

One machine runs the server and the coordinator (`fleet up`). Other machines join with a one-time
code: as workers, which run jobs with their own agents, settings and permissions, or as submitters.
A worker runs a job as a delegation in a copy of your repository and returns a result and a patch.

\b
Examples:
  dragoman fleet up                                  run the server and the coordinator
  dragoman fleet invite worker build-1               create a join code for a worker
  dragoman fleet join CODE                           join, on the other machine
  dragoman fleet worker --slots 2                    run jobs there
  dragoman fleet submit review "look at the diff"    submit a job
  dragoman fleet watch JOB                           follow it to its result
"""

app: Final = new_app(help=HELP)

# -- the server

app.command("up", context_settings=CONTEXT)(up_command)
app.command("coordinator", context_settings=CONTEXT)(coordinator_command)

# -- members


@app.command("invite", context_settings=CONTEXT)
def invite_command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="worker|submitter", help="What the member may do.", show_default=False
        ),
    ],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the machine or user.", show_default=False)
    ],
    team: TeamOption = None,
    dir: FolderOption = None,
) -> None:
    """Create a one-time join code for a machine, valid for 15 minutes.

    Run this where `fleet up` runs.

    \b
    Examples:
      dragoman fleet invite worker build-1
      dragoman fleet invite submitter alice
    """
    import time

    if kind not in ("worker", "submitter"):
        raise UsageError(f"unknown kind of member {kind!r}: use worker or submitter")
    folder = fleet_folder(dir)
    member: MemberKind = "worker" if kind == "worker" else "submitter"
    code = folder.invite(member, name, team=team, now=int(time.time()))
    put_err("dragoman: run this on the other machine within 15 minutes:\n")
    put_out(f"dragoman fleet join {code}\n")


@app.command("join", context_settings=CONTEXT)
def join_command(
    code: Annotated[
        str,
        typer.Argument(
            metavar="CODE", help="The code that `fleet invite` printed.", show_default=False
        ),
    ],
) -> None:
    """Join a fleet with a one-time code.

    The key is generated on this machine and stays here, in a file that only you can read.

    \b
    Examples:
      dragoman fleet join dragoman-join-eNpdj0F...
    """
    require_fleet()
    import asyncio
    import time

    from dragoman.fleet.credentials import credential_path, save_credential
    from dragoman.fleet.submitter import join
    from dragoman.paths import find_paths

    credential = asyncio.run(join(code))
    path = credential_path(find_paths(), credential.team, credential.name)
    save_credential(credential, path)
    until = time.strftime("%Y-%m-%d", time.localtime(credential.expires_at or 0))
    put_err(
        f"dragoman: joined fleet {credential.team} as {credential.kind} {credential.name}; "
        f"valid until {until}\n"
    )


@app.command("revoke", context_settings=CONTEXT)
def revoke_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the member.", show_default=False)
    ],
    team: TeamOption = None,
    dir: FolderOption = None,
) -> None:
    """Revoke a member's credentials and close its connections.

    Run this where `fleet up` runs.

    \b
    Examples:
      dragoman fleet revoke build-1
    """
    import asyncio
    import time

    folder = fleet_folder(dir)
    from dragoman.fleet.server import tell_server

    keys, changed = folder.revoke(name, team=team, now=int(time.time()))
    try:
        asyncio.run(tell_server(keys, changed))
    except FleetError as error:
        applied = "will not apply that until its next start"
        if error.may_have_run:
            applied = "has not confirmed that; it will apply it at its next start at the latest"
        kind = FleetUnreachable if isinstance(error, FleetUnreachable) else FleetError
        failure = kind(
            f"{name} is revoked, but the server {applied}: {error}",
            remedy="restart the server, if it is running",
            may_have_run=True,
        )
        # The member is no longer in the keys, so it cannot be revoked again.
        failure.retryable = False
        raise failure from error
    put_err(f"dragoman: revoked {name}\n")


@app.command("drain", context_settings=CONTEXT)
def drain_command(
    name: Annotated[
        str, typer.Argument(metavar="WORKER", help="Name of the worker.", show_default=False)
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Assign jobs to it again.")] = False,
    team: TeamOption = None,
    dir: FolderOption = None,
) -> None:
    """Stop assigning jobs to a worker. Its running jobs continue.

    Run this where `fleet up` runs. The worker stays drained, even after a restart of the worker or
    the coordinator, until --undo.

    \b
    Examples:
      dragoman fleet drain build-1
      dragoman fleet drain build-1 --undo
    """
    import asyncio
    import time

    folder = fleet_folder(dir)
    from dragoman.fleet.connection import FleetConnection
    from dragoman.fleet.records import DrainQuestion
    from dragoman.fleet.submitter import drain
    from dragoman.fleet.team import coordinator_access

    async def run() -> None:
        keys = folder.read()
        access = coordinator_access(keys, keys.team(team), int(time.time()))
        async with FleetConnection(access) as connection:
            await drain(connection, DrainQuestion(name=name, undo=undo))

    asyncio.run(run())
    put_err(f"dragoman: {name} gets {'jobs again' if undo else 'no more jobs'}\n")


@app.command("worker", context_settings=CONTEXT)
def worker_command(
    slots: Annotated[
        int, typer.Option("--slots", metavar="NUMBER", help="Number of jobs to run at once.")
    ] = 1,
    peers: Annotated[
        str | None,
        typer.Option(
            "--peers",
            metavar="NAME,...",
            help="Peers that jobs may use. Default: all enabled peers.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="LABEL,...",
            help="Labels that jobs can require with --needs.",
            show_default=False,
        ),
    ] = None,
    allow_checks: Annotated[
        bool,
        typer.Option(
            "--allow-checks",
            help="Run the check commands of jobs, which are not subject to the policy.",
        ),
    ] = False,
    name: AsOption = None,
) -> None:
    """Run the fleet's jobs on this machine until Ctrl-C.

    Jobs use the peers that are enabled here, under this machine's settings, permissions and
    budgets. A job can ask for less, but never for more. The first Ctrl-C lets running jobs finish;
    the second one stops them.

    \b
    Examples:
      dragoman fleet worker --slots 2
      dragoman fleet worker --peers codex,gemini --labels linux,gpu
    """
    require_fleet()
    if slots < 1:
        raise UsageError("--slots must be at least 1")
    from dragoman.fleet.credentials import find_credential
    from dragoman.fleet.job_run import WorkerLimits
    from dragoman.fleet.worker import FleetWorker, WorkerOptions
    from dragoman.paths import find_paths
    from dragoman.runs.context import load_context

    catalogue = load_context(None).catalogue
    for peer in words_of(peers):
        catalogue.get(peer.partition("@")[0])

    credential = find_credential(find_paths(), "worker", name=name, on_notice=show_notice)
    options = WorkerOptions(
        slots=slots,
        labels=words_of(labels),
        limits=WorkerLimits(peers=words_of(peers), checks=allow_checks),
    )
    worker = FleetWorker(credential, options, on_notice=show_notice)
    put_err(f"dragoman: worker {credential.name} started for fleet {credential.team}\n")
    until_stopped(lambda live: worker.run(stop_event(live)))


@app.command("workers", context_settings=CONTEXT)
def workers_command(*, name: AsOption = None, format: FormatOption = ListFormat.TEXT) -> None:
    """List the connected workers.

    \b
    Examples:
      dragoman fleet workers
      dragoman fleet workers --format json | jq .running
    """
    from dragoman.cli.output import fleet_pages
    from dragoman.fleet.submitter import ask

    reply = as_submitter(name, lambda connection, team: ask(connection, "workers"))
    fleet_pages.write_workers(reply.workers, format)


# -- jobs


@app.command("submit", context_settings=CONTEXT)
def submit_command(
    role: Annotated[
        str, typer.Argument(metavar="ROLE", help="The kind of work.", show_default=False)
    ],
    prompt: Annotated[
        list[str], typer.Argument(metavar="PROMPT...", help="The task.", show_default=False)
    ],
    count: Annotated[
        int, typer.Option("--n", metavar="NUMBER", help="Submit the job this many times.")
    ] = 1,
    needs: Annotated[
        str | None,
        typer.Option(
            "--needs",
            metavar="LABEL,PEER,...",
            help="Labels and peers that the worker must have.",
            show_default=False,
        ),
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option("--peer", metavar="NAME", help="Use only this peer.", show_default=False),
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option(
            "--tier", metavar="NAME", help="fast, standard or strong.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Use this model.", show_default=False),
    ] = None,
    approve_all: Annotated[
        bool,
        typer.Option("--approve-all", help="Allow everything that the worker's settings allow."),
    ] = False,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="COMMAND",
            help="A command whose exit code says whether the work is good. Needs a worker with "
            "--allow-checks.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", help="Timeout of one turn.", show_default=False
        ),
    ] = None,
    retry_lost: Annotated[
        bool,
        typer.Option(
            "--retry-lost",
            help="Run the job again if its worker is lost, regardless of what the agent did.",
        ),
    ] = False,
    cwd: CwdOption = None,
    name: AsOption = None,
) -> None:
    """Submit a job with the repository of the current directory, and print its id.

    Changed and untracked files are sent; ignored files are not. If the worker is lost, the job is
    run again only if the agent ran no command and wrote nothing outside its copy of the repository,
    or with --retry-lost.

    \b
    Examples:
      dragoman fleet submit review "look at the last commit"
      dragoman fleet submit execute "fix the failing test" --approve-all --needs linux,codex
    """
    require_fleet()
    from dragoman.delegation.request import DelegationRequest
    from dragoman.fleet.results import submit_noted
    from dragoman.runs.context import load_context

    if count < 1:
        raise UsageError("--n must be at least 1")
    if timeout is not None:
        require_positive("--timeout", timeout)
    workspace = cwd or Path.cwd()
    request = DelegationRequest(
        role=role,
        prompt=" ".join(prompt),
        workspace=workspace,
        peer=peer,
        tier=tier,
        model=model,
        permissions="approve-all" if approve_all else None,
        check=check,
        timeout=timeout,
    )

    async def work(connection: FleetConnection, team: str) -> None:
        await submit_noted(
            connection,
            request,
            load_context(workspace),
            team=team,
            count=count,
            needs=words_of(needs),
            retry_lost=retry_lost,
            on_stored=lambda job: put_out(f"{job}\n"),
        )

    as_submitter(name, work, collect=True)


@app.command("jobs", context_settings=CONTEXT)
def jobs_command(*, name: AsOption = None, format: FormatOption = ListFormat.TEXT) -> None:
    """List the team's jobs, newest first, and why jobs are waiting.

    \b
    Examples:
      dragoman fleet jobs
      dragoman fleet jobs --format json | jq .state
    """
    from dragoman.cli.output import fleet_pages
    from dragoman.fleet.submitter import ask

    reply = as_submitter(name, lambda connection, team: ask(connection, "jobs"), collect=True)
    fleet_pages.write_jobs(reply.jobs, format)


@app.command("watch", context_settings=CONTEXT)
def watch_command(
    job: JobArgument, *, name: AsOption = None, format: FormatOption = ListFormat.TEXT
) -> None:
    """Follow a job from its first event to its result.

    \b
    Examples:
      dragoman fleet watch f1c2d3e4f5a6
      dragoman fleet watch f1c2d3e4f5a6 --format json | jq .event.type
    """
    from dragoman.cli.output import fleet_pages

    async def work(connection: FleetConnection, team: str) -> int:
        return await fleet_pages.watch(connection, job, format)

    raise typer.Exit(as_submitter(name, work, collect=True))


@app.command("cancel", context_settings=CONTEXT)
def cancel_command(job: JobArgument, *, name: AsOption = None) -> None:
    """Cancel a job that you submitted.

    \b
    Examples:
      dragoman fleet cancel f1c2d3e4f5a6
    """
    require_fleet()
    import time

    from dragoman.fleet.results import pending_jobs
    from dragoman.fleet.submitter import cancel
    from dragoman.paths import find_paths

    async def work(connection: FleetConnection, team: str) -> bool:
        # A job that was submitted here exists even if no coordinator has taken it yet.
        noted = pending_jobs(find_paths().state, team, now=time.time())
        return await cancel(connection, job, known=job not in noted)

    sent = as_submitter(name, work)
    put_err(f"dragoman: {f'cancelling job {job}' if sent else f'job {job} has already ended'}\n")


@app.command("apply", context_settings=CONTEXT)
def apply_command(job: JobArgument, *, cwd: CwdOption = None, name: AsOption = None) -> None:
    """Apply a job's patch to the current repository, completely or not at all.

    \b
    Examples:
      dragoman fleet apply f1c2d3e4f5a6
    """
    from dragoman.cli.output import fleet_pages

    async def work(connection: FleetConnection, team: str) -> int:
        return await fleet_pages.apply(connection, job, cwd or Path.cwd())

    raise typer.Exit(as_submitter(name, work, collect=True))
