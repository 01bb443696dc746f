"""Execute `dragoman run`: read the prompt, run one turn, return the exit code.

Must not import typer: `cli.fast_parser` calls it without. The plan is built by `run_plan`, the
turn is run by `cli.prompt_session`, or by `cli.adapter_prompt` if the peer has an adapter, and
rendered by `cli.output`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.errors import DragomanError, RoleNotClaimed, UsageError

if TYPE_CHECKING:
    from dragoman.cli.output.renderer import Renderer
    from dragoman.cli.run_plan import RunPlan


def run(
    *,
    command: tuple[str, ...] | None,
    peer: str | None = None,
    prompt: str | None = None,
    file: Path | None = None,
    image: Sequence[Path] | None = None,
    no_stdin: bool = False,
    timeout: float | None = None,
    trace: Path | None = None,
    env: Sequence[str] | None = None,
    role: str | None = None,
    **wished: Any,
) -> int:
    """Run one turn; its exit code. What is `wished` is in `options.RunOptions`."""
    if command is not None:
        if prompt is not None:
            raise UsageError(f"choose one: the peer {peer!r}, or the command after --")
        peer, prompt = None, peer
    if peer is None and command is None:
        raise UsageError("name a peer, or give a command line after --")

    from dragoman.cli.command_start import prepare
    from dragoman.cli.prompt import read_prompt
    from dragoman.cli.read_input import remaining
    from dragoman.cli.run_plan import RunOptions, within

    options = RunOptions(
        peer=peer, command=command, env=env or (), timeout=timeout, role=role, **wished
    )
    plan, show = prepare(options, trace)
    try:
        adapter = command is None and has_adapter(plan)
        if adapter:
            from dragoman.cli.adapter_prompt import refuse_options

            refuse_options(plan, images=len(image or ()))
        before = "" if adapter else _prefix(plan, role)
        began_at = time.monotonic()
        text = read_prompt(prompt, file, no_stdin=no_stdin, timeout=timeout, on_wait=show.notice)
        plan = within(plan, remaining(timeout, time.monotonic() - began_at))
        if adapter:
            return _run_adapter(plan, show, role, text)
        return _run(plan, show, prompt, before + text, image or ())
    except DragomanError as error:
        from dragoman.cli import error_messages

        show.failed(error)
        return error_messages.exit_code(error)


def has_adapter(plan: RunPlan) -> bool:
    """Whether the peer of a plan is run by a Python adapter."""
    return plan.way.descriptor is not None and plan.way.descriptor.adapter is not None


def _prefix(plan: RunPlan, role: str | None) -> str:
    """What the descriptor of a peer puts before prompts of a role."""
    if role is None:
        return ""
    descriptor = plan.way.descriptor
    if descriptor is None:
        raise UsageError("--role needs a peer that has roles: name one that `dragoman peers` lists")
    if role not in descriptor.roles:
        raise RoleNotClaimed(descriptor.name, role, descriptor.roles)
    return descriptor.role_prefixes.get(role, "")


def _run_adapter(plan: RunPlan, show: Renderer, role: str | None, text: str) -> int:
    from dragoman.cli.adapter_prompt import run_adapter
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.cli.command_start import perform

    live = CommandLoop()
    return perform(live, lambda: run_adapter(plan, live, show, role=role, text=text))


def _run(
    plan: RunPlan, show: Renderer, prompt: str | None, text: str, images: Sequence[Path]
) -> int:
    from dragoman.cli import prompt as cli_prompt
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.cli.command_start import perform
    from dragoman.cli.prompt_session import talking

    # Read and refused before an agent is started for it.
    shown = [cli_prompt.read_image(path) for path in images]
    typed = "" if prompt in (None, cli_prompt.STDIN) else str(prompt)
    list(cli_prompt.mentioned(typed, plan.workspace))
    live = CommandLoop()

    async def work() -> int:
        async with talking(plan, live, show) as session:
            blocks = cli_prompt.blocks(
                text,
                typed=typed,
                images=shown,
                workspace=plan.workspace,
                can=session.run.peer.capabilities,
                peer=plan.name,
            )
            if plan.no_wait:
                show.submitted(await session.run.submit(blocks), session.run.opened.key)
                return int(show.lost)
            report = await session.turn(blocks)
            session.mute()
            return report.exit_code or int(show.lost)

    return perform(live, work)
