"""Actions that the user starts from the page: prompts, handovers and delegations.

A prompt or handover becomes a request for `runs.run`, which submits the prompt to a broker. A
delegation runs in this process. The policy comes from the settings. If a delegated agent started
the console, the policy is never wider than that agent's own. With the policy `ask`, questions go to
the inbox.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from dragoman.delegation import DelegationListener, DelegationRequest, delegate_request
from dragoman.delegation.peer_request import attended_terms, peer_request
from dragoman.errors import BrokerUnavailable, DragomanError, UsageError
from dragoman.events.parts import Text
from dragoman.rpc.tasks import TaskOwner, in_thread
from dragoman.runs.adapter_run import adapter_work
from dragoman.runs.brief import brief_of
from dragoman.runs.context import load_context
from dragoman.runs.run import Run
from dragoman.runs.run_values import CancelHandle, RunListener, RunRequest

if TYPE_CHECKING:
    from dragoman.client.permissions import Decision, Question
    from dragoman.runs.brief import Brief
    from dragoman.runs.context import RunContext
    from dragoman.store.records import SessionRecord


log: Final = logging.getLogger("dragoman.console")

MAX_DELEGATIONS: Final = 32
"""Maximum number of delegations that run in one console at the same time."""


class StartedJob(Struct, omit_defaults=True):
    """A job that was started from the page."""

    job: str
    session: str = ""
    """The session key; empty for a delegation, whose attempts have sessions of their own."""
    notices: list[str] = []
    """Messages for the user from the time before the job began, such as that the peer has lost the
    session."""


async def start_run(peer: str, prompt: str, workspace: Path) -> StartedJob:
    """Start a session with a peer and send it the prompt."""
    request = await in_thread(str(workspace), lambda _: _request(peer, workspace, None))
    return await _submit(request, prompt)


async def continue_session(record: SessionRecord, prompt: str) -> StartedJob:
    """Send a prompt to a stored session. The prompt is queued behind running and waiting turns."""
    folder = Path(record.cwd)
    request = await in_thread(record.cwd, lambda _: _request(record.peer, folder, record))
    return await _submit(request, prompt)


async def hand_over(record: SessionRecord, peer: str, prompt: str) -> StartedJob:
    """Send a prompt to another peer, in a new session, with a summary of the old session."""
    folder = Path(record.cwd)
    request = await in_thread(record.cwd, lambda _: _request(peer, folder, None))
    brief = await brief_of(record)
    return await _submit(request, prompt, brief=brief)


class RunningDelegations:
    """Delegations started from the page. They end with the console."""

    def __init__(self) -> None:
        self._tasks = TaskOwner("console delegations")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    async def start(
        self, role: str, prompt: str, workspace: Path, *, isolate: bool = False
    ) -> StartedJob:
        """Start a delegation, and return its job as soon as it has one. Raises the error if the
        delegation fails before that, and `UsageError` if `MAX_DELEGATIONS` are running."""
        request = DelegationRequest(role=role, prompt=prompt, workspace=workspace, isolate=isolate)
        place = await in_thread(str(workspace), lambda _: _context(workspace))
        if len(self._tasks) >= MAX_DELEGATIONS:
            raise UsageError(
                f"this console already runs {MAX_DELEGATIONS} delegations; wait for one to end, "
                "or cancel one"
            )
        begun: asyncio.Future[StartedJob] = asyncio.get_running_loop().create_future()
        self._tasks.start(self._run(request, place, begun), f"delegate {role}")
        return await begun

    async def _run(
        self, request: DelegationRequest, place: RunContext, begun: asyncio.Future[StartedJob]
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
                log.warning("delegation failed: %s", error)
            else:
                begun.set_exception(error)
        except Exception as error:
            if not begun.done():
                begun.set_exception(error)
            raise
        finally:
            if not begun.done():
                begun.set_exception(
                    UsageError("the console is shutting down, so nothing was delegated")
                )


class _BegunListener(DelegationListener):
    def __init__(self, begun: asyncio.Future[StartedJob]) -> None:
        self._begun = begun
        self._notices: list[str] = []

    def job(self, job: str) -> None:
        if not self._begun.done():
            self._begun.set_result(StartedJob(job, notices=self._notices))

    def notice(self, text: str) -> None:
        log.warning("delegation: %s", text)
        if not self._begun.done():
            self._notices.append(text)


class _SubmitListener(RunListener):
    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        log.info("%s", text)
        self.notices.append(text)


async def _from_inbox(question: Question) -> Decision:
    """Wait until the broker cancels this call: a permission request is answered in the inbox, and
    that answer goes to the broker."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable: the wait only ends by cancellation")


async def _submit(request: RunRequest, prompt: str, *, brief: Brief | None = None) -> StartedJob:
    if not prompt.strip():
        raise UsageError("the prompt is empty")
    listener = _SubmitListener()
    async with Run(request, listener=listener) as run:
        if not run.warm:
            # The notices say why there is no broker.
            why = "; ".join(listener.notices)
            raise BrokerUnavailable(f"a prompt from the console needs a broker ({why})")
        told = () if brief is None else (brief.block(run.peer.capabilities),)
        job = await run.submit([*told, Text(prompt)])
        return StartedJob(job, run.opened.key, listener.notices)


def _context(workspace: Path) -> RunContext:
    if not workspace.is_absolute():
        raise UsageError(f"the workspace is not an absolute path: {workspace}")
    # Not `Path.is_dir`, which raises an error for a path that is too long or must not be read.
    if not os.path.isdir(workspace):
        raise UsageError(f"the workspace is not a directory: {workspace}")
    return load_context(workspace)


def _request(peer: str, workspace: Path, record: SessionRecord | None) -> RunRequest:
    place = _context(workspace)
    if not place.is_enabled(peer):
        raise UsageError(f"{peer} is not enabled: run `dragoman peers enable {peer}`")
    if adapter_work(peer, place) is not None:
        raise UsageError(
            f"{peer} has a Python adapter, which a broker cannot run: use `dragoman run`"
        )
    terms = attended_terms(peer, place)
    request = peer_request(
        terms.launch,
        place=place,
        workspace=workspace,
        policy=terms.policy,
        lineage=terms.lineage,
        adapter=None,
        warm=True,
    )
    return structs.replace(
        request,
        record=record,
        # If the peer has lost the session, continue in a new one with a summary.
        fresh=True,
        brief=True,
        keep_open=True,
        model_strict=record is None,
        restored_as_is=True,
    )
