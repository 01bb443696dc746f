"""`dragoman explain`: show which peers routing would choose for a role, and why it rejects others.

Options are in `cli.prompt_options`. `delegation.routing` decides. Nothing is started or written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app, with_options
from dragoman.cli.output.terminal import put_data, put_out
from dragoman.cli.prompt_options import COMMANDS
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.delegation.request import DelegationRequest

HELP: Final = """
Show which peers would be used, in which order, and why others are not.

Each peer is listed exactly once: as a candidate, with the results of its delegations in this role
over the last 90 days, or as passed over, with one reason and what to do about it. The setting
`adaptive` controls whether measured success changes the order: off, shadow (the default: compared
but not used) or on. Nothing is started. The exit code is 7 if no peer can be used.

With --fleet, the workers that could take the job are listed instead, and the others with a reason.
The worker that gets the job chooses the peer.

\b
Examples:
  dragoman explain review
  dragoman explain execute --tier strong
  dragoman explain execute --fleet --needs linux
  dragoman explain --agent agents/reviewer.md
  dragoman explain research --format json | jq '.passed_over[] | {peer, reason}'
"""

app: Final = new_app()


@app.command(help=HELP, context_settings=CONTEXT)
@with_options(*COMMANDS["explain"])
def explain(
    *,
    role: str | None,
    agent: Path | None,
    peer: str | None,
    tier: str | None,
    model: str | None,
    prompt: str,
    format: str,
    cwd: Path | None,
    fleet: bool,
    needs: str | None,
    fleet_as: str | None,
) -> None:
    if (needs or fleet_as) and not fleet:
        raise UsageError(f"{'--needs' if needs else '--fleet-as'} works only with --fleet")
    import msgspec

    from dragoman.cli.exit_codes import ExitCode
    from dragoman.cli.output.jsonl import write_json
    from dragoman.cli.run_plan import workspace_of
    from dragoman.delegation.candidates import decide_for
    from dragoman.delegation.peer_status import clock
    from dragoman.delegation.request import DelegationRequest, read_agent
    from dragoman.delegation.routing import explain as lines_of
    from dragoman.runs.context import load_context

    place = load_context(workspace_of(cwd))
    for problem in place.config.problems:
        raise problem
    if agent is not None:
        assigned = read_agent(
            agent if agent.is_absolute() else place.cwd / agent, place.role_catalogue()
        )
        role, peer = role or assigned.role, peer or assigned.peer
    if not role:
        roles = ", ".join(place.role_catalogue().roles)
        raise UsageError(f"name a role: {roles}", remedy="`dragoman explain ROLE`")
    request = DelegationRequest(
        role=role,
        prompt=prompt or role,
        workspace=place.cwd,
        peer=peer,
        tier=tier,
        model=model,
    )
    if fleet:
        raise typer.Exit(_explain_fleet(request, needs, fleet_as, format))
    decision = decide_for(request, place)
    if format == "json":
        write_json({"type": "Decision", **msgspec.to_builtins(decision)})
    elif format == "quiet":
        put_data(sys.stdout, *(f"{candidate.peer}\n" for candidate in decision.candidates))
    else:
        put_out(*(f"{line}\n" for line in lines_of(decision, clock=clock)))
    if not decision.candidates:
        raise typer.Exit(ExitCode.NO_PEER)


def _explain_fleet(
    request: DelegationRequest, needs: str | None, name: str | None, format: str
) -> int:
    from dragoman.cli.exit_codes import ExitCode
    from dragoman.cli.fleet_setup import as_submitter, require_fleet, words_of
    from dragoman.cli.output.fleet_pages import write_placement

    require_fleet()
    from dragoman.fleet.connection import FleetConnection
    from dragoman.fleet.submitter import ask, spec_of

    spec_of(request)

    async def work(connection: FleetConnection, team: str) -> bool:
        reply = await ask(connection, "workers")
        return write_placement(
            reply.workers, team, needs=words_of(needs), peer=request.peer, format=format
        )

    return ExitCode.OK if as_submitter(name, work) else ExitCode.NO_PEER
