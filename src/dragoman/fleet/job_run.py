"""Run one job on a worker: unpack its repository, delegate the prompt there, return the result.

The worker's own settings decide about peers, permissions, budgets and checks; a job can only ask
for less. `worker` holds the lease and publishes; this module does not talk to the coordinator.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from dragoman.client.folders import make_private
from dragoman.config.safe_files import write_whole
from dragoman.config.schema import Permissions
from dragoman.config.secrets import handed_values, secret_values
from dragoman.decoders import convert_typed, decode_typed
from dragoman.delegation.execution import delegate_request
from dragoman.delegation.listener import DelegationListener
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.result import Delegation
from dragoman.delegation.routing import Candidate, Decision
from dragoman.delegation.worktree.bundle import Bundle
from dragoman.delegation.worktree.records import remove_tree
from dragoman.delegation.worktree.sent_tree import SentTree, result_patch, unpack
from dragoman.errors import FileFailed, IsolationFailed, UsageError
from dragoman.events.model import Event
from dragoman.fleet.event_publisher import EventPublisher
from dragoman.fleet.records import (
    ATTEMPT_BEGUN,
    DECIDED,
    NOTICE,
    AttemptEnded,
    FleetResult,
    JobSpec,
)
from dragoman.fleet.subjects import require_job_id
from dragoman.rpc.tasks import check, in_thread
from dragoman.runs.context import RunContext, load_context
from dragoman.runs.run_values import CancelHandle
from dragoman.transports.process.identity import (
    ProcessIdentity,
    ProcessState,
    own_identity,
    state_of,
)
from dragoman.wire.messages import UNDECODABLE

log: Final = logging.getLogger("dragoman.fleet")

WORK: Final = "fleet-work"
"""Directory of the repositories and worktrees, in the state directory."""

LEFT_AGE: Final = 24 * 3600.0
"""Seconds after which a directory whose worker is no longer running is removed."""

OWNER: Final = "owner.json"
"""File in an attempt's directory that identifies the worker process: several workers of one user
share the state directory."""

MIN_SECRET_SIZE: Final = 12
"""Minimum length, in characters, of the secrets that are searched for in a patch."""

_ORDER: Final[tuple[Permissions, ...]] = ("deny-all", "approve-reads", "ask", "approve-all")
"""The presets from the most to the least restrictive on a worker, where no user answers `ask`."""


class WorkerLimits(Struct, frozen=True, kw_only=True):
    """The limits that a worker sets for jobs."""

    peers: tuple[str, ...] = ()
    """Peers that jobs may use; empty: all enabled peers."""
    checks: bool = False
    """Whether jobs may include a check command, which is not subject to the policy."""


class JobOutput(Struct, frozen=True, kw_only=True):
    """The output of a job: its delegation and its patch."""

    delegation: Delegation
    patch: bytes


class _Listener(DelegationListener):
    def __init__(
        self, on_event: Callable[[Event], None], on_told: Callable[[dict[str, Any]], None]
    ) -> None:
        self._on_event = on_event
        self._on_told = on_told

    def event(self, event: Event) -> None:
        self._on_event(event)

    def decided(self, decision: Decision) -> None:
        self._on_told({"type": DECIDED, **msgspec.to_builtins(decision)})

    def attempt(self, number: int, candidate: Candidate, reason: str) -> None:
        self._on_told(
            {
                "type": ATTEMPT_BEGUN,
                "number": number,
                "reason": reason,
                **msgspec.to_builtins(candidate),
            }
        )

    def notice(self, text: str) -> None:
        log.warning("%s", text)
        self._on_told({"type": NOTICE, "text": text})


def worker_context(folder: Path, limits: WorkerLimits) -> RunContext:
    """Load the settings for jobs that run in `folder`. A project's own settings apply only if the
    worker's user trusts them there. Of the enabled peers, only those that `limits` allows stay
    enabled."""
    place = load_context(folder)
    if not limits.peers:
        return place
    settings = structs.replace(
        place.config.settings,
        enabled_peers=tuple(
            name for name in place.config.settings.enabled_peers if name in limits.peers
        ),
    )
    return replace(place, config=structs.replace(place.config, settings=settings))


def worker_secrets(place: RunContext, *more: str) -> tuple[str, ...]:
    """Return the secrets in this machine's environment, including those passed to its peers, and
    `more`."""
    settings = place.config.settings
    names = [name for peer in place.catalogue for name in peer.credentials.env]
    handed = [name for peer in settings.enabled_peers for name in settings.for_peer(peer).env]
    return (
        *secret_values(place.environ, names),
        *handed_values(place.environ, handed, place.cwd),
        *more,
    )


def require_no_secret(patch: bytes, secrets: Iterable[str]) -> None:
    """Raise `IsolationFailed` if a line that a patch adds contains a secret.

    Short secrets are ignored, because they also occur as words in ordinary files. So are the first
    and last lines of a key, which are the same in all keys.
    """
    lines = (line for secret in secrets for line in secret.splitlines())
    wanted = [
        line.encode()
        for line in lines
        if len(line) >= MIN_SECRET_SIZE and not line.startswith("-----")
    ]
    # Search the whole patch first: searching each line takes much longer.
    found = [secret for secret in wanted if secret in patch]
    if any(
        line.startswith(b"+") and any(secret in line for secret in found)
        for line in (patch.split(b"\n") if found else ())
    ):
        raise IsolationFailed("sending the patch", "it contains a secret of this machine")


def narrowed_permissions(wanted: Permissions | None, place: RunContext) -> Permissions | None:
    """Return the preset that a job requests if the worker grants at least as much to each of its
    peers; otherwise None, which means the worker's own preset."""
    if wanted is None:
        return None
    settings = place.config.settings
    granted = [settings.permissions_for(name) for name in settings.enabled_peers]
    least = min((_ORDER.index(one) for one in granted), default=_ORDER.index(settings.permissions))
    return wanted if _ORDER.index(wanted) <= least else None


