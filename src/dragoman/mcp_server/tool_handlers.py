"""Handle MCP tool calls: validate the arguments, run the tool, report progress.

Holds the SDK's server object. `delegation` chooses peers, `policy` decides permissions and
`runs.lineage` limits nested delegation. Transports are `mcp_server.stdio` and `mcp_server.http`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import mcp_types as types
import msgspec
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dragoman.decoders import convert_typed
from dragoman.delegation import DelegationRequest, decide_for, delegate_request
from dragoman.delegation.peer_status import overview
from dragoman.errors import DragomanError, UnknownJob, UsageError
from dragoman.mcp_server import tool_results, tools
from dragoman.mcp_server.ask_peer import PeerLead, PeerQuestion, ask
from dragoman.mcp_server.caller_process import caller_of
from dragoman.mcp_server.progress import Progress
from dragoman.mcp_server.running_work import RunningWork, WorkList
from dragoman.mcp_server.tool_results import ToolAnswer
from dragoman.mcp_server.workspace_choice import choose_workspace, may_see
from dragoman.rpc.tasks import in_thread, was_cancelled
from dragoman.runs.context import RunContext, load_context
from dragoman.runs.jobs import cancel_job, find_job, wait_for
from dragoman.runs.lineage import Lineage, inherited
from dragoman.transports.process.identity import PROC, variables_of
from dragoman.version import __version__

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from dragoman.config.schema import Permissions

_log = logging.getLogger(__name__)

ROOTS_TIMEOUT: Final = 10.0
"""Seconds for a client to list its roots. A client that works answers at once."""

ROOTS: Final = "roots"
"""The key of our request for the client's roots, in protocol versions in which it is part of the
response to a call."""

Context: TypeAlias = "ServerRequestContext[Any, Any]"
Called: TypeAlias = types.CallToolResult | types.InputRequiredResult


class _Unanswered(Exception):
    """Raised when the client must first be asked for its roots, in the response to its call."""


class ToolHandlers:
    """The MCP server object and the handlers of its tools."""

    def __init__(
        self,
        *,
        cwd: Path,
        roots: Sequence[Path] = (),
        permissions: Permissions | None = None,
    ) -> None:
        self._cwd = cwd
        self._roots = tuple(roots)
        self._permissions = permissions
        self.work_list = WorkList()
        self.server: Server[Any] = Server(
            "dragoman",
            version=__version__,
            title="dragoman",
            instructions=tools.INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def aclose(self) -> None:
        """Stop the running work, except lasting work that a broker can continue."""
        await self.work_list.aclose()

    # -- the protocol

    async def _list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        offered = [types.Tool.model_validate(tool.described) for tool in tools.TOOLS]
        return types.ListToolsResult(tools=offered)

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Called:
        tool = next((one for one in tools.TOOLS if one.name == params.name), None)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}")
        try:
            arguments = convert_typed(params.arguments or {}, tool.arguments)
        except msgspec.ValidationError as error:
            return _result(tool_results.of_wrong_arguments(tool.name, str(error)))
        try:
            return _result(await self._carry_out(arguments, _Call(context, params)))
        except _Unanswered:
            wanted: dict[str, types.InputRequest] = {ROOTS: types.ListRootsRequest()}
            return types.InputRequiredResult(input_requests=wanted)
        except DragomanError as error:
            return _result(tool_results.of_error(error))
        except MCPError:
            raise
        except Exception as error:
            # Boundary from handler to wire: the details go to the log, not to the model.
            _log.exception("%s failed", tool.name)
            raise MCPError(
                types.INTERNAL_ERROR,
                f"{tool.name} failed inside dragoman: see the log of the MCP server",
            ) from error

    async def _carry_out(self, arguments: Any, call: _Call) -> ToolAnswer:
        match arguments:
            case tools.Delegate():
                return await self._wait(call, await self._delegate(arguments, call))
            case tools.AskPeer():
                return await self._wait(call, await self._ask(arguments, call))
            case tools.StartJob():
                return await self._start(arguments, call)
            case tools.JobStatus():
                return await self._status(arguments, call)
            case tools.JobResult():
                return await self._result(arguments, call)
            case tools.CancelJob():
                return await self._cancel(arguments, call)
            case tools.ListPeers():
                place = await self._place(call, arguments.workspace)
                # Off the loop: it searches for programs along the whole PATH.
                peers = await in_thread(str(place.cwd), lambda _: overview(place))
                return tool_results.of_peers(peers)
            case tools.Explain():
                return await self._explain(arguments, call)
            case _:
                raise UsageError("this tool has no handler")

    # -- work

    async def _delegate(
        self, wanted: tools.Delegate, call: _Call, *, lasting: bool = False
    ) -> RunningWork:
        place = await self._place(call, wanted.workspace)
        request = DelegationRequest(
            role=wanted.role,
            prompt=wanted.prompt,
            workspace=place.cwd,
            peer=wanted.peer or None,
            tier=wanted.tier or None,
            isolate=wanted.isolate,
            fallback=wanted.fallback or None,
            permissions=self._permissions,
            timeout=wanted.timeout or None,
        )
        lineage = await self._lineage(place, call)

        async def work(progress: Progress, lead: PeerLead) -> ToolAnswer:
            done = await delegate_request(
                request, place=place, listener=progress, cancel=lead, lineage=lineage
            )
            return tool_results.of_delegation(done, progress.notices)

        return self.work_list.start(work, folder=place.cwd, lasting=lasting)

    async def _ask(
        self, wanted: tools.AskPeer, call: _Call, *, lasting: bool = False
    ) -> RunningWork:
        place = await self._place(call, wanted.workspace)
        question = PeerQuestion(
            peer=wanted.peer,
            prompt=wanted.prompt,
            workspace=place.cwd,
            session=_name(wanted.session),
            fresh=wanted.fresh,
            timeout=wanted.timeout or None,
            permissions=self._permissions,
        )
        lineage = await self._lineage(place, call)

        async def work(progress: Progress, lead: PeerLead) -> ToolAnswer:
            asked = await ask(question, place=place, lineage=lineage, audience=progress, lead=lead)
            return tool_results.of_asked(asked, progress.notices)

        return self.work_list.start(work, folder=place.cwd, peer=wanted.peer, lasting=lasting)

    async def _start(self, wanted: tools.StartJob, call: _Call) -> ToolAnswer:
        if bool(wanted.role) is bool(wanted.peer):
            raise UsageError("start_job needs either a role or a peer, and not both")
        if wanted.peer:
            asked = tools.AskPeer(
                peer=wanted.peer,
                prompt=wanted.prompt,
                workspace=wanted.workspace,
                session=wanted.session,
                timeout=wanted.timeout,
            )
            running = await self._ask(asked, call, lasting=True)
        else:
            if wanted.session:
                raise UsageError("a session belongs to one peer: give peer instead of role")
            delegated = tools.Delegate(
                role=wanted.role,
                prompt=wanted.prompt,
                workspace=wanted.workspace,
                timeout=wanted.timeout,
            )
            running = await self._delegate(delegated, call, lasting=True)
        try:
            job = await self.work_list.begun(running)
        except UnknownJob:
            # No peer was prompted; the result says why.
            return await asyncio.shield(running.task)
        except asyncio.CancelledError:
            running.stop()
            raise
        return tool_results.of_started(job, wanted.peer or wanted.role)

    async def _wait(self, call: _Call, running: RunningWork) -> ToolAnswer:
        """Wait for the result of the work and report progress until then. If the call is cancelled,
        stop the work unless it is `lasting`."""
        try:
            async with self._telling(call, running.progress):
                # In its own task: the SDK cancels a call repeatedly until it has ended, and a
                # peer's turn needs time to end cleanly.
                return await asyncio.shield(running.task)
        except asyncio.CancelledError:
            if running.task.cancelled() and not was_cancelled():
                raise UsageError("the work was cancelled before a peer was prompted") from None
            if not running.lasting:
                running.stop()
            raise

    @asynccontextmanager
    async def _telling(self, call: _Call, progress: Progress) -> AsyncIterator[None]:
        """Report progress to the client while the block runs."""
        teller = self.work_list.spawn(call.tell(progress), "tell the progress")
        try:
            yield
        finally:
            teller.cancel()

    # -- jobs

    async def _status(self, wanted: tools.JobStatus, call: _Call) -> ToolAnswer:
        running = await self._running(wanted.job, call)
        if running is not None:
            if not running.task.done():
                progress = running.progress
                return tool_results.of_running(
                    wanted.job, progress.line, peer=progress.peer, seconds=running.seconds
                )
            if not running.task.cancelled():
                return running.task.result()
        return await self._found(wanted.job, call)

    async def _result(self, wanted: tools.JobResult, call: _Call) -> ToolAnswer:
        running = await self._running(wanted.job, call)
        if running is not None and not running.task.done() and wanted.wait:
            async with self._telling(call, running.progress):
                await asyncio.wait({running.task}, timeout=wanted.wait)
        if running is not None and running.task.done() and not running.task.cancelled():
            return running.task.result()
        found = await self._found(wanted.job, call)
        if running is not None or not wanted.wait or found.data["state"] == "ended":
            return found
        # Another process runs the job, so the progress only says that it is still running.
        progress = Progress()
        progress.tell(found.text.splitlines()[0])
        async with self._telling(call, progress):
            return tool_results.of_job(await wait_for(wanted.job, timeout=wanted.wait))

    async def _cancel(self, wanted: tools.CancelJob, call: _Call) -> ToolAnswer:
        running = await self._running(wanted.job, call)
        if running is not None:
            done = running.stop()
        else:
            await self._found(wanted.job, call)
            done = await cancel_job(wanted.job)
        outcome = None
        if not done:
            ended = await self._result(tools.JobResult(job=wanted.job), call)
            outcome = ended.data["outcome"]
        return tool_results.of_cancelled(wanted.job, outcome)

    async def _running(self, job: str, call: _Call) -> RunningWork | None:
        """Return the work of a job, or None if this server did not start it or no longer keeps it.
        Raises `UnknownJob` if the client may not see its workspace."""
        running = self.work_list.find(job)
        if running is not None:
            await self._check(job, running.folder, call)
        return running

    async def _found(self, id: str, call: _Call) -> ToolAnswer:
        """Return the state or the result of a stored job. Raises `UnknownJob` if there is none with
        this id, or the client may not see its workspace."""
        job = await find_job(id)
        await self._check(id, Path(job.root), call)
        return tool_results.of_job(job)

    async def _check(self, job: str, folder: Path, call: _Call) -> None:
        # Other clients of this server have other roots, and a job id is not a secret.
        named = await call.roots()
        if not await in_thread(
            str(folder), lambda _: may_see(folder, own=self._roots, named=named, cwd=self._cwd)
        ):
            raise UnknownJob(f"there is no job {job!r} in the directories of this client")

    # -- explain and lineage

    async def _explain(self, wanted: tools.Explain, call: _Call) -> ToolAnswer:
        place = await self._place(call, wanted.workspace)
        request = DelegationRequest(
            role=wanted.role, prompt=wanted.role, workspace=place.cwd, tier=wanted.tier or None
        )
        lineage = await self._lineage(place, call)
        decision = await in_thread(
            str(place.cwd),
            lambda _: decide_for(request, place, lineage=lineage, now=time.time()),
        )
        return tool_results.of_decision(decision)

    async def _place(self, call: _Call, asked: str) -> RunContext:
        """Return the run context of the workspace that the call names in `asked`, or of the default
        one if that is empty. Raises `UsageError` if the client may not use the directory."""
        named = await call.roots()

        def load(_: object) -> RunContext:
            folder = choose_workspace(asked, cwd=self._cwd, own=self._roots, named=named)
            return load_context(folder)

        # In a thread, because a network file system may hang.
        return await in_thread(asked or str(self._cwd), load)

    async def _lineage(self, place: RunContext, call: _Call) -> Lineage:
        """Return the lineage (delegation depth) of a call. This is the deepest of three: this
        server's own, the one in the call's `_meta`, and that of an HTTP client's process."""
        own = inherited(place.environ, call.context.meta)
        pid = await call.caller()
        if pid is None:
            return own
        return max(
            own, inherited(variables_of(pid, "DRAGOMAN_") or {}, pid=pid), key=lambda one: one.depth
        )


