"""FleetExecutor: run a delegation as a job in a fleet, for `delegate(..., executor=...)`.

Packs and submits the repository, passes on the job's events as they are stored, cancels the job on
request, and returns its result and patch. `submitter` talks to the server, `results` reads the
result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from dragoman.decoders import convert_typed
from dragoman.delegation.executor import ExecutedJob, ExecutorListener
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import Candidate, Decision
from dragoman.errors import DragomanError, FleetError, UsageError
from dragoman.events.model import Event, Source
from dragoman.events.words import Outcome
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.credentials import MemberCredential, find_credential
from dragoman.fleet.records import ATTEMPT_BEGUN, DECIDED, NOTICE, JobSpec
from dragoman.fleet.results import executed_job, forget_pending, note_submitted
from dragoman.fleet.submitter import (
    FleetEvent,
    JobReader,
    cancel,
    pack_workspace,
    spec_of,
    submit,
    upload,
)
from dragoman.paths import find_paths
from dragoman.rpc.tasks import TaskOwner, finish
from dragoman.wire.messages import UNDECODABLE

CANCEL_TIMEOUT: Final = 45.0
"""Seconds to wait for a cancelled job to end. The worker learns of the cancellation from the reply
to its next heartbeat; if the worker is lost, the job ends when its lease expires."""

LEAVE_TIMEOUT: Final = 5.0
"""Seconds to send the cancellation when the caller does not wait for the job to end."""

DIALECT: Final = "fleet"


class FleetExecutor:
    """Runs delegations on the workers of a fleet that this machine has joined as a submitter.

    `credential` defaults to this machine's credential; `name` selects one of several. `needs` are
    labels and peers that the worker must have. `retry_lost` runs a job again after its worker is
    lost, regardless of what it did. With `async with`, it uses one connection for many delegations;
    otherwise each delegation opens its own.
    """

    def __init__(
        self,
        credential: MemberCredential | None = None,
        *,
        name: str | None = None,
        needs: Sequence[str] = (),
        retry_lost: bool = False,
    ) -> None:
        self._paths = find_paths()
        self._credential = credential or find_credential(self._paths, "submitter", name=name)
        self._needs = tuple(needs)
        self._retry_lost = retry_lost
        self._connection: FleetConnection | None = None
        self._stack = AsyncExitStack()

    @property
    def name(self) -> str:
        return f"fleet {self._credential.team}"

    async def __aenter__(self) -> Self:
        connection = FleetConnection(self._credential)
        self._connection = await self._stack.enter_async_context(connection)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection = None
        await self._stack.aclose()

    def require(self, request: DelegationRequest) -> None:
        if request.allow_unenforced:
            raise UsageError(
                "--allow-unenforced cannot be used with a fleet: the worker's settings decide"
            )
        spec_of(request)

    async def execute(
        self,
        job: str,
        request: DelegationRequest,
        *,
        listener: ExecutorListener,
        stop: asyncio.Event,
    ) -> ExecutedJob:
        fields = spec_of(request, needs=self._needs, retry_lost=self._retry_lost)
        if self._connection is not None:
            return await self._execute(self._connection, job, request, fields, listener, stop)
        async with FleetConnection(self._credential) as connection:
            return await self._execute(connection, job, request, fields, listener, stop)

    async def _execute(
        self,
        connection: FleetConnection,
        job: str,
        request: DelegationRequest,
        fields: dict[str, Any],
        listener: ExecutorListener,
        stop: asyncio.Event,
    ) -> ExecutedJob:
        spec = await _uploaded(connection, request, fields, stop)
        if spec is None:
            return _cancelled(job, request, "cancelled before it was submitted")
        note_submitted(self._paths.state, self._credential.team, job)
        reader = JobReader(connection, job, submitted=True, on_notice=listener.notice)
        follower = _Follower(reader, listener)
        tasks = TaskOwner("a job of a fleet")
        following: asyncio.Task[FleetError | None] | None = None
        try:
            await submit(connection, spec, [job])
            listener.notice(f"submitted to {self.name}")
            following = tasks.start(follower.run(), "events")
            stopped = tasks.start(stop.wait(), "stop")
            await asyncio.wait({following, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                await cancel(connection, job, known=False)
                await asyncio.wait({following}, timeout=CANCEL_TIMEOUT)
            if not following.done():
                why = "the fleet has not confirmed the cancellation"
                follow = f"follow it with `dragoman fleet watch {job}`"
                return _cancelled(job, request, f"{why}; {follow}", confirmed=False)
            if (failure := await following) is not None:
                raise failure
        except BaseException as error:
            # A submission that failed or was interrupted may have been stored.
            in_doubt = isinstance(error, asyncio.CancelledError) or getattr(
                error, "may_have_run", False
            )
            if following is not None or in_doubt:
                cancelled = await finish(_leave(connection, job))
                if isinstance(error, FleetError):
                    _explain(error, job, cancelled=cancelled)
                elif not cancelled:
                    listener.notice(f"could not cancel job {job}; it continues if it was submitted")
            else:
                forget_pending(self._paths.state, self._credential.team, job)
            raise
        finally:
            await finish(tasks.aclose())
        record = reader.job
        assert record is not None
        if record.submitter != connection.name:
            raise FleetError(
                f"job {job} was submitted by {record.submitter}, not by {connection.name}"
            )
        try:
            return await executed_job(connection, record)
        except FleetError as error:
            error.may_have_run = True
            error.remedy = f"the job is done: see its result with `dragoman fleet watch {job}`"
            raise


async def _uploaded(
    connection: FleetConnection,
    request: DelegationRequest,
    fields: dict[str, Any],
    stop: asyncio.Event,
) -> JobSpec | None:
    """Pack and upload the workspace, which may take minutes. Returns None if `stop` is set
    first."""

    async def work() -> JobSpec | DragomanError:
        try:
            return await upload(connection, await pack_workspace(request.workspace), fields)
        except DragomanError as error:
            return error

    if stop.is_set():
        return None
    tasks = TaskOwner("a job of a fleet")
    try:
        uploading = tasks.start(work(), "upload")
        stopped = tasks.start(stop.wait(), "stop")
        await asyncio.wait({uploading, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            return None
        spec = await uploading
    finally:
        await tasks.aclose()
    if isinstance(spec, DragomanError):
        raise spec
    return spec


async def _leave(connection: FleetConnection, job: str) -> bool:
    """Request that the job be cancelled, without waiting until it ends. Returns False if the
    request failed."""
    try:
        async with asyncio.timeout(LEAVE_TIMEOUT):
            await cancel(connection, job, known=False)
    except (FleetError, UsageError, TimeoutError):
        return False
    return True


def _explain(error: FleetError, job: str, *, cancelled: bool) -> None:
    """Add to an error whether the job, which is no longer followed, was cancelled or continues."""
    error.may_have_run = True
    error.args = (f"{error}; job {job} {'was cancelled' if cancelled else 'continues'}",)
    error.remedy = f"follow it with `dragoman fleet watch {job}`"
    if not cancelled:
        error.remedy += f", or cancel it with `dragoman fleet cancel {job}`"


def _cancelled(
    job: str, request: DelegationRequest, why: str, *, confirmed: bool = True
) -> ExecutedJob:
    now = time.time()
    return ExecutedJob(
        job=job,
        role=request.role,
        started_at=now,
        ended_at=now,
        outcome=Outcome.CANCELLED,
        why=why,
        confirmed=confirmed,
    )


class _Follower:
    """Passes the events of a job to the delegation's listener."""

    def __init__(self, reader: JobReader, listener: ExecutorListener) -> None:
        self._reader = reader
        self._listener = listener
        self._attempt = 0

    async def run(self) -> FleetError | None:
        """Follow the job until it is done, and return None; or return why it cannot be followed."""
        try:
            # End the subscriptions even if the listener raises, because the connection stays open.
            async with aclosing(self._reader.follow()) as events:
                async for one in events:
                    if one.attempt != self._attempt:
                        self._attempt = one.attempt
                        self._listener.placed(one.worker)
                    self._pass_on(one)
        except FleetError as error:
            return error
        return None

    def _pass_on(self, one: FleetEvent) -> None:
        told = one.event
        try:
            kind = told.get("type")
            if kind == DECIDED:
                self._listener.decided(convert_typed(told, Decision))
            elif kind == ATTEMPT_BEGUN:
                begun = convert_typed(told, _Begun)
                self._listener.attempt(begun.number, convert_typed(told, Candidate), begun.reason)
            elif kind == NOTICE:
                self._listener.notice(f"{one.worker}: {convert_typed(told, _Notice).text}")
            else:
                self._listener.event(event_of(told))
        except UNDECODABLE:
            # From a newer worker, or damaged. The result does not depend on it.
            self._listener.notice(f"skipped an unreadable event from {one.worker}")


class _Begun(msgspec.Struct):
    number: int
    reason: str = ""


class _Notice(msgspec.Struct):
    text: str


def event_of(told: dict[str, Any]) -> Event:
    """Decode a published event. Its raw message stays on the worker. Raises one of the errors in
    `UNDECODABLE` if it cannot be decoded."""
    event: Event = convert_typed({**told, "raw": None}, Event)
    source = event.source
    # `native` must not name a message, because there is no `raw` here to go with it.
    return msgspec.structs.replace(event, source=Source(source.dialect, source.connection, DIALECT))
