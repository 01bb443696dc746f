"""`dragoman chat`: help, and the loop that reads a prompt and runs a turn.

Options are in `cli.prompt_options`, turns and interrupts in `cli.prompt_session`; `command_loop`
reads lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dragoman.cli.command_module import (
    CONTEXT,
    WithCommandLine,
    new_app,
    with_options,
    words_after_dashes,
)
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.prompt_options import COMMANDS
from dragoman.errors import BrokerError, ConnectionLost, DragomanError, UsageError

if TYPE_CHECKING:
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.cli.output.renderer import Renderer
    from dragoman.cli.prompt_session import PromptSession
    from dragoman.cli.run_plan import RunPlan

HELP = """
Talk with an agent, turn by turn.

Every line is a prompt in one session. /help shows the agent's own commands, /quit and the end of
input (Ctrl-D) leave. Ctrl-C cancels the running turn; twice, or at the prompt, it leaves. Without a
terminal each line of stdin is a prompt, and the exit code is that of the first turn that failed.

\b
Examples:
  dragoman chat scout
  dragoman chat gemini -s parser               go on where -s parser was left
  dragoman chat codex --model gpt-5 --cwd ~/project
  dragoman chat -- python my_agent.py
  printf 'hello\\nand again\\n' | dragoman chat scout
"""

app = new_app()


@app.command(cls=WithCommandLine, help=HELP, context_settings=CONTEXT)
@with_options(*COMMANDS["chat"])
def chat(context: typer.Context, *, peer: str | None, trace: Path | None, **given: Any) -> None:
    command = words_after_dashes(context)
    if peer is not None and command is not None:
        raise UsageError("name a peer, or give a command line after --, and not both")

    from dragoman.cli.command_loop import CommandLoop
    from dragoman.cli.command_start import perform, prepare
    from dragoman.cli.run_plan import RunOptions

    plan, show = prepare(RunOptions(peer=peer, command=command, **given), trace)
    live = CommandLoop()
    try:
        code = perform(live, lambda: converse(plan, live, show))
    except DragomanError as error:
        from dragoman.cli import error_messages

        show.failed(error)
        raise typer.Exit(error_messages.exit_code(error)) from None
    raise typer.Exit(code)


async def converse(plan: RunPlan, live: CommandLoop, show: Renderer) -> int:
    """Prompts and turns until somebody leaves."""
    from dragoman.cli.output.terminal import is_interactive
    from dragoman.cli.prompt import blocks
    from dragoman.cli.prompt_session import talking

    interactive = is_interactive()
    show.tells_jobs = False
    code = 0
    async with talking(plan, live, show) as session:
        if interactive:
            info = session.run.peer.info
            named = info.title or info.name or plan.name
            show.notice(f"talking with {named}; /help for its commands, Ctrl-D to leave")
        while (line := await _next_line(live, interactive=interactive)) is not None:
            word = line.strip()
            if word in ("/quit", "/exit"):
                break
            if not word:
                continue
            if word == "/help":
                _show_help(session, show)
                continue
            try:
                content = blocks(
                    line,
                    typed=line,
                    images=(),
                    workspace=plan.workspace,
                    can=session.run.peer.capabilities,
                    peer=plan.name,
                )
            except UsageError as error:
                show.failed(error)
                code = code or 2
                continue
            report = await session.turn(content)
            code = code or report.exit_code
            lost = isinstance(report.result.error, ConnectionLost | BrokerError)
            if show.broken or live.terminated or lost:
                return report.exit_code
            live.calm()
    return int(show.lost) if interactive else code or int(show.lost)


def _show_help(session: PromptSession, show: Renderer) -> None:
    # Programs get the commands as an event, and every line of their output is JSON.
    if session.plan.format == "json":
        show.notice(help_of(session))
    else:
        put_out(help_of(session))


async def _next_line(live: CommandLoop, *, interactive: bool) -> str | None:
    from dragoman.cli.command_loop import Interrupted

    try:
        return await live.line("> " if interactive else "")
    except Interrupted:
        put_err("\n")
        return None


def help_of(session: PromptSession) -> str:
    """The commands of the agent, and ours."""
    from dragoman.cli.output.escape import one_line
    from dragoman.cli.output.tables import aligned

    rows = [("  /help", "show this list"), ("  /quit", "leave")]
    for command in session.run.seen.view.commands:
        hint = f" {one_line(command.hint)}" if command.hint else ""
        rows.append((f"  /{one_line(command.name)}{hint}", one_line(command.description)))
    return "\n".join(aligned(rows)) + "\n"
