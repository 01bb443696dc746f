"""Message and record types of a fleet: job records, results, heartbeats, assignments, events.

Encoded as JSON. Only the coordinator writes the stored `FleetJob` and `DrainedWorkers`; everything
else is sent between members and the coordinator. `schedule` makes decisions from them.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from dragoman.config.schema import Fallback, Permissions
from dragoman.decoders import decode_typed
from dragoman.errors import FleetError
from dragoman.wire.messages import UNDECODABLE

JobState: TypeAlias = Literal["queued", "running", "done"]
AttemptEnd: TypeAlias = Literal["", "done", "refused", "lost", "cancelled"]

DECIDED: Final = "Decision"
ATTEMPT_BEGUN: Final = "AttemptBegun"
"""Types of published values that are not events of a peer: the routing decision of a delegation,
and the start of an attempt. They have the fields of the JSON lines of `dragoman delegate`."""

NOTICE: Final = "Notice"
"""Type of a published value with a message for the user, in `text`."""

LOST: Final = "lost"
"""Outcome of a job that has no result and is not run again, because its worker was lost or its
attempts are used up."""

SHOWN_PROMPT_SIZE: Final = 120
"""Maximum number of characters of a prompt in a list."""

S = TypeVar("S", bound=Struct)


class ObjectRef(Struct, frozen=True, kw_only=True):
    """Reference to an object: bytes stored in chunks. `objects` reads and writes them."""

    owner: str
    id: str
    chunks: int
    size: int
    key: str
    """The encryption key. Only members that are to read the object get it."""


class JobSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job that a submitter requests."""

    role: str
    prompt: str
    bundle: ObjectRef
    """The repository, packed by `delegation.worktree.bundle`."""
    packed: dict[str, str | int | tuple[str, ...]] = {}
    """The fields of the `Bundle` that describes how to unpack the files."""
    peer: str | None = None
    tier: str | None = None
    model: str | None = None
    permissions: Permissions | None = None
    check: str | None = None
    fallback: Fallback | None = None
    timeout: float | None = None
    needs: tuple[str, ...] = ()
    """Labels and peers that the worker must have."""
    retry_lost: bool = False
    """Whether to run the job again after its worker is lost, regardless of what it did."""


class FleetAttempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt to run a job on a worker."""

    number: int
    worker: str
    assigned_at: float
    ended_at: float | None = None
    end: AttemptEnd = ""
    """How it ended; empty while it runs."""
    why: str = ""
    may_have_run: bool = True
    """Whether a peer may have been prompted."""
    peer: str = ""
    """The peer that a lost attempt prompted last, if known."""
    acted: str = ""
    """What it did outside its worktree, if the worker reported that to the inbox because the stream
    of events was full."""


class FleetResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a job."""

    ok: bool
    outcome: str
    text: str = ""
    """The answer, truncated if it is long; the delegation has all of it."""
    peer: str = ""
    worker: str = ""
    attempt: int = 0
    seconds: float = 0.0
    patch: ObjectRef | None = None
    delegation: ObjectRef | None = None
    """The complete result of the delegation on the worker."""
    events: int = 0
    """Number of events of the attempt that were stored."""
    why: str = ""
    """Why the job failed or the result is incomplete; empty otherwise."""
    may_have_run: bool = True
    """Whether a peer may have been prompted in the last attempt. Used only if there is no
    delegation."""


class FleetJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a job. Only the coordinator writes it, by revision."""

    id: str
    submitter: str
    spec: JobSpec
    state: JobState = "queued"
    attempts: tuple[FleetAttempt, ...] = ()
    cancelled: bool = False
    created_at: float
    ended_at: float | None = None
    result: FleetResult | None = None

    @property
    def current(self) -> FleetAttempt | None:
        """The running attempt, or None."""
        return self.attempts[-1] if self.state == "running" else None


class RunningJob(Struct, frozen=True):
    """A job that was assigned to a worker, with the number of the attempt."""

    job: str
    attempt: int


READY: Final = "ready"
"""State of a peer that is ready for jobs."""


class PeerDetails(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A peer of a worker: its state, card and health."""

    state: str
    """`READY`, or why jobs cannot use it now."""
    version: str = ""
    roles: tuple[str, ...] = ()
    card: str = ""
    """Summary of its verification."""
    measured_at: str = ""
    breaker: str = ""
    """State of its circuit breaker: closed, open or half_open; empty if it was never used."""
    failures: int = 0
    """Consecutive failed turns."""
    last_ok_at: float | None = None


class Beat(Struct, frozen=True, kw_only=True):
    """Heartbeat of a worker: what it offers and what it runs."""

    boot: str
    """Random id of the worker's process."""
    slots: int
    running: tuple[RunningJob, ...] = ()
    reported: int = 0
    """How many of the `running` jobs have ended and wait until the coordinator reads the result."""
    labels: tuple[str, ...] = ()
    peers: dict[str, str] = {}
    """The peers that are enabled for jobs, each with its state: `READY`, or why it cannot be used
    now."""
    details: dict[str, PeerDetails] | None = None
    """Cards and health of its peers; None: unchanged."""
    draining: bool = False
    version: str = ""
    machine: str = ""


