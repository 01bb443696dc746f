"""Set up a command that prompts an agent: plan, renderer, log, trace, interrupts.

Errors are shown in the requested output format. Outside a turn, an interrupt cancels the command
and sets its exit code. Shared by all commands that prompt or watch an agent.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.exit_codes import ExitCode
from dragoman.cli.output.renderer import Format, Renderer, show_as
from dragoman.cli.output.terminal import held
from dragoman.cli.output.terminal_log import TerminalLog
from dragoman.cli.run_plan import RunOptions, RunPlan, plan_of
from dragoman.errors import DragomanError, UsageError
from dragoman.rpc.connection import TRACE_VARIABLE


def prepare(options: RunOptions, trace: Path | None) -> tuple[RunPlan, Renderer]:
    """The plan for the wishes, and the show of it."""
    asked: Format = _format(options)
    log_for(strict=options.json_strict, verbose=options.verbose)
    if trace is not None:
        # Agents do not get it: a child sees only variables that are allowed.
        os.environ[TRACE_VARIABLE] = str(trace.absolute())
    try:
        plan = plan_of(options)
    except DragomanError as error:
        from dragoman.cli import error_messages

        show_as(asked, strict=options.json_strict).failed(error)
        # Typer lets it pass, and `run` does without typer.
        raise SystemExit(int(error_messages.exit_code(error))) from None
    return plan, show_of(plan, options)


def show_of(plan: RunPlan, options: RunOptions) -> Renderer:
    """The renderer of a plan, which has shown its notices. A trace is redacted for its peer."""
    if os.environ.get(TRACE_VARIABLE):
        # Not at the top: a command without a trace does not load it.
        from dragoman.config.secrets import redactor
        from dragoman.rpc.trace import redact_with

        redact_with(redactor((*plan.way.inherit, *plan.env)))
    show = show_as(plan.format, strict=options.json_strict, verbose=options.verbose)
    for notice in plan.notices:
        show.notice(notice)
    return show


def _format(options: RunOptions) -> Format:
    return shown_as(options.format, strict=options.json_strict) or "text"


def shown_as(format: str | None, *, strict: bool) -> Format | None:
    """The format that was asked for; None leaves it to the settings."""
    if strict:
        if format not in (None, "json"):
            raise UsageError(f"--json-strict and --format {format} contradict each other")
        return "json"
    return format  # type: ignore[return-value]


def log_for(*, strict: bool, verbose: bool) -> None:
    """Let our own log be seen, or not at all."""
    log = logging.getLogger("dragoman")
    if strict:
        log.addHandler(logging.NullHandler())
        log.propagate = False
    elif verbose:
        handler = TerminalLog()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)


def perform(live: CommandLoop, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run the work; its exit code, or that of the interrupt that ended it."""

    async def guarded() -> int:
        try:
            return await work()
        except asyncio.CancelledError:
            if not live.interrupts:
                raise
            # The interrupt cancelled us, and only the process itself waits for this task.
            return ExitCode.TERMINATED if live.terminated else ExitCode.INTERRUPTED

    try:
        return live.run(guarded)
    finally:
        # However it ended: no status line is left on a terminal.
        held.close_overlay()
