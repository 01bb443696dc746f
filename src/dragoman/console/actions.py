"""What a person starts from the page: prompts, handovers, and work that is delegated by its role.

Builds the request for `runs.run`, which leaves the prompt with a broker, or for `delegation`, which
runs in this process. The policy is that of the settings, and where it says `ask`, the question
comes to the inbox.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.catalogue.enforcement import enforce
from dragoman.catalogue.launch import way_to
from dragoman.client.options import ConnectOptions
from dragoman.delegation import DelegationListener, DelegationRequest, delegate_request
from dragoman.delegation.permission_ceiling import policy_for
from dragoman.errors import DragomanError, UsageError
from dragoman.events.parts import Text
from dragoman.policy import allows_everything, unattended
from dragoman.policy.approver import Approver
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.adapter_run import adapter_work
from dragoman.runs.context import load_context
from dragoman.runs.run import Run
from dragoman.runs.run_values import CancelHandle, RunRequest
from dragoman.runs.sessions import brief_of

if TYPE_CHECKING:
    from dragoman.client.permissions import Decision, Question
    from dragoman.runs.brief import Brief
    from dragoman.runs.context import RunContext
    from dragoman.store.records import SessionRecord


log: Final = logging.getLogger("dragoman.console")


async def start_run(peer: str, prompt: str, workspace: Path) -> tuple[str, str]:
    """Begin a session with a peer. Returns the key of the session and the id of the job."""
    request = await asyncio.to_thread(_request, peer, workspace, None)
    return await _submit(request, prompt)


async def continue_session(record: SessionRecord, prompt: str) -> tuple[str, str]:
    """Prompt in a stored session, behind the turns that run or wait there."""
    request = await asyncio.to_thread(_request, record.peer, Path(record.cwd), record)
    return await _submit(request, prompt)


async def hand_over(record: SessionRecord, peer: str, prompt: str) -> tuple[str, str]:
    """Continue in a new session with another peer, which gets a short summary."""
    request = await asyncio.to_thread(_request, peer, Path(record.cwd), None)
    brief = await asyncio.to_thread(brief_of, record)
    return await _submit(request, prompt, brief=brief)


class RunningDelegations:
    """Delegations that were started from the page. They end with the console."""

    def __init__(self) -> None:
        self._tasks = TaskOwner("console delegations")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    async def start(self, role: str, prompt: str, workspace: Path) -> str:
        """Delegate work. Returns the id of its job. Raises what keeps it from being begun."""
        request = DelegationRequest(role=role, prompt=prompt, workspace=workspace)
        place = await asyncio.to_thread(_context, workspace)
        begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks.start(self._run(request, place, begun), f"delegate {role}")
        return await begun

    async def _run(
        self, request: DelegationRequest, place: RunContext, begun: asyncio.Future[str]
    ) -> None:
        try:
            await delegate_request(
                request,
                place=place,
                listener=_BegunListener(begun),
                caller=_from_inbox,
                cancel=CancelHandle(),
            )
        except DragomanError as error:
            if begun.done():
                log.warning("delegated work failed: %s", error)
            else:
                begun.set_exception(error)
        finally:
            if not begun.done():
                begun.set_exception(UsageError("nothing was begun"))


class _BegunListener(DelegationListener):
    def __init__(self, begun: asyncio.Future[str]) -> None:
        self._begun = begun

    def job(self, job: str) -> None:
        if not self._begun.done():
            self._begun.set_result(job)


async def _from_inbox(question: Question) -> Decision:
    """Wait for the answer of the inbox, which comes by the broker and ends this."""
    await asyncio.Event().wait()
    raise AssertionError("this wait has no end of its own")


async def _submit(
    request: RunRequest, prompt: str, *, brief: Brief | None = None
) -> tuple[str, str]:
    if not prompt.strip():
        raise UsageError("the prompt is empty")
    async with Run(request) as run:
        told = () if brief is None else (brief.block(run.peer.capabilities),)
        return run.opened.key, await run.submit([*told, Text(prompt)])


def _context(workspace: Path) -> RunContext:
    if not workspace.is_absolute() or not workspace.is_dir():
        raise UsageError(f"not a directory: {workspace}; name one by its full path")
    return load_context(workspace)


def _request(peer: str, workspace: Path, record: SessionRecord | None) -> RunRequest:
    place = _context(workspace)
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
