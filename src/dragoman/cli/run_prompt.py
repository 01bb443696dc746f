"""Execute `dragoman run`: read the prompt, run one turn, return the exit code.

Must not import typer, because `cli.entry` calls this without loading it. The plan is built by
`run_plan`, the turn is run by `cli.prompt_session` and rendered by `cli.output`.
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
    from dragoman.runs.adapter_run import AdapterWork


def run(
    *,
    command: tuple[str, ...] | None,
    peer: str | None,
    prompt: Sequence[str],
    file: Path | None,
    image: Sequence[Path],
    no_stdin: bool,
    timeout: float | None,
    trace: Path | None,
    role: str | None,
    host: str | None = None,
    **given: Any,
) -> int:
    """Run one turn, on the machine `host` if one is named, and return the exit code. The parameters
    are the options of `dragoman run`; `command` has the words after ``--``."""
    began_at = time.monotonic()
    if host is not None:
        from dragoman.cli import host_run

        added = {"file": file, "image": image, "no_stdin": no_stdin, "prompt": prompt}
        given |= {"timeout": timeout, "trace": trace, "role": role, "command": command}
        return host_run.run(host, peer=peer, **added, **given)
    words = [*([] if peer is None else [peer]), *prompt]
    from dragoman.cli.read_input import read_prompt
    from dragoman.cli.run_plan import RunOptions, prepare, within

    options = RunOptions(
        peer=peer,
        takes_prompt=True,
        command=command,
        prompt=prompt,
        timeout=timeout,
        role=role,
        **given,
    )
    plan, show = prepare(options, trace)
    try:
        typed = " ".join(words[1:] if plan.is_named else words) or None
        adapted = command is None and plan.way.has_adapter
        before = "" if adapted else _prefix(plan, role)
        text = read_prompt(typed, file, no_stdin=no_stdin, timeout=timeout, on_wait=show.notice)
        plan = within(plan, timeout, began_at)
        adapter = None
        if adapted:
            plan, adapter = _with_adapter(plan, role)
        return _run(plan, show, typed, before + text, image, adapter)
    except DragomanError as error:
        from dragoman.cli import error_messages

        show.failed(error)
        return error_messages.exit_code(error)


def _prefix(plan: RunPlan, role: str | None) -> str:
    """Return the text that a peer's descriptor puts before prompts of a role; empty if there is
    none. Raises `UsageError` if a role is requested of an agent without roles, and `RoleNotClaimed`
    if the peer does not claim it."""
    if role is None:
        return ""
    descriptor = plan.way.descriptor
    if descriptor is None:
        raise UsageError("--role needs a peer that has roles: name one that `dragoman peers` lists")
    if role not in descriptor.roles:
        raise RoleNotClaimed(descriptor.name, role, descriptor.roles)
    return descriptor.role_prefixes.get(role, "")


def _with_adapter(plan: RunPlan, role: str | None) -> tuple[RunPlan, AdapterWork]:
    """Return the plan, changed for the Python adapter of its peer, and that adapter. The plan gets
    the role that the adapter performs, and uses no broker. Raises `ConfigInvalid` if the adapter
    cannot be used, and `UsageError` with --no-wait."""
    from msgspec.structs import replace

    from dragoman.delegation.permission_ceiling import environment
    from dragoman.runs.adapter_run import adapter_work
    from dragoman.runs.context import load_context

    if plan.no_wait:
        raise UsageError(
            f"{plan.name} is run by its Python adapter inside this command, and a broker "
            "cannot continue it: omit --no-wait, or run the command in the background"
        )
    adapter = adapter_work(plan.name, load_context(plan.workspace), role=role)
    assert adapter is not None
    lineage = plan.lineage
    if lineage:
        # The rules of the role, which may be the default one, also apply to nested delegations.
        limits = environment(plan.whole_policy, peer=plan.name, role=adapter.role)
        lineage = {**lineage, **limits}
    return replace(plan, role=adapter.role, lineage=lineage, warm=False), adapter


def _run(
    plan: RunPlan,
    show: Renderer,
    prompt: str | None,
    text: str,
    images: Sequence[Path],
    adapter: AdapterWork | None,
) -> int:
    from dragoman.cli import read_input
    from dragoman.cli.command_loop import CommandLoop, perform
    from dragoman.cli.prompt_session import talking

    # Read and checked before an agent is started.
    shown = [read_input.read_image(path) for path in images]
    typed = "" if prompt in (None, read_input.STDIN) else str(prompt)
    list(read_input.mentioned(typed, plan.workspace))
    read_input.tell_missing(typed, plan.workspace, show.notice)
    live = CommandLoop()

    async def work() -> int:
        async with talking(plan, live, show, adapter=adapter) as session:
            blocks = read_input.blocks(
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
