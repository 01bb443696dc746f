"""Run the turn of an attempt on another machine: send the files, follow the job, fetch the changes.

The prompt is a job on the host. It is bound by this side's policy as a ceiling, by this side's time
limits, and by the host's own policy. Its events are read by position, so a lost connection loses
none. Limits on cost and tokens are checked on this side as the events arrive. `attempt` creates the
worktree that is sent and applies the result; `runs.host_link` has the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import structs

from dragoman.broker.client.ssh_command import host_named
from dragoman.broker.host_protocol import HostPrompt
from dragoman.catalogue.host_checks import last_check
from dragoman.client.budgets import Budgets, Watchdog
from dragoman.client.permissions import Answer, Denial, add_denial
from dragoman.config.hosts import split_peer
from dragoman.delegation import permission_ceiling
from dragoman.delegation.host_transfer import (
    SentWorkspace,
    fetch_result,
    remove_workspace,
    send_workspace,
)
from dragoman.delegation.spending_limits import OVER_BUDGET, TurnLimits, tightened
from dragoman.delegation.worktree.received_patch import apply_received
from dragoman.errors import (
    BudgetExceeded,
    DragomanError,
    HostUnavailable,
    IsolationFailed,
)
from dragoman.events import fold
from dragoman.events.parts import Failure
from dragoman.events.words import ErrorKind, Outcome
from dragoman.rpc.tasks import TaskOwner, finish
from dragoman.runs.host_link import FollowedJob, HostLink, Retries
from dragoman.runs.host_questions import form_result, is_permission, permission_result
from dragoman.runs.model_choice import model_in_use
from dragoman.runs.run_values import RunResult
from dragoman.store.history import result_of
from dragoman.store.records import new_job_id

if TYPE_CHECKING:
    from dragoman.broker.protocol import ShownQuestion
    from dragoman.client.results import Result
    from dragoman.delegation.attempt import AttemptSetup
    from dragoman.delegation.routing import Candidate
    from dragoman.policy import Policy
    from dragoman.store.records import JobRecord

T = TypeVar("T")

END_GRACE: Final = 20.0
"""Seconds to wait for the end of a turn after its time limit. The host enforces the limit itself;
if the connection is lost, this side stops waiting after this time."""

CANCEL_TIMEOUT: Final = 10.0
"""Seconds to wait until the job on the host is cancelled, when this side gives up."""

PRESET_OPTIONS: Final = {
    "approve-all": "approve_all",
    "approve-reads": "approve_reads",
    "deny-all": "deny_all",
}


class HostTurn:
    """One turn of a peer on another machine."""

    def __init__(
        self,
        setting: AttemptSetup,
        candidate: Candidate,
        *,
        policy: Policy,
        seen: RunResult,
    ) -> None:
        assert candidate.host is not None
        self._setting = setting
        self._candidate = candidate
        # Not the id of the attempt: the host would treat it as one of its own attempts.
        self._job = new_job_id()
        self._policy = policy
        self._seen = seen
        settings = setting.place.config.settings
        self._peer = split_peer(candidate.peer)[0]
        self._host = host_named(candidate.host, settings.hosts)
        own = settings.for_peer(candidate.peer)
        limits = [settings.limits, own.limits]
        self._own = own
        self._budgets = tightened(
            settings.budgets(), limits, None if setting.deadline is None else setting.deadline.left
        )
        self._turn_limits = TurnLimits(limits)
        self._silence = min(
            (one.silence for one in limits if one.silence is not None), default=None
        )
        self._link = HostLink(
            self._host,
            on_notice=setting.on_notice,
            limits={
                **setting.lineage.environment(),
                **permission_ceiling.environment(
                    policy, peer=candidate.peer, role=setting.request.role
                ),
            },
        )
        self._tasks = TaskOwner(f"the turn on {self._host.name}")
        self._denials: list[Denial] = []
        self._watchdog: Watchdog | None = None
        self._cancelling = False
        self._cancelled = False
        """Whether the host has confirmed that it cancelled the job."""
        self._silent = False
        self._folder = ""
        """The directory of the copy on the host; empty before it was sent."""
        self._unfetched: SentWorkspace | None = None
        """The copy with the changes of a finished turn, until they are applied here."""

    async def run(self, worktree: Path) -> str:
        """Copy the worktree to the host, run the request in the copy, and apply its changes to the
        worktree. Returns the directory of the copy on the host, or the worktree itself if it was
        not sent.

        The result of the turn, or the error if there is none, is stored in `seen`. Raises a
        `DragomanError` if the changes of a finished turn cannot be fetched or applied.
        """
        try:
            await self._work(worktree)
            if self._unfetched is not None:
                await self._fetch(self._unfetched, worktree)
        except BaseException as error:
            if self._unfetched is not None and not isinstance(error, HostUnavailable):
                # For example interrupted while it was fetched.
                self._setting.on_notice(
                    f"the work on {self._host.name} is done, but its changes were not applied; "
                    f"{self._by_hand(self._unfetched)}"
                )
            raise
        return self._folder or str(worktree)

    async def _work(self, worktree: Path) -> None:
        """Send the files and run the turn. An error is stored in `seen`."""
        seen, setting = self._seen, self._setting
        sent: SentWorkspace | None = None
        try:
            # Tried only once: an unreachable host must not delay the next peer.
            await self._bounded(self._link.connection(), "connecting")
            sending = self._persist(lambda: send_workspace(self._host, worktree))
            sent = await self._bounded(sending, "sending the files")
            self._folder = sent.workspace
            await self._turn(sent)
            self._unfetched = sent
        except DragomanError as error:
            seen.error = error
        finally:
            setting.cancel.hold(None)
            if self._watchdog is not None:
                self._watchdog.stop()
            try:
                await finish(self._close(ended=seen.result is not None))
            finally:
                if sent is not None and not seen.prompted:
                    await finish(self._remove(sent))

    async def _persist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run work that opens its own connection. While that connection keeps failing for a passing
        reason, run the work again, for a limited time."""
        retries = Retries()
        while True:
            try:
                return await work()
            except HostUnavailable as error:
                if not error.retryable or not retries.fail():
                    raise
                self._setting.on_notice(f"{error}; retrying")
            await retries.wait()

    async def _bounded(self, work: Any, during: str) -> Any:
        deadline = self._setting.deadline
        if deadline is None:
            return await work
        return await deadline.limit(work, lambda: f"{during} to {self._host.name}")

    async def _close(self, *, ended: bool) -> None:
        """Close the connection. A submitted job that has neither `ended` nor been cancelled is
        cancelled first."""
        try:
            if self._seen.prompted and not ended and not self._cancelled:
                async with asyncio.timeout(CANCEL_TIMEOUT):
                    await self._link.cancel(self._job)
        except (DragomanError, TimeoutError):
            self._setting.on_notice(
                f"job {self._job} may still be running on {self._host.name}; cancel it with "
                f"`dragoman --host {self._host.name} jobs cancel {self._job}`"
            )
        try:
            await self._tasks.aclose()
        finally:
            await self._link.aclose()

    # -- the turn

    async def _turn(self, sent: SentWorkspace) -> None:
        setting, seen = self._setting, self._seen
        # From here on, cancelling cancels the job on the host.
        setting.cancel.hold(self)
        # A submission without a confirmation may still have succeeded.
        seen.prompted = True
        try:
            submitted = await self._bounded(self._link.submit(self._prompt(sent)), "submitting")
        except BudgetExceeded as error:
            # The host may still complete the submission and prompt the agent.
            error.may_have_run = True
            raise
        except DragomanError as error:
            seen.prompted = error.may_have_run
            raise
        setting.on_notice(f"job {self._job} on {self._host.name}")
        if self._cancelling:
            # After a reconnect, the cancel may have arrived before the host had created the job.
            # Cancel the job again.
            await self._cancel_there()
        for notice in submitted.notices:
            setting.on_notice(notice)
        followed = FollowedJob(self._link, self._job, ask=self._answer)
        if self._silence is not None:
            silence = self._silence
            limits = Budgets(first_event=silence, silence=silence, tool_silence=silence)
            self._watchdog = Watchdog(limits, self._gone_silent)
            self._watchdog.start()
        try:
            async with asyncio.timeout(self._patience()):
                await self._follow(followed)
        except TimeoutError:
            raise self._late() from None
        except DragomanError as error:
            # Whatever failed, the job was submitted.
            error.may_have_run = True
            raise
        assert followed.ended is not None
        seen.result = self._result(followed.ended)
        seen.model = model_in_use(seen.view)

    async def _follow(self, followed: FollowedJob) -> None:
        setting, seen = self._setting, self._seen
        # Also if the listener raises, the tasks that follow the job end here.
        async with aclosing(followed.events()) as events:
            async for _, event in events:
                if self._watchdog is not None:
                    self._watchdog.signs += 1
                seen.observe(event, setting.clock())
                fold.apply_outline(seen.view, event)
                setting.on_event(event)
                crossed = self._turn_limits.crossed(event)
                if crossed is not None and seen.over is None:
                    seen.over = Failure(crossed, ErrorKind.QUOTA, OVER_BUDGET, False, None)
                    self.cancel()

    def _prompt(self, sent: SentWorkspace) -> HostPrompt:
        request = self._setting.request
        options: dict[str, Any] = {}
        if name := PRESET_OPTIONS.get(self._policy.preset):
            options[name] = True
        if request.allow_unenforced or self._own.allow_unenforced:
            options["allow_unenforced"] = True
        if model := self._candidate.model or self._own.model:
            options["model"] = model
        if self._own.mode:
            options["mode"] = self._own.mode
        if self._budgets.total is not None:
            options["timeout"] = round(max(self._budgets.total, 0.1), 1)
        if request.session.system_prompt:
            options["system_prompt"] = request.session.system_prompt
        if request.session.max_turns is not None:
            options["max_turns"] = request.session.max_turns
        if request.role in self._roles_there():
            options["role"] = request.role
        # The host looks for file names only in `words`. Piped text may contain anything, so a
        # prompt without named files is sent as `file`.
        names_files = request.files > 0
        return HostPrompt(
            job=self._job,
            peer=self._peer,
            words=[request.prompt] if names_files else [],
            file=None if names_files else request.prompt,
            cwd=sent.workspace,
            is_asked=self._setting.caller is not None,
            options=options,
        )

    def _roles_there(self) -> tuple[str, ...]:
        found = last_check(self._setting.place.paths, self._host.name)
        agents = () if found is None else found.agents
        return next((agent.roles for agent in agents if agent.name == self._peer), ())

    def _result(self, ended: JobRecord) -> Result:
        result = structs.replace(result_of(ended), denials=tuple(self._denials))
        if self._seen.over is not None:
            return structs.replace(result, outcome=Outcome.TRUNCATED, failure=self._seen.over)
        if self._silent and not result.ok:
            why = Failure(
                f"no event for {self._silence:g} s", ErrorKind.CANCELLED, "silence", True, None
            )
            return structs.replace(result, outcome=Outcome.TIMED_OUT, failure=why)
        return result

    # -- limits

    def _patience(self) -> float | None:
        total = self._budgets.total
        return None if total is None else total + END_GRACE

    def _late(self) -> BudgetExceeded:
        assert self._budgets.total is not None
        return BudgetExceeded("total", self._budgets.total)

    def _gone_silent(self, budget: str, timeout: float) -> None:
        self._silent = True
        self.cancel()

    # -- questions and cancelling

    async def _answer(self, shown: ShownQuestion) -> Any:
        # The agent's silence does not count while a person is asked.
        if self._watchdog is not None:
            self._watchdog.open_questions += 1
        try:
            return await self._asked(shown)
        finally:
            if self._watchdog is not None:
                self._watchdog.open_questions -= 1

    async def _asked(self, shown: ShownQuestion) -> Any:
        if not is_permission(shown):
            return await form_result(shown, self._setting.inquire)
        # The host has already applied both policies, so the user has to answer what it asks.
        permit = self._setting.caller or (lambda question: Answer.REJECT_ONCE)
        result, denial = await permission_result(shown, permit)
        if denial is not None:
            add_denial(self._denials, denial)
        return result

    def cancel(self) -> None:
        """Start to cancel the turn on the host. The end of the turn arrives like that of any other
        turn."""
        if not self._cancelling:
            self._cancelling = True
            self._tasks.start(self._cancel_there(), "cancel the job")

    async def _cancel_there(self) -> None:
        try:
            await self._link.cancel(self._job)
            self._cancelled = True
        except DragomanError as error:
            self._setting.on_notice(
                f"could not cancel job {self._job} on {self._host.name}: {error}"
            )

    # -- the changes

    async def _fetch(self, sent: SentWorkspace, worktree: Path) -> None:
        """Apply the changes made on the host to the local worktree, and remove the copy on the
        host."""
        try:
            result = await self._persist(lambda: fetch_result(self._host, id=sent.id))
            if result.patch:
                patches = self._setting.place.paths.state / "patches"
                applied = await apply_received(
                    result.patch, worktree, patches=patches, name=self._job
                )
                if not applied.ok:
                    raise IsolationFailed(
                        f"applying the changes from {self._host.name}",
                        "; ".join(f"{one.path}: {one.why}" for one in applied.conflicts),
                    )
        except HostUnavailable as error:
            raise HostUnavailable(
                self._host.name,
                "the work on the host is done, but its changes could not be fetched: "
                f"{error.problem}",
                remedy=self._by_hand(sent),
                may_have_run=True,
            ) from error
        self._unfetched = None
        await self._remove(sent)

    def _by_hand(self, sent: SentWorkspace) -> str:
        return f"fetch them with `dragoman hosts fetch {self._host.name} {sent.id}`"

    async def _remove(self, sent: SentWorkspace) -> None:
        """Remove the copy on the host. If that fails, a later transfer to the host removes it,
        once it is older than `sent_tree.MAX_AGE`."""
        try:
            await remove_workspace(self._host, sent.id)
        except DragomanError as error:
            self._setting.on_notice(
                f"could not remove {sent.workspace} on {self._host.name}: {error}"
            )
