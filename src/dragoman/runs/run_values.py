"""The values of a run: request, result, timers, listener, cancel handle and the broker's notes.

The surfaces and `delegation` build the request and read the result; `runs.run` executes the
request, fills the result during the turn, and sets the running turn in the handle. `cancel_by_file`
handles stop requests from other processes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from dragoman.catalogue.enforcement import Enforced
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Conversation, ConversationTurn, Peer
from dragoman.client.options import ConnectOptions
from dragoman.client.results import Result
from dragoman.errors import BrokerError, BudgetExceeded, DragomanError
from dragoman.events.model import (
    CommandsChanged,
    Event,
    FilesChanged,
    MessageDelta,
    MessageSet,
    PermissionAnswered,
    PermissionAsked,
    SessionChanged,
    SettingsChanged,
    ToolChanged,
    TurnEnded,
    TurnStarted,
    TurnState,
)
from dragoman.events.parts import Block, Capabilities, Failure
from dragoman.events.view import View
from dragoman.events.words import Outcome, Role
from dragoman.policy.approver import Approver
from dragoman.runs.sessions import LIVE, RESTORED, WantedSession, job_terms
from dragoman.store.records import new_session_key

if TYPE_CHECKING:
    from dragoman.broker.protocol import Added, PolicyTerms
    from dragoman.paths import Paths
    from dragoman.runs.adapter_run import AdapterWork
    from dragoman.store.records import SessionRecord

log: Final = logging.getLogger("dragoman.runs")

Value = TypeVar("Value")


class Deadline(Struct, frozen=True):
    """The end of a user's time limit for a whole command: starting the agent, opening its session,
    the turn and every further attempt."""

    seconds: float
    """The time limit in seconds."""
    ends_at: float
    clock: Callable[[], float] = time.monotonic
    option: str = ""
    """The command-line option that set the limit, for messages."""

    @classmethod
    def after(
        cls, seconds: float | None, *, clock: Callable[[], float] = time.monotonic
    ) -> Deadline | None:
        """Return the deadline that is `seconds` from now, or None without a limit."""
        return None if seconds is None else cls(seconds, clock() + seconds, clock)

    @property
    def left(self) -> float:
        """Remaining seconds; 0 if the deadline has passed."""
        return max(self.ends_at - self.clock(), 0.0)

    async def limit(self, work: Awaitable[Value], during: Callable[[], str]) -> Value:
        """Await `work` and return its result. Raises `BudgetExceeded` if the deadline passes first;
        `during` returns what was being done, for the message."""
        limit = asyncio.timeout(self.left)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise self.exceeded(during()) from None

    def call(self, expire: Callable[[BudgetExceeded], None]) -> asyncio.TimerHandle:
        """Schedule the callback `expire`, which gets the error, for the deadline. Returns its
        timer."""
        return asyncio.get_running_loop().call_later(self.left, expire, self._error())

    def exceeded(self, during: str) -> BudgetExceeded:
        """Return the error for a deadline that passed before a prompt was sent."""
        error = self._error()
        error.args = (f"{error} while {during}",)
        error.may_have_run = False
        return error

    def _error(self) -> BudgetExceeded:
        return BudgetExceeded("total", self.seconds, option=self.option)


class RunRequest(Struct, frozen=True, kw_only=True):
    """The request of a run: what to send to which peer, in which session and under which terms."""

    peer: str
    enforced: Enforced
    """How the peer is started, and how the approver's policy is enforced with it."""
    adapter: AdapterWork | None
    """The peer's Python adapter, which gets the prompts instead of the peer, without a broker. It
    has no default, so that no caller forgets it (`adapter_run.adapter_work`)."""
    workspace: Path
    project: Path | None = None
    """The directory that the session is recorded for, if it is not the workspace: the workspace
    may be a worktree of it."""

    prompt: Sequence[Block] = ()
    attach: Callable[[Capabilities], Sequence[Block]] | None = None
    """Further blocks of the prompt, built when the peer's capabilities are known."""
    job: str = ""
    """The id of the job of the first turn; empty for a new one."""

    session: str | None = None
    """Name or key of a stored session. An unused name starts a session."""
    record: SessionRecord | None = None
    """A stored session that was already looked up, instead of `session`."""
    fresh: bool = False
    """Whether a new session may replace a stored one that the peer has lost."""
    brief: bool = False
    """Whether the first prompt of a session that replaces a lost one contains a summary of that."""
    once: bool = False
    """Whether a new session is closed after its turns, even by a broker that runs them
    unattended."""
    keep_open: bool = False
    """Whether the session stays open when the run ends."""
    mcp_servers: Sequence[Any] = ()
    mcp_strict: bool = True
    """Whether the servers are sent even to a peer that does not advertise support. Otherwise they
    are left out with a notice."""
    additional_directories: Sequence[Path] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    mode: str | None = None
    model: str | None = None
    model_strict: bool = True
    """Whether it is an error if the peer does not accept the model. Otherwise the session opens
    with another one, and the result says why (`RunResult.model_error`)."""
    restored_as_is: bool = False
    """Whether a stored session keeps its mode and model; `mode` and `model` then apply only to a
    new one."""

    approver: Approver
    unattended: PolicyTerms
    """The policy for a turn that continues in a broker after this process has disconnected."""
    budgets: Budgets
    deadline: Deadline | None = None
    """When the first turn, including everything before it, must be over."""
    limit: Callable[[Event], Failure | None] | None = None
    """Called with every event. A failure that it returns ends the turn as truncated."""
    still_running: Callable[[Peer, str], Awaitable[str | None]] | None = None
    """Called with the peer and the id of the session after an interrupted turn. Returns why the
    peer may still be working on it."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    """Metadata for the peer, under `dragoman`: the lineage of delegated work."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """Trace context for the peer, next to `dragoman`."""

    warm: bool = True
    ttl: float | None = None
    max_idle: int | None = None
    paths: Paths | None = None
    options: ConnectOptions = field(default_factory=ConnectOptions)
    """Client options for the peer. The approver, the budgets and the events of the run override
    those in it."""
    watch_changes: bool = True
    """Whether to detect files that change in a turn although the approver did not allow it."""
    keep_tools: bool = False
    """Whether the view keeps the tool calls, and not only the session's settings."""

    @property
    def budgets_left(self) -> Budgets:
        """The budgets that a broker is sent with the first prompt: the total is at most the time
        left until the deadline. They apply if this process ends before the turn does."""
        deadline, total = self.deadline, self.budgets.total
        if deadline is None:
            return self.budgets
        # Rounded up: while this process is there, its own timer ends the turn and says why.
        left = max(math.ceil(deadline.left * 10) / 10, 0.1)
        return replace(self.budgets, total=left if total is None else min(total, left))

    @property
    def asks(self) -> bool:
        """Whether to ask a person if only the policy's preset would decide."""
        return self.approver.policy.preset == "ask"

    @property
    def models_hint(self) -> str:
        """A hint with the command that lists the peer's models; empty for a peer that is not in the
        catalogue."""
        if self.enforced.way.descriptor is None:
            return ""
        return f"`dragoman peers models {self.peer}` lists the models that it has"

    def prompt_meta(self, job: str, *, warm: bool, first: bool) -> dict[str, Any]:
        """Return the `_meta` of a prompt.

        With a broker it has the terms on which the broker runs the job.
        """
        ours = dict(self.meta)
        if warm:
            budgets = self.budgets_left if first else self.budgets
            terms = job_terms(job, policy=self.unattended, asks=self.asks, budgets=budgets)
            ours |= terms["dragoman"]
        return {**self.trace, "dragoman": ours} if ours else dict(self.trace)

    def wanted_session(
        self,
        record: SessionRecord | None,
        can: Capabilities,
        *,
        mode: str | None,
        on_notice: Callable[[str], None],
    ) -> WantedSession:
        """Return which session to open, and how: the stored one, or a new one with the requested
        name."""
        servers = self.mcp_servers
        if servers and not self.mcp_strict and can.mcp_stdio is False:
            on_notice(f"{self.peer} does not support MCP servers; they are omitted")
            servers = ()
        return WantedSession(
            key=new_session_key(),
            name=self.session if record is None else record.name,
            record=record,
            once=self.once,
            workspace=self.workspace,
            fresh=self.fresh,
            mode=mode,
            model=self.model,
            mcp_servers=servers,
            additional_directories=self.additional_directories,
            metadata=self.metadata,
            on_notice=on_notice,
            paths=self.paths,
        )

    def moved(self, folder: Path) -> Self:
        """Return the request with `folder` as its workspace and that of its approver.

        For a stored session, which continues where it began: its broker and its files are there.
        """
        if folder == self.workspace:
            return self
        approver = replace(self.approver, workspace=str(folder))
        return replace(self, workspace=folder, approver=approver)


