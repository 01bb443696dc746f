"""Work with jobs on another machine over a connection that may be lost at any time.

`HostLink` reconnects with increasing pauses, and gives up on a host that sends nothing. A prompt is
submitted with an id generated here, so submitting it again is safe; a job is followed by cursor, so
each event is seen once. `runs.host_server` is the remote side.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from dragoman.broker import host_protocol as protocol
from dragoman.broker.client.ssh import NO_LIMITS, HostConnection, install_remedy, open_host
from dragoman.broker.client.ssh_command import Host
from dragoman.broker.protocol import JobWanted, QuestionAnswer, Settled, ShownQuestion
from dragoman.errors import (
    CallCancelled,
    CallTimeout,
    ConnectionLost,
    DragomanError,
    HostUnavailable,
    InvalidAnswer,
    LineTooLong,
)
from dragoman.events.model import Event, EventEnvelope, Source
from dragoman.rpc import Lane
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.job_events import EventCursor, events_after
from dragoman.store.history import events_of
from dragoman.store.records import JobRecord
from dragoman.version import __version__
from dragoman.wire.messages import UNDECODABLE, Notification

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.host")

RECONNECT_TIMEOUT: Final = 180.0
"""Seconds for which to reconnect after the connection is lost: a laptop that changes networks is
back by then. The job continues in any case."""

FIRST_PAUSE: Final = 0.2
MAX_PAUSE: Final = 10.0
"""Minimum and maximum seconds between attempts to connect."""

STEADY_INTERVAL: Final = 30.0
"""Seconds after which a connection counts as a success even if nothing was received: an agent may
be silent for hours. A host that drops every connection sooner is given up."""

SUBMIT_TIMEOUT: Final = 600.0
"""Seconds for a submission: the agent may have to be started on the host."""

ANSWER_TIMEOUT: Final = 60.0
"""Seconds for a response that does not involve an agent."""

Question = Callable[[ShownQuestion], Awaitable[Any]]
"""Asks the user. Returns the result for the agent, or None if there is no answer."""


class Retries:
    """Increasing pauses between attempts, until they have failed for too long."""

    def __init__(self, timeout: float = RECONNECT_TIMEOUT) -> None:
        self._timeout = timeout
        self._failing_since: float | None = None
        self.pause = FIRST_PAUSE
        """Seconds before the next attempt."""

    @property
    def failing(self) -> bool:
        """Whether an attempt has failed since the last success."""
        return self._failing_since is not None

    def reset(self) -> None:
        """Record a success."""
        self._failing_since, self.pause = None, FIRST_PAUSE

    def fail(self) -> bool:
        """Record a failure. Returns whether to try again, after `wait`."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since <= self._timeout

    async def wait(self) -> None:
        pause, self.pause = self.pause, min(2 * self.pause, MAX_PAUSE)
        await asyncio.sleep(pause)


