"""What a person does from the page: prompt a peer, stop a job.

Builds the request for `runs.run`, which leaves the prompt with a broker. The policy is that of the
settings, and where it says `ask`, the question comes to the inbox.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.catalogue.enforcement import enforce
from dragoman.catalogue.launch import way_to
from dragoman.client.options import ConnectOptions
from dragoman.delegation.permission_ceiling import policy_for
from dragoman.errors import UsageError
from dragoman.events.parts import Text
from dragoman.policy import allows_everything, unattended
from dragoman.policy.approver import Approver
from dragoman.runs.adapter_run import adapter_work
from dragoman.runs.context import load_context
from dragoman.runs.run import Run
from dragoman.runs.run_values import RunRequest

if TYPE_CHECKING:
    from dragoman.store.records import SessionRecord


async def start_run(peer: str, prompt: str, workspace: Path) -> tuple[str, str]:
    """Begin a session with a peer. Returns the key of the session and the id of the job."""
    request = await asyncio.to_thread(_request, peer, workspace, None)
    return await _submit(request, prompt)


async def continue_session(record: SessionRecord, prompt: str) -> tuple[str, str]:
    """Prompt in a stored session, behind the turns that run or wait there."""
    request = await asyncio.to_thread(_request, record.peer, Path(record.cwd), record)
    return await _submit(request, prompt)


async def _submit(request: RunRequest, prompt: str) -> tuple[str, str]:
    if not prompt.strip():
        raise UsageError("the prompt is empty")
    async with Run(request) as run:
        return run.opened.key, await run.submit([Text(prompt)])


def _request(peer: str, workspace: Path, record: SessionRecord | None) -> RunRequest:
    if not workspace.is_absolute() or not workspace.is_dir():
        raise UsageError(f"not a directory: {workspace}; name one by its full path")
    place = load_context(workspace)
    settings = place.config.settings
    if not place.is_enabled(peer):
        raise UsageError(f"{peer} is not enabled; `dragoman peers enable {peer}` does that")
    own = settings.for_peer(peer)
    policy = policy_for(settings, peer, wished=None, attended=True)
    launch = way_to(peer, catalogue=place.catalogue, settings=settings, environ=place.environ)
    enforced = enforce(
        launch,
        restricts=not allows_everything(policy),
        mode=own.mode,
        card=place.cards().latest(peer),
        allow_unenforced=own.allow_unenforced,
    )
    way = enforced.way
    adapter = adapter_work(peer, place)
    if adapter is not None:
        raise UsageError(f"{peer} has a Python adapter, which no broker runs: use `dragoman run`")
    return RunRequest(
        peer=peer,
        enforced=enforced,
        adapter=None,
        workspace=workspace,
        record=record,
        # A session that the peer has lost continues in a new one with a summary.
        fresh=True,
        brief=True,
        keep_open=True,
        mode=own.mode,
        model=own.model,
        model_strict=record is None,
        restored_as_is=True,
        approver=Approver(policy, peer, str(workspace), titled=way.quirks.command_titles),
        unattended=unattended(policy, peer=peer),
        budgets=settings.budgets(way.budgets()),
        ttl=place.config.chosen_ttl,
        max_idle=settings.max_idle_brokers,
        paths=place.paths,
        options=ConnectOptions(inherit=own.env, max_line_size=settings.max_line_size),
    )
