"""Show a running delegation to an ACP client as one tool call with progress, and cancel it.

The delegation itself is run by `delegation.delegate_request`. The tool call says which peer works
and why; the answer is sent once, at the end, by `acp_server.session`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from dragoman.agent.turn import Turn
from dragoman.delegation import (
    CancelHandle,
    Delegation,
    DelegationListener,
    DelegationRequest,
    delegate_request,
)
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import DragomanError
from dragoman.events import model
from dragoman.events.words import Role
from dragoman.rpc.tasks import finish

if TYPE_CHECKING:
    from dragoman.client.permissions import Permit
    from dragoman.delegation.attempt_report import AttemptReport
    from dragoman.delegation.routing import Candidate
    from dragoman.rpc.tasks import TaskOwner
    from dragoman.runs.context import RunContext

PROGRESS_INTERVAL: Final = 0.15
"""Seconds between two updates of the tool call: each update repeats the whole call, and people
cannot read faster."""

CANCEL_TIMEOUT: Final = 4.0
"""Seconds to wait for a cancelled delegation to end: less than `agent.server.CANCEL_GRACE`, after
which the prompt is answered without it."""

SHOWN_TOOLS: Final = 8
"""Maximum number of the peer's tool calls to show, newest last."""


class DelegationView(DelegationListener):
    """Runs one delegation and shows its progress as a tool call of the client's turn. `on_job` is
    called with the delegation's job id."""

    def __init__(self, turn: Turn, tasks: TaskOwner, *, on_job: Callable[[str], None]) -> None:
        self._turn = turn
        self._tasks = tasks
        self._on_job = on_job
        self._cancel = CancelHandle()
        self._changed = asyncio.Event()
        self._title = ""
        self._lines: list[str] = []
        self._notices: list[str] = []
        self._tools: deque[str] = deque(maxlen=SHOWN_TOOLS)
        self._seen: set[str] = set()
        self._answer_size = 0
        self._call_id = ""

    async def run(
        self, request: DelegationRequest, place: RunContext, caller: Permit
    ) -> Delegation:
        """Run the delegation and return its result. `caller` answers permission requests. Raises
        what `delegate_request` raises. The tool call has ended when this returns or raises."""
        wanted = "" if request.peer is None else f" to {request.peer}"
        self._title = f"Delegate {request.role}{wanted}"
        call = self._turn.tool(
            self._title,
            name="delegate",
            raw_input={
                "role": request.role,
                "peer": request.peer,
                "workspace": str(request.workspace),
            },
        )
        self._call_id = call.id
        await call.announce()
        work = self._tasks.start(self._caught(request, place, caller), "a delegation")
        showing = self._tasks.start(self._show(), "show a delegation")
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            self._cancel.pull()
            # Let the peer stop and the journal record what it did.
            await finish(asyncio.wait([work], timeout=CANCEL_TIMEOUT))
            showing.cancel()
            await finish(self._end("failed", [*self._lines, "cancelled"]))
            raise
        finally:
            work.cancel()
            showing.cancel()
        if work.cancelled() or work.exception() is not None:
            await self._end("failed", [*self._lines, "an internal error; see the log"])
        done = work.result()
        if isinstance(done, DragomanError):
            await self._end("failed", [*self._lines, str(done)])
            raise done
        await self._end(
            "completed" if done.ok else "failed",
            done.lines(),
            _output(done),
        )
        return done

    async def _caught(
        self, request: DelegationRequest, place: RunContext, caller: Permit
    ) -> Delegation | DragomanError:
        try:
            return await delegate_request(
                request, place=place, listener=self, caller=caller, cancel=self._cancel
            )
        except DragomanError as error:
            return error

    # -- callbacks of the delegation

    def job(self, job: str) -> None:
        self._on_job(job)

    def attempt(self, number: int, candidate: Candidate, reason: str) -> None:
        model_id = f" ({candidate.model})" if candidate.model else ""
        self._lines.append(f"{number}. {candidate.peer}{model_id}: {reason}")
        self._title = f"{self._title.partition(' → ')[0]} → {candidate.peer}"
        self._tools.clear()
        self._answer_size = 0
        self._changed.set()

    def event(self, event: model.Event) -> None:
        match event:
            case model.MessageDelta(role=Role.AGENT, text=text) if not event.replay:
                self._answer_size += len(text)
            case model.ToolChanged(tool_id=tool, title=str() as title) if tool not in self._seen:
                self._seen.add(tool)
                self._tools.append(title)
            case _:
                return
        self._changed.set()

    def reported(self, number: int, report: AttemptReport) -> None:
        # The line above already has the reason.
        first, *rest = structs.replace(report, reason="").lines()
        self._lines += [f"   {line}" for line in (first, *rest)]
        self._changed.set()

    def notice(self, text: str) -> None:
        self._notices.append(text)
        self._changed.set()

    # -- updates of the tool call

    async def _show(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            lines = [*self._lines, *self._notices, *(f"  · {title}" for title in self._tools)]
            if self._answer_size:
                lines.append(f"  {self._answer_size:,} characters of the answer so far")
            await self._turn.update(
                acp.ToolCallProgress(
                    tool_call_id=self._call_id, title=self._title, content=[_text(lines)]
                )
            )
            await asyncio.sleep(PROGRESS_INTERVAL)

    async def _end(self, status: str, lines: list[str], output: Any = None) -> None:
        """End the tool call with these lines and the notices; they replace what it showed."""
        await self._turn.update(
            acp.ToolCallProgress(
                tool_call_id=self._call_id,
                title=self._title,
                status=status,
                content=[_text([*lines, *self._notices])],
                raw_output=output,
            )
        )


def _output(done: Delegation) -> dict[str, Any]:
    """Return the raw output of the tool call. It leaves out the answer, which clients already show,
    and the skipped peers, which `/explain` lists."""
    whole = done.as_json()
    kept = ("job", "role", "ok", "outcome", "answered", "stopped", "costs", "costs_complete")
    tried = ("peer", "model", "reason", "outcome", "seconds", "files")
    attempts = [{name: one.get(name) for name in tried} for one in whole["attempts"]]
    return {**{name: whole[name] for name in kept}, "attempts": attempts}


def _text(lines: list[str]) -> acp.Content:
    return acp.Content(content=acp.TextContent(text="\n".join(lines).strip()))
