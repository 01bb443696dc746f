"""`dragoman delegate`: options, help, and interrupts of a delegation.

Routing and fallback are in `delegation`, rendering is in `output.delegation_output`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli import prompt_options as options
from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.errors import DragomanError, UsageError

if TYPE_CHECKING:
    from dragoman.cli.output.renderer import Renderer
    from dragoman.delegation import DelegationRequest
    from dragoman.runs.context import RunContext

HELP = """
Give work to the peer that has earned it.

ROLE is the kind of work, such as review, research or execute: `dragoman peers` lists who claims
which. Of the enabled peers the first that can do it is asked, and `dragoman explain ROLE` tells
beforehand who that is and why. With --agent the role and the peer come from an agent file's
`delegate_to`, and its instructions go along; then the only argument is the prompt. What is piped to
stdin is added to the prompt; --no-stdin leaves it alone.

A failure is never hidden. The next peer is asked only if the failed one has changed nothing, then
the configured local model, then scout; every attempt is in the result with its reason, time and
cost. Every delegation is a job: its id is printed at once, and `dragoman jobs watch` follows it.

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
def delegate(
    role: options.Role = None,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The work; - is stdin.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Add what a file holds to the prompt; - is stdin."
        ),
    ] = None,
    no_stdin: options.NoStdin = False,
    agent: options.AgentFile = None,
    peer: Annotated[
        str | None,
        typer.Option(
            "--peer",
            metavar="NAME",
            help="Only this peer, whatever roles it claims.",
            autocompletion=options.complete_peer,
        ),
    ] = None,
    tier: options.Tier = None,
    model: options.Model = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check", metavar="COMMAND", help="Run this in the workspace: 0 says that it is good."
        ),
    ] = None,
    isolate: Annotated[
        bool,
        typer.Option("--isolate", help="Work in a git worktree of its own, which gives a patch."),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="With --isolate: apply the patch if it still fits.")
    ] = False,
    no_fallback: Annotated[
        bool, typer.Option("--no-fallback", help="Ask only the first peer.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Ask other peers, but neither the local model nor scout."),
    ] = False,
    cold: options.Cold = False,
    cwd: options.Cwd = None,
    approve_all: options.ApproveAll = False,
    approve_reads: options.ApproveReads = False,
    deny_all: options.DenyAll = False,
    allow_unenforced: options.AllowUnenforced = False,
    timeout: options.Timeout = None,
    format: options.OutputFormat = None,
    json_strict: options.JsonStrict = False,
    verbose: options.Verbose = False,
) -> None:
    if no_fallback and strict:
        raise UsageError("--no-fallback and --strict contradict each other: choose one")
    if agent is not None and prompt is None and file is None:
        role, prompt = None, role

    from dragoman.cli import error_messages
    from dragoman.cli.argv_checks import workspace_of
    from dragoman.cli.command_start import log_for, shown_as
    from dragoman.cli.output.renderer import show_as
    from dragoman.runs.context import load_context

    place = load_context(
        workspace_of(cwd), flags={"format": None if format is None else format.value}
    )
    asked = shown_as(None if format is None else format.value, strict=json_strict)
    log_for(strict=json_strict, verbose=verbose)
    show = show_as(asked or place.config.settings.format, strict=json_strict, verbose=verbose)
    try:
        for problem in place.config.problems:
            # A rule or a limit that is left out would allow too much.
            raise problem
        request = _request(
            place,
            role=role,
            prompt=prompt,
            file=file,
            agent=agent,
            peer=peer,
            tier=tier,
            model=model,
            check=check,
            isolate=isolate,
            apply=apply,
            fallback="none" if no_fallback else "peers" if strict else None,
            cold=cold,
            permissions=_permissions(approve_all, approve_reads, deny_all),
            allow_unenforced=allow_unenforced,
            timeout=timeout,
            no_stdin=no_stdin,
            on_wait=show.notice,
        )
        code = _run(request, place, show)
    except DragomanError as error:
        show.failed(error)
        raise typer.Exit(error_messages.exit_code(error)) from None
    raise typer.Exit(code)


def _permissions(approve_all: bool, approve_reads: bool, deny_all: bool) -> str | None:
    from dragoman.cli.permission_flags import policy_of

    if not (approve_all or approve_reads or deny_all):
        return None
    chosen = policy_of(
        approve_all=approve_all, approve_reads=approve_reads, deny_all=deny_all, interactive=True
    )
    return str(chosen.value)


def _request(
    place: RunContext,
    *,
    role: str | None,
    prompt: str | None,
    file: Path | None,
    agent: Path | None,
    peer: str | None,
    no_stdin: bool,
    timeout: float | None,
    on_wait: Callable[[str], object],
    **more: object,
) -> DelegationRequest:
    from dragoman.cli import prompt as cli_prompt
    from dragoman.cli import read_input
    from dragoman.delegation import DelegationRequest, read_agent

    if timeout is not None and not timeout > 0:
        raise UsageError("--timeout is a number of seconds greater than 0")
    began_at = time.monotonic()
    text = cli_prompt.read_prompt(prompt, file, no_stdin=no_stdin, timeout=timeout, on_wait=on_wait)
    timeout = read_input.remaining(timeout, time.monotonic() - began_at)
    typed = "" if prompt in (None, cli_prompt.STDIN) else str(prompt)
    files = len(list(cli_prompt.mentioned(typed, place.cwd)))
    if agent is not None:
        assigned = read_agent(
            agent if agent.is_absolute() else place.cwd / agent, place.role_catalogue()
        )
        text = assigned.prompt(text)
        role, peer = role or assigned.role, peer or assigned.peer
    if not role:
        raise UsageError(
            "name the role: `dragoman peers` lists those that are claimed"
            if agent is None
            else f"{agent} has no delegate_to, so name the role before the prompt"
        )
    return DelegationRequest(
        role=role,
        prompt=text,
        workspace=place.cwd,
        peer=peer,
        timeout=timeout,
        files=files,
        attach=lambda workspace, can: [
            cli_prompt.content_of(path, can) for path in cli_prompt.mentioned(typed, workspace)
        ],
        **more,  # type: ignore[arg-type]
    )


def _run(request: DelegationRequest, place: RunContext, show: Renderer) -> int:
    import asyncio

    from dragoman.cli.command_loop import CommandLoop
    from dragoman.cli.command_start import perform
    from dragoman.cli.output.delegation_output import DelegationOutput as Telling
    from dragoman.cli.output.terminal import is_interactive
    from dragoman.cli.permission_flags import TerminalApprover
    from dragoman.delegation import CancelHandle, delegate

    live = CommandLoop()
    cancel = CancelHandle()
    telling = Telling(show)

    async def work() -> int:
        main = asyncio.current_task()
        assert main is not None

        def interrupted(count: int) -> None:
            if count == 1 and not live.terminated:
                show.notice("cancelling; Ctrl-C once more leaves at once")
                cancel.pull()
            else:
                cancel.pulled = True
                main.cancel()

        live.listen(interrupted)
        show.on_broken = lambda: interrupted(1)
        asks = is_interactive() and request.permissions is None
        done = await delegate(
            request,
            place=place,
            listener=telling,
            caller=TerminalApprover(live) if asks else None,
            cancel=cancel,
        )
        return telling.over(done, terminated=live.terminated) or int(show.lost)

    return perform(live, work)
