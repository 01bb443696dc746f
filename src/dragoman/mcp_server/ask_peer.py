"""Prompt one named peer once, in a new or a stored session, and wait for the end of the turn.

Builds the request for `runs.run`, which runs the turn, and then the report of the turn. Delegation
depth comes from `runs.lineage`, permissions from `delegation.permission_ceiling` and `policy`.
Choosing a peer by role is in `delegation`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.broker.endpoint import console_is_open
from dragoman.catalogue.launch import LaunchSpec, way_to
from dragoman.client.conversation import Peer
from dragoman.delegation import DelegationListener, permission_ceiling
from dragoman.delegation.attempt_report import AttemptReport, report_of
from dragoman.delegation.peer_request import peer_request
from dragoman.delegation.prices import price, read_prices
from dragoman.delegation.spending_limits import tightened
from dragoman.errors import NoPeer
from dragoman.events.model import Event
from dragoman.events.parts import Text
from dragoman.runs.adapter_run import adapter_work
from dragoman.runs.context import redacted_stderr
from dragoman.runs.run import Run
from dragoman.runs.run_values import CancelHandle, Deadline, RunListener, RunRequest
from dragoman.runs.sessions import broker_of
from dragoman.store.peer_recovery import note_success
from dragoman.store.records import new_job_id

if TYPE_CHECKING:
    from dragoman.config.schema import Permissions
    from dragoman.runs.context import RunContext
    from dragoman.runs.lineage import Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerQuestion:
    """A prompt for one peer."""

    peer: str
    prompt: str
    workspace: Path
    session: str | None = None
    """The name or key of a stored session; an unused name starts one. None for a new session that
    is closed after this prompt."""
    fresh: bool = False
    timeout: float | None = None
    permissions: Permissions | None = None


class PeerLead(CancelHandle):
    """A cancel handle that can also leave a running turn to its broker."""

    def __init__(self) -> None:
        super().__init__()
        self._peer: Peer | None = None

    def reached(self, peer: Peer | None) -> None:
        """Called when the run has connected. `peer` is the connected peer if it runs in a broker,
        otherwise None."""
        self._peer = peer

    async def drop(self) -> bool:
        """Leave a running turn to its broker by closing the connection. Does nothing and returns
        False if there is no broker or no turn is running."""
        if self._peer is None or not self.in_turn:
            return False
        await self._peer.aclose()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAnswer:
    """The result of a prompt to one peer."""

    job: str
    session: str
    """The key of the stored session."""
    context: str
    report: AttemptReport


async def ask(
    question: PeerQuestion,
    *,
    place: RunContext,
    lineage: Lineage,
    audience: DelegationListener,
    lead: PeerLead,
) -> PeerAnswer:
    """Prompt the peer, and wait for the end of the turn.

    A failed turn is an answer, whose report says what failed. Raises `NoPeer` if delegation is
    already at its maximum depth, and another `DragomanError` if there is no result of a turn.
    """
    settings = place.config.settings
    if lineage.depth >= settings.max_depth:
        raise NoPeer(
            "an answer",
            {
                question.peer: f"this is delegated work already, at depth {lineage.depth}, and "
                f"{settings.max_depth} is the limit; do the work here, or raise max_depth"
            },
        )
    launch = way_to(
        question.peer, catalogue=place.catalogue, settings=settings, environ=place.environ
    )
    # Read before the prompt: a broken file must not lose an answer.
    prices = read_prices(place.paths.config)
    request = _request(question, launch, place=place, lineage=lineage)
    async with Run(request, listener=_Forward(audience, lead), cancel=lead) as run:
        started_at = time.time()
        seen = await run.result()
        result = seen.result
        assert result is not None
        if result.ok:
            await note_success(
                question.peer,
                launch.descriptor,
                paths=place.paths,
                env=request.options.inherit,
                environ=place.environ,
            )
        return PeerAnswer(
            job=seen.job,
            session=run.opened.key,
            context=seen.context,
            report=report_of(
                result,
                peer=question.peer,
                role="" if request.adapter is None else request.adapter.role,
                started_at=started_at,
                ended_at=time.time(),
                model=seen.model,
                unenforced=seen.unenforced or None,
                violations=seen.violations,
                cost=price(seen.model, result.usage, prices),
                stderr_tail=redacted_stderr(
                    result.error, peer=question.peer, place=place, workspace=question.workspace
                ),
            ),
        )


def _request(
    question: PeerQuestion, launch: LaunchSpec, *, place: RunContext, lineage: Lineage
) -> RunRequest:
    """Return the request for the run. Raises `PolicyNotEnforced` as `peer_request` does."""
    settings, peer = place.config.settings, question.peer
    policy = permission_ceiling.policy_for(
        settings,
        peer,
        wished=question.permissions,
        # A person at the console can be asked.
        attended=console_is_open(place.paths.runtime),
        ceilings=permission_ceiling.inherited_ceilings(lineage, place.environ),
    )
    adapter = adapter_work(peer, place)
    job = new_job_id()
    below = lineage.child(job)
    request = peer_request(
        launch,
        place=place,
        workspace=question.workspace,
        policy=policy,
        lineage=below,
        adapter=adapter,
        warm=settings.warm and adapter is None,
        ask_before_preset=policy.preset == "ask",
    )
    return structs.replace(
        request,
        prompt=[Text(question.prompt)],
        job=job,
        session=question.session,
        fresh=question.fresh,
        once=question.session is None,
        keep_open=question.session is not None,
        budgets=tightened(
            request.budgets,
            [settings.limits, settings.for_peer(peer).limits],
            question.timeout,
        ),
        deadline=Deadline.after(question.timeout),
        meta=below.meta(),
    )


class _Forward(RunListener):
    """Passes the job id, events and notices of a run to the listener of the tool call, and the peer
    to its `PeerLead`."""

    def __init__(self, audience: DelegationListener, lead: PeerLead) -> None:
        self._audience = audience
        self._lead = lead

    def connected(self, peer: Peer) -> None:
        self._lead.reached(peer if broker_of(peer) is not None else None)

    def began(self, job: str, key: str) -> None:
        self._audience.job(job)

    def event(self, event: Event) -> None:
        self._audience.event(event)

    def notice(self, text: str) -> None:
        self._audience.notice(text)
