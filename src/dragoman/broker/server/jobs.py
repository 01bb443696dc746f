"""Jobs: prompts with an id, from arrival to end, kept in memory while the broker runs.

A known id is refused, so a prompt is never run twice. `queue` decides when a job runs, `turns`
runs it, `recorder` stores it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.broker.protocol import PolicyTerms, TurnBudgets
from dragoman.client.results import outcome_with
from dragoman.errors import BudgetExceeded, UsageError
from dragoman.events.words import Outcome
from dragoman.store.recorder import JobAnswer

if TYPE_CHECKING:
    from dragoman.broker.server.caller import Caller
    from dragoman.broker.server.live_session import LiveSession
    from dragoman.wire.messages import Request

MAX_ENDED: Final = 256
"""Number of finished jobs kept in memory; older ones are in the store."""

MAX_PROMPT_SIZE: Final = 4096
"""Characters of a prompt shown to callers, and kept after its end."""

_BLOCK_NAMES: Final = {"resource_link": "link"}
"""Prompt blocks whose name in a text differs from their type: as in a run without a broker."""


class Job:
    """One prompt."""

    def __init__(
        self,
        id: str,
        session: LiveSession,
        params: dict[str, Raw],
        *,
        caller: Caller | None = None,
        request: Request | None = None,
        policy: PolicyTerms | None = None,
        asks: bool = False,
        fresh: bool = False,
        budgets: TurnBudgets | None = None,
    ) -> None:
        self.id = id
        self.session = session
        self.params = params
        """The parameters of the prompt, without the broker's own."""
        self.prompt_text = _text_of(params.get("prompt"))
        """The prompt as text: whole while it runs, because the store redacts it before it
        shortens it."""
        self.caller = caller
        """The caller that sent it; None if no caller waits for it any more."""
        self.request = request
        """The caller's request; None if it was submitted."""
        self.policy = policy
        self.asks = asks
        """Whether a watching person is asked where only the policy's preset would refuse."""
        self.fresh = fresh
        self.budgets = budgets
        """Its budget, if the caller set one."""
        self.expired: BudgetExceeded | None = None
        """The budget that ran out, for which it is cancelled."""
        self.stderr_before = 0
        """Bytes the peer had written to stderr when the prompt was sent."""
        self.state = "queued"
        self.context = "live"
        self.outcome: Outcome | None = None
        self.stop: str | None = None
        self.failure: dict[str, Any] | None = None
        self.usage: dict[str, Any] | None = None
        self.answer = JobAnswer(id)
        """The agent's text."""
        self.denied = False
        """Whether a refused permission was the last event."""
        self.denials = 0
        self.approvals = 0
        """Number of permissions refused and granted."""
        self.cancelled = False
        """Whether a caller has requested its cancellation."""
        # Timestamps are for people, so they use the wall clock; nothing is measured with them.
        self.created_at = time.time()
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.first_event = 0
        self.next_event = 0
        self._waiting: list[Callable[[], object]] = []

    def when_ended(self, action: Callable[[], object]) -> None:
        """Call back when its end is stored; at once if it is."""
        if self.state == "ended":
            action()
        else:
            self._waiting.append(action)

    def begin(self, first_event: int) -> None:
        self.state = "running"
        self.started_at = time.time()
        self.first_event = self.next_event = first_event

    def end(
        self,
        outcome: Outcome,
        *,
        next_event: int,
        stop: str | None = None,
        failure: dict[str, Any] | None = None,
        usage: dict[str, Any] | None = None,
    ) -> None:
        """The turn has ended. Waiting callers are notified by `settled`, once all is stored."""
        self.outcome = outcome
        self.stop = stop
        self.failure = failure
        self.usage = usage
        self.ended_at = time.time()
        self.next_event = next_event

    def conclude(self) -> None:
        """Its text is known now: check again whether an apparent success is an error."""
        if self.outcome is not None:
            self.outcome = outcome_with(
                self.outcome,
                denials=self.denials,
                approvals=self.approvals,
                cancelled=self.cancelled,
            )
        if self.outcome is Outcome.OK and not self.answer.text.strip():
            if self.denied:
                self.outcome = Outcome.DENIED
            elif not self.answer.acted:
                self.outcome = Outcome.EMPTY

    def decided(self, *, allowed: bool) -> None:
        """Record a granted or refused permission."""
        self.denied = not allowed
        if allowed:
            self.approvals += 1
        else:
            self.denials += 1

    def settled(self) -> None:
        """The end is final and stored."""
        self.state = "ended"
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()
        # The job is remembered for a while; the data it held is not needed.
        self.caller = self.request = None
        self.params = {}
        self.prompt_text = self.prompt_text[:MAX_PROMPT_SIZE]


def _text_of(prompt: Raw | None) -> str:
    try:
        blocks = [] if prompt is None else msgspec.json.decode(prompt)
    except msgspec.DecodeError:
        return ""
    texts = []
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict):
            kind = str(block.get("type"))
            texts.append(str(block.get("text") or f"[{_BLOCK_NAMES.get(kind, kind)}]"))
    return "\n".join(texts)


class Jobs:
    """The jobs known to a broker, by id."""

    def __init__(self, max_ended: int = MAX_ENDED) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._max_ended = max_ended

    def __iter__(self) -> Any:
        return iter(list(self._jobs.values()))

    def add(self, job: Job) -> None:
        """Add a new job. A known id is refused: a prompt is never run twice."""
        if job.id in self._jobs:
            raise UsageError(f"job {job.id!r} already exists; a prompt is not sent twice")
        self._jobs[job.id] = job
        if len(self._jobs) > 2 * self._max_ended:
            ended = [id for id, each in self._jobs.items() if each.state == "ended"]
            for old in ended[: max(0, len(ended) - self._max_ended)]:
                del self._jobs[old]

    def get(self, id: str) -> Job | None:
        return self._jobs.get(id)