class RunResult(Struct):
    """What was observed in one turn and while the session for it was opened."""

    job: str = ""
    result: Result | None = None
    error: DragomanError | None = None
    """Why there was no turn."""
    prompted: bool = False
    """Whether the prompt was sent, so that it may have run."""
    acted: bool = False
    """Whether the peer sent any text or tool call in its turn."""
    first_event_at: float | None = None
    greeted_seconds: float | None = None
    context: str = ""
    """The state of the peer's context: `NEW`, `LIVE`, `RESTORED` or `FRESH`."""
    model: str | None = None
    restless: str | None = None
    """Why the peer may still be working."""
    over: Failure | None = None
    """The limit that ended the turn."""
    view: View = msgspec.field(default_factory=View)
    model_error: DragomanError | None = None
    """Why the peer does not use the requested model, if that is not an error."""
    unenforced: str = ""
    """Why the policy did not restrict the peer."""
    violations: tuple[str, ...] = ()
    """Files that changed in the turn although no request to change them was granted."""
    seconds: float = 0.0
    """Duration of the turn."""

    def observe(self, event: Event, at: float) -> None:
        """Record an event of the session, which may show that the peer works on the turn."""
        if self.prompted and _is_life(event):
            self.acted = True
            if self.first_event_at is None:
                self.first_event_at = at

    @property
    def broker_failed(self) -> bool:
        """Whether the broker ended this run, and not the peer."""
        error = self.error if self.result is None else self.result.error
        return isinstance(error, BrokerError)