class HostLink:
    """A connection to a host for one command. Connects at first use; close it with `aclose`."""

    def __init__(
        self,
        host: Host,
        *,
        on_notice: Callable[[str], None],
        on_stderr: Callable[[bytes], None] | None = None,
        timeout: float = RECONNECT_TIMEOUT,
        limits: Mapping[str, str] = NO_LIMITS,
    ) -> None:
        """`limits` are the variables of nested delegation that bind the remote side."""
        self.host = host
        self._limits = limits
        self.notice = on_notice
        """Shows a message to the user."""
        self._on_stderr = on_stderr
        self._retries = Retries(timeout)
        self._open: HostConnection | None = None
        self._opened_at = 0.0
        self._told_lost = False
        self._closed = False
        self._lock = asyncio.Lock()
        self._told_version = False

    async def connection(self) -> HostConnection:
        """Return the open connection, or a new one if it was lost. Raises `HostUnavailable`, also
        after `aclose`."""
        async with self._lock:
            self._require_open()
            if self._open is not None:
                if self._open.connection.failure is None:
                    return self._open
                await self._drop()
            self._open = await open_host(self.host, on_stderr=self._on_stderr, limits=self._limits)
            if self._closed:
                # `aclose` did not wait for it, and nothing else would close it.
                await self._drop()
                self._require_open()
            self._opened_at = time.monotonic()
            version = self._open.greeting.version
            if version != __version__ and not self._told_version:
                self._told_version = True
                self.notice(
                    f"{self.host.name} has dragoman {version}, but this machine has {__version__}; "
                    f"install the same version with `dragoman hosts bootstrap {self.host.name}`"
                )
            if self._told_lost:
                self._told_lost = False
                self.notice(f"reconnected to {self.host.name}")
            return self._open

    def _require_open(self) -> None:
        if self._closed:
            raise HostUnavailable(self.host.name, "this process has closed its connection")

    async def _drop(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened.aclose()

    async def aclose(self) -> None:
        self._closed = True
        await self._drop()

    async def keep_trying(
        self, work: Callable[[HostConnection], Awaitable[T]], *, is_proof: bool = True
    ) -> T:
        """Run repeatable work until it succeeds, or the host is unreachable for too long. The first
        connection is tried only once, so that a wrong name or key is reported immediately. Raises
        `HostUnavailable`, which says whether the work may have been done, and passes on errors of
        the work itself.

        Pass `is_proof=False` if the success of `work` does not prove that the host answers; then
        the caller has to call `progressed` when the host does.
        """
        failure: DragomanError | None = None
        may_have_run = False
        if self._open is not None and self._open.connection.failure is not None:
            # The connection was lost before this request; wait as after a failed attempt.
            failure = self._open.connection.failure
        while True:
            if failure is not None:
                await self._wait_after(failure, may_have_run=may_have_run)
            try:
                done = await work(await self.connection())
            except ConnectionLost as error:
                may_have_run = may_have_run or error.may_have_run
                failure = error
            except HostUnavailable as error:
                if not self._retries.failing or not error.retryable:
                    # A request on an earlier connection may have arrived.
                    error.may_have_run = error.may_have_run or may_have_run
                    raise
                failure = error
            else:
                if is_proof:
                    self.progressed()
                return done

    def progressed(self) -> None:
        """Record that the host has answered. After the next lost connection, the full time to
        reconnect is available again."""
        self._retries.reset()

    async def _wait_after(self, failure: DragomanError, *, may_have_run: bool) -> None:
        """Wait before the next attempt. Raises `HostUnavailable` if retrying took too long or does
        not help."""
        if isinstance(failure, LineTooLong):
            # Retrying does not help: the host would send the same line again.
            raise HostUnavailable(
                self.host.name,
                str(failure),
                remedy=install_remedy(self.host),
                may_have_run=may_have_run,
            ) from failure
        if isinstance(failure, ConnectionLost) and not self._told_lost:
            self._told_lost = True
            self.notice(
                f"the connection to {self.host.name} was lost; the work there continues. "
                "Reconnecting …"
            )
            if time.monotonic() - self._opened_at > STEADY_INTERVAL:
                self._retries.reset()
        if not self._retries.fail():
            why, remedy = str(failure), ""
            if isinstance(failure, HostUnavailable):
                # Its text begins with the name of the host, too.
                why, remedy = failure.problem, failure.remedy
            raise HostUnavailable(
                self.host.name,
                f"cannot reconnect: {why}",
                remedy=remedy,
                passing=True,
                may_have_run=may_have_run,
            ) from failure
        async with self._lock:
            if self._open is not None and self._open.connection.failure is not None:
                await self._drop()
        await self._retries.wait()

    async def submit(self, prompt: protocol.HostPrompt) -> protocol.HostSubmitted:
        """Submit a prompt. It is sent to its peer at most once, even if the connection is lost."""

        async def ask(opened: HostConnection) -> protocol.HostSubmitted:
            return await opened.ask(
                protocol.SUBMIT, prompt, protocol.HostSubmitted, timeout=SUBMIT_TIMEOUT
            )

        try:
            return await self.keep_trying(ask)
        except CallCancelled as error:
            # The host reports this only if the prompt was not sent, or its job was cancelled too.
            error.may_have_run = False
            raise

    async def cancel(self, job: str) -> None:
        """Cancel a job on the host."""

        async def ask(opened: HostConnection) -> None:
            await opened.call(protocol.CANCEL, JobWanted(job), timeout=ANSWER_TIMEOUT)

        await self.keep_trying(ask)


class FollowedJob:
    """The events of a job on another machine, once each, and its record at the end."""

    def __init__(
        self,
        link: HostLink,
        job: str,
        *,
        after: EventCursor | None = None,
        ask: Question | None = None,
    ) -> None:
        self._link = link
        self.job = job
        """The id of the job. Until the host has sent the id, it may be an alias such as `last`."""
        self.begun = False
        """Whether the host was reached."""
        self.cursor = after
        """The position after the last event."""
        self.ended: JobRecord | None = None
        """The record of the job once it has ended; None before that."""
        self._following: HostConnection | None = None
        """The connection that sends the lines."""
        self._ask = ask
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._tasks = TaskOwner(f"follow {job}")

    async def events(self) -> AsyncGenerator[tuple[EventCursor, Event], None]:
        """Yield every event after the cursor until the job has ended. Raises `HostUnavailable` if
        the host stays unreachable, and `InvalidAnswer` for a message that cannot be read."""
        numbers = itertools.count(1)
        envelopes: dict[str, EventEnvelope] = {}
        try:
            while self.ended is None:
                lane = await self._link.keep_trying(self._begin, is_proof=False)
                try:
                    while self.ended is None:
                        item = await lane.get()
                        if isinstance(item, JobRecord):
                            self.ended = item
                            self._link.progressed()
                        elif isinstance(item, DragomanError):
                            raise item
                        else:
                            envelope = envelopes.get(item.key)
                            if envelope is None:
                                source = Source("acp", "watched")
                                envelope = EventEnvelope(source, numbers, item.session_id)
                                envelopes[item.key] = envelope
                            for number, line in enumerate(item.lines, item.first):
                                if self._is_known(item.key, number):
                                    continue
                                self._link.progressed()
                                found = tuple(events_of(bytes(line), envelope))
                                left = events_after(
                                    self.cursor, session=item.key, line=number, events=found
                                )
                                for cursor, event in left:
                                    self.cursor = cursor
                                    yield cursor, event
                                self.cursor = EventCursor(item.key, number)
                except ConnectionLost as error:
                    # Lines that were dropped because they were not read are requested again, on
                    # another connection: this one would send further ones in between.
                    if self._following is not None:
                        self._following.connection.fail(error)
                    # `keep_trying` reconnects, and the cursor says where to continue.
        finally:
            await self._tasks.aclose()

    def _is_known(self, key: str, number: int) -> bool:
        """Return whether all events of a line were yielded."""
        at = self.cursor
        return at is not None and at.session == key and number < at.next_line

    async def _begin(
        self, opened: HostConnection
    ) -> Lane[protocol.HostLines | JobRecord | DragomanError]:
        """Follow the job on a connection. Its lines and its end arrive in the lane."""
        self.begun = True
        self._following = opened
        connection = opened.connection
        lane: Lane[protocol.HostLines | JobRecord | DragomanError] = Lane(connection.flow)

        def told(notification: Notification) -> None:
            method, params = notification.method, notification.params
            try:
                if method == protocol.LINES:
                    lines = opened.decoded(params, protocol.HostLines, method)
                    lane.put(lines, len(notification.line))
                elif method == protocol.QUESTION:
                    self._question(opened, opened.decoded(params, ShownQuestion, method))
                elif method == protocol.SETTLED:
                    self._settled(opened.decoded(params, Settled, method))
                elif method == protocol.NOTICE:
                    self._link.notice(opened.decoded(params, protocol.HostNotice, method).text)
                elif method == protocol.FOLLOWING:
                    # The word `last` would mean another job on the next connection.
                    self.job = opened.decoded(params, JobWanted, method).job
            except InvalidAnswer as error:
                if method == protocol.LINES:
                    # Ignoring it would leave an unnoticed gap in the events.
                    lane.put(error, 0)
                else:
                    log.warning("%s: %s", opened.host.name, error)

        opened.listen(told)
        after = None if self.cursor is None else str(self.cursor)
        follow = protocol.Follow(job=self.job, after=after, answers=self._ask is not None)
        self._tasks.start(self._wait_ended(opened, follow, lane), "wait for the end")
        return lane

    async def _wait_ended(
        self,
        opened: HostConnection,
        follow: protocol.Follow,
        lane: Lane[protocol.HostLines | JobRecord | DragomanError],
    ) -> None:
        try:
            lane.put(await opened.ask(protocol.FOLLOW, follow, JobRecord, timeout=None), 0)
        except DragomanError as error:
            # The lane itself ends with the connection.
            lane.put(error, 0)

    # -- questions

    def _question(self, opened: HostConnection, question: ShownQuestion) -> None:
        if self._ask is None or question.id in self._asking:
            return
        task = self._tasks.start(self._answer(question), "ask a question")
        self._asking[question.id] = task

    def _settled(self, over: Settled) -> None:
        asking = self._asking.pop(over.id, None)
        if asking is not None:
            asking.cancel()

    async def _answer(self, question: ShownQuestion) -> None:
        assert self._ask is not None
        try:
            result = await self._ask(question)
        except (DragomanError, *UNDECODABLE) as error:
            self._link.notice(f"a question of {self.job} cannot be asked here: {error}")
            return
        if result is None:
            return
        encoded = msgspec.Raw(msgspec.json.encode(result))
        try:
            await self._deliver(QuestionAnswer(question.id, question.digest, encoded))
        except DragomanError as error:
            self._link.notice(f"your answer to a question of {self.job} did not arrive: {error}")
        finally:
            # The next connection may ask it again.
            self._asking.pop(question.id, None)

    async def _deliver(self, answer: QuestionAnswer) -> None:
        """Send an answer repeatedly until the host has accepted it or the retries are used up."""

        async def send(opened: HostConnection) -> protocol.AnswerTaken:
            return await opened.ask(
                protocol.ANSWER, answer, protocol.AnswerTaken, timeout=ANSWER_TIMEOUT
            )

        retries = Retries()
        while True:
            try:
                # After a lost connection the remote side may not know the question yet.
                if (await self._link.keep_trying(send)).answered:
                    return
                if not retries.fail():
                    self._link.notice(
                        f"your answer to a question of {self.job} was not accepted: "
                        f"{self._link.host.name} does not know the question"
                    )
                    return
            except CallTimeout:
                first = not retries.failing
                if not retries.fail():
                    raise
                if first:
                    self._link.notice(
                        f"your answer to a question of {self.job} may not have arrived; "
                        "it is sent again"
                    )
            await retries.wait()
