"""`dragoman delegate`: help, and interrupt handling for a delegation.

Options are in `cli.prompt_options`, routing and fallback in `delegation`, rendering in
`output.delegation_output`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dragoman.cli.command_module import CONTEXT, new_app, with_options
from dragoman.cli.prompt_options import COMMANDS
from dragoman.errors import DragomanError, UsageError

if TYPE_CHECKING:
    from dragoman.cli.output.renderer import Renderer
    from dragoman.delegation import DelegationRequest, Executor
    from dragoman.runs.context import RunContext

HELP = """
Delegate a task to a peer that claims the role.

ROLE is the kind of work, such as review, research or execute: `dragoman peers` lists the roles of
each peer. The first enabled peer that can do the work is used; `dragoman explain ROLE` shows in
advance which one that is and why. With --agent the role and the peer come from an agent file's
`delegate_to`, and its instructions are sent along; then the only argument is the prompt. Piped
stdin is added to the prompt, unless --no-stdin is given.

Failures are always reported. If a peer fails without having changed anything, the next peer is
tried, then the configured local model, then scout. The result lists every attempt with its reason,
time and cost. Every delegation is a job: its id is printed at once, and `dragoman jobs watch`
follows it.

With --fleet a worker of your fleet does it, in a copy of this repository and with its own peers and
permissions. Its patch is kept here, or applied with --apply. Ctrl-C cancels the job there.

\b
Examples:
  dragoman delegate review "look at the last commit"
  dragoman delegate execute "fix the failing test" --approve-all --check "pytest -q"
  dragoman delegate execute "rename Foo to Bar" --approve-all --isolate --apply
  dragoman delegate execute "fix the failing test" --fleet --needs linux --apply
  dragoman delegate --agent agents/reviewer.md "look at @src/app.py"
  dragoman delegate plan "split the parser" --peer cursor --no-fallback
  git diff | dragoman delegate review "is this safe?" --strict
  dragoman delegate research "what is HTTP/3?" --tier fast --format json | jq .type

\b
Exit codes:
  0 done         3 timeout             6 login needed   9 budget used up
  1 failed       5 permission denied   7 no peer        130 interrupted
  2 wrong usage                        8 quota