ACTS: Final = (ToolChanged, FilesChanged, PermissionAsked, PermissionAnswered)
"""The types of events that are recorded even if they belong to a session that the agent opened
itself, for example for another agent that it started."""

_SILENT: Final = (
    *(TurnStarted, TurnState, TurnEnded),
    *(SettingsChanged, CommandsChanged, SessionChanged),
)
"""Events that an agent also sends while its model does not answer: Claude lists its commands, and
Cline names the session."""


def _is_life(event: Event) -> bool:
    """Return whether an event shows that the peer works on the turn."""
    if event.turn is None or event.replay or isinstance(event, _SILENT):
        return False
    return not (isinstance(event, MessageDelta | MessageSet) and event.role is Role.USER)


class RunListener:
    """Callbacks of a run. By default `notice` logs its text and the others do nothing; a subclass
    overrides those it needs."""

    def connected(self, peer: Peer) -> None:
        """Called when the peer is connected and no session is open. May raise a `DragomanError`."""

    def began(self, job: str, key: str) -> None:
        """Called before a prompt is sent, as this job in the session with this key."""

    async def follow(self, turn: ConversationTurn) -> None:
        """Consume the events of a turn that has just begun, until it ends.

        Override this only to slow the peer down; otherwise `event` is enough.
        """
        await turn.wait()

    def event(self, event: Event) -> None:
        """Called with every event of the session."""

    def notice(self, text: str) -> None:
        """Called with a message for the user. Logs it by default, so that none is lost."""
        log.warning("%s", text)


class Cancellable(Protocol):
    """A turn that can be cancelled, here or on another machine."""

    def cancel(self) -> object: ...


class CancelHandle:
    """Cancels a run, or work that consists of several runs."""

    def __init__(self, *, one_turn: bool = False) -> None:
        self.pulled = False
        """Whether `pull` was called. If so, no other turn is started."""
        self._one_turn = one_turn
        """Whether a cancellation affects only the running turn and not the next one."""
        self._turn: Cancellable | None = None
        self._stop: Callable[[], None] | None = None

    @property
    def in_turn(self) -> bool:
        """Whether a turn is running that can be cancelled."""
        return self._turn is not None

    def hold(self, turn: Cancellable | None) -> None:
        """Set the running turn, and cancel it if the handle was already pulled. `turn` is None when
        the turn is over; a handle for one turn is then no longer pulled."""
        self._turn = turn
        if turn is not None and self.pulled:
            turn.cancel()
        elif turn is None and self._one_turn:
            self.pulled = False

    def between_turns(self, stop: Callable[[], None] | None) -> None:
        """Set the callback that ends the work between turns, and call it if the handle was already
        pulled. `stop` is None when that work is over."""
        self._stop = stop
        if stop is not None and self.pulled:
            stop()

    def pull(self) -> bool:
        """Cancel the running turn in its agent, or else end the work between turns. A turn that is
        set later is cancelled at once.

        Returns False if there is nothing to cancel yet.
        """
        self.pulled = True
        if self._turn is not None:
            self._turn.cancel()
        elif self._stop is not None:
            self._stop()
        return self.in_turn or self._stop is not None


