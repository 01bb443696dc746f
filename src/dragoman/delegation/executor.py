"""Interface of an executor, which runs delegations on other machines, and its result types.

`execution` takes an executor as an argument and `executor_run` calls it; `fleet` provides one. An
executor sends the repository, runs the work as a delegation on the other machine, and returns the
result and the patch. It neither records nor applies anything on this machine.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from msgspec import Struct

from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.result import Delegation
from dragoman.delegation.routing import Candidate, Decision
from dragoman.events.model import Event
from dragoman.events.words import Outcome


class LostAttempt(Struct, frozen=True, kw_only=True):
    """An attempt on a machine that was lost before it sent its report."""

    machine: str
    peer: str
    """The peer that was prompted last; empty if unknown."""
    why: str
    may_have_run: bool = True
    """Whether a peer may have been prompted."""
    started_at: float
    ended_at: float


class ExecutedJob(Struct, frozen=True, kw_only=True):
    """What an executor returns for a job: its result, or why it has none."""

    job: str
    role: str
    started_at: float
    ended_at: float
    machine: str = ""
    """The machine that had it last; empty if none had it."""
    delegation: Delegation | None = None
    """The result of the delegation on that machine, if there is one."""
    lost: tuple[LostAttempt, ...] = ()
    """Attempts on machines that were lost, in order."""
    outcome: Outcome = Outcome.UNKNOWN
    """How the job ended, if there is no delegation."""
    why: str = ""
    """Why there is no delegation."""
    may_have_run: bool = True
    """Whether the last machine may have prompted a peer, if there is no delegation."""
    confirmed: bool = True
    """Whether the job is known to have ended. False if a cancellation was not confirmed."""
    patch: bytes = b""
    """The changes as a git patch for the top directory of the repository; empty if there are
    none."""


class ExecutorListener(Protocol):
    """Callbacks that an executor calls while a job runs."""

    def notice(self, text: str) -> None:
        """Called with a message for the user."""

    def placed(self, machine: str) -> None:
        """Called when a machine starts the job, possibly after another one was lost."""

    def decided(self, decision: Decision) -> None:
        """Called when the machine has made its routing decision."""

    def attempt(self, number: int, candidate: Candidate, reason: str) -> None:
        """Called when the machine is about to prompt a peer."""

    def event(self, event: Event) -> None:
        """Called with each event of the running attempt."""


class Executor(Protocol):
    """Runs delegations on other machines."""

    @property
    def name(self) -> str:
        """Name to show to the user, such as ``fleet red``."""

    def require(self, request: DelegationRequest) -> None:
        """Raise `UsageError` for a request that this executor does not support."""

    async def execute(
        self,
        job: str,
        request: DelegationRequest,
        *,
        listener: ExecutorListener,
        stop: asyncio.Event,
    ) -> ExecutedJob:
        """Run a request as the job with this id. Returns when the job has ended, or when its
        cancellation is not confirmed in time.

        Setting `stop`, or cancelling the task, cancels the job on the other machine. Raises the
        executor's own errors if the job cannot be submitted or its result cannot be read.
        """