"""

app = new_app()


@app.command(help=HELP, context_settings=CONTEXT)
@with_options(*COMMANDS["delegate"])
def delegate(
    *,
    no_fallback: bool,
    strict: bool,
    cwd: Path | None,
    format: str | None,
    json_strict: bool,
    verbose: bool,
    fleet: bool,
    needs: str | None,
    retry_lost: bool,
    fleet_as: str | None,
    isolate: bool,
    **given: Any,
) -> None:
    began_at = time.monotonic()
    if no_fallback and strict:
        raise UsageError("--no-fallback and --strict cannot be combined: choose one")
    for option, value in (
        ("--needs", needs),
        ("--retry-lost", retry_lost),
        ("--fleet-as", fleet_as),
    ):
        if value and not fleet:
            raise UsageError(f"{option} works only with --fleet")

    from dragoman.cli import error_messages
    from dragoman.cli.output.renderer import show_as
    from dragoman.cli.run_plan import log_for, shown_as, workspace_of
    from dragoman.runs.context import load_context

    place = load_context(workspace_of(cwd), flags={"format": format})
    asked = shown_as(format, strict=json_strict)
    log_for(strict=json_strict, verbose=verbose)
    show = show_as(asked or place.config.settings.format, strict=json_strict, verbose=verbose)
    try:
        for problem in place.config.problems:
            # A skipped rule or limit would allow too much.
            raise problem
        fallback = "none" if no_fallback else "peers" if strict else None
        executor = _executor(needs, fleet_as, retry_lost=retry_lost) if fleet else None
        request = _request(
            place,
            fallback=fallback,
            on_wait=show.notice,
            # A worker of a fleet has a copy of the repository.
            isolate=isolate or fleet,
            began_at=began_at,
            **given,
        )
        code = _run(request, place, show, executor)
    except DragomanError as error:
        show.failed(error)
        raise typer.Exit(error_messages.exit_code(error)) from None
    raise typer.Exit(code)


def _executor(needs: str | None, name: str | None, *, retry_lost: bool) -> Executor:
    from dragoman.cli.fleet_setup import require_fleet, words_of

    require_fleet()
    from dragoman.fleet.executor import FleetExecutor

    return FleetExecutor(name=name, needs=words_of(needs), retry_lost=retry_lost)


def _request(
    place: RunContext,
    *,
    role: str | None,
    prompt: list[str],
    file: Path | None,
    agent: Path | None,
    peer: str | None,
    no_stdin: bool,
    approve_all: bool,
    approve_reads: bool,
    deny_all: bool,
    system_prompt: str | None,
    allow_tool: list[str],
    max_turns: int | None,
    timeout: float | None,
    began_at: float,
    on_wait: Callable[[str], object],
    **more: Any,
) -> DelegationRequest:
    from dragoman.cli import read_input
    from dragoman.cli.permission_flags import permissions_of
    from dragoman.cli.run_plan import require_tools_may_be_allowed, session_settings
    from dragoman.delegation import DelegationRequest, read_agent
    from dragoman.runs.run_values import Deadline

    if timeout is not None and not timeout > 0:
        raise UsageError("--timeout must be greater than 0")
    wanted = session_settings(system_prompt, allow_tool, max_turns)
    if allow_tool:
        require_tools_may_be_allowed(deny_all=deny_all, ceilings=())
    typed = " ".join(prompt) or None
    if agent is not None and typed is None and file is None:
        role, typed = None, role
    if not role and agent is None:
        roles = ", ".join(place.role_catalogue().roles)
        raise UsageError(
            f"name a role and the task: the roles are {roles}",
            remedy="`dragoman delegate ROLE TASK`, such as "
            '`dragoman delegate review "the last commit"`',
        )
    text = read_input.read_prompt(typed, file, no_stdin=no_stdin, timeout=timeout, on_wait=on_wait)
    mentioning = typed if typed is not None and typed != read_input.STDIN else ""
    files = len(list(read_input.mentioned(mentioning, place.cwd)))
    read_input.tell_missing(mentioning, place.cwd, on_wait)
    if agent is not None:
        assigned = read_agent(
            agent if agent.is_absolute() else place.cwd / agent, place.role_catalogue()
        )
        text = assigned.prompt(text)
        role, peer = role or assigned.role, peer or assigned.peer
    if not role:
        raise UsageError(f"{agent} has no delegate_to, so name the role before the prompt")
    return DelegationRequest(
        role=role,
        prompt=text,
        workspace=place.cwd,
        peer=peer,
        permissions=permissions_of(
            approve_all=approve_all, approve_reads=approve_reads, deny_all=deny_all
        ),
        session=wanted,
        timeout=timeout,
        deadline=None
        if timeout is None
        else Deadline(timeout, began_at + timeout, option="--timeout"),
        files=files,
        attach=lambda workspace, can: [
            read_input.content_of(path, can) for path in read_input.mentioned(mentioning, workspace)
        ],
        **more,
    )


def _run(
    request: DelegationRequest, place: RunContext, show: Renderer, executor: Executor | None
) -> int:
    import asyncio

    from dragoman.cli.command_loop import CommandLoop, perform
    from dragoman.cli.exit_codes import ExitCode
    from dragoman.cli.output.delegation_output import DelegationOutput as Telling
    from dragoman.cli.output.terminal import is_interactive
    from dragoman.cli.permission_flags import TerminalApprover
    from dragoman.cli.prompt_session import inquire_at
    from dragoman.delegation import CancelHandle, delegate_request

    live = CommandLoop()
    cancel = CancelHandle()
    settings = place.config.settings
    telling = Telling(
        show,
        place.catalogue,
        permissions_for=lambda peer: request.permissions or settings.permissions_for(peer),
        env_for=lambda peer: settings.for_peer(peer).env,
    )

    async def work() -> int:
        main = asyncio.current_task()
        assert main is not None

        def interrupted(count: int) -> None:
            if count == 1 and not live.terminated:
                show.notice("cancelling; press Ctrl-C again to quit immediately")
                cancel.pull()
            else:
                cancel.pulled = True
                main.cancel()

        closed = False

        def output_closed() -> None:
            # Without a message: no one reads the output any more.
            nonlocal closed
            closed = True
            cancel.pull()

        live.listen(interrupted)
        show.on_broken = output_closed
        show.asks_forms = interactive = is_interactive()
        asks = interactive and request.permissions is None
        done = await delegate_request(
            request,
            place=place,
            listener=telling,
            caller=TerminalApprover(live) if asks else None,
            inquire=inquire_at(live) if interactive else None,
            cancel=cancel,
            executor=executor,
        )
        code = telling.over(done, terminated=live.terminated) or int(show.lost)
        return ExitCode.FAILED if closed and done.interrupted and not live.interrupts else code

    return perform(live, work)