class FleetLimits(Struct, frozen=True, kw_only=True):
    """Limits of a fleet other than the disk size. `fleet up` sets them."""

    keep_days: float = 3.0
    """How many days records, events and objects are kept."""
    waiting: int = 1000
    """Maximum number of waiting jobs per submitter. Further jobs are refused."""
    events_size: int = 64 * 1024**2
    """Maximum bytes of events per attempt. Later events are dropped and counted."""
    events_rate: int = 4 * 1024**2
    """Maximum bytes of events that an attempt publishes per second."""


class BeatReply(Struct, frozen=True, kw_only=True):
    """The coordinator's reply to a heartbeat."""

    epoch: int
    """Increases with each new leader. Replies from earlier leaders are ignored."""
    lease: float
    """Seconds for which the held jobs may continue, from when the heartbeat was sent."""
    held: tuple[RunningJob, ...] = ()
    cancelled: tuple[str, ...] = ()
    drain: bool = False
    tell_details: bool = False
    """Whether the coordinator still needs the cards and health of the peers."""
    limits: FleetLimits = FleetLimits()


class DrainQuestion(Struct, frozen=True, kw_only=True):
    """A request to stop assigning jobs to a worker, or to resume assigning them."""

    name: str
    undo: bool = False


class DrainedWorkers(Struct, frozen=True, kw_only=True):
    """The drained workers, which get no more jobs, as they are stored."""

    names: tuple[str, ...] = ()


class JobAssignment(Struct, frozen=True, kw_only=True):
    """A job for a worker, which starts it only once the coordinator's reply to a heartbeat lists it
    in `held`."""

    epoch: int
    boot: str
    job: str
    attempt: int
    spec: JobSpec


class AttemptEnded(Struct, frozen=True, kw_only=True):
    """A worker's report at the end of an attempt: a result, or why it refused the job."""

    result: FleetResult | None = None
    refused: str = ""


class AttemptActed(Struct, frozen=True, kw_only=True):
    """Reports an action of a running attempt that may have had effects outside its worktree. Sent
    to the inbox if the event stream is full, so that the job is not run again if the worker is
    lost."""

    acted: str


class Cancelled(Struct, frozen=True, kw_only=True):
    """A request to cancel a job."""


class EventBatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Events of an attempt, in order. `first` is the number of the first one, from 1; 0 in a
    message without events."""

    first: int
    events: tuple[dict[str, Any], ...] = ()
    large: ObjectRef | None = None
    """The object that contains the batch, if it is too large for a message."""
    started: bool = False
    """Whether the attempt may prompt peers from now on. Stored before the first prompt."""
    acted: str = ""
    """What the attempt did that may have had effects outside its worktree."""


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """A worker as the coordinator sees it."""

    name: str
    machine: str
    slots: int
    running: tuple[RunningJob, ...]
    labels: tuple[str, ...]
    peers: dict[str, str]
    details: dict[str, PeerDetails] = {}
    draining: bool
    silent: float
    """Seconds since its last heartbeat."""
    version: str = ""


class JobLine(Struct, frozen=True, kw_only=True):
    """A job in a list."""

    id: str
    submitter: str
    role: str
    prompt: str
    state: str
    worker: str
    attempts: int
    created_at: float
    outcome: str = ""
    waiting: str = ""
    """Why it is waiting."""


def job_line(job: FleetJob, *, waiting: str = "") -> JobLine:
    """Return the line of a job in a list. Only the coordinator knows why a job is waiting."""
    return JobLine(
        id=job.id,
        submitter=job.submitter,
        role=job.spec.role,
        prompt=job.spec.prompt[:SHOWN_PROMPT_SIZE],
        state=job.state,
        worker=job.attempts[-1].worker if job.attempts and job.state != "queued" else "",
        attempts=len(job.attempts),
        created_at=job.created_at,
        outcome="" if job.result is None else job.result.outcome,
        waiting=waiting,
    )


class ListQuestion(Struct, frozen=True, kw_only=True):
    """A request for the rest of a list that did not fit into one reply."""

    after: str = ""
    """Name of the last entry in the previous reply."""


class JobQuestion(Struct, frozen=True, kw_only=True):
    """A request about one job."""

    job: str


class CoordinatorReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The coordinator's reply to a request."""

    error: str = ""
    failure: dict[str, Any] | None = None
    """The same error with its class and fields, as `broker.error_codec` describes it."""
    full: str = ""
    """Why no new jobs are accepted; empty if they are."""
    waiting: bool = False
    """Whether the job was submitted and is not accepted yet."""
    jobs: tuple[JobLine, ...] = ()
    workers: tuple[WorkerStatus, ...] = ()
    more: bool = False
    """Whether there are more workers after these."""


def new_job_id() -> str:
    return f"f{secrets.token_hex(6)}"


def encode(value: Struct) -> bytes:
    return msgspec.json.encode(value)


def decode(data: bytes, kind: type[S]) -> S:
    """Decode a value. Raises `FleetError` if it is not of this type, such as one that another
    version or program wrote."""
    try:
        return decode_typed(data, kind)
    except UNDECODABLE as error:
        raise FleetError(f"invalid fleet data ({kind.__name__.lstrip('_')}): {error}") from error