class _Call:
    """One tool call, with its client's roots and progress notifications."""

    def __init__(self, context: Context, params: types.CallToolRequestParams) -> None:
        self.context = context
        self._params = params

    async def caller(self) -> int | None:
        """Return the process id of an HTTP client; None on stdio, or if it is unknown."""
        client = getattr(self.context.request, "client", None)
        if client is None:
            return None
        # In a thread, because it reads the descriptors of all processes.
        return await in_thread(str(PROC), lambda _: caller_of(client.port))

    async def roots(self) -> list[str] | None:
        """Return the URIs of the client's roots, or None if it does not support roots.

        Raises `UsageError` if it supports roots but does not list them, because then no directory
        is known to be allowed, and `_Unanswered` if it must be asked in the response to the call.
        """
        session = self.context.session
        can = session.client_capabilities
        if can is None or can.roots is None:
            return None
        if self.context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            told = (self._params.input_responses or {}).get(ROOTS)
            if not isinstance(told, types.ListRootsResult):
                raise _Unanswered
        else:
            told = await self._ask_roots()
        return [str(root.uri) for root in told.roots]

    async def _ask_roots(self) -> types.ListRootsResult:
        try:
            return await self.context.session.send_request(
                types.ListRootsRequest(),
                types.ListRootsResult,
                request_read_timeout_seconds=ROOTS_TIMEOUT,
                metadata=ServerMessageMetadata(related_request_id=self.context.request_id),
            )
        except (MCPError, ValidationError) as error:
            raise UsageError(f"could not get the roots of the client: {error}") from error

    async def tell(self, progress: Progress) -> None:
        """Send progress notifications until cancelled or until the client is gone. The session
        sends them only if the client asked for them."""
        try:
            while True:
                line = await progress.next()
                await self.context.session.report_progress(float(progress.count), None, line)
                await progress.pause()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            # The client is gone; whether the work continues is decided elsewhere.
            return


def _result(answer: ToolAnswer) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=answer.text)],
        structured_content=answer.data,
        is_error=answer.failed,
    )


def _name(session: str) -> str | None:
    if session and (not session.strip() or not session.isprintable()):
        raise UsageError("a session must be a name, a key or an id of printable characters")
    return session or None
