"""Track the work that this MCP server started: status, stop, and shutdown.

Each piece of work runs in its own task, so that a cancelled call or a lost client stops the peer's
turn cleanly instead of cutting it off. `tool_handlers` defines the work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

from dragoman.errors import DragomanError, UnknownJob, UsageError
from dragoman.mcp_server.ask_peer import PeerLead
from dragoman.mcp_server.progress import Progress
from dragoman.mcp_server.tool_results import ToolAnswer, of_error
from dragoman.rpc.tasks import TaskOwner, all_ended, cancel_soon

MAX_RUNNING: Final = 32
"""Maximum number of tasks at once. A model that starts more is in a loop."""

MAX_KEPT: Final = 100
"""Maximum number of finished tasks whose answers are kept in memory; older ones are in the
store."""

STOP_TIMEOUT: Final = 5.0
"""Seconds for turns to end at shutdown. Hosts kill a server soon after that."""

Work: TypeAlias = Callable[[Progress, PeerLead], Coroutine[Any, Any, ToolAnswer]]


class RunningWork:
    """A piece of work that runs in its own task."""

    def __init__(self, progress: Progress, lead: PeerLead, *, folder: Path, lasting: bool) -> None:
        self.progress = progress
        self.folder = folder
        """The workspace. Clients without access to this directory do not see the work."""
        self.lasting = lasting
        """Whether the work continues when no call waits for it."""
        self.began_at = time.monotonic()
        self.task: asyncio.Task[ToolAnswer]
        self._lead = lead

    @property
    def job(self) -> str | None:
        return self.progress.job_id

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began_at

    def stop(self) -> bool:
        """Cancel the running turn, so that the work ends with its results so far. If there is no
        turn to cancel, cancel the task. Returns False if the work has already ended."""
        if self.task.done():
            return False
        if not self._lead.pull():
            # No turn is running, so there is nothing to cancel at a peer.
            cancel_soon(self.task)
        return True

    async def drop(self) -> None:
        """Called at shutdown: leave the turn to its broker if the work is `lasting` and a broker
        runs the turn; otherwise stop the work."""
        if not (self.lasting and await self._lead.drop()):
            self.stop()


class WorkList:
    """All work of one MCP server."""

    def __init__(self) -> None:
        self._tasks = TaskOwner("the MCP server")
        self._all: list[RunningWork] = []

    def start(
        self, work: Work, *, folder: Path, peer: str = "", lasting: bool = False
    ) -> RunningWork:
        """Start a piece of work in its own task. `lasting` work continues when no call waits for
        it. Raises `UsageError` if too many are running."""
        if sum(not one.task.done() for one in self._all) >= MAX_RUNNING:
            raise UsageError(
                f"{MAX_RUNNING} tasks are already running here: wait for one of them to end"
            )
        ended = [one for one in self._all if one.task.done()]
        for one in ended[: max(len(ended) - MAX_KEPT, 0)]:
            self._all.remove(one)
        running = RunningWork(Progress(peer), PeerLead(), folder=folder, lasting=lasting)
        running.task = self._tasks.start(_settled(work, running), "a piece of work")
        self._all.append(running)
        return running

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that is cancelled when the server closes."""
        return self._tasks.start(work, name)

    def find(self, job: str) -> RunningWork | None:
        """Return the work with this job id, or None if this server did not start it or no longer
        keeps it."""
        return next((one for one in self._all if one.job == job), None)

    async def begun(self, running: RunningWork) -> str:
        """Wait for the job id of the work and return it. Raises `UnknownJob` if the work ended
        without one."""
        known = self._tasks.start(running.progress.job_known.wait(), "wait for a job")
        try:
            await asyncio.wait({known, running.task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            known.cancel()
        if running.job is None:
            raise UnknownJob("the work ended before it had a job id")
        return running.job

    async def aclose(self) -> None:
        """Stop all work, except turns of `lasting` work that a broker runs: these continue there.
        Tasks that have not ended after `STOP_TIMEOUT` are cancelled."""
        running = [one for one in self._all if not one.task.done()]
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._tasks.aclose)
            if running:
                tasks = {one.task for one in running}
                closing.push_async_callback(asyncio.wait, tasks, timeout=STOP_TIMEOUT)
            await all_ended(*(one.drop() for one in running))


async def _settled(work: Work, running: RunningWork) -> ToolAnswer:
    try:
        return await work(running.progress, running._lead)
    except DragomanError as error:
        return of_error(error, running.progress.notices)
