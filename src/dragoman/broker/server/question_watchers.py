"""Callers that follow the open questions of a broker and answer them in the place of others.

A question is shown if a person has to decide it: the policy of its turn leaves it open. The first
answer counts, from the caller whose turn it is or from a watcher. An answer names the question and
the digest of what was shown. `peer_requests` asks and answers.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from dragoman.broker.protocol import QUESTION, SETTLED, QuestionAnswer, Settled, ShownQuestion
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import DragomanError, RemoteError
from dragoman.rpc import boundary
from dragoman.wire import codes
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.broker.server.caller import Caller
    from dragoman.broker.server.peer_requests import PendingQuestion

log: Final = logging.getLogger("dragoman.broker")

ANSWER_TIMEOUT: Final = 30 * 60.0
"""Seconds that a person may take to answer: then the question is decided without an answer, so that
a forgotten one does not hold up those who wait behind the turn."""

GRACE: Final = 60.0
"""Seconds that a question waits while no caller can answer it: a console that is started
again is back by then."""

ARRIVAL: Final = 5.0
"""Seconds of a broker's life in which a question waits for those who watch all brokers: they find
a new one within a moment, and its first question may come as soon."""

_PERMISSION: Final = acp.SESSION_REQUEST_PERMISSION.name


class _Choice(Struct):
    outcome: str
    optionId: str | None = None


class _Permission(Struct):
    outcome: _Choice


class QuestionWatchers:
    """Those who watch a broker, and the questions that they see."""

    def __init__(self) -> None:
        self._watchers: dict[Caller, bool] = {}
        """With whether it answers."""
        self._shown: dict[str, tuple[PendingQuestion, ShownQuestion]] = {}
        self._waiting: dict[PendingQuestion, None] = {}
        """Every question that is open, as it may have to be shown to the next who watches."""
        # Ids of another broker, or of an earlier process, must not mean anything here.
        self._prefix = secrets.token_hex(4)
        self._began_at = time.monotonic()
        self._numbers = itertools.count(1)

    @property
    def answers(self) -> bool:
        """Whether a watcher can answer."""
        return any(self._watchers.values())

    @property
    def timeout(self) -> float:
        """Seconds that a question without a caller waits for an answer; 0 if there is none to wait
        for."""
        if self.answers:
            return ANSWER_TIMEOUT
        return max(0.0, self._began_at + ARRIVAL - time.monotonic())

    # -- for callers

    def add(self, caller: Caller, *, answers: bool) -> list[ShownQuestion]:
        """A caller watches from now on. Returns the questions that are open."""
        self._watchers[caller] = answers
        for question in list(self._waiting):
            self._show(question, tell=False)
            if question.caller is None and answers:
                question.wait(ANSWER_TIMEOUT)
        return [shown for _, shown in self._shown.values()]

    def left(self, caller: Caller) -> None:
        """A caller has gone: what only it could answer waits a little longer."""
        if self._watchers.pop(caller, False) and not self.answers:
            for question in self._waiting:
                if question.caller is None:
                    question.wait(GRACE)

    def answer(self, answer: QuestionAnswer) -> bool:
        """Answer a question. False if it does not wait for an answer any more. Raises `RemoteError`
        if the answer is about something else than was shown, or does not fit."""
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

    def opened(self, question: PendingQuestion) -> None:
        """The peer asks something, of a caller or of those who watch."""
        self._waiting[question] = None
        if self._watchers:
            self._show(question, tell=True)

    def settled(self, question: PendingQuestion, by: str) -> None:
        """A question does not wait for an answer any more."""
        self._waiting.pop(question, None)
        for id, (each, _) in list(self._shown.items()):
            if each is question:
                del self._shown[id]
                self._tell(SETTLED, Settled(id, by))

    def _show(self, question: PendingQuestion, *, tell: bool) -> None:
        if any(each is question for each, _ in self._shown.values()):
            return
        questions, request = question.questions, question.request
        if not questions.is_for_person(request):
            return
        session = questions.session
        params = questions.shown(request)
        shown = ShownQuestion(
            id=f"{self._prefix}-{next(self._numbers)}",
            digest=hashlib.sha256(request.method.encode() + b"\n" + bytes(params)).hexdigest(),
            session_id=session.id,
            key=session.key,
            job=None if session.job is None else session.job.id,
            method=request.method,
            params=params,
            asked_at=time.time(),
        )
        self._shown[shown.id] = (question, shown)
        if tell:
            self._tell(QUESTION, shown)

    def _tell(self, method: str, params: Any) -> None:
        for caller in list(self._watchers):
            connection = caller.connection
            if connection.failure is not None:
                continue
            if connection.is_full:
                # It would miss something. It connects again, and gets what there is then.
                connection.tasks.start(connection.aclose(), "end a watcher that does not read")
                continue
            try:
                connection.post(method, params)
            except DragomanError as error:
                log.debug("could not notify a watcher of a question: %s", error)


def _chosen_kind(params: Raw, result: Raw) -> str:
    """The kind of the option that an answer chooses. Raises `RemoteError` if it chooses none that
    was offered, or one that decides more than this question."""
    try:
        chosen = msgspec.json.decode(result, type=_Permission).outcome
    except UNDECODABLE as error:
        raise boundary.invalid_params(error) from error
    options = acp.SESSION_REQUEST_PERMISSION.decode_params(params).options
    kinds = {option.option_id: str(option.kind) for option in options}
    kind = kinds.get(chosen.optionId or "")
    if chosen.outcome != "selected" or kind is None:
        raise RemoteError(codes.INVALID_PARAMS, "the answer is none of the options of the question")
    once = kind.replace("_always", "_once")
    if kind != once and once in kinds.values():
        # An agent that gets "always" stops asking, and the rules would no longer be checked.
        raise RemoteError(codes.INVALID_PARAMS, "a question of another caller is answered once")
    return kind


def _require_form(result: Raw) -> None:
    try:
        acp.ELICITATION_CREATE.decode_result(result)
    except msgspec.ValidationError as error:
        raise boundary.invalid_params(error) from error
