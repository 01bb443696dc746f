"""`dragoman explain`: show which peers routing would choose for a role, and why it rejects others.

Options are in `cli.prompt_options`. `delegation.routing` decides. Nothing is started or written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app, with_options
from dragoman.cli.output.terminal import put_data, put_out
from dragoman.cli.prompt_options import COMMANDS
from dragoman.errors import UsageError

HELP: Final = """
Show which peers would be used, in which order, and why others are not.

Each peer is listed exactly once: as a candidate, with the results of its delegations in this role
over the last 90 days, or as passed over, with one reason and what to do about it. The setting
`adaptive` controls whether measured success changes the order: off, shadow (the default: compared
but not used) or on. Nothing is started. The exit code is 7 if no peer can be used.

\b
Examples:
  dragoman explain review
  dragoman explain execute --tier strong
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
) -> None:
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
        raise UsageError("name a role: `dragoman peers` lists the claimed roles")
    request = DelegationRequest(
        role=role,
        prompt=prompt or role,
        workspace=place.cwd,
        peer=peer,
        tier=tier,
        model=model,
    )
    decision = decide_for(request, place)
    if format == "json":
        write_json({"type": "Decision", **msgspec.to_builtins(decision)})
    elif format == "quiet":
        put_data(sys.stdout, *(f"{candidate.peer}\n" for candidate in decision.candidates))
    else:
        put_out(*(f"{line}\n" for line in lines_of(decision, clock=clock)))
    if not decision.candidates:
        raise typer.Exit(ExitCode.NO_PEER)