class BrokerNotes:
    """What a broker adds to its responses about one session, such as notices. Empty without a
    broker."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self.opened: Added | None = None
        """What the broker added to the response that opened the session; None without a broker."""
        self.ended: Added | None = None
        """What the broker added to the response to the prompt; None during the turn or without a
        broker."""
        self._turns = 0
        self._unstored: str | None = None

    def session_opened(self, conversation: Conversation, *, warm: bool) -> None:
        """Keep what the broker added to the response that opened the session."""
        self.opened = _added(conversation, warm=warm)

    def turn_ended(self, turn: ConversationTurn, *, warm: bool) -> None:
        """Keep what the broker added to the response to the prompt."""
        self.ended = _added(turn, warm=warm)
        error = turn.result.error
        if self.ended is not None and error is not None:
            from dragoman.broker.error_codec import notice_in

            self.ended.notice = self.ended.notice or notice_in(error)

    def turn_begins(self) -> None:
        """Forget the additions of the last turn."""
        self._turns += 1
        self.ended = None

    def context(self, opened: str) -> str:
        """Return the state of the peer's context in the last turn.

        `opened` is the state in which this process opened the session.
        """
        told = (self.ended.context if self.ended else None) or LIVE
        if told != LIVE or self._turns > 1:
            return told
        if opened != RESTORED:
            return opened
        return (self.opened.context if self.opened else None) or RESTORED

    def report(self) -> None:
        """Report the broker's notices at the end of the turn, the same store failure only once."""
        ended = self.ended
        self.report_unstored(ended.unstored if ended else None)
        if ended and ended.notice is not None:
            self._on_notice(ended.notice)

    def report_unstored(self, why: str | None) -> None:
        """Report why nothing is stored, unless it was already reported for the last turn."""
        if why is not None and why != self._unstored:
            self._on_notice(f"this conversation is not stored: {why}")
        self._unstored = why


def _added(answered: Conversation | ConversationTurn, *, warm: bool) -> Added | None:
    """Return the broker's additions to the response to a session or a turn, or None without a
    broker."""
    if not warm:
        return None
    from dragoman.broker.protocol import added_to

    return added_to(answered.answer_meta)


SILENT_SECONDS: Final = 10.0
"""Seconds without an event after which a notice says that the agent may be retrying."""


_RETRIES: Final = (
    "rejects requests (login, quota) or fails, it retries for minutes without saying so"
)


def explain_silence(result: Result, seen: RunResult, request: RunRequest) -> Result:
    """Return the result, with an explanation added to its error if the turn timed out and the agent
    may have been retrying silently all the time."""
    if seen.acted or not request.enforced.way.quirks.silent_retries:
        return result
    if result.outcome is not Outcome.TIMED_OUT or result.failure is None:
        return result
    why = f"{request.peer} sent nothing. If its provider {_RETRIES}"
    told = f"{result.failure.message}; {why}"
    if result.error is not None:
        result.error.args = (told,)
    return replace(result, failure=replace(result.failure, message=told))


@contextmanager
def turn_timers(
    turn: ConversationTurn,
    seen: RunResult,
    request: RunRequest,
    *,
    deadline: Deadline | None,
    on_notice: Callable[[str], object],
) -> Iterator[None]:
    """Context manager: expire the turn at the deadline. Notify the user if an agent known to retry
    silently sends nothing for a while after the prompt."""
    timers = []
    if deadline is not None:
        timers.append(deadline.call(turn.expire))
    if request.enforced.way.quirks.silent_retries:

        def tell() -> None:
            if not seen.acted:
                on_notice(
                    f"{request.peer} has sent nothing for {SILENT_SECONDS:g} s. If its provider "
                    f"{_RETRIES}. Ctrl-C cancels; --timeout limits the wait"
                )

        timers.append(asyncio.get_running_loop().call_later(SILENT_SECONDS, tell))
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