def refusal(spec: JobSpec, place: RunContext, limits: WorkerLimits) -> str:
    """Return why this worker refuses a job; empty if it accepts the job."""
    for problem in place.config.problems:
        return f"its settings are invalid: {problem}"
    if spec.check is not None and not limits.checks:
        return "this worker runs no check commands: it was started without --allow-checks"
    if spec.peer is not None and not place.is_enabled(spec.peer):
        return f"peer {spec.peer} is not enabled"
    return ""


def job_folder(state: Path, job: str, attempt: int) -> Path:
    """Return the directory of an attempt. Each attempt has its own, so that it never uses what a
    killed worker left of an unfinished checkout.

    Raises `UsageError` if `job` is not a job id: other text could name a directory elsewhere.
    """
    return state / WORK / f"{require_job_id(job)}-{attempt}"


async def unpacked(spec: JobSpec, data: bytes, *, folder: Path) -> SentTree:
    """Check out the repository of a job from the bundle `data` into a directory below `folder`,
    without hooks, filters or submodules. Raises `UsageError` if the description of the bundle is
    invalid, and `IsolationFailed` if the bundle is damaged, or cannot be stored or unpacked."""
    try:
        bundle = convert_typed(spec.packed, Bundle)
    except UNDECODABLE as error:
        raise UsageError(f"invalid description of the job's repository: {error}") from error
    file = folder / "repository.bundle"

    def store(_: threading.Event) -> None:
        make_private(folder)
        write_whole(folder / OWNER, msgspec.json.encode(own_identity()))
        write_whole(file, data)

    try:
        # In a thread: heartbeats have to be sent while hundreds of megabytes are written.
        await in_thread(str(folder), store, changes_disk=True)
    except OSError as error:
        # Another worker may have room for it.
        raise IsolationFailed("storing the repository", error.strerror or str(error)) from error
    try:
        return await unpack(file, bundle, folder=folder)
    finally:
        file.unlink(missing_ok=True)


async def run_job(
    spec: JobSpec,
    sent: SentTree,
    *,
    limits: WorkerLimits,
    cancel: CancelHandle,
    on_event: Callable[[Event], None],
    on_told: Callable[[dict[str, Any]], None] = lambda told: None,
) -> JobOutput:
    """Delegate the prompt in the checked-out repository, and return the delegation and its patch.
    `on_told` is called with the routing decision, the start of each attempt and each message for
    the user."""
    workspace = Path(sent.workspace)
    place = worker_context(workspace, limits)
    request = DelegationRequest(
        role=spec.role,
        prompt=spec.prompt,
        workspace=workspace,
        peer=spec.peer,
        tier=spec.tier,
        model=spec.model,
        permissions=narrowed_permissions(spec.permissions, place),
        check=spec.check,
        fallback=spec.fallback,
        # Without a broker, so that the agent ends with this process or with the lease.
        cold=True,
        timeout=spec.timeout,
    )
    done = await delegate_request(
        request,
        place=place,
        listener=_Listener(on_event, on_told),
        cancel=cancel,
        clock=time.time,
    )
    return JobOutput(delegation=done, patch=await result_patch(sent))


def failed_attempt(publisher: EventPublisher, why: str, seconds: float) -> AttemptEnded:
    """Return the report of a delegation that raised an error: a refusal of the job if nothing was
    prompted, otherwise a failure."""
    if not publisher.heard:
        # No peer was prompted here, so another worker may run the job.
        return AttemptEnded(refused=why)
    # A peer was at work, so another worker must not simply run the job again.
    return failed_report(why, seconds, events=publisher.count)


def failed_report(
    why: str,
    seconds: float,
    *,
    outcome: str = "failed",
    events: int = 0,
    may_have_run: bool = True,
) -> AttemptEnded:
    """Return the report of an attempt that ended without a delegation: it failed, or was
    cancelled."""
    return AttemptEnded(
        result=FleetResult(
            ok=False,
            outcome=outcome,
            why=why,
            seconds=seconds,
            events=events,
            may_have_run=may_have_run,
        )
    )


async def removed(folder: Path) -> None:
    """Remove the directory of an attempt. A failure is only logged."""
    await _delete(folder, lambda _: _remove(folder))


async def remove_leftovers(state: Path, *, now: float) -> None:
    """Remove the directories that killed workers left behind more than `LEFT_AGE` ago."""

    def remove(stop: threading.Event) -> None:
        for folder in (state / WORK).glob("*-*"):
            check(stop)
            # Another worker may be removing it as well.
            with suppress(FileNotFoundError):
                if now - folder.stat().st_mtime > LEFT_AGE and not _in_use(folder):
                    _remove(folder)

    await _delete(state / WORK, remove)


def _remove(folder: Path) -> None:
    # The agent may have left directories without write permission, as Go's module cache has them.
    remove_tree(folder)
    if folder.exists():
        log.warning("the job directory %s could not be removed completely", folder)


def _in_use(folder: Path) -> bool:
    try:
        owner = decode_typed((folder / OWNER).read_bytes(), ProcessIdentity)
    except (OSError, *UNDECODABLE):
        return False
    return state_of(owner) is ProcessState.ALIVE


async def _delete(folder: Path, work: Callable[[threading.Event], None]) -> None:
    try:
        await in_thread(str(folder), work, changes_disk=True)
    except (FileFailed, OSError) as error:
        log.warning("could not remove a job directory: %s", error)
