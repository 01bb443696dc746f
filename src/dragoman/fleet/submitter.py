"""Submit jobs to a fleet, follow their events, read their records, cancel them; join a fleet.

Events are read from the stream by position, so a reader that attaches late or was disconnected
misses nothing. `coordinator` accepts the jobs, `records` has the types.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, structs
from nats.aio.msg import Msg

from dragoman.broker.error_codec import revive
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.worktree.bundle import pack
from dragoman.delegation.worktree.scratch import scratch_folder
from dragoman.errors import (
    FleetError,
    FleetFull,
    FleetRefused,
    FleetUnreachable,
    UnknownJob,
    UsageError,
)
from dragoman.fleet import subjects
from dragoman.fleet.connection import RETRY_INTERVAL, FleetConnection
from dragoman.fleet.credentials import (
    JoinCode,
    JoinReply,
    JoinRequest,
    MemberCredential,
    credential_from,
    decode_code,
    new_member_key,
)
from dragoman.fleet.objects import MAX_OBJECT_SIZE, get_object, put_object
from dragoman.fleet.records import (
    Cancelled,
    CoordinatorReply,
    DrainQuestion,
    EventBatch,
    FleetJob,
    JobQuestion,
    JobSpec,
    ListQuestion,
    decode,
    encode,
)
from dragoman.rpc.tasks import in_thread

MAX_PROMPT_SIZE: Final = 256 * 1024
SUBMIT_TIMEOUT: Final = 30.0
POLL_INTERVAL: Final = 2.0
"""Seconds after which a job is read again if no notification arrives."""

SETTLE_TIMEOUT: Final = 10.0
"""Seconds to wait for the last events of a finished job."""

ROOM_TIMEOUT: Final = 2.0
"""Seconds to wait for the coordinator to say whether there is room."""

ACCEPT_TIMEOUT: Final = 30.0
"""Seconds to wait for a coordinator to accept a submitted job."""

JOIN_TIMEOUT: Final = 30.0
"""Seconds to wait for a coordinator to answer a join request."""

LISTED: Final = "`dragoman fleet jobs` lists the jobs"


RECONNECT_TIMEOUT: Final = 180.0
"""Seconds for which a reader waits for a server that does not answer: enough for a restart of the
server, or for a laptop to change networks."""

MAX_REASONS: Final = 3
"""Maximum number of different reasons for unreadable events that are passed to `on_notice`."""


class FleetEvent(Struct, frozen=True):
    """An event of a job, with its position."""

    attempt: int
    worker: str
    number: int
    event: dict[str, Any]


class PackedWorkspace(Struct, frozen=True):
    """A packed workspace: the bundle and its description."""

    data: bytes
    packed: dict[str, Any]


async def pack_workspace(workspace: Path) -> PackedWorkspace:
    """Pack the repository of a workspace, without ignored files."""
    async with scratch_folder("fleet") as scratch:
        file = scratch / "repository.bundle"
        bundle = await pack(workspace, file, max_size=MAX_OBJECT_SIZE)
        data = await in_thread(str(file), lambda _: file.read_bytes())
    return PackedWorkspace(data, msgspec.to_builtins(bundle))


def spec_of(
    request: DelegationRequest, *, needs: Sequence[str] = (), retry_lost: bool = False
) -> dict[str, Any]:
    """Return the `JobSpec` fields for a request. Raises `UsageError` for what a fleet does not
    support."""
    if len(request.prompt.encode()) > MAX_PROMPT_SIZE:
        raise UsageError(
            f"the prompt is larger than {MAX_PROMPT_SIZE // 1024} KiB; "
            "put it in a file in the repository and name the file"
        )
    if request.session != type(request.session)():
        raise UsageError(
            "--system-prompt, --allow-tool and --max-turns cannot be used with a fleet"
        )
    return {
        "role": request.role,
        "prompt": request.prompt,
        "peer": request.peer,
        "tier": request.tier,
        "model": request.model,
        "permissions": request.permissions,
        "check": request.check,
        "fallback": request.fallback,
        "timeout": request.timeout,
        "needs": tuple(needs),
        "retry_lost": retry_lost,
    }


async def upload(
    connection: FleetConnection, packed: PackedWorkspace, fields: dict[str, Any]
) -> JobSpec:
    """Upload a packed workspace, and return the job to submit. `fields` are those of `spec_of`.

    Raises `FleetFull` if the server has no room, and `FleetUnreachable` if it does not answer.
    """
    await _require_room(connection)
    bundle = await put_object(connection, packed.data)
    return JobSpec(bundle=bundle, packed=packed.packed, **fields)


async def submit(
    connection: FleetConnection,
    spec: JobSpec,
    jobs: Iterable[str],
    *,
    on_stored: Callable[[str], None] = lambda job: None,
) -> None:
    """Submit a job once under each of the ids in `jobs`. `on_stored` is called with each id when
    its submission is stored.

    Raises `FleetFull` if the server has no room, and `FleetUnreachable` if it does not answer. The
    error names the jobs that were stored, and the job, if any, that may have been stored.
    """
    stored: list[str] = []
    for job in jobs:
        try:
            await connection.store(
                subjects.submission(connection.name, job),
                encode(spec),
                timeout=SUBMIT_TIMEOUT,
            )
        except FleetError as error:
            _name_jobs(error, job, stored)
            raise
        stored.append(job)
        on_stored(job)


def _name_jobs(error: FleetError, job: str, stored: list[str]) -> None:
    """Add to an error which submissions were stored, and which one may have been."""
    text = str(error)
    if error.may_have_run:
        text += f"; {job} may have been accepted"
        error.remedy = (
            f"`dragoman fleet watch {job}` follows it if it was accepted; "
            "submit it again only if it was not"
        )
    if stored:
        text += f"; accepted before that: {', '.join(stored)}"
        error.may_have_run = True
    error.args = (text,)


async def _require_room(connection: FleetConnection) -> None:
    """Raise `FleetFull` if the coordinator accepts no new jobs. If no coordinator runs, the job
    waits for one."""
    try:
        subject = subjects.question(connection.name, "room")
        message = await connection.request(subject, timeout=ROOM_TIMEOUT)
        full = decode(message.data, CoordinatorReply).full
    except FleetUnreachable:
        return
    if full:
        raise FleetFull(full)


async def read_job(connection: FleetConnection, job: str) -> FleetJob | None:
    """Read the record of a job; None if no coordinator has accepted it yet, or it has expired."""
    if not subjects.is_job_id(job):
        return None
    found = await connection.last(subjects.JOBS, subjects.job_record(job))
    return None if found is None else decode(found.data, FleetJob)


async def cancel(connection: FleetConnection, job: str, *, known: bool = True) -> bool:
    """Request that a job of this submitter be cancelled. Returns False if it has already ended.
    Raises `UsageError` for a job of another submitter, and `UnknownJob` for one without a record.
    Set `known` to False for a job that was just submitted, which may have no record yet."""
    record = await read_job(connection, job)
    if record is None and known:
        raise UnknownJob(f"the fleet has no job {job}", remedy=LISTED)
    if record is not None and record.submitter != connection.name:
        raise UsageError(f"only {record.submitter}, who submitted job {job}, can cancel it")
    if record is not None and record.state == "done":
        return False
    await connection.store(
        subjects.cancellation(connection.name, job),
        encode(Cancelled()),
        timeout=SUBMIT_TIMEOUT,
    )
    return True


async def ask(connection: FleetConnection, word: str) -> CoordinatorReply:
    """Send the request `word`, such as `jobs`, to the coordinator, and return its reply. A list of
    workers is complete, even if it takes several replies. Raises `FleetUnreachable` if no
    coordinator answers, and otherwise the error that the coordinator reports, if any."""
    subject = subjects.question(connection.name, word)
    reply = await _asked(connection, subject)
    while reply.more and reply.workers:
        question = ListQuestion(after=reply.workers[-1].name)
        rest = await _asked(connection, subject, encode(question))
        reply = structs.replace(rest, workers=(*reply.workers, *rest.workers))
    return reply


async def drain(connection: FleetConnection, question: DrainQuestion) -> None:
    """Stop or resume assigning jobs to a worker. Needs the coordinator's credentials. Raises
    `FleetUnreachable` if no coordinator answers, and `UsageError` if a worker to drain is not
    connected, or a worker to resume is not drained."""
    await _asked(connection, subjects.DRAIN, encode(question), changes=True)


async def _asked(
    connection: FleetConnection, subject: str, data: bytes = b"", *, changes: bool = False
) -> CoordinatorReply:
    try:
        message = await connection.request(subject, data, changes=changes)
    except FleetUnreachable as error:
        raise _no_coordinator(error) from error
    reply = decode(message.data, CoordinatorReply)
    if reply.error:
        raise revive(reply.failure) or FleetError(reply.error)
    return reply


def _no_coordinator(error: FleetUnreachable) -> FleetUnreachable:
    return FleetUnreachable(
        f"the fleet's coordinator does not answer: {error}", may_have_run=error.may_have_run
    )


class JobReader:
    """Reads the record of a job, and its events in order and once each. Survives disconnections."""

    def __init__(
        self,
        connection: FleetConnection,
        job: str,
        *,
        submitted: bool = False,
        on_notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`submitted`: the job was accepted by the server, so it exists even if no coordinator has
        taken it yet. `on_notice` is called when the server stops answering and when it answers
        again, and if events are missing or cannot be read."""
        self._connection = connection
        self._id = job
        self._submitted = submitted
        self._on_notice = on_notice
        self._lost_at: float | None = None
        self._unreadable: set[str] = set()
        """Reasons for unreadable events that were already passed to `on_notice`."""
        self._wake = asyncio.Event()
        self._position = 1
        self._attempt = 0
        self._number = 0
        self._yielded = 0
        self.job: FleetJob | None = None
        """The record as last read."""

    async def follow(self) -> AsyncGenerator[FleetEvent, None]:
        """Yield the events of the current attempt until the job is done.

        Events of superseded attempts are dropped. Raises `UnknownJob` for a job that has expired or
        was never submitted, and `FleetUnreachable` if no coordinator accepts the job, or if the
        server does not answer for `RECONNECT_TIMEOUT`.
        """
        if not subjects.is_job_id(self._id):
            raise UnknownJob(f"the fleet has no job {self._id[:80]!r}", remedy=LISTED)
        try:
            async with (
                AsyncExitStack() as subscriptions,
                aclosing(self._until_done(subscriptions)) as events,
            ):
                async for event in events:
                    yield event
        except FleetError as error:
            # A failed read has no effect of its own, but the job may have run.
            error.may_have_run = self._submitted or self.job is not None
            raise

    async def _until_done(self, subscriptions: AsyncExitStack) -> AsyncGenerator[FleetEvent, None]:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + ACCEPT_TIMEOUT
        moved_at, position = loop.time(), 0
        wanted = [subjects.events("*", self._id, "*"), subjects.job_record(self._id)]
        while True:
            self._wake.clear()
            try:
                while wanted:
                    unsubscribe = await self._connection.subscribe(
                        wanted[-1], self._woken, on_dropped=self._wake.set
                    )
                    subscriptions.push_async_callback(unsubscribe)
                    wanted.pop()
                self.job = job = await read_job(self._connection, self._id)
            except FleetUnreachable as error:
                if self._connection.closed:
                    raise
                self._lost(error)
                # The coordinator may have been disconnected too, so the timeouts start again.
                give_up_at, moved_at = loop.time() + ACCEPT_TIMEOUT, loop.time()
                await asyncio.sleep(RETRY_INTERVAL)
                continue
            done = job is not None and job.state == "done"
            try:
                async for event in self._some():
                    yield event
                unread = False
                self._answers()
            except FleetUnreachable as error:
                if self._connection.closed:
                    raise
                unread = True
                if not done:
                    self._lost(error)
            if not done or self._position != position:
                moved_at, position = loop.time(), self._position
            settled = loop.time() >= moved_at + SETTLE_TIMEOUT
            missing = self._missing()
            if done and (settled or not unread and not missing):
                if missing:
                    self._on_notice(f"{missing} events of {self._id} are missing")
                return
            if done or unread:
                await asyncio.sleep(RETRY_INTERVAL)
                continue
            if job is None and loop.time() >= give_up_at:
                if (failure := await self._without_record()) is not None:
                    raise failure
                continue
            try:
                async with asyncio.timeout(POLL_INTERVAL):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _without_record(self) -> FleetUnreachable | UnknownJob | None:
        """Return why the job has no record: it waits for a coordinator, or it has expired. None if
        it was recorded meanwhile."""
        question = encode(JobQuestion(job=self._id))
        why = "no coordinator is running"
        try:
            subject = subjects.question(self._connection.name, "waiting")
            reply = await _asked(self._connection, subject, question)
        except FleetUnreachable:
            if not self._submitted:
                text = f"{why}: job {self._id} is waiting for one, or has expired"
                return FleetUnreachable(text)
        else:
            # First the inbox, then the record: a coordinator moves a job from one to the other.
            if not reply.waiting and await read_job(self._connection, self._id) is not None:
                return None
            if not reply.waiting and not self._submitted:
                text = f"the fleet has no job {self._id}: it has expired, or was never submitted"
                return UnknownJob(text, remedy=LISTED)
            why = reply.full
        text = f"job {self._id} was submitted, but no coordinator of the fleet has accepted it"
        return FleetUnreachable(f"{text}: {why}" if why else text)

    def _lost(self, error: FleetUnreachable) -> None:
        """Record that the server does not answer. Raises `FleetUnreachable` after too long."""
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
            self._on_notice(f"{error}; the job continues. Reconnecting …")
        elif now >= self._lost_at + RECONNECT_TIMEOUT:
            raise FleetUnreachable(
                str(error),
                remedy=f"the job continues: follow it with `dragoman fleet watch {self._id}`",
            ) from error

    def _answers(self) -> None:
        if self._lost_at is not None:
            self._lost_at = None
            self._on_notice("the fleet's server answers again")

    def _missing(self) -> int:
        """Return the number of events that the result counts but that were not read. In a cluster,
        the server being read may get the last events after the record."""
        result = None if self.job is None else self.job.result
        return 0 if result is None else max(result.events - self._yielded, 0)

    async def _woken(self, message: Msg) -> None:
        self._wake.set()

    async def _some(self) -> AsyncIterator[FleetEvent]:
        """Yield the stored events of the record's last attempt that were not read yet.

        They are on a subject to which only the worker of this attempt may write, so events that
        another worker publishes for the job are never read.
        """
        if self.job is None or not self.job.attempts:
            return
        last = self.job.attempts[-1]
        if last.number != self._attempt:
            # Read from the start of the stream: the first events of this attempt may be stored
            # before the last ones of the previous attempt.
            self._attempt, self._position, self._number, self._yielded = last.number, 1, 0, 0
        subject = subjects.events(last.worker, self._id, last.number)
        while True:
            found = await self._connection.after(subjects.EVENTS, self._position, subject)
            if found is None:
                return
            batch = await self._batch(found.data, last.worker)
            for number, event in enumerate(batch.events, batch.first):
                if number <= self._number:
                    continue
                self._number = number
                self._yielded += 1
                yield FleetEvent(last.number, last.worker, number, event)
            self._position = found.sequence + 1

    async def _batch(self, data: bytes, worker: str) -> EventBatch:
        try:
            batch = decode(data, EventBatch)
            if batch.large is None:
                return batch
            whole = decode(await get_object(self._connection, batch.large), EventBatch)
            return structs.replace(whole, first=batch.first)
        except FleetUnreachable:
            raise
        except FleetError as error:
            if str(error) not in self._unreadable and len(self._unreadable) < MAX_REASONS:
                self._unreadable.add(str(error))
                self._on_notice(f"events of {worker} cannot be read: {error}")
            return EventBatch(first=1)


