"""Watchers: callers that follow the open questions of a broker and may answer them for other
callers.

A question is shown if a person has to decide it, because the policy of its turn does not decide it.
The first answer counts, from the caller that sent the prompt or from a watcher. An answer contains
the id of the question and the digest of what was shown. `peer_requests` asks and answers in a
broker, `runs.inbox` in a run without one.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import Raw, Struct

from dragoman.broker.protocol import (
    QUESTION,
    SETTLED,
    QuestionAnswer,
    Settled,
    ShownQuestion,
    Watch,
)
from dragoman.decoders import decode_typed
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import DragomanError, RemoteError
from dragoman.rpc import boundary
from dragoman.wire import codes
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.rpc import Connection

log: Final = logging.getLogger("dragoman.broker")

ANSWER_TIMEOUT: Final = 30 * 60.0
"""Timeout in seconds for a person's answer. After that the question is decided without one, so that
a forgotten question does not block the turns that wait behind it."""

GRACE: Final = 60.0
"""Seconds that a question still waits after the last watcher that could answer it has disconnected:
enough for a console to restart."""

ARRIVAL: Final = 5.0
"""Seconds after a broker's start during which questions wait for watchers. Programs that watch all
brokers find a new one within a moment, but its first question may arrive before that."""

_PERMISSION: Final = acp.SESSION_REQUEST_PERMISSION.name

REJECT_ONCE: Final = "reject_once"
"""The kind of an answer that refuses once."""


class _Choice(Struct):
    outcome: str
    optionId: str | None = None


class _Permission(Struct):
    outcome: _Choice


class Watcher(Protocol):
    """A program that follows the questions, over its `connection`."""

    @property
    def connection(self) -> Connection: ...


class QuestionContent(Struct):
    """A question as sent to watchers."""

    session_id: str
    key: str
    """Id of the session in the store."""
    job: str | None
    method: str
    params: Raw


class WatchedQuestion(Protocol):
    """A question that waits for an answer."""

    @property
    def is_unattended(self) -> bool:
        """Whether only watchers can answer the question."""

    @property
    def job_id(self) -> str | None:
        """The id of the job that the question belongs to, or None."""

    @property
    def longest_wait(self) -> float:
        """Seconds that the question waits while no person can answer it."""

    def content(self) -> QuestionContent | None:
        """Return the question as sent to watchers, or None if it is not for a person."""

    def wait(self, timeout: float) -> None:
        """Decide without an answer if none arrives within `timeout` seconds from now."""

    def answer(self, result: Raw, kind: str) -> bool:
        """Answer as a watcher.

        `kind` is the kind of the option chosen for a permission request. Returns False if the
        question was already answered.
        """


class QuestionWatchers:
    """The watchers of a broker, and the questions that they see."""

    def __init__(self) -> None:
        self._watchers: dict[Watcher, Watch] = {}
        """The watchers, each with what it watches."""
        self._shown: dict[str, tuple[WatchedQuestion, ShownQuestion]] = {}
        self._waiting: dict[WatchedQuestion, None] = {}
        """Every open question, for new watchers."""
        # Ids of another broker or of an earlier process must not be valid here.
        self._prefix = secrets.token_hex(4)
        self._began_at = time.monotonic()
        self._numbers = itertools.count(1)

    def answers(self, job: str | None) -> bool:
        """Return whether a watcher can answer the questions of a job."""
        return any(watch.answers and _sees(watch, job) for watch in self._watchers.values())

    def timeout(self, job: str | None, wait: float = 0.0) -> float:
        """Return how many seconds a question of a job without a caller waits for an answer, or 0 if
        no one could answer it.

        `wait` is how long the job lets it wait for a watcher.
        """
        if self.answers(job):
            return max(ANSWER_TIMEOUT, wait)
        return max(0.0, self._began_at + ARRIVAL - time.monotonic(), wait)

    # -- for callers

    def add(self, caller: Watcher, watch: Watch) -> list[ShownQuestion]:
        """Add a watcher. Returns the open questions that it sees."""
        self._watchers[caller] = watch
        for question in list(self._waiting):
            self._show(question, tell=False)
            if question.is_unattended and watch.answers and _sees(watch, question.job_id):
                question.wait(self.timeout(question.job_id, question.longest_wait))
        return [shown for _, shown in self._shown.values() if _sees(watch, shown.job)]

    def left(self, caller: Watcher) -> None:
        """Called when a caller, which may be a watcher, has disconnected. Questions that only this
        watcher could answer wait a little longer."""
        watch = self._watchers.pop(caller, None)
        if watch is None or not watch.answers:
            return
        for question in self._waiting:
            job = question.job_id
            if question.is_unattended and _sees(watch, job) and not self.answers(job):
                question.wait(max(GRACE, question.longest_wait))

    def answer(self, answer: QuestionAnswer) -> bool:
        """Answer a question. Returns False if it no longer waits for an answer. Raises
        `RemoteError` if the answer is invalid or does not match the question that was shown."""
        found = self._shown.get(answer.id)
        if found is None:
            return False
        question, shown = found
        if answer.digest != shown.digest:
            raise RemoteError(codes.INVALID_PARAMS, "the question is not the one that was shown")
        kind = ""
        if shown.method == _PERMISSION:
            kind = _chosen_kind(shown.params, answer.result)
        else:
            _require_form(answer.result)
        return question.answer(answer.result, kind)

    # -- for questions

    def opened(self, question: WatchedQuestion) -> None:
        """Record a new question, which waits for a caller or for the watchers, and show it to the
        watchers."""
        self._waiting[question] = None
        if self._watchers:
            self._show(question, tell=True)

    def settled(self, question: WatchedQuestion, by: str) -> None:
        """Record that a question no longer waits for an answer; `by` says who answered it, or why
        no answer is needed."""
        self._waiting.pop(question, None)
        for id, (each, _) in list(self._shown.items()):
            if each is question:
                _, shown = self._shown.pop(id)
                self._tell(SETTLED, Settled(id, by), shown.job)

    def _show(self, question: WatchedQuestion, *, tell: bool) -> None:
        if any(each is question for each, _ in self._shown.values()):
            return
        content = question.content()
        if content is None:
            return
        method, params = content.method, content.params
        shown = ShownQuestion(
            id=f"{self._prefix}-{next(self._numbers)}",
            digest=hashlib.sha256(method.encode() + b"\n" + bytes(params)).hexdigest(),
            session_id=content.session_id,
            key=content.key,
            job=content.job,
            method=method,
            params=params,
            asked_at=time.time(),
        )
        self._shown[shown.id] = (question, shown)
        if tell:
            self._tell(QUESTION, shown, shown.job)

    def _tell(self, method: str, params: Any, job: str | None) -> None:
        for caller, watch in list(self._watchers.items()):
            if not _sees(watch, job):
                continue
            connection = caller.connection
            if connection.failure is not None:
                continue
            if connection.is_full:
                # This watcher would miss a message. It reconnects and gets the current questions.
                connection.tasks.start(connection.aclose(), "end a watcher that does not read")
                continue
            try:
                connection.post(method, params)
            except DragomanError as error:
                log.debug("could not notify a watcher of a question: %s", error)


def _sees(watch: Watch, job: str | None) -> bool:
    return watch.job is None or watch.job == job


def _chosen_kind(params: Raw, result: Raw) -> str:
    """Return the kind of the option that an answer chooses; `REJECT_ONCE` if the answer is
    "cancelled" and no option refuses. Raises `RemoteError` if it chooses none of the options in
    `params`."""
    try:
        chosen = decode_typed(result, _Permission).outcome
    except UNDECODABLE as error:
        raise boundary.invalid_params(error) from error
    options = acp.SESSION_REQUEST_PERMISSION.decode_params(params).options
    kinds = {option.option_id: str(option.kind) for option in options}
    if chosen.outcome == "cancelled" and not any(
        each.startswith("reject") for each in kinds.values()
    ):
        # The agent offers no option to refuse, but refusing must always be possible.
        return REJECT_ONCE
    kind = kinds.get(chosen.optionId or "")
    if chosen.outcome != "selected" or kind is None:
        raise RemoteError(codes.INVALID_PARAMS, "the answer is not one of the question's options")
    return kind


def _require_form(result: Raw) -> None:
    try:
        acp.ELICITATION_CREATE.decode_result(result)
    except msgspec.ValidationError as error:
        raise boundary.invalid_params(error) from error
