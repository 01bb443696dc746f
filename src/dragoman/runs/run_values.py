"""RunRequest, RunResult and CancelHandle: the input and output of a run, and how to cancel it.

The surfaces and `delegation` build the request and read the result; `runs.run` carries the request
out, fills the result during the turn, and sets the running turn in the handle. Stop requests of
other processes are in `cancel_by_file`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from dragoman.catalogue.enforcement import Enforced
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import ConversationTurn, Peer
from dragoman.client.options import ConnectOptions
from dragoman.client.results import Result
from dragoman.errors import BrokerError, DragomanError
from dragoman.events.model import Event, MessageDelta, TurnEnded, TurnStarted
from dragoman.events.parts import Block, Capabilities, Failure
from dragoman.events.view import View
from dragoman.events.words import Role
from dragoman.policy.approver import Approver

if TYPE_CHECKING:
    from dragoman.broker.protocol import PolicyTerms
    from dragoman.paths import Paths
    from dragoman.runs.adapter_run import AdapterWork
    from dragoman.store.records import SessionRecord


class RunRequest(Struct, frozen=True, kw_only=True):
    """What to send to which peer, in which session and with which terms."""

    peer: str
    enforced: Enforced
    """How the peer is started, and how the approver's policy is enforced with it."""
    adapter: AdapterWork | None
    """The peer's Python adapter, which is prompted in place of the peer, without a broker. Has
    no default, so that no caller forgets it (`adapter_run.adapter_work`)."""
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
    """A stored session that was already looked up, in place of `session`."""
    fresh: bool = False
    """Whether a new session may replace a stored one that the peer has lost."""
    brief: bool = False
    """Whether the first prompt of such a session contains a summary of the lost one."""
    once: bool = False
    """Whether a new session is closed after its turns, also by a broker that runs them
    unattended."""
    keep_open: bool = False
    """Whether the session stays open when the run ends."""
    mcp_servers: Sequence[Any] = ()
    mcp_strict: bool = True
    """Whether the servers are also sent to a peer that does not advertise support; otherwise
    they are left out with a notice."""
    additional_directories: Sequence[Path] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    mode: str | None = None
    model: str | None = None
    model_strict: bool = True
    """Whether a model that the peer does not take is an error; otherwise the session opens with
    another one, and the result says why (`RunResult.model_error`)."""
    restored_as_is: bool = False
    """Whether a stored session keeps its mode and model, so that these are for a new one."""

    approver: Approver
    unattended: PolicyTerms
    """The policy for a turn that continues in a broker after this process has disconnected."""
    budgets: Budgets
    limit: Callable[[Event], Failure | None] | None = None
    """Called with every event. A failure that it returns ends the turn as truncated."""
    still_running: Callable[[Peer, str], Awaitable[str | None]] | None = None
    """Called with the peer and the id of the session after an interrupted turn. Returns why the
    peer may still be working on it."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    """Metadata for the peer, under `dragoman`: the lineage of delegated work."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """Trace context for the peer, beside `dragoman`."""

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
    def asks(self) -> bool:
        """Whether a person is asked where only the policy's preset decides."""
        return self.approver.policy.preset == "ask"

    def moved(self, folder: Path) -> Self:
        """The same request in another workspace: a stored session continues where it began,
        because its broker and its files are there."""
        if folder == self.workspace:
            return self
        approver = replace(self.approver, workspace=str(folder))
        return replace(self, workspace=folder, approver=approver)


class RunResult(Struct):
    """What was observed in one turn, and while the session was opened for it."""

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
    """The peer's context of the session: `NEW`, `LIVE`, `RESTORED` or `FRESH`."""
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


_SILENT: Final = (TurnStarted, TurnEnded)


def _is_life(event: Event) -> bool:
    """Whether an event shows that the peer works on the turn."""
    if event.turn is None or event.replay or isinstance(event, _SILENT):
        return False
    return not (isinstance(event, MessageDelta) and event.role is Role.USER)


class CancelHandle:
    """Cancels a run, or work that consists of several runs."""

    def __init__(self, *, one_turn: bool = False) -> None:
        self.pulled = False
        """Whether it was cancelled: then no other turn is started."""
        self._one_turn = one_turn
        """Whether a cancellation is only for the running turn, and the next one is not
        cancelled."""
        self._turn: ConversationTurn | None = None
        self._stop: Callable[[], None] | None = None

    @property
    def in_turn(self) -> bool:
        """Whether a turn is running that can be cancelled."""
        return self._turn is not None

    def hold(self, turn: ConversationTurn | None) -> None:
        """Set the running turn; None when it is over."""
        self._turn = turn
        if turn is not None and self.pulled:
            turn.cancel()
        elif turn is None and self._one_turn:
            self.pulled = False

    def between_turns(self, stop: Callable[[], None] | None) -> None:
        """Set the callback that ends the work between turns; None when it is over."""
        self._stop = stop
        if stop is not None and self.pulled:
            stop()

    def pull(self) -> bool:
        """Cancel: the running turn is cancelled in its agent, and no other is started. False if
        there is nothing to cancel yet."""
        self.pulled = True
        if self._turn is not None:
            self._turn.cancel()
        elif self._stop is not None:
            self._stop()
        return self.in_turn or self._stop is not None