async def join(code: str) -> MemberCredential:
    """Use a join code: create a key here and get a token for it. Raises `UsageError` if the code is
    invalid or not accepted, and `FleetError` if the server or the coordinator fails or does not
    answer; `may_have_run` of the error says whether the code may be used up."""
    decoded = decode_code(code)
    key = new_member_key()
    try:
        async with FleetConnection(decoded) as connection:
            message = await _join_request(connection, decoded, key.public)
    except FleetRefused as error:
        raise UsageError(
            "the fleet's server does not accept this join code: it has expired, "
            "or the server has another certificate now",
            remedy="create a new one with `dragoman fleet invite` on the server",
        ) from error
    reply = decode(message.data, JoinReply)
    if reply.error:
        raise revive(reply.failure) or UsageError(reply.error)
    return credential_from(decoded, key, reply.token)


async def _join_request(connection: FleetConnection, code: JoinCode, public: str) -> Msg:
    """Send a join request, and repeat it while there is no answer: a coordinator that has already
    admitted the key gives the same answer again. Raises `FleetUnreachable`."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + JOIN_TIMEOUT
    in_doubt = False
    while True:
        try:
            return await connection.request(
                subjects.join(code.id), encode(JoinRequest(public=public)), changes=True
            )
        except FleetUnreachable as error:
            in_doubt = in_doubt or error.may_have_run
            if in_doubt and loop.time() < give_up_at:
                await asyncio.sleep(RETRY_INTERVAL)
                continue
            failure = _no_coordinator(error)
            failure.may_have_run = in_doubt
            if in_doubt:
                failure.remedy = (
                    f"if the code was used, run `dragoman fleet revoke {code.name}` on the server, "
                    "and create a new code"
                )
            raise failure from error
