"""Jobs: prompts with an id, from arrival to end, kept in memory while the broker runs.

A known id is refused, so a prompt is never run twice. `queue` decides when a job runs, `turns`
runs it, `recorder` stores it.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.broker.protocol import PolicyTerms, TurnBudgets
from dragoman.client.results import outcome_with
from dragoman.errors import BudgetExceeded, UsageError
from dragoman.errors.usage import shown
from dragoman.events.words import Outcome
from dragoman.store.recorder import JobAnswer
from dragoman.store.records import JOB_NOTICE
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.broker.server.caller import Caller
    from dragoman.broker.server.live_session import LiveSession
    from dragoman.wire.messages import Request

log: Final = logging.getLogger("dragoman.broker")

MAX_ENDED: Final = 256
"""Number of finished jobs that stay in memory when older ones are dropped, which happens when there
are more than twice as many jobs. The store has the older ones."""

MAX_PROMPT_SIZE: Final = 4096
"""Maximum number of characters of a prompt to show to callers, and to keep after the end of its
job."""

MAX_NOTICES: Final = 16
"""Maximum number of notices of a job. An agent may ask any number of questions."""

_BLOCK_NAMES: Final = {"resource_link": "link"}
"""The names of some types of prompt blocks in `Job.prompt_text`, as in a run without a broker."""


class Job:
    """One prompt: its terms, its turn and its result."""

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
        wait: float = 0.0,
        fresh: bool = False,
        budgets: TurnBudgets | None = None,
    ) -> None:
        self.id = id
        self.session = session
        self.params = params
        """The parameters of the prompt, without the broker's own."""
        self.prompt_text = _text_of(params.get("prompt"))
        """The prompt as text. It is complete until the job has ended, because the store redacts it
        before shortening it."""
        self.caller = caller
        """The caller that sent it; None if no caller waits for it."""
        self.request = request
        """The caller's request; None if it was submitted."""
        self.policy = policy
        self.asks = asks
        """Whether a watching person is asked for permission where only the policy's preset would
        refuse."""
        self.wait = wait
        """Seconds that a question waits while no person can answer it."""
        self.fresh = fresh
        """Whether to continue in a new session if the peer has lost this one."""
        self.budgets = budgets
        """The budgets that the caller set for it, if any."""
        self.notices: list[str] = []
        """Notices for the user, sent with the end of the turn and stored with its session."""
        self.expired: BudgetExceeded | None = None
        """The budget that ran out, if that is why the job is cancelled."""
        self.stderr_before = 0
        """How many bytes the peer had written to stderr when the prompt was sent."""
        self.state = "queued"
        self.context = "live"
        self.outcome: Outcome | None = None
        self.stop: str | None = None
        self.failure: dict[str, Any] | None = None
        self.usage: dict[str, Any] | None = None
        self.answer = JobAnswer(id)
        """The agent's text, and whether it has said or done anything."""
        self.denied = False
        """Whether the last permission request was refused."""
        self.denials = 0
        self.approvals = 0
        """`denials` and `approvals`: number of permissions refused and granted."""
        self.allowed_calls: set[str] = set()
        """Tool calls that were permitted. Some peers report a call only by asking for
        permission."""
        self.cancelled = False
        """Whether its turn was cancelled while it ran, by a caller or because a budget ran out."""
        # Timestamps are for people, so they use the wall clock; nothing is measured with them.
        self.created_at = time.time()
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.began = 0.0
        """When its turn began, by the monotonic clock."""
        self.first_event = 0
        self.next_event = 0
        self._waiting: list[Callable[[], object]] = []

    def when_ended(self, action: Callable[[], object]) -> None:
        """Call the callback `action` when the job's end is stored or cannot be stored, at once if
        that is already known."""
        if self.state == "ended":
            action()
        else:
            self._waiting.append(action)

    def begin(self, first_event: int) -> None:
        self.state = "running"
        self.started_at = time.time()
        self.began = time.monotonic()
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
        """Record that the turn has ended.

        Waiting callers are notified by `settled`, once everything is stored or cannot be.
        """
        self.outcome = outcome
        self.stop = stop
        self.failure = failure
        self.usage = usage
        self.ended_at = time.time()
        self.next_event = next_event
        if self.started_at is None:
            self.first_event = next_event

    def conclude(self) -> None:
        """Correct an outcome that rests only on the agent's report, now that the text is complete:
        denied if every permission was refused, or the last one was and there is no text; empty if
        there is no text and the agent did nothing."""
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

    def declined(self, question: str) -> None:
        """Record that a question of the agent was declined, because no person could be asked."""
        text = f"the agent's question {shown(question)} was declined: no terminal to ask on"
        log.info("job %s: %s", self.id, text)
        if len(self.notices) < MAX_NOTICES:
            self._note(text)
        elif len(self.notices) == MAX_NOTICES:
            self._note("more questions were declined; the log of the broker has them")

    def _note(self, text: str) -> None:
        self.notices.append(text)
        self.session.note(JOB_NOTICE, {"job": self.id, "text": text})

    def settled(self) -> None:
        """Called when the end is final, and is stored or cannot be: notify those that wait for
        it."""
        self.state = "ended"
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            try:
                action()
            except Exception:
                # The other callbacks belong to other callers.
                log.exception("a callback for the end of job %s failed", self.id)
        # The job is remembered for a while; the data it held is not needed.
        self.caller = self.request = None
        self.params = {}
        self.prompt_text = self.prompt_text[:MAX_PROMPT_SIZE]


def _text_of(prompt: Raw | None) -> str:
    try:
        blocks = [] if prompt is None else msgspec.json.decode(prompt)
    except UNDECODABLE:
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
        """Add a new job. Raises `UsageError` if its id is known: a prompt is never run twice."""
        if job.id in self._jobs:
            raise UsageError(f"job {job.id!r} already exists; a prompt is not sent twice")
        self._jobs[job.id] = job
        if len(self._jobs) > 2 * self._max_ended:
            ended = [id for id, each in self._jobs.items() if each.state == "ended"]
            for old in ended[: max(0, len(ended) - self._max_ended)]:
                del self._jobs[old]

    def get(self, id: str) -> Job | None:
        return self._jobs.get(id)
