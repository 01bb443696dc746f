"""`dragoman delegate`: help, and interrupts of a delegation.

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
    from dragoman.delegation import DelegationRequest
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

\b
Examples:
  dragoman delegate review "look at the last commit"
  dragoman delegate execute "fix the failing test" --approve-all --check "pytest -q"
  dragoman delegate execute "rename Foo to Bar" --approve-all --isolate --apply
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
    **given: Any,
) -> None:
    if no_fallback and strict:
        raise UsageError("--no-fallback and --strict cannot be combined: choose one")

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
        request = _request(place, fallback=fallback, on_wait=show.notice, **given)
        code = _run(request, place, show)
    except DragomanError as error:
        show.failed(error)
        raise typer.Exit(error_messages.exit_code(error)) from None
    raise typer.Exit(code)


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
    on_wait: Callable[[str], object],
    **more: Any,
) -> DelegationRequest:
    from dragoman.cli import read_input
    from dragoman.cli.permission_flags import permissions_of
    from dragoman.cli.run_plan import require_tools_may_be_allowed, session_settings
    from dragoman.delegation import DelegationRequest, read_agent

    if timeout is not None and not timeout > 0:
        raise UsageError("--timeout must be a number of seconds greater than 0")
    wanted = session_settings(system_prompt, allow_tool, max_turns)
    if allow_tool:
        require_tools_may_be_allowed(deny_all=deny_all, ceilings=())
    typed = " ".join(prompt) or None
    if agent is not None and typed is None and file is None:
        role, typed = None, role
    began_at = time.monotonic()
    text = read_input.read_prompt(typed, file, no_stdin=no_stdin, timeout=timeout, on_wait=on_wait)
    timeout = read_input.remaining(timeout, time.monotonic() - began_at)
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
        raise UsageError(
            "name a role: `dragoman peers` lists the claimed roles"
            if agent is None
            else f"{agent} has no delegate_to, so name the role before the prompt"
        )
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
        files=files,
        attach=lambda workspace, can: [
            read_input.content_of(path, can) for path in read_input.mentioned(mentioning, workspace)
        ],
        **more,
    )


def _run(request: DelegationRequest, place: RunContext, show: Renderer) -> int:
    import asyncio

    from dragoman.cli.command_loop import CommandLoop, perform
    from dragoman.cli.output.delegation_output import DelegationOutput as Telling
    from dragoman.cli.output.terminal import is_interactive
    from dragoman.cli.permission_flags import TerminalApprover
    from dragoman.delegation import CancelHandle, delegate_request

    live = CommandLoop()
    cancel = CancelHandle()
    telling = Telling(show)

    async def work() -> int:
        main = asyncio.current_task()
        assert main is not None

        def interrupted(count: int) -> None:
            if count == 1 and not live.terminated:
                show.notice("cancelling; press Ctrl-C again to leave at once")
                cancel.pull()
            else:
                cancel.pulled = True
                main.cancel()

        live.listen(interrupted)
        show.on_broken = lambda: interrupted(1)
        asks = is_interactive() and request.permissions is None
        done = await delegate_request(
            request,
            place=place,
            listener=telling,
            caller=TerminalApprover(live) if asks else None,
            cancel=cancel,
        )
        return telling.over(done, terminated=live.terminated) or int(show.lost)

    return perform(live, work)
