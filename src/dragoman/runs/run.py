"""Send prompts to one peer, from the connection to the judged result.

Connects through a broker or starts the peer directly, opens or restores the session, sets the model
and reads it back, enforces the policy, sends the prompt at most once per turn, records a session
without a broker, and determines whether the broker or the peer failed. The callers (`delegation`
and the surfaces) choose the peer and handle retries, prices and reports.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from msgspec import structs

from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.open import judge, open_peer
from dragoman.client.conversation import Conversation, ConversationTurn, Peer, SessionSummary
from dragoman.dialects.discovery import ACP
from dragoman.errors import (
    BrokerUnavailable,
    DragomanError,
    FileFailed,
    ProtocolMismatch,
    TurnInProgress,
    Unsupported,
    UsageError,
)
from dragoman.events import fold
from dragoman.events.model import Event, TurnEnded
from dragoman.events.parts import Block
from dragoman.events.view import View
from dragoman.events.words import Outcome
from dragoman.paths import find_paths
from dragoman.runs import model_choice
from dragoman.runs.run_values import (
    ACTS,
    BrokerNotes,
    CancelHandle,
    RunListener,
    RunRequest,
    RunResult,
    explain_silence,
    turn_timers,
)
from dragoman.runs.sessions import (
    ANSWER_SIZE,
    DISCARD_TIMEOUT,
    FRESH,
    RESTORED,
    OpenedSession,
    blame,
    broker_ended,
    broker_lost,
    broker_of,
    discard,
    job_terms,
    leave,
    open_session,
    place_of,
    recall_in_thread,
    submit,
)
from dragoman.store.records import new_job_id

if TYPE_CHECKING:
    from dragoman.client.inquiries import Inquiry, Reply
    from dragoman.client.permissions import Decision, Permit, Question
    from dragoman.runs.brief import Brief
    from dragoman.runs.changed_files import ViolationWatch
    from dragoman.runs.direct_recorder import DirectRecorder
    from dragoman.runs.inbox import RunInbox
    from dragoman.store.records import SessionRecord


LEAVE_TIMEOUT: Final = 2.0
"""Timeout in seconds for an agent to close its session. On a timeout the log has the reason."""

LATE_LEAVE_TIMEOUT: Final = 0.3
"""Replaces `LEAVE_TIMEOUT` after the deadline of the run, when the caller no longer waits."""

log = logging.getLogger(__name__)

Value = TypeVar("Value")


class Run:
    """A session with one peer and its turns. Use with ``async with``.

    Entering it connects and opens the session. If that raises an error, no prompt was sent, and a
    session that was started for the run is discarded. The session is also discarded if a
    `UsageError` leaves the block before the first prompt. Without a `CancelHandle`, cancelling a
    job interrupts this process.
    """

    peer: Peer
    opened: OpenedSession

    def __init__(
        self,
        request: RunRequest,
        *,
        listener: RunListener | None = None,
        cancel: CancelHandle | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.request = request
        self.seen = RunResult(job=request.job)
        """The result of the current turn, filled while it runs."""
        self.warm = False
        """Whether a broker is between this process and the peer."""
        self._listener = listener or RunListener()
        self._cancel = cancel or CancelHandle()
        self._on_stop = None if cancel is None else cancel.pull
        self._clock = clock
        self._stack = AsyncExitStack()
        self._recorder: DirectRecorder | None = None
        self._turn: ConversationTurn | None = None
        self._prompts = 0
        self._notes = BrokerNotes(self._listener.notice)
        self._brief: Brief | None = None
        self._discarded: Conversation | None = None
        self._inbox: RunInbox | None = None
        self._session_id: str | None = None
        """The peer's id of the session; None while it is being opened, and for an adapter, which
        opens its own sessions."""
        self._used = False
        """Whether a prompt was sent in the session."""
        self._doing = f"starting {request.peer}"

    async def __aenter__(self) -> Self:
        request = self.request
        try:
            await self._before_deadline(self._open_named())
        except BaseException as error:
            if isinstance(error, DragomanError):
                # Of the requests so far, none was a prompt.
                error.may_have_run = False
                if hasattr(self, "opened"):
                    self._stack.push_async_callback(self.discard)
            await self._stack.__aexit__(*sys.exc_info())
            if isinstance(error, DragomanError) and self.warm and broker_ended(error):
                gone = f"the broker was lost before a prompt was sent: {error}"
                raise BrokerUnavailable(gone) from error
            if isinstance(error, Unsupported) and error.setting == "model" and not error.hint:
                error.hint = request.models_hint
            raise
        return self

    async def _before_deadline(self, work: Awaitable[Value]) -> Value:
        """Await `work`. Until the first prompt is sent, raises `BudgetExceeded` at the deadline."""
        deadline = None if self._used else self.request.deadline
        return await (work if deadline is None else deadline.limit(work, lambda: self._doing))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        mistaken = isinstance(error, UsageError) and not isinstance(error, TurnInProgress)
        if mistaken:
            await self.discard_unused()
        try:
            await self._stack.__aexit__(kind, error, traceback)
        except DragomanError as failure:
            if failure is error or self.seen.result is None:
                raise
            # The turn has ended: how the connection ends does not change its result.
            log.debug("the connection to %s did not close cleanly: %s", self.request.peer, failure)

    async def run(self) -> RunResult:
        """Connect, send the prompt of the request, wait and disconnect. An error before or instead
        of a turn is in the result and not raised."""
        try:
            async with self:
                await self.result()
        except DragomanError as error:
            if self.seen.result is None:
                self.seen.error = error
            else:
                log.warning("an error after the turn of %s: %s", self.request.peer, error)
        return self.seen

    async def result(self) -> RunResult:
        """Send the prompt of the request and wait for the end of the turn."""
        attach = self.request.attach
        more = () if attach is None else attach(self.peer.capabilities)
        return await self.prompt([*self.request.prompt, *more], job=self.request.job)

    async def list_sessions(self, folder: Path | None) -> list[SessionSummary] | None:
        """Connect, return the peer's own sessions (None if it cannot list them), and disconnect. No
        session is opened: the run must not be entered."""
        async with self.connected() as peer:
            self._listener.connected(peer)
            if peer.capabilities.list is False:
                return None
            return [summary async for summary in peer.list_sessions(folder)]

    def connected(self) -> AbstractAsyncContextManager[Peer]:
        """Connect to the peer without a session, for `async with`. The run must not be entered."""
        return self._connected(self.request.enforced.way)

    # -- opening

    async def _open_named(self) -> None:
        request = self.request
        word = request.session
        if word is None:
            await self._open(request.record)
            return
        folder, notice = request.workspace, self._listener.notice
        record = await recall_in_thread(word, peer=request.peer, folder=folder, on_notice=notice)
        if record is not None:
            self.request = request.moved(place_of(record, folder))
            await self._open(record)
            return
        from dragoman.runs.session_lock import begun_once

        async with begun_once(word, peer=request.peer, folder=folder):
            # Another caller may have started the session while this one waited for the lock.
            record = await recall_in_thread(
                word, peer=request.peer, folder=folder, on_notice=notice
            )
            if record is not None:
                self.request = request.moved(place_of(record, folder))
            await self._open(record)
            if record is None:
                # The next caller looks for the session only in the store.
                await self.keep()

    async def keep(self) -> None:
        """Store the session although no prompt was sent in it."""
        if self._recorder is not None:
            await self._recorder.begin()
            await self._recorder.flush()

    async def discard_unused(self) -> None:
        """Delete the session if no prompt was sent in it."""
        if not self._used:
            await self.discard()

    async def _open(self, record: SessionRecord | None) -> None:
        request = self.request
        await self._reach(request.enforced.way, record)
        if request.model is None or self._is_as_left() or request.adapter is not None:
            return

        async def restart(way: LaunchSpec) -> tuple[Conversation, View]:
            # No prompt was sent, so it can be restarted with another command line.
            await self.discard()
            await self._stack.aclose()
            self.seen.view = View()
            await self._reach(way, record)
            return self.opened.conversation, self.seen.view

        try:
            await model_choice.choose_model(
                self.opened.conversation,
                self.seen.view,
                request.model,
                way=request.enforced.way,
                restart=restart,
                peer=request.peer,
                on_notice=self._listener.notice,
            )
        except DragomanError as error:
            if request.model_strict or not isinstance(error, UsageError | ProtocolMismatch):
                raise
            self.seen.model_error = error

    def _is_as_left(self) -> bool:
        return self.request.restored_as_is and self.opened.context == RESTORED

    async def _reach(self, way: LaunchSpec, record: SessionRecord | None) -> None:
        """Connect and open the session. Both end with the stack."""
        request, stack = self.request, self._stack
        self._inbox = self._session_id = None
        began_at = self._clock()
        self._doing = f"starting {request.peer}"
        self.peer = await stack.enter_async_context(self._connected(way))
        self._doing = f"opening a session with {request.peer}"
        self.seen.greeted_seconds = max(self._clock() - began_at, 0.0)
        self.warm = broker_of(self.peer) is not None
        self._listener.connected(self.peer)
        self._recorder = None
        if not self.warm or request.approver.caller is None:
            # Otherwise the broker shows the questions to consoles, because it asks this caller.
            request.approver.inbox = self._ask
        if not self.warm:
            from dragoman.runs.direct_recorder import recorder_for

            self._recorder = recorder_for(
                request.peer,
                workspace=request.project or request.workspace,
                credentials=way.inherit,
                handed=request.options.inherit,
                on_trouble=self._listener.notice,
                paths=request.paths,
                on_stop=self._on_stop,
            )
            stack.push_async_callback(self._recorder.aclose)
        name = request.session if record is None else record.name
        mode = request.mode if record is None or not request.restored_as_is else None
        self.opened = await open_session(
            self.peer,
            request.wanted_session(
                record, self.peer.capabilities, mode=mode, on_notice=self._listener.notice
            ),
        )
        if request.adapter is None:
            self._session_id = self.opened.conversation.id
        self._notes.session_opened(self.opened.conversation, warm=self.warm)
        if not request.keep_open:
            stack.push_async_callback(self._leave, self.opened.conversation)
        if mode is not None:
            model_choice.require_mode(self.seen.view, mode, peer=request.peer)
        await self._enforce()
        if request.brief and record is not None and self.opened.context == FRESH:
            await self._prepare_brief(record)
        if self._recorder is not None:
            self._recorder.opened(self.opened, record, name=name, keep_open=request.keep_open)

    async def _prepare_brief(self, record: SessionRecord) -> None:
        from dragoman.runs.brief import brief_of

        self._brief = await brief_of(record)
        if self._brief is not None:
            self._listener.notice(
                f"{self.request.peer} has lost the session and gets a summary of it: {self._brief}"
            )

    def _with_brief(self, blocks: Sequence[Block]) -> Sequence[Block]:
        brief, self._brief = self._brief, None
        return blocks if brief is None else [brief.block(self.peer.capabilities), *blocks]

    async def discard(self) -> None:
        """Delete the session unless it was restored. Call this only if no prompt was sent."""
        if self.opened.context == RESTORED or self.opened.conversation is self._discarded:
            return
        self._discarded = self.opened.conversation
        if self._recorder is not None:
            await self._recorder.end_session()
        await discard(self.opened, timeout=self._in_time(DISCARD_TIMEOUT), paths=self.request.paths)

    async def _leave(self, conversation: Conversation) -> None:
        """Close a session that is not kept open, unless it was closed when it was discarded."""
        if conversation is not self._discarded:
            await leave(conversation, timeout=self._in_time(LEAVE_TIMEOUT))

    def _in_time(self, timeout: float) -> float:
        """Return the timeout for closing a session, which is short after the deadline."""
        deadline = self.request.deadline
        return LATE_LEAVE_TIMEOUT if deadline is not None and not deadline.left else timeout

    def _connected(self, way: LaunchSpec) -> AbstractAsyncContextManager[Peer]:
        request = self.request
        if request.adapter is not None:
            from dragoman.runs.adapter_run import AdapterPeer

            return AdapterPeer(request.adapter, request, way, on_event=self._watch)
        options = structs.replace(
            request.options,
            permit=request.approver,
            guard=request.approver.guard,
            budgets=request.budgets,
            on_event=self._watch,
        )
        if not request.warm:
            from dragoman.broker.endpoint import console_is_open

            if options.inquire is None and console_is_open((request.paths or find_paths()).runtime):
                options = structs.replace(options, inquire=self._inquire)
            return open_peer(way, options, workspace=request.workspace)
        from dragoman.broker.client.connect import open_warm

        return open_warm(
            way,
            options,
            workspace=request.workspace,
            ttl=request.ttl,
            max_idle=request.max_idle,
            paths=request.paths,
            on_fallback=lambda error: self._listener.notice(
                f"starting {request.peer} without a broker: {error}"
            ),
        )

    async def _enforce(self) -> None:
        conversation, view = self.opened.conversation, self.seen.view
        self.seen.unenforced = await self.request.enforced.hold(conversation, view)

    # -- questions for the console

    def _open_inbox(self) -> RunInbox:
        if self._inbox is None:
            from dragoman.runs.inbox import RunInbox

            request = self.request
            self._inbox = RunInbox(
                request.paths or find_paths(),
                peer=request.peer,
                workspace=request.workspace,
                place=lambda: (self.opened.key, self.seen.job),
            )
            self._stack.push_async_callback(self._inbox.aclose)
        return self._inbox

    async def _ask(
        self, question: Question, caller: Permit | None, settle: Callable[[Decision], bool]
    ) -> Decision | None:
        inbox = self._open_inbox()
        inbox.has_broker = self.warm
        return await inbox.ask(question, caller, settle)

    async def _inquire(self, inquiry: Inquiry) -> Reply:
        return await self._open_inbox().inquire(inquiry)

    # -- turns

    async def prompt(self, blocks: Sequence[Block], *, job: str = "") -> RunResult:
        """Send one prompt, wait for the end of its turn, and return the result, even of a failed
        turn. Raises the error that prevented sending the prompt."""
        if self._prompts:
            self.seen = RunResult(view=self.seen.view)
        self._prompts += 1
        seen, request = self.seen, self.request
        seen.job = job or new_job_id()
        self._notes.turn_begins()
        clock = asyncio.get_running_loop().time
        began_at = clock()
        try:
            before, blocks = await self._before_deadline(self._prepare(blocks))
        except BaseException as error:
            if isinstance(error, DragomanError):
                # A request such as setting the mode failed, and the prompt was not sent.
                error.may_have_run = False
            self._record_unsent(error)
            raise
        self._listener.began(seen.job, self.opened.key)
        deadline = None if self._used else request.deadline
        notice = self._listener.notice
        try:
            turn = self._begin(blocks)
            turn.max_text_size = ANSWER_SIZE
            seen.prompted = True
            async with turn:
                if turn.unsent is not None:
                    raise turn.unsent
                self._turn = turn
                self._used = True
                self._cancel.hold(turn)
                with turn_timers(turn, seen, request, deadline=deadline, on_notice=notice):
                    await self._listener.follow(turn)
        except BaseException as error:
            if self._turn is not None:
                self._record_left(self._turn)
                raise
            self._record_unsent(error)
            if isinstance(error, DragomanError) and self.warm and broker_ended(error):
                raise broker_lost("the broker was lost before the turn", error) from error
            raise
        finally:
            self._cancel.hold(None)
            self._turn = None
        result = turn.result
        self._notes.turn_ended(turn, warm=self.warm)
        seen.context = self._notes.context(self.opened.context)
        result = judge(blame(result) if self.warm else result, request.enforced.way.quirks)
        result = explain_silence(result, seen, request)
        if seen.over is not None:
            result = structs.replace(result, outcome=Outcome.TRUNCATED, failure=seen.over)
        seen.result = result
        seen.model = model_choice.model_in_use(seen.view)
        seen.seconds = clock() - began_at
        if self._recorder is not None:
            self._recorder.ended(result)
            await self._recorder.flush()
        self._notes.report()
        if before is not None:
            try:
                seen.violations = await before.violations()
            except FileFailed as error:
                # The turn has ended: what the disk does now does not change its result.
                notice(f"it is unknown which files changed without an allowed request: {error}")
        # At the deadline there is no next attempt that a running turn could disturb.
        late = deadline is not None and not deadline.left
        if request.still_running is not None and result.outcome in _CUT_OFF and not late:
            seen.restless = await request.still_running(self.peer, self.opened.conversation.id)
        return seen

    async def _prepare(
        self, blocks: Sequence[Block]
    ) -> tuple[ViolationWatch | None, Sequence[Block]]:
        """Enforce the policy and record the job. Returns the state to watch and the prompt."""
        request = self.request
        # A peer may change its mode in a turn, so this is checked before each prompt.
        await self._enforce()
        blocks = self._with_brief(blocks)
        before = await self._look()
        if self._recorder is not None:
            from dragoman.runs.session_lock import only_turn

            async with only_turn(
                self.opened,
                named=request.session is not None,
                peer=request.peer,
                folder=request.workspace,
                store=self._recorder.flush,
            ):
                await self._recorder.begin()
                self._recorder.began(self.seen.job, blocks)
        return before, blocks

    async def _look(self) -> ViolationWatch | None:
        """Return the state of the workspace before a turn, or None if changes need not be
        detected."""
        request = self.request
        if not (request.watch_changes and request.enforced.restricts):
            return None
        from dragoman.runs.changed_files import ViolationWatch

        return await ViolationWatch.take(request.workspace, request.approver)

    @property
    def in_turn(self) -> bool:
        """Whether a turn is running."""
        return self._turn is not None

    def cancel_turn(self) -> None:
        """Cancel the running turn in its peer, if there is one."""
        if self._turn is not None:
            self._turn.cancel()

    async def submit(self, blocks: Sequence[Block], *, wait: float = 0.0) -> str:
        """Submit a prompt to the broker without waiting for its turn. Returns the id of the job. A
        question waits `wait` seconds for a person. Raises `BrokerUnavailable` without a broker,
        and `BrokerError` if the broker does not confirm the job."""
        if not self.warm:
            raise BrokerUnavailable(
                "there is no broker that could run the turn when this command has ended",
                hint="without --no-wait, none is needed; `dragoman doctor` shows why there is none",
            )
        request, job = self.request, self.request.job or new_job_id()
        terms = job_terms(
            job, policy=request.unattended, asks=request.asks, wait=wait, budgets=request.budgets
        )
        session, blocks = self.opened.conversation.id, self._with_brief(blocks)
        self._notes.report_unstored(await submit(self.peer, session, blocks, terms))
        self._used = True
        return job

    def _begin(self, blocks: Sequence[Block]) -> ConversationTurn:
        conversation = self.opened.conversation
        meta = self.request.prompt_meta(self.seen.job, warm=self.warm, first=not self._used)
        if not meta or (self.peer.dialect != ACP and not self.warm):
            return conversation.prompt(blocks)
        return conversation.prompt(blocks, meta=meta)  # type: ignore[call-arg]

    def _record_left(self, turn: ConversationTurn) -> None:
        """Record the end of a turn that its caller no longer waits for."""
        # After a second cancellation the turn may have no result.
        with suppress(UsageError):
            if self._recorder is not None:
                self._recorder.ended(turn.result)

    def _record_unsent(self, error: BaseException) -> None:
        """Record the end of a job whose prompt was not sent."""
        if self._recorder is not None:
            self._recorder.not_sent(error)

    def _watch(self, event: Event) -> None:
        seen, request = self.seen, self.request
        foreign = self._session_id is not None and event.session not in (None, self._session_id)
        if foreign and not isinstance(event, ACTS):
            return
        keep = fold.apply_outline if request.keep_tools else fold.apply_settings
        keep(seen.view, event)
        recorder = self._recorder
        if recorder is not None and foreign:
            recorder.question(event)
        # The end of one of an adapter's prompts is not the end of its work.
        elif recorder is not None and not (request.adapter and isinstance(event, TurnEnded)):
            recorder.event(event)
        seen.observe(event, self._clock())
        if request.limit is not None and seen.over is None:
            seen.over = request.limit(event)
            if seen.over is not None and self._turn is not None:
                self._turn.cancel()
        self._listener.event(event)


_CUT_OFF: Final = (Outcome.TIMED_OUT, Outcome.CANCELLED, Outcome.TRUNCATED)
